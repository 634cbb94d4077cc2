"""Acknowledgements that are on disk are told to each edge in one packet."""

from __future__ import annotations

from penstock.kernel.timers import ServiceTimers, Timers
from penstock.streams.packets import NAMES_MAX, ProgressStored
from penstock.streams.stored_progress import CONFIRM_DELAY, StoredProgress
from penstock.streams.timers import StreamTimer


def test_what_comes_within_a_moment_goes_in_one_packet_for_each_edge_with_the_newest_tick_of_each_session() -> None:
    timers = Timers()
    stored = StoredProgress(ServiceTimers("streams", timers, StreamTimer))
    for broker, *done in (
        (5, "orders/0", 1, 10),
        (5, "orders/1", 1, 20),
        (6, "orders/0", 2, 30),
        (5, "orders/0", 1, 40),
    ):
        assert stored.gather(broker, ProgressStored((tuple(done),)), now=1.0) is None
    assert timers.deadline() == 1.0 + CONFIRM_DELAY
    assert stored.take() == [
        (5, ProgressStored((("orders/0", 1, 40), ("orders/1", 1, 20)))),
        (6, ProgressStored((("orders/0", 2, 30),))),
    ]
    assert stored.take() == []


def test_so_many_as_fit_a_packet_go_at_once() -> None:
    stored = StoredProgress(ServiceTimers("streams", Timers(), StreamTimer))
    found = [stored.gather(5, ProgressStored((("orders/0", session, 1),)), now=0.0) for session in range(NAMES_MAX)]
    assert found[:-1] == [None] * (NAMES_MAX - 1)
    assert found[-1] is not None
    assert len(found[-1].done) == NAMES_MAX
    assert stored.take() == []
