"""Packets of retrieval, drawn by hypothesis."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from penstock.content.message import Identity, Message
from penstock.kernel.packet import Packet
from penstock.overlay.packets import BROKER_ID_MAX
from penstock.retrieval.packets import (
    HASH_BYTES,
    RetrievalAnswer,
    RetrievalFlush,
    RetrievalInterest,
    RetrievalMulticast,
    RetrievalOverload,
    RetrievalReceipt,
    RetrievedItem,
    RetrieveReply,
    RetrieveRequest,
    RetrieveStop,
)

counts = st.integers(0, 2**63 - 1)
texts = st.text(max_size=20)
seconds = st.floats(0.0, 1e6)
ages = st.floats(-1e6, 1e6)
names = st.tuples(st.integers(0, BROKER_ID_MAX), counts, counts)
homes = st.tuples(st.integers(0, BROKER_ID_MAX), counts)
identities = st.builds(Identity, st.text("abc", min_size=1, max_size=9), counts, counts)
header = (counts, counts, counts, counts)


def retrieval_packets(messages: st.SearchStrategy[Message]) -> dict[type[Packet], Any]:
    """A strategy for each kind."""
    carried = (*header, messages, st.binary(min_size=HASH_BYTES, max_size=HASH_BYTES), ages, st.booleans())
    listed = st.lists(identities, max_size=3).map(tuple)
    asked = (*header, names, texts, st.integers(1, 1_000), ages, ages, st.booleans(), st.none() | ages, listed)
    missing = st.sets(st.integers(11, 99), max_size=5).map(lambda found: tuple(sorted(found)))
    recipients = st.sets(st.integers(0, BROKER_ID_MAX), max_size=5).map(lambda found: tuple(sorted(found)))
    wanted = (counts, counts, texts, counts, seconds, seconds, seconds, st.booleans(), st.booleans())
    return {
        RetrievalInterest: st.builds(RetrievalInterest, *asked),
        RetrievalOverload: st.builds(RetrievalOverload, *header, names),
        RetrievalAnswer: st.builds(RetrievalAnswer, *carried, names),
        RetrievalMulticast: st.builds(RetrievalMulticast, *carried, names, recipients),
        RetrievalFlush: st.builds(RetrievalFlush, *carried),
        RetrievalReceipt: st.builds(RetrievalReceipt, counts, counts, st.integers(0, 10), missing),
        RetrieveRequest: st.builds(RetrieveRequest, *wanted, st.none() | homes, st.none() | ages),
        RetrieveStop: st.builds(RetrieveStop, counts),
        RetrieveReply: st.builds(RetrieveReply, counts, counts, homes, st.booleans(), texts),
        RetrievedItem: st.builds(RetrievedItem, counts, counts, messages),
    }
