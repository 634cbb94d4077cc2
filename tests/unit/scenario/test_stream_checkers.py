"""Checkers of streams: a run in which all is well pleases every one, and each mistake is found by the one for it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from penstock.content.message import Identity, Message, make_message
from penstock.scenario.checker import Checker
from penstock.scenario.spec import BrokerSpec, Scenario, StreamSpec
from penstock.scenario.stream_checkers import STREAM_CHECKERS
from penstock.scenario.stream_facts import (
    Acknowledging,
    ClockStepped,
    GapRead,
    LogTrimming,
    LogWriting,
    MessageCommitted,
    MessageRead,
    PositionSeen,
    ProgressOnDisk,
    PublisherCrashed,
    ReadingBegan,
    ReadingEnded,
    ReadingInForce,
    ReadingRefused,
    StoreAsked,
    StoreConfirmed,
    StoreRefused,
    StreamFact,
    TicksTold,
)
from penstock.streams.config import StreamsConfig
from penstock.streams.message import placed

SCENARIO = Scenario(
    name="s",
    broker=(BrokerSpec(name="a"),),
    stream=(StreamSpec(name="orders", at=("a",)),),
    services={"streams": StreamsConfig(history=30.0, retain=100.0)},
)
PUBEND, EPOCH = "orders/0", 7
R1, R2 = ("reader", 0), ("other", 0)


def message(count: int, body: bytes = b"") -> Message:
    return make_message(Identity("p", 1, count), {"price": count}, body)


def asked(count: int, publication_id: str = "", body: bytes = b"") -> StoreAsked:
    return StoreAsked("orders", publication_id, message(count, body))


def stored(count: int, tick: int) -> list[StreamFact]:
    """A message on its way to the disk, and its receipt."""
    who = message(count).identity
    return [
        asked(count),
        LogWriting(PUBEND, (tick,), False),
        LogWriting(PUBEND, (tick,), True),
        MessageCommitted(PUBEND, tick, who),
        StoreConfirmed(who, PUBEND, tick),
    ]


def began(reader: tuple[str, int] = R1, kept: int | None = None, where: str = "TRUE", start: str = "") -> ReadingBegan:
    positions = () if kept is None else ((PUBEND, EPOCH, kept),)
    return ReadingBegan(reader, "orders", "billing", where, start, positions)


def in_force(tick: int, reader: tuple[str, int] = R1) -> ReadingInForce:
    return ReadingInForce(reader, ((PUBEND, EPOCH, tick),))


def at(tick: int, reader: tuple[str, int] = R1) -> PositionSeen:
    return PositionSeen(reader, ((PUBEND, EPOCH, tick),))


def read(count: int, tick: int, reader: tuple[str, int] = R1, body: bytes = b"") -> MessageRead:
    return MessageRead(reader, placed(message(count, body), PUBEND, EPOCH, tick))


def judged(facts: Sequence[StreamFact], scenario: Scenario = SCENARIO, every: float = 1.0) -> dict[str, list[str]]:
    """What each checker that has something to say says; the facts happen one second after the other."""
    checkers: dict[str, Checker] = {name: make(scenario) for name, make in STREAM_CHECKERS.items()}
    for checker in checkers.values():
        for number, fact in enumerate(facts):
            checker.stream_fact(number * every, fact)
        checker.finish()
    return {name: checker.problems for name, checker in checkers.items() if checker.problems}


REPEATED = StoreAsked("orders", "id", make_message(Identity("p", 1, 2), message(1).attributes))
BEGINNING = [began(), in_force(0), *stored(1, 10), *stored(2, 20)]
GOOD: dict[str, list[StreamFact]] = {
    "all is read in order": [*BEGINNING, read(1, 10), read(2, 20), at(20)],
    "a name moves with the position that its reader kept": [
        *(*BEGINNING, read(1, 10), at(10), ReadingEnded(R1)),
        *(began(R2, kept=10), in_force(10, R2), read(2, 20, R2), at(20, R2)),
    ],
    "what was read and not confirmed as acknowledged may come again": [
        *(*BEGINNING, read(1, 10), Acknowledging(R1, PUBEND, 10, False), ReadingEnded(R1)),
        *(began(R2), in_force(0, R2), read(1, 10, R2), read(2, 20, R2), at(20, R2)),
    ],
    "what does not match is passed over": [
        *(began(where="price > 1"), in_force(0), *stored(1, 10), *stored(2, 20)),
        *(read(2, 20), at(25)),
    ],
    "what nobody knows of appears once": [
        *(began(), in_force(0), asked(1, "id"), StoreRefused(message(1).identity, "gave up", True)),
        *(LogWriting(PUBEND, (10,), False), LogWriting(PUBEND, (10,), True), REPEATED),
        *(StoreConfirmed(REPEATED.message.identity, PUBEND, 10), read(1, 10)),
    ],
    "a subscription that was refused waits for nothing": [began(), ReadingRefused(R1, "taken"), *stored(1, 10)],
    "a publisher that crashed is not answered": [asked(1), PublisherCrashed("p")],
    "what retention takes is told": [
        *(*BEGINNING, *[ClockStepped("a", 50.0)] * 2, LogTrimming(PUBEND, 20), GapRead(R1, PUBEND, 1, 20), at(20)),
    ],
    "old messages that everybody is done with are trimmed": [
        *(*BEGINNING, read(1, 10), read(2, 20), at(20), Acknowledging(R1, PUBEND, 20, False)),
        *(ClockStepped("a", 30.0), LogTrimming(PUBEND, 20)),
    ],
}


@pytest.mark.parametrize("facts", GOOD.values(), ids=GOOD)
def test_nobody_complains_when_all_is_well(facts: list[StreamFact]) -> None:
    assert judged(facts) == {}


BAD: dict[str, tuple[str, list[StreamFact]]] = {
    "a message twice": ("stream-once", [*BEGINNING, read(1, 10), read(1, 10), read(2, 20)]),
    "out of order": ("stream-once", [*BEGINNING, read(2, 20), read(1, 10)]),
    "again, though its acknowledgement was confirmed": (
        "stream-once",
        [
            *(*BEGINNING, read(1, 10), Acknowledging(R1, PUBEND, 10, True), read(2, 20), ReadingEnded(R1)),
            *(began(R2), in_force(10, R2), read(1, 10, R2), read(2, 20, R2)),
        ],
    ),
    "again, though the reader presented its position": (
        "stream-once",
        [*BEGINNING, read(1, 10), read(2, 20), ReadingEnded(R1), began(R2, kept=20), in_force(20, R2), read(2, 20, R2)],
    ),
    "after the end": ("stream-once", [*BEGINNING, read(1, 10), ReadingEnded(R1), read(2, 20)]),
    "never published": ("stream-true", [*BEGINNING, read(1, 10), read(2, 20), read(3, 30)]),
    "another body": ("stream-true", [*BEGINNING, read(1, 10, body=b"x"), read(2, 20)]),
    "another tick than its receipt's": ("stream-true", [*BEGINNING, read(1, 11), read(2, 20)]),
    "unwanted": ("stream-true", [began(where="price > 1"), in_force(0), *stored(1, 10), read(1, 10)]),
    "refused, and there": (
        "stream-true",
        [began(), in_force(0), asked(1), StoreRefused(message(1).identity, "no", False), read(1, 10)],
    ),
    "one id, two ticks": (
        "stream-true",
        [
            *(began(), in_force(0), asked(1, "id"), asked(2, "id")),
            *(StoreConfirmed(message(1).identity, PUBEND, 10), StoreConfirmed(message(2).identity, PUBEND, 20)),
        ],
    ),
    "one id, two contents": (
        "stream-true",
        [
            *(asked(1, "id"), StoreConfirmed(message(1).identity, PUBEND, 10)),
            *(asked(2, "id", b"x"), StoreConfirmed(message(2).identity, PUBEND, 10)),
        ],
    ),
    "passed over": ("stream-in-force", [*BEGINNING, read(2, 20), at(20)]),
    "passed over by an answer": (
        "stream-in-force",
        [*BEGINNING, read(1, 10), at(10), ReadingEnded(R1), began(R2), in_force(20, R2)],
    ),
    "in force from the future": ("stream-in-force", [began(), in_force(15), *stored(1, 10)]),
    "not the earliest": ("stream-in-force", [*stored(1, 10), began(start="earliest"), in_force(10)]),
    "a tick twice": ("stream-ticks", [*stored(1, 10), *stored(2, 10)]),
    "a tick that was told as silence": ("stream-ticks", [TicksTold(PUBEND, 1, 10, ()), *stored(1, 10)]),
    "told before it was on disk": (
        "stream-ticks",
        [asked(1), LogWriting(PUBEND, (10,), False), TicksTold(PUBEND, 1, 10, ((10, message(1)),))],
    ),
    "confirmed before it was on disk": (
        "stream-ticks",
        [asked(1), LogWriting(PUBEND, (10,), False), StoreConfirmed(message(1).identity, PUBEND, 10)],
    ),
    "trimmed though it is needed": ("stream-kept", [*BEGINNING, ClockStepped("a", 40.0), LogTrimming(PUBEND, 10)]),
    "trimmed though it is young": (
        "stream-kept",
        [*BEGINNING, read(1, 10), Acknowledging(R1, PUBEND, 10, False), LogTrimming(PUBEND, 10)],
    ),
    "a gap that is none": ("stream-kept", [*BEGINNING, GapRead(R1, PUBEND, 1, 20)]),
    "a position that goes back": ("stream-positions", [*BEGINNING, read(1, 10), at(10), at(9)]),
    "another epoch": ("stream-positions", [*BEGINNING, PositionSeen(R1, ((PUBEND, EPOCH + 1, 10),))]),
    "an acknowledgement that is not on disk": (
        "stream-positions",
        [
            *(*BEGINNING, read(1, 10), read(2, 20), ProgressOnDisk(PUBEND, "billing", 10)),
            Acknowledging(R1, PUBEND, 20, True),
        ],
    ),
    "a message that never came": ("stream-converges", [*BEGINNING, read(1, 10), at(10)]),
    "a message whose reader ended without acknowledging it": (
        "stream-converges",
        [
            *(*BEGINNING, read(1, 10), Acknowledging(R1, PUBEND, 10, False), read(2, 20), at(20), ReadingEnded(R1)),
            *(began(R2), in_force(20, R2)),
        ],
    ),
    "a publisher without an answer": ("stream-converges", [asked(1)]),
    "a reader without an answer": ("stream-converges", [began()]),
}


@pytest.mark.parametrize(("name", "facts"), BAD.values(), ids=BAD)
def test_every_mistake_is_found_by_the_checker_for_it(name: str, facts: list[StreamFact]) -> None:
    assert judged(facts).get(name), f"{name} saw nothing"


def test_settings_may_be_plain_data() -> None:
    scenario = replace(SCENARIO, services={"streams": {"history": 0.5, "retain": 100.0}})
    facts = [*BEGINNING, read(1, 10), Acknowledging(R1, PUBEND, 10, False), ReadingEnded(R1), LogTrimming(PUBEND, 10)]
    assert judged(facts, scenario) == {}
    assert judged(facts)["stream-kept"]
