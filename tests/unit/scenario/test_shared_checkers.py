"""Each checker of shared names complains of what it is there for, and of nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.content.message import Message, make_message
from penstock.scenario.shared_checkers import SHARED_CHECKERS
from penstock.scenario.shared_facts import (
    FailedOnDisk,
    MemberAsked,
    MemberEnded,
    MemberInForce,
    SharedCame,
    SharedGapRead,
    SharedSaid,
    SharedTaken,
)
from penstock.scenario.spec import BrokerSpec, FaultSpec, Scenario
from penstock.scenario.stream_facts import MessageCommitted, StoreAsked, StreamFact
from penstock.streams.message import placed
from penstock.streams.packets import ShareVerdict
from penstock.testing.pump import a_message

P = "orders/0"
M1, M2 = ("m1", 0), ("m2", 0)
DONE = ShareVerdict.DONE


def asked(reader: Any = M1, **limits: Any) -> MemberAsked:
    chosen = {"ack_within": 10.0, "attempts_max": 2, "failed": "", **limits}
    return MemberAsked(reader, "orders", "work", "n > 0", **chosen)


def stored(n: int) -> list[StreamFact]:
    message = a_message(n)
    return [StoreAsked("orders", "", message), MessageCommitted(P, 100 + n, message.identity)]


def came(reader: Any, n: int, attempt: int = 1, message: Message | None = None) -> SharedCame:
    return SharedCame(reader, placed(message or a_message(n), P, 7, 100 + n, attempt))


BEGIN: list[StreamFact] = [asked(), MemberInForce(M1, ((P, 7, 100),)), asked(M2), *stored(1)]


def problems(checker: str, facts: list[StreamFact], *, every: float = 0.1, fault: float | None = None) -> list[str]:
    faults = () if fault is None else (FaultSpec(at=fault, kind="heal"),)
    found = SHARED_CHECKERS[checker](Scenario(name="s", duration=9.0, broker=(BrokerSpec(name="a"),), fault=faults))
    for number, fact in enumerate(facts):
        found.stream_fact(number * every, fact)
    found.finish()
    return found.problems


GOOD: list[StreamFact] = [
    *BEGIN,
    came(M1, 1),
    SharedTaken(M1, P, 101, 1),
    SharedSaid(M1, P, 101, 1, ShareVerdict.REJECTED, False),
    came(M2, 1, 2),
    SharedTaken(M2, P, 101, 2),
    SharedSaid(M2, P, 101, 2, DONE, False),
    SharedSaid(M2, P, 101, 2, DONE, True),
]


@pytest.mark.parametrize("checker", SHARED_CHECKERS)
def test_nothing_is_wrong_with_a_good_run(checker: str) -> None:
    assert problems(checker, GOOD) == []


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ([came(M1, 2)], "nobody published"),
        ([came(M1, 1, 3)], "the limit is 2"),
        ([came(M1, 1), came(M1, 1)], "twice"),
        ([came(M1, 1, message=make_message(a_message(1).identity, {"n": 5}))], "another content"),
    ],
)
def test_what_comes_is_what_was_published(facts: list[StreamFact], words: str) -> None:
    (problem,) = problems("shared-true", [*BEGIN, *facts])
    assert words in problem


def test_a_message_is_not_taken_too_often() -> None:
    taken: list[StreamFact] = []
    for attempt, reader in ((1, M1), (2, M2), (3, M1)):
        taken += [came(reader, 1, attempt), SharedTaken(reader, P, 101, attempt)]
    assert "for the 3th time" in problems("shared-attempts", [*BEGIN, *taken])[0]


def test_two_do_not_hold_a_message_unless_time_or_trouble_excuses_it() -> None:
    both: list[StreamFact] = [*BEGIN, came(M1, 1), came(M2, 1, 2)]
    assert "which ('m1', 0) holds" in problems("shared-alone", both)[0]
    assert problems("shared-alone", both, every=20.0) == []
    assert problems("shared-alone", both, fault=0.3) == []
    assert problems("shared-alone", [*BEGIN, came(M1, 1), MemberEnded(M1), came(M2, 1, 2)]) == []


def test_what_was_confirmed_does_not_come_again() -> None:
    again = [*BEGIN, came(M1, 1), SharedSaid(M1, P, 101, 1, DONE, True), came(M2, 1, 2)]
    assert "confirmed as done" in problems("shared-settled", again, every=6.0)[0]
    assert problems("shared-settled", again) == [], "it was on its way"


def test_in_the_end_all_is_done_failed_or_missed() -> None:
    assert "is not done" in problems("shared-done", [*BEGIN, came(M1, 1)])[0]
    assert problems("shared-done", [*BEGIN, SharedGapRead(M1, P, 90, 110)]) == []
    assert problems("shared-done", [*BEGIN, FailedOnDisk(P, "work", (101,))]) == []
    assert problems("shared-done", [*BEGIN, MemberEnded(M1), MemberEnded(M2)]) == []
    elsewhere: list[StreamFact] = [asked(failed="bad"), *BEGIN[1:], FailedOnDisk(P, "work", (101,))]
    assert "is not in bad" in problems("shared-done", elsewhere)[0]
    identity = type(a_message(1).identity)("orders/0:work", 7, 101)
    assert problems("shared-done", [*elsewhere, MessageCommitted("bad/0", 5, identity)]) == []
