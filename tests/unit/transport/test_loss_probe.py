"""When a subscriber that may have lost something asks to be counted, and for how much."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from penstock.transport.receiver.loss_probe import ANYTHING, SPARING, WAITS_MAX, LossProbe

TIMEOUT = 2.0


def a_probe(now: float = 100.0) -> LossProbe:
    made = LossProbe(TIMEOUT)
    made.possible_loss(now)
    return made


def ask(
    one: LossProbe,
    now: float,
    rate: float = 100.0,
    *,
    limiting: bool = False,
    followed: bool = False,
    floor: float = 1.0,
) -> float | None:
    return one.quota(rate, limiting=limiting, followed=followed or limiting, floor=floor, now=now)


def test_without_a_possible_loss_nothing_is_asked() -> None:
    assert ask(LossProbe(TIMEOUT), 100.0) is None


def test_it_asks_for_what_does_not_bind() -> None:
    assert ask(a_probe(), 100.0) == ANYTHING  # twice what comes would be in the way of the next burst
    assert ask(a_probe(), 100.0, 0.0) is None  # of what does not come nothing can be counted


def test_it_ends_if_it_is_not_renewed() -> None:
    one = a_probe()
    assert one.lasts(100.0 + TIMEOUT)
    assert not one.lasts(100.1 + TIMEOUT)
    assert not one.lasts(-1e6)  # the clock was set back
    assert ask(one, 100.1 + TIMEOUT) is None


def test_who_is_followed_sends_once_per_half_of_the_timeout() -> None:
    one = a_probe()
    sent: list[float] = []
    for step in range(1000):
        now = 100.0 + step / 100.0
        one.possible_loss(now)
        quota = ask(one, now, limiting=bool(sent))
        if quota is not None:
            one.sent(now)
            one.answered()
            sent.append(now)
    assert len(sent) == 10


def test_if_another_is_followed_it_asks_for_less_the_second_time() -> None:
    one = a_probe()
    assert ask(one, 100.0, followed=True) == ANYTHING
    one.sent(100.0)
    one.possible_loss(103.0)
    assert ask(one, 103.0, followed=True) == SPARING * 100.0
    assert ask(one, 103.0, 0.3, followed=True, floor=5.0) == 5.0  # in a lull it must not hold up the other
    assert ask(one, 103.0) == ANYTHING  # nobody is: the first was lost on its way


def test_who_is_not_followed_waits_longer_each_time() -> None:
    one = a_probe()
    sent, now = [], 100.0
    while now < 200.0:
        one.possible_loss(now)
        quota = ask(one, now, followed=True)
        if quota is not None:
            one.sent(now)
            sent.append(now)
        now += 0.25
    waits = [after - before for before, after in pairwise(sent)]
    assert waits[:4] == [2.0, 4.0, 8.0, 16.0]
    assert max(waits) == WAITS_MAX * TIMEOUT / 2.0
    one.answered()
    one.sent(now)
    one.answered()
    one.possible_loss(now + 1.0)
    assert ask(one, now + 1.0, followed=True) is not None


@given(st.lists(st.tuples(st.floats(-10.0, 10.0), st.floats(0.0, 1e4), st.booleans(), st.booleans()), max_size=50))
def test_it_never_asks_for_less_than_comes(steps: list[tuple[float, float, bool, bool]]) -> None:
    """Whatever the clock does."""
    one, now = LossProbe(TIMEOUT), 0.0
    for step, rate, limiting, followed in steps:
        now += step
        one.possible_loss(now)
        quota = ask(one, now, rate, limiting=limiting, followed=followed)
        if quota is not None:
            assert quota >= rate
            one.sent(now)
