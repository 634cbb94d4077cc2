"""A storm that finds nothing proves nothing: with one mistake put into priced sending, some seed must complain.

The seeds are tried from the one that found it when this was written; whoever changes the storms has SEEDS_MAX tries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.overlay.egress import Egress
from penstock.overlay.link_reports import LinkReports
from penstock.pricing.account import Account
from penstock.pricing.broker_service import PricedBroker
from penstock.pricing.client_service import PricedClient
from penstock.pricing.passing import PricedPassing
from penstock.pricing.timers import PricingTimer
from penstock.scenario.priced_storm import EVENTS_MAX, priced_storm
from penstock.sim.run import simulate

SEEDS_MAX = 30

Patch = Callable[[pytest.MonkeyPatch], None]


def savings_have_no_limit(patch: pytest.MonkeyPatch) -> None:
    def pay(self: Any, salary: float, times: int = 1) -> None:
        self.balance += times * salary

    patch.setattr(Account, "_pay", pay)


def a_purchase_costs_nothing_but_its_name(patch: pytest.MonkeyPatch) -> None:
    """Who cannot pay gets into debt."""

    def buy(self: Any, price: float, now: float) -> None:
        self.balance -= price

    patch.setattr(Account, "can_pay", lambda self, price, now: True)
    patch.setattr(Account, "buy", buy)


def room_is_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PricedBroker, "_have_room", lambda self, copies: True)


def a_message_larger_than_the_lane_finds_no_room(patch: pytest.MonkeyPatch) -> None:
    original = Egress.has_room

    def has_room(self: Any, link: int, lane: Any, size_bytes: int, *after: int) -> bool:
        fits = size_bytes <= self._config.lanes[lane].bytes_max
        return fits and original(self, link, lane, size_bytes, *after)

    patch.setattr(Egress, "has_room", has_room)


def who_lost_a_throw_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    original = PricedBroker.expired

    def expired(self: Any, timer: int, key: Any, *, now: float) -> Any:
        return [] if timer == PricingTimer.AGAIN else original(self, timer, key, now=now)

    patch.setattr(PricedBroker, "expired", expired)


def the_window_is_not_opened_again_after_a_reconnection(patch: pytest.MonkeyPatch) -> None:
    original = PricedClient.link_changed

    def link_changed(self: Any, link: int, *, up: bool, now: float) -> Any:
        if up or link != self._home:
            return original(self, link, up=up, now=now)
        unanswered = self._unanswered
        effects = original(self, link, up=up, now=now)
        self._unanswered = unanswered
        return effects

    patch.setattr(PricedClient, "link_changed", link_changed)


def a_copy_goes_to_everybody_again(patch: pytest.MonkeyPatch) -> None:
    original = PricedPassing.receive

    def receive(self: Any, packet: Any, sender: int) -> Any:
        return [*original(self, packet, sender), *original(self, packet, sender)]

    patch.setattr(PricedPassing, "receive", receive)


def prices_of_the_silent_count_for_ever(patch: pytest.MonkeyPatch) -> None:
    """Also those of brokers that are gone, and have come back with nothing to say."""
    original = LinkReports._keep

    def keep(self: Any, packet: Any, heard: Any, now: float) -> None:
        dearest = {broker: max(value, heard.values.get(broker, 0.0)) for broker, value in packet.values}
        original(self, packet, heard, now)
        heard.values = dearest

    patch.setattr(LinkReports, "_keep", keep)


def nobody_says_what_was_bought(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PricedBroker, "_answer", lambda self, link, numbers: [])


def nobody_waits_for_the_classes(patch: pytest.MonkeyPatch) -> None:
    """What is published right after connecting leaves plainly, and its publisher is told so."""
    patch.setattr(PricedClient, "_undecided", lambda self: False)


FIRST_SEED: dict[Patch, int] = {
    savings_have_no_limit: 0,
    a_purchase_costs_nothing_but_its_name: 0,
    room_is_not_looked_at: 16,
    a_message_larger_than_the_lane_finds_no_room: 13,
    who_lost_a_throw_is_forgotten: 0,
    the_window_is_not_opened_again_after_a_reconnection: 13,
    a_copy_goes_to_everybody_again: 0,
    prices_of_the_silent_count_for_ever: 36,
    nobody_says_what_was_bought: 0,
    nobody_waits_for_the_classes: 1,
}


@pytest.mark.parametrize("mistake", FIRST_SEED, ids=lambda mistake: mistake.__name__)
def test_some_storm_finds_the_mistake(mistake: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake(monkeypatch)
    first = FIRST_SEED[mistake]
    tries = (simulate(priced_storm(seed), seed, events_max=EVENTS_MAX) for seed in range(first, first + SEEDS_MAX))
    assert any(result.problems or not result.complete for result in tries)
