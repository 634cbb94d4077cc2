"""The pace of datagrams on a way whose rate nobody knows: TCP's, by what the way loses."""

from __future__ import annotations

from collections import deque

import pytest

from penstock.live.wire.path_pace import FORGOTTEN_AFTER, PathPace

SIZE = 300


class Way:
    """A drop-tail queue that is not ours; what it drops is asked for half a round trip later."""

    def __init__(self, rate: float, queue: int, delay: float = 0.02) -> None:
        self.rate, self.queue, self.delay = rate, queue, delay
        self.pace = PathPace()
        self.number = self.delivered = self.lost = 0
        self.left_at: dict[int, float] = {}
        self._free_at = 0.0
        self._asked: deque[tuple[float, int]] = deque()

    def run(self, start: float, stop: float, most: float) -> None:
        """Send as fast as the pace allows, and `most` at most."""
        now, looked = start, start
        while now < stop:
            while self._asked and self._asked[0][0] <= now:
                _, number = self._asked.popleft()
                self.pace.lost([(number, number)], self.left_at.get, self.number, now)
            waiting = max(0.0, self._free_at - now) * self.rate / SIZE
            self.left_at[self.number] = now
            if waiting >= self.queue:
                self.lost += 1
                self._asked.append((now + waiting * SIZE / self.rate + self.delay, self.number))
            else:
                self.delivered += 1
                self._free_at = max(self._free_at, now) + SIZE / self.rate
            self.number += 1
            if now - looked >= 0.05:
                self.pace.sent(SIZE * self.number, self.number, now)
                self.pace.update(self.number, now)
                looked = now
            now += SIZE / min(most, self.pace.rate or most)


def test_a_way_that_loses_nothing_has_no_pace() -> None:
    way = Way(1e6, 50)
    way.run(0.0, 10.0, 0.5e6)
    assert way.pace.rate is None


@pytest.mark.parametrize("rate", [25e3, 125e3, 1.25e6])
def test_it_finds_the_rate_of_a_queue_that_is_not_ours_and_loses_little(rate: float) -> None:
    way = Way(rate, 50)
    way.run(0.0, 10.0, 3.0 * rate)
    delivered, lost = way.delivered, way.lost
    way.run(10.0, 40.0, 3.0 * rate)
    assert SIZE * (way.delivered - delivered) / 30.0 > 0.8 * rate
    assert way.lost - lost < 0.03 * (way.delivered - delivered)


def test_it_follows_a_way_that_becomes_slower_and_faster() -> None:
    way = Way(250e3, 50)
    way.run(0.0, 15.0, 1e6)
    way.rate = 50e3
    way.run(15.0, 18.0, 1e6)
    assert way.pace.rate is not None
    assert way.pace.rate < 120e3
    way.rate = 250e3
    way.run(18.0, 40.0, 1e6)
    assert way.pace.rate > 150e3


def test_what_is_asked_for_again_or_was_never_sent_changes_nothing_and_old_losses_are_forgotten() -> None:
    pace = PathPace()
    pace.sent(SIZE * 1_000, 1_000, 1.0)
    pace.lost([(990, 1_200)], lambda number: None, 1_000, 1.0)
    assert pace.rate is None
    pace.lost([(500, 501)], lambda number: 0.9, 1_000, 1.0)
    first = pace.rate
    assert first is not None
    for again in range(1, 10):
        pace.lost([(500, 501)], lambda number: 0.9, 1_000, 1.0 + again)
    pace.update(1_000, 10.0)
    assert pace.rate == pytest.approx(first)
    pace.update(1_000, 1.1 + FORGOTTEN_AFTER)
    assert pace.rate is None
