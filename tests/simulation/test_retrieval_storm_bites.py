"""A storm that finds nothing proves nothing: with one mistake put into retrieval, some seed must complain.

The seeds are tried from the one that found it when this was written; whoever changes the storms has SEEDS_MAX tries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.retrieval import mediation, recipients
from penstock.retrieval.boxes import InterestBox
from penstock.retrieval.broker_service import RetrievalBroker
from penstock.retrieval.cache_store import CacheStore
from penstock.retrieval.client_service import RetrievalClient
from penstock.retrieval.life_cycle import PENDING
from penstock.retrieval.link_recovery import LinkRecovery
from penstock.retrieval.mediation import MediationRouter
from penstock.retrieval.renewal import Renewal
from penstock.scenario.retrieval_storm import EVENTS_MAX, retrieval_storm
from penstock.sim.run import simulate

SEEDS_MAX = 40

Patch = Callable[[pytest.MonkeyPatch], None]


def a_refreshed_interest_takes_any_copy(patch: pytest.MonkeyPatch) -> None:
    def may_take(interest: Any, publication: Any, *, now: float, **more: bool) -> bool:
        return publication.uploaded >= interest.oldest and interest.deadline > now

    for module in (mediation, recipients):
        patch.setattr(module, "may_take", may_take)


def a_refreshed_interest_is_served_from_any_table(patch: pytest.MonkeyPatch) -> None:
    def may_serve(self: Any, entry: Any, interest: Any, listed: Any, at_home: bool) -> bool:
        publication = entry.publication
        return publication.uploaded >= interest.oldest and self._fits(interest, publication)

    patch.setattr(MediationRouter, "_may_serve", may_serve)


def nobody_notices_that_a_client_has_moved(patch: pytest.MonkeyPatch) -> None:
    original = RetrievalBroker._request

    def request(self: Any, packet: Any, link: int, now: float) -> None:
        original(self, packet if packet.home is None else replace(packet, home=self.home), link, now)

    patch.setattr(RetrievalBroker, "_request", request)


def a_moved_chain_is_forgotten_at_the_next_refresh(patch: pytest.MonkeyPatch) -> None:
    original = RetrievalClient._replied

    def replied(self: Any, one: Any, packet: Any, now: float) -> Any:
        effects = original(self, one, packet, now)
        one.moved_at = None
        return effects

    patch.setattr(RetrievalClient, "_replied", replied)


def places_are_not_stored(patch: pytest.MonkeyPatch) -> None:
    original = CacheStore.placed

    def placed(self: Any, item: Any, place: Any) -> None:
        original(self, item, PENDING if place is not None else None)

    patch.setattr(CacheStore, "placed", placed)


def effects_do_not_wait_for_the_disk(patch: pytest.MonkeyPatch) -> None:
    def commit(self: Any, effects: Any, now: float) -> Any:
        puts, self._puts = self._puts, []
        return [*(self._storage.ask(put) for put in puts), *effects]

    patch.setattr(CacheStore, "commit", commit)


def a_box_is_never_full(patch: pytest.MonkeyPatch) -> None:
    def put(self: Any, publication: Any, number: int = 0) -> bool:
        self.got[publication] = None
        return True

    patch.setattr(InterestBox, "put", put)


def old_publications_are_fresh_enough(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("penstock.retrieval.requests.oldest_upload", lambda rule, **times: times["now"] - 3_600.0)


def nobody_asks_anew_when_the_map_changes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Renewal, "_ask_anew", lambda self, chain, now: None)


def what_was_lost_is_not_sent_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LinkRecovery, "_watch", lambda self, broker, session, now: None)
    patch.setattr(LinkRecovery, "_receipt", lambda self, broker, session: [])
    patch.setattr(LinkRecovery, "expired", lambda self, timer, broker, now: [])


def a_nonce_is_not_remembered(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MediationRouter, "_first", lambda self, nonce: True)


def a_home_forgets_what_was_used_there(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MediationRouter, "_remember", lambda self, publication: None)


def what_is_sent_stays_pending(patch: pytest.MonkeyPatch) -> None:
    original = MediationRouter.upload

    def upload(self: Any, publication: Any, now: float) -> None:
        keep = self._keep
        self._keep = lambda item, place, at, **more: keep(item, place and PENDING, at, **more)
        original(self, publication, now)
        self._keep = keep

    patch.setattr(MediationRouter, "upload", upload)


def a_client_forgets_to_ask_again(patch: pytest.MonkeyPatch) -> None:
    original = RetrievalClient._ask

    def ask(self: Any, one: Any, now: float) -> Any:
        found = original(self, one, now)
        return found if one.lifetime < 4 else found[:1]

    patch.setattr(RetrievalClient, "_ask", ask)


FIRST_SEED: dict[Patch, int] = {
    a_refreshed_interest_takes_any_copy: 0,
    a_refreshed_interest_is_served_from_any_table: 0,
    nobody_notices_that_a_client_has_moved: 0,
    a_moved_chain_is_forgotten_at_the_next_refresh: 0,
    places_are_not_stored: 0,
    effects_do_not_wait_for_the_disk: 129,
    a_box_is_never_full: 0,
    old_publications_are_fresh_enough: 0,
    nobody_asks_anew_when_the_map_changes: 72,
    what_was_lost_is_not_sent_again: 284,
    a_nonce_is_not_remembered: 110,
    a_home_forgets_what_was_used_there: 22,
    what_is_sent_stays_pending: 0,
    a_client_forgets_to_ask_again: 25,
}


@pytest.mark.parametrize("mistake", FIRST_SEED, ids=lambda mistake: mistake.__name__)
def test_some_storm_finds_the_mistake(mistake: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake(monkeypatch)
    first = FIRST_SEED[mistake]
    tries = (simulate(retrieval_storm(seed), seed, events_max=EVENTS_MAX) for seed in range(first, first + SEEDS_MAX))
    assert any(result.problems or not result.complete for result in tries)
