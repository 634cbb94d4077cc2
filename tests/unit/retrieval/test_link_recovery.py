"""What two brokers keep of each other: how long to wait for a receipt follows from how long receipts take."""

from __future__ import annotations

from penstock.retrieval.link_recovery import RESEND_AFTER_MAX, NeighbourSession
from penstock.retrieval.packets import RetrievalOverload

FOREVER = 1e9


def a_session(receipts_take: float, packets: int = 50) -> NeighbourSession:
    session = NeighbourSession(1, 0.5, 0.0)
    for turn in range(packets):
        number = session.numbered(lambda header, now: RetrievalOverload(*header, (0, 1, 1)), 0, float(turn))
        session.received([number], turn + receipts_take)
    return session


def test_receipts_that_take_longer_than_resend_after_are_waited_for() -> None:
    """A neighbour with a slow disk, or far away: nothing is sent twice, and the window is not halved for it."""
    assert 0.9 <= a_session(0.9).resend_after < 1.0


def test_quick_receipts_do_not_make_it_shorter_and_slow_ones_have_a_limit() -> None:
    assert a_session(0.01).resend_after == 0.5
    assert a_session(FOREVER).resend_after == RESEND_AFTER_MAX


def test_what_was_sent_twice_tells_no_time() -> None:
    session = NeighbourSession(1, 0.5, 0.0)
    number = session.numbered(lambda header, now: RetrievalOverload(*header, (0, 1, 1)), 0, 0.0)
    del session.sent_at[number]  # as when it is sent again
    session.received([number], 7.0)
    assert session.resend_after == 0.5
    assert not session.unreceipted
