"""Checkers: each notices the one thing it is there for, and is silent otherwise."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from penstock.errors import InvalidScenario
from penstock.kernel.packet import Lane
from penstock.overlay.egress import dropped
from penstock.overlay.packets import Delivery, Publication
from penstock.scenario.checker import PROBLEMS_MAX, Checker
from penstock.scenario.checkers import (
    CHECKERS,
    AtMostOnce,
    NothingMissed,
    NothingSilent,
    OnlyWanted,
    SetsSplit,
    check_names,
    make_checkers,
)
from penstock.scenario.spec import DEFAULT_CHECKS, STREAM_CHECKS, BrokerSpec, Scenario, StreamSpec
from penstock.scenario.stream_checkers import STREAM_CHECKERS
from penstock.testing import a_message

SCENARIO = Scenario(name="s", duration=10.0, broker=(BrokerSpec(name="a"),), settled_after=5.0, settle=1.0)
M1, M2 = a_message(1), a_message(2)


def copy(*destinations: int, count: int = 1, hops_left: int = 5) -> Publication:
    return Publication(destinations, hops_left, a_message(count))


def problems(checker: Checker) -> list[str]:
    checker.finish()
    return checker.problems


def test_the_scenario_names_its_checkers() -> None:
    made = make_checkers(replace(SCENARIO, check=("sets-split", "at-most-once")))
    assert [type(checker) for checker in made] == [SetsSplit, AtMostOnce]


def test_the_default_is_everything_that_holds_even_under_overload() -> None:
    assert set(CHECKERS) - set(SCENARIO.check) == {"nothing-missed"}


def test_a_checker_that_does_not_exist_is_refused_with_advice() -> None:
    with pytest.raises(InvalidScenario, match=r"check\[0\].*did you mean 'only-wanted'"):
        make_checkers(replace(SCENARIO, check=("only_wanted",)))


def test_problems_are_bounded() -> None:
    checker = Checker(SCENARIO)
    for number in range(1000):
        checker.problem(str(number))
    assert len(checker.problems) == PROBLEMS_MAX


def test_at_most_once_notices_a_second_delivery_for_the_same_subscription_only() -> None:
    checker = AtMostOnce(SCENARIO)
    for client, subscription, message in (("c", 1, M1), ("c", 2, M1), ("d", 1, M1), ("c", 1, M2)):
        checker.delivered(1.0, client, subscription, message)
    assert checker.problems == []
    checker.delivered(2.0, "c", 1, M1)
    assert problems(checker) == ["2.000000: c got p/1/1 twice for subscription 1"]


def test_only_wanted_notices_what_does_not_match_or_is_not_in_force() -> None:
    checker = OnlyWanted(SCENARIO)
    checker.subscribed(0.0, "c", 1, "n = 1")
    checker.delivered(1.0, "c", 1, M1)
    assert checker.problems == []
    checker.delivered(1.0, "c", 1, M2)
    checker.delivered(1.0, "d", 1, M1)
    checker.unsubscribed(2.0, "c", 1)
    checker.delivered(3.0, "c", 1, M1)
    assert ["does not match" in text or "not in force" in text for text in problems(checker)] == [True] * 3


def run(checker: Checker, *steps: tuple[object, ...]) -> list[str]:
    for step in steps:
        if step[0] == "sent":
            checker.sent(1.0, step[1])  # type: ignore[arg-type]
        else:
            checker.arrived(2.0, step[1], step[2])  # type: ignore[arg-type]
    return problems(checker)


def test_sets_split_accepts_a_proper_split() -> None:
    assert (
        run(
            SetsSplit(SCENARIO),
            ("sent", copy(1, 2, 3)),
            ("arrived", 1, copy(1, 2, 3)),
            ("sent", copy(2)),
            ("sent", copy(3)),
            ("arrived", 3, copy(3)),
            ("arrived", 2, copy(2)),
            ("sent", copy(1, count=2)),
        )
        == []
    )


@pytest.mark.parametrize(
    ("steps", "problem"),
    [
        ([("sent", copy(1, 2)), ("sent", copy(2, 3))], "two copies of p/1/1 are under way to broker 2"),
        ([("arrived", 1, copy(1))], "nobody had sent it"),
        ([("sent", copy(1)), ("arrived", 1, copy(1)), ("sent", copy(1))], "goes to broker 1, which has it"),
        (
            [("sent", copy(1)), ("arrived", 1, copy(1)), ("sent", copy(1)), ("arrived", 1, copy(1))],
            "served twice",
        ),
    ],
)
def test_sets_split_notices_overlap_duplicates_and_ghosts(steps: list[tuple[object, ...]], problem: str) -> None:
    assert any(problem in text for text in run(SetsSplit(SCENARIO), *steps))


def test_nothing_silent_accepts_what_arrived_and_what_a_record_explains() -> None:
    checker = NothingSilent(SCENARIO)
    checker.sent(1.0, copy(1, 2))
    checker.arrived(2.0, 1, copy(1, 2))
    checker.dropped(3.0, dropped("pipe", "link down", "x", Lane.BEST_EFFORT, copy(2)))
    assert problems(checker) == []


def test_nothing_silent_notices_a_copy_that_vanished() -> None:
    checker = NothingSilent(SCENARIO)
    checker.sent(1.0, copy(1, 2))
    checker.arrived(2.0, 1, copy(1, 2))
    checker.dropped(3.0, dropped("pipe", "link down", "x", Lane.BEST_EFFORT, copy(2, count=9)))
    checker.dropped(3.0, dropped("egress", "queue full", "x", Lane.BEST_EFFORT, Delivery((1,), M1)))
    assert problems(checker) == ["p/1/1 never reached brokers [2]; records explain 0 of them"]


def missed(
    *, begun: float = 0.0, ended: float | None = None, at: float = 6.0, count: int = 1, got: Iterable[float] = ()
) -> list[str]:
    """One subscription for n = 1 over a span, one message, and when it was delivered."""
    checker = NothingMissed(SCENARIO)
    checker.subscribed(begun, "c", 1, "n = 1")
    checker.published(at, "p", a_message(count))
    for time in got:
        checker.delivered(time, "c", 1, a_message(count))
    if ended is not None:
        checker.unsubscribed(ended, "c", 1)
    return problems(checker)


def test_nothing_missed_notices_a_message_that_was_due() -> None:
    assert len(missed()) == 1
    assert missed(got=[6.1]) == []
    assert len(missed(ended=7.5)) == 1


@pytest.mark.parametrize(
    "excuse",
    [{"at": 4.9}, {"count": 2}, {"begun": 5.5}, {"ended": 6.5}],
    ids=["unsettled", "unwanted", "new", "ending"],
)
def test_nothing_missed_excuses_what_was_not_due(excuse: dict[str, float]) -> None:
    assert missed(**excuse) == []  # type: ignore[arg-type]


def test_nothing_missed_takes_a_subscription_made_twice_as_two_spans() -> None:
    checker = NothingMissed(SCENARIO)
    for begun, ended in ((0.0, 5.5), (5.6, None)):
        checker.subscribed(begun, "c", 1, "n = 1")
        if ended is not None:
            checker.unsubscribed(ended, "c", 1)
    checker.published(6.0, "p", M1)
    assert problems(checker) == []
    checker.published(7.0, "p", a_message(2, {"n": 1}))
    assert len(problems(checker)) == 1


def test_the_checkers_of_streams_go_with_the_default_where_there_are_streams() -> None:
    plain = Scenario(name="a", broker=(BrokerSpec(name="b"),))
    streams = replace(plain, stream=(StreamSpec(name="orders", at=("b",)),))
    assert check_names(plain) == DEFAULT_CHECKS
    assert check_names(streams) == DEFAULT_CHECKS + STREAM_CHECKS
    assert set(STREAM_CHECKS) < set(STREAM_CHECKERS)
    assert check_names(replace(streams, check=("at-most-once",))) == ("at-most-once",)
