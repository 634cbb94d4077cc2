"""Applications that use streams in the simulator: what they do, and which facts they tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

import pytest

from penstock.scenario import checkers
from penstock.scenario.checker import Checker
from penstock.scenario.spec import (
    BrokerSpec,
    ClientSpec,
    FaultSpec,
    LinkSpec,
    Scenario,
    StreamSpec,
    SubscriptionSpec,
)
from penstock.scenario.stream_checkers import STREAM_CHECKERS
from penstock.scenario.stream_facts import (
    Acknowledging,
    LogWriting,
    MessageCommitted,
    MessageRead,
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
from penstock.scenario.workload import PublisherSpec
from penstock.sim.run import simulate
from penstock.streams.config import StreamsClientConfig

F = TypeVar("F")


class Notes(Checker):
    """Keeps all facts."""

    facts: ClassVar[list[tuple[float, StreamFact]]] = []

    def stream_fact(self, time: float, fact: StreamFact) -> None:
        self.facts.append((time, fact))


@pytest.fixture(autouse=True)
def _notes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(checkers.CHECKERS, "notes", Notes)
    monkeypatch.setattr(Notes, "facts", [])


def told(kind: type[F]) -> list[F]:
    return [fact for _, fact in Notes.facts if isinstance(fact, kind)]


def publisher(rate: float = 10.0, repeats: float = 0.0, **services: Any) -> ClientSpec:
    flow = PublisherSpec(rate_messages_per_s=rate, options={"stream": "orders"}, attributes={"n": 1}, repeats=repeats)
    return ClientSpec(name="p", broker="a", publish=(flow,), services=services)


def reader(name: str, broker: str = "b", **subscription: Any) -> ClientSpec:
    options = {"stream": "orders", "durable": "billing", "start_at": "earliest", **subscription.pop("options", {})}
    return ClientSpec(
        name=name, broker=broker, subscribe=(SubscriptionSpec(where="TRUE", options=options, **subscription),)
    )


def play(*clients: ClientSpec, faults: Sequence[FaultSpec] = (), duration: float = 5.0, seed: int = 1) -> list[str]:
    scenario = Scenario(
        name="s",
        duration=duration,
        drain=5.0,
        broker=(BrokerSpec(name="a"), BrokerSpec(name="b")),
        link=(LinkSpec(between=("a", "b"), delay=0.01),),
        stream=(StreamSpec(name="orders", at=("a",)),),
        client=clients,
        fault=tuple(faults),
        check=("notes", *STREAM_CHECKERS),
    )
    return simulate(scenario, seed).problems


def test_a_message_is_asked_for_written_confirmed_told_and_read() -> None:
    assert play(publisher(), reader("r")) == []
    count = len(told(StoreAsked))
    assert count == 50
    assert len(told(StoreConfirmed)) == len(told(MessageCommitted)) == len(told(MessageRead)) == count
    for committed in (False, True):
        assert sum(len(fact.ticks) for fact in told(LogWriting) if fact.committed is committed) == count
    assert told(TicksTold)
    assert [fact.reader for fact in told(ReadingInForce)] == [("r", 0)]


def test_repeats_are_confirmed_at_the_same_tick_and_changed_ones_are_refused() -> None:
    assert play(publisher(repeats=1.0), reader("r")) == []
    ids = [fact.publication_id for fact in told(StoreAsked)]
    assert len(ids) == 2 * len(set(ids)) == 100
    changed = {fact.message.identity for fact in told(StoreAsked) if fact.message.body.endswith(b"changed")}
    assert 10 < len(changed) < 40
    assert {fact.identity for fact in told(StoreRefused)} == changed
    assert len(told(MessageRead)) == 50


def test_what_nobody_knows_of_is_published_again_under_the_same_id() -> None:
    cut = [FaultSpec(at=1.0, kind="crash", broker="a"), FaultSpec(at=3.0, kind="restart", broker="a")]
    hasty = publisher(repeats=0.001, streams=StreamsClientConfig(give_up_after=1.0))
    far = ClientSpec(name="q", broker="b", publish=hasty.publish, services=hasty.services)
    assert play(far, reader("r"), faults=cut) == []
    assert any(fact.unknown for fact in told(StoreRefused))
    ids = [fact.publication_id for fact in told(StoreAsked)]
    assert len(set(ids)) == 50 < len(ids)
    assert len(told(MessageRead)) == 50


@pytest.mark.parametrize("kept", [False, True])
def test_a_durable_name_moves_to_another_client(kept: bool) -> None:
    first = reader("r1", stop=2.0, options={"ack": "manual"}, acknowledge_every=7)
    second = reader("r2", "a", start=3.0, from_kept=kept)
    assert play(publisher(), first, second) == []
    assert told(ReadingEnded) == [ReadingEnded(("r1", 0))]
    began = told(ReadingBegan)[1]
    assert bool(began.kept) is kept
    read = [fact.message.tick for fact in told(MessageRead)]
    assert len(set(read)) == 50
    assert (len(read) > 50) is not kept  # what was read and not acknowledged comes again, unless it is handed over


def test_a_slow_reader_falls_behind_and_has_read_only_what_it_took() -> None:
    slow = reader("r1", stop=3.0, reads_messages_per_s=5.0)
    assert play(publisher(rate=40.0), slow, reader("r2", start=3.5, from_kept=True)) == []
    read = [fact.reader[0] for fact in told(MessageRead)]
    assert 5 <= read.count("r1") <= 15
    assert len(read) == 200


@pytest.mark.parametrize(
    ("ack", "every", "least", "most"), [("auto", 1, 40, 50), ("manual", 1, 40, 50), ("manual", 10, 5, 5)]
)
def test_readers_acknowledge_as_they_are_asked_to(ack: str, every: int, least: int, most: int) -> None:
    assert play(publisher(), reader("r", options={"ack": ack}, acknowledge_every=every)) == []
    asked = [fact.tick for fact in told(Acknowledging) if not fact.confirmed]
    assert least <= len(asked) <= most  # what comes together is acknowledged together
    assert asked[-1] == told(MessageRead)[-1].message.tick
    assert [fact.tick for fact in told(Acknowledging) if fact.confirmed] == asked


def test_a_second_reader_is_refused_and_tries_again_until_the_first_has_gone() -> None:
    assert play(publisher(), reader("r1", stop=4.0), reader("r2", start=2.0)) == []
    assert told(ReadingRefused)
    assert [fact.reader[0] for fact in told(ReadingInForce)] == ["r1", "r2"]


def test_a_reader_whose_place_is_taken_reads_no_more() -> None:
    assert play(publisher(), reader("r1"), reader("r2", "a", start=2.0, options={"takeover": True})) == []
    assert [fact.reader for fact in told(ReadingRefused)] == [("r1", 0)]
    assert {fact.message.tick for fact in told(MessageRead)} == {fact.tick for fact in told(StoreConfirmed)}


def test_a_client_that_crashes_ends_its_readings_and_waits_for_nothing() -> None:
    both = ClientSpec(name="p", broker="b", publish=publisher().publish, subscribe=reader("r").subscribe)
    crash = FaultSpec(at=2.0, kind="client_crash", client="p")
    assert play(both, reader("r2", start=2.5), faults=[crash]) == []
    assert told(PublisherCrashed) == [PublisherCrashed("p")]
    assert told(ReadingEnded) == [ReadingEnded(("p", 0))]
    assert all(time < 2.0 for time, fact in Notes.facts if isinstance(fact, StoreAsked))
    read = {fact.message.tick for fact in told(MessageRead)}
    assert read >= {fact.tick for fact in told(StoreConfirmed)}


def test_the_run_of_a_scenario_with_streams_replays_from_its_seed() -> None:
    runs = []
    for _ in range(2):
        Notes.facts.clear()
        play(publisher(repeats=0.5), reader("r", reads_messages_per_s=20.0), seed=7)
        runs.append(repr(Notes.facts))
    assert runs[0] == runs[1]
