"""Random packets of streams, all kinds, for the tests of the codec."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from penstock.content.message import Message
from penstock.kernel.packet import Packet
from penstock.overlay.packets import BROKER_ID_MAX, HOPS_MAX
from penstock.streams.packets import (
    TICK_MAX,
    Acknowledge,
    Acknowledged,
    Advert,
    AdvertsWanted,
    Command,
    CommandAnswer,
    Dcq,
    DurableAnswer,
    DurableEnded,
    DurableLeave,
    DurableSubscribe,
    Join,
    JoinRefresh,
    JoinWanted,
    Knowledge,
    Leave,
    LogSlice,
    Nack,
    Progress,
    ProgressStored,
    PublishAnswer,
    PublishRequest,
    PublishStored,
    PublishWaits,
    ReadLog,
    Register,
    Registered,
    Renew,
    Resume,
    Routed,
    SessionEnded,
    Share,
    ShareDelivery,
    SharedHandout,
    ShareSettle,
    ShareSettled,
    ShareVerdict,
    StreamCommand,
    StreamDelivery,
    StreamPublish,
    StreamPublished,
    StreamReport,
    StreamStored,
    StreamWaits,
    Take,
    Uca,
    Unregister,
    Verdicts,
    VerdictsStored,
    WaitNotice,
)

Strategy = st.SearchStrategy[Any]

counts = st.integers(0, 2**62)
ticks = st.integers(1, TICK_MAX)
brokers = st.integers(0, BROKER_ID_MAX)
words = st.text("abcdefgh-_.:", min_size=1, max_size=20)
texts = st.text(st.characters(codec="utf-8"), max_size=30)
pubends = st.builds("{}/{}".format, words, st.integers(0, 63))
ages = st.floats(0.0, 1e6)
flags = st.booleans()
data = st.binary(max_size=50)
attempts = st.integers(1, 1_000)
shares = st.none() | st.builds(Share, st.floats(0.0, 1_000.0), st.integers(0, 1_000), st.just("") | words)
paces = st.none() | st.floats(0.0, 1e6)
requests = st.lists(counts, min_size=1, max_size=5).map(tuple)
notices = st.builds(WaitNotice, pubends, ages, ages, st.just("") | words, flags, ages, st.floats(0.0, 3_600.0))


def tuples(*parts: Strategy, size: int = 4) -> Strategy:
    return st.lists(st.tuples(*parts), max_size=size).map(tuple)


@st.composite
def ranges(draw: st.DrawFn) -> tuple[tuple[int, int], ...]:
    """In order, without overlap."""
    ends = sorted(draw(st.lists(ticks, unique=True, min_size=2, max_size=8)))
    pairs = [(ends[at], ends[at + 1]) for at in range(0, len(ends) - 1, 2)]
    return tuple(pairs)


@st.composite
def spans(draw: st.DrawFn, messages: st.SearchStrategy[Message]) -> tuple[int, int, tuple[tuple[int, Message], ...]]:
    """A range of ticks, and data in it."""
    drawn = sorted(draw(st.lists(ticks, unique=True, min_size=2, max_size=6)))
    inside = drawn[1:-1]
    return drawn[0], drawn[-1], tuple((tick, draw(messages)) for tick in inside)


handouts = tuples(ticks, st.integers(0, 1_000))
logged_ticks = st.integers(0, 5).flatmap(lambda count: st.binary(min_size=8 * count, max_size=8 * count))
verdicts = tuples(ticks, st.integers(0, 1_000), st.integers(0, max(ShareVerdict)))
gaps = st.none() | st.tuples(ticks, ticks).map(lambda ends: (min(ends), max(ends)))


def payloads(messages: st.SearchStrategy[Message]) -> Strategy:
    done = tuples(words, counts, st.integers(0, TICK_MAX))
    return st.one_of(
        st.builds(PublishRequest, counts, pubends, words, ages, messages),
        st.builds(PublishAnswer, counts, pubends, ticks, texts, flags, flags),
        st.builds(PublishStored, pubends, tuples(counts, ticks).filter(bool)),
        st.builds(PublishWaits, requests, notices),
        st.builds(
            Register,
            *(counts, pubends, words, texts, texts, counts, st.integers(-1, TICK_MAX), words, flags, flags),
            *(shares, counts),
        ),
        st.builds(Registered, counts, pubends, words, counts, counts, ticks, ticks, ticks, texts, flags),
        st.builds(Unregister, pubends, words, counts),
        st.builds(Renew, pubends, tuples(words, counts)),
        st.builds(SessionEnded, pubends, words, counts, texts),
        st.builds(Progress, pubends, counts, done, flags),
        st.builds(ProgressStored, tuples(pubends, counts, st.integers(0, TICK_MAX))),
        st.builds(SharedHandout, pubends, counts, words, counts, tuples(ticks, attempts, messages), gaps),
        st.builds(Verdicts, pubends, counts, words, counts, verdicts),
        st.builds(VerdictsStored, pubends, counts, words, counts, handouts),
        st.builds(Command, counts, st.sampled_from(["add", "rm"]), words, data),
        st.builds(CommandAnswer, counts, data, texts),
    )


def stream_packets(messages: st.SearchStrategy[Message]) -> dict[type[Packet], Strategy]:
    """For each kind of packet how to draw one."""
    positions = tuples(pubends, st.integers(0, TICK_MAX), st.integers(0, TICK_MAX))
    hosted = st.dictionaries(words, st.integers(1, TICK_MAX), max_size=3).map(
        lambda table: tuple((stream, 0, 1, epoch) for stream, epoch in table.items())
    )
    return {
        Advert: st.builds(Advert, brokers, counts, counts, words, flags, hosted),
        AdvertsWanted: st.builds(AdvertsWanted),
        Join: st.builds(Join, pubends, counts, counts, st.lists(data, max_size=4).map(tuple)),
        JoinRefresh: st.builds(JoinRefresh, pubends, counts, counts),
        JoinWanted: st.builds(JoinWanted, pubends),
        Leave: st.builds(Leave, pubends),
        Knowledge: st.builds(
            lambda pubend, span, numbers, gone, cut: Knowledge(pubend, *numbers, *span, gone, cut),
            pubends,
            spans(messages),
            st.tuples(counts, counts, counts),
            ticks,
            flags,
        ),
        Dcq: st.builds(Dcq, pubends, counts, counts, ticks),
        Uca: st.builds(
            Uca, pubends, counts, counts, st.floats(0.0, 1e6), paces, st.none() | brokers, st.none() | brokers
        ),
        Nack: st.builds(Nack, pubends, counts, counts, ranges()),
        Routed: st.builds(Routed, brokers, brokers, st.integers(0, HOPS_MAX), payloads(messages)),
        StreamPublish: st.builds(StreamPublish, counts, words, texts, words, ages, messages),
        DurableSubscribe: st.builds(
            DurableSubscribe,
            counts,
            counts,
            texts,
            texts,
            texts,
            texts,
            positions,
            flags,
            counts,
            counts,
            flags,
            shares,
        ),
        DurableLeave: st.builds(DurableLeave, counts),
        Take: st.builds(Take, counts, counts, counts),
        Acknowledge: st.builds(Acknowledge, counts, pubends, counts, ticks),
        Resume: st.builds(Resume, counts, pubends, counts, ticks, counts),
        StreamCommand: st.builds(StreamCommand, counts, st.sampled_from(["ls", "info"]), texts, data),
        StreamPublished: st.builds(StreamPublished, counts, texts, ticks, texts, flags, flags),
        StreamStored: st.builds(StreamStored, pubends, tuples(counts, ticks).filter(bool)),
        StreamWaits: st.builds(StreamWaits, requests, notices),
        DurableAnswer: st.builds(DurableAnswer, counts, counts, positions, texts, flags),
        StreamDelivery: st.builds(
            lambda number, pubend, epoch, span, gap: StreamDelivery(
                number, pubend, epoch, span[0] - 1, span[1], span[2], gap
            ),
            counts,
            pubends,
            counts,
            spans(messages),
            flags,
        ),
        Acknowledged: st.builds(Acknowledged, counts, texts, counts, counts),
        DurableEnded: st.builds(DurableEnded, counts, texts),
        ShareSettle: st.builds(ShareSettle, counts, pubends, counts, verdicts),
        ShareSettled: st.builds(ShareSettled, counts, pubends, counts, handouts),
        ShareDelivery: st.builds(ShareDelivery, counts, pubends, counts, tuples(ticks, attempts, messages), gaps),
        StreamReport: st.builds(StreamReport, counts, data, texts),
        ReadLog: st.builds(
            lambda request, pubend, epoch, span, where: ReadLog(request, pubend, epoch, *sorted(span), where),
            counts,
            pubends,
            counts,
            st.tuples(ticks, ticks),
            texts,
        ),
        LogSlice: st.builds(LogSlice, counts, pubends, ticks, ticks, logged_ticks, data, texts, flags),
    }
