"""What two brokers keep of each other: how long to wait for a receipt, and what leaves first of what waits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.kernel.machine import Effect, Send
from penstock.kernel.timers import ServiceTimers, Timers
from penstock.retrieval.config import RetrievalConfig
from penstock.retrieval.forwarding import FifoQueue, Forwarding
from penstock.retrieval.link_recovery import (
    RESEND_AFTER_MAX,
    WINDOW_MAX,
    Header,
    LinkRecovery,
    NeighbourSession,
    PublicationInLine,
)
from penstock.retrieval.packets import NumberedPacket, RetrievalOverload, RetrievalReceipt
from penstock.retrieval.timers import RetrievalTimer

FOREVER = 1e9
OWN_LIFE, THEIR_LIFE, NEIGHBOUR, LINK = 3, 5, 2, 9


def overload(name: int = 1) -> Any:
    def make(header: Header, now: float) -> NumberedPacket:
        return RetrievalOverload(*header, (0, 1, name))

    return make


def a_session(receipts_take: float = 0.0, packets: int = 0) -> NeighbourSession:
    session = NeighbourSession(1, 0.5, 0.0, FifoQueue(10))
    for turn in range(packets):
        session.received([session.numbered(overload(), 0, float(turn))], turn + receipts_take)
    return session


def a_link(forwarding: Forwarding = "score") -> tuple[LinkRecovery, dict[int, int], Timers]:
    """One neighbour; it is gone while its link is not in the dictionary."""
    links = {NEIGHBOUR: LINK}
    routing: Any = SimpleNamespace(link_to=links, neighbour=lambda link: SimpleNamespace(incarnation=THEIR_LIFE))
    timers = Timers()
    config = RetrievalConfig(forwarding=forwarding)
    recovery = LinkRecovery(OWN_LIFE, routing, ServiceTimers("retrieval", timers, RetrievalTimer), config)
    return recovery, links, timers


def receipt(upto: int, missing: tuple[int, ...] = ()) -> RetrievalReceipt:
    return RetrievalReceipt(OWN_LIFE, THEIR_LIFE, upto, missing)


def names(effects: list[Effect]) -> list[int]:
    """Which overloads were sent."""
    return [one.packet.name[2] for one in effects if isinstance(one, Send)]  # type: ignore[attr-defined]


def test_receipts_that_take_longer_than_resend_after_are_waited_for() -> None:
    """A neighbour with a slow disk, or far away: nothing is sent twice, and the window is not halved for it."""
    assert 0.9 <= a_session(0.9, 50).resend_after < 1.0


def test_quick_receipts_do_not_make_it_shorter_and_slow_ones_have_a_limit() -> None:
    assert a_session(0.01, 50).resend_after == 0.5
    assert a_session(FOREVER, 50).resend_after == RESEND_AFTER_MAX


def test_what_was_sent_twice_tells_no_time() -> None:
    recovery, _, timers = a_link()
    recovery.send(NEIGHBOUR, overload(), 0.0)
    assert names(recovery.expired(RetrievalTimer.RESEND, NEIGHBOUR, 0.5)) == [1]
    recovery.receipt(receipt(1), NEIGHBOUR, 7.0)
    recovery.send(NEIGHBOUR, overload(), 7.0)
    assert timers.deadline() == 7.5


def test_an_outage_tells_no_time_either() -> None:
    """More than is sent again at once was under way when the link went down for half a minute."""
    recovery, links, timers = a_link()
    for _ in range(100):
        recovery.send(NEIGHBOUR, overload(), 0.0)
    del links[NEIGHBOUR]
    recovery.expired(RetrievalTimer.RESEND, NEIGHBOUR, 0.5)
    links[NEIGHBOUR] = LINK
    recovery.tick(30.0)
    recovery.expired(RetrievalTimer.RESEND, NEIGHBOUR, 30.0)
    recovery.receipt(receipt(99), NEIGHBOUR, 30.1)
    assert timers.deadline() == pytest.approx(30.6)


@pytest.mark.parametrize(("forwarding", "order"), [("score", [102, 103, 101]), ("fifo", [101, 102, 103])])
def test_what_waits_for_a_neighbour_leaves_by_score_or_in_line(forwarding: Forwarding, order: list[int]) -> None:
    """004 3.3.6: congestion-based forwarding, where the window is full."""
    recovery, _, _ = a_link(forwarding)
    sent: list[Effect] = []
    scores = {101: 1.0, 102: 3.0, 103: 2.0}
    for name in [*range(1, WINDOW_MAX + 1), *scores]:
        line = PublicationInLine(1, False, lambda: True, lambda name=name: scores[name])
        sent += recovery.send(NEIGHBOUR, overload(name), 0.0, line)
    assert names(sent) == list(range(1, WINDOW_MAX + 1))
    assert names(recovery.receipt(receipt(len(scores)), NEIGHBOUR, 0.1)) == order
