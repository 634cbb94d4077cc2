"""A storm that finds nothing proves nothing: with one mistake put into the product, some seed must complain.

Each mistake is a way in which systems of this kind lose, double or invent messages. The seeds are tried from the one
that found it when this was written; whoever changes the storms moves them about, and has SEEDS_MAX tries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.scenario.stream_storm import EVENTS_MAX, stream_storm
from penstock.sim.run import simulate
from penstock.streams.durable_names import DurableNames
from penstock.streams.durable_reader import DurableReader
from penstock.streams.known import Known
from penstock.streams.packets import ProgressStored, PublishAnswer
from penstock.streams.pubend_clock import TickSource
from penstock.streams.publication_ids import PublicationIds
from penstock.streams.publish_queue import PublishQueue
from penstock.streams.reader import Reader

SEEDS_MAX = 100

Patch = Callable[[pytest.MonkeyPatch], None]


def the_pubend_answers_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    original = PublishQueue.write

    def write(self: Any, now: float) -> Any:
        before = self._batch
        effects = original(self, now)
        for tick, publication in () if self._batch is before else self._batch:
            for broker, request in publication.askers:
                effects += self._core.send(broker, PublishAnswer(request, self._core.name, tick), now)
        return effects

    patch.setattr(PublishQueue, "write", write)


def silence_of_an_older_interest_counts(patch: pytest.MonkeyPatch) -> None:
    original = Known._stretches
    patch.setattr(Known, "_stretches", lambda self, first, last, since: original(self, first, last, 0))


def the_lease_is_not_kept(patch: pytest.MonkeyPatch) -> None:
    original = TickSource.begin

    def begin(self: Any, lease: int, last_key: int, *, now: float) -> None:
        original(self, last_key, last_key, now=now)
        self.lease = max(lease, last_key)

    patch.setattr(TickSource, "begin", begin)


def the_horizon_passes_what_is_being_written(patch: pytest.MonkeyPatch) -> None:
    original = TickSource.horizon

    def horizon(self: Any, now: float) -> int:
        writing, self._writing = self._writing, 0
        told = original(self, now)
        self._writing = writing
        return told

    patch.setattr(TickSource, "horizon", horizon)


def the_edge_skips_what_is_unknown(patch: pytest.MonkeyPatch) -> None:
    original = Known.contiguous

    def contiguous(self: Any, after: int, since: int, **limits: Any) -> Any:
        unknown = self.unknown(after + 1, self.head, since, 1) if self.gone <= after < self.head - 2_000_000 else ()
        skipped = unknown and unknown[0][0] == after + 1 and unknown[0][1] < self.head
        return original(self, unknown[0][1] if skipped else after, since, **limits)

    patch.setattr(Known, "contiguous", contiguous)


def the_client_accepts_a_hole(patch: pytest.MonkeyPatch) -> None:
    original = DurableReader.delivered

    def delivered(self: Any, packet: Any, *, now: float) -> Any:
        place = self.places.get(packet.pubend)
        if place is not None and packet.after > place.position:
            packet = replace(packet, after=place.position)
        return original(self, packet, now=now)

    patch.setattr(DurableReader, "delivered", delivered)


def the_edge_does_not_go_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Reader, "back_to", lambda self, cursor, tick: None)


def a_gap_is_not_told(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DurableReader, "_gap", lambda self, packet, place: [])


def a_trim_ignores_the_slowest_name(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DurableNames, "needed_after", lambda self: max((name.needed_after for name in self), default=None))


def ids_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PublicationIds, "find", lambda self, publication_id: None)


def ids_are_forgotten_in_a_restart(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PublicationIds, "load", lambda self, *entry: None)


def an_acknowledgement_is_told_before_it_is_on_disk(patch: pytest.MonkeyPatch) -> None:
    original = DurableNames._write_progress

    def write_progress(self: Any, state: Any, session: Any) -> Any:
        told = ProgressStored(((self._core.name, session.number, session.done),))
        return original(self, state, session) + self._core.send(session.broker, told, 0.0)

    patch.setattr(DurableNames, "_write_progress", write_progress)


FIRST_SEED: dict[Patch, int] = {
    the_pubend_answers_before_the_commit: 0,
    silence_of_an_older_interest_counts: 0,
    the_lease_is_not_kept: 16,
    the_horizon_passes_what_is_being_written: 1,
    the_edge_skips_what_is_unknown: 0,
    the_client_accepts_a_hole: 16,
    the_edge_does_not_go_back: 16,
    a_gap_is_not_told: 27,
    a_trim_ignores_the_slowest_name: 1,
    ids_are_forgotten: 0,
    ids_are_forgotten_in_a_restart: 0,
    an_acknowledgement_is_told_before_it_is_on_disk: 0,
}


@pytest.mark.parametrize("mistake", FIRST_SEED, ids=lambda mistake: mistake.__name__)
def test_some_storm_finds_the_mistake(mistake: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake(monkeypatch)
    first = FIRST_SEED[mistake]
    tries = (simulate(stream_storm(seed), seed, events_max=EVENTS_MAX) for seed in range(first, first + SEEDS_MAX))
    assert any(result.problems or not result.complete for result in tries)
