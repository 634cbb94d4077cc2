"""Fair rates in small simulated networks: who is behind a narrow link pays for it, and nobody else notices."""

from __future__ import annotations

import msgspec
import pytest

from narrow_line import network, run
from penstock.rates.config import RatesClientConfig
from penstock.scenario.spec import Scenario


@pytest.mark.parametrize("kind", ["datagram", "shaped", "reliable", "tcp"])
def test_a_narrow_link_costs_those_behind_it_and_nobody_else(kind: str) -> None:
    notes = run(network(200_000.0, kind))
    published = notes.published
    assert notes.got["near"] == published
    assert notes.links.keys() == {(1, 2)}
    assert notes.got["far"] + notes.lost + notes.withheld == published, "everything withheld is counted once"
    assert notes.lost <= 0.01 * published
    assert notes.got["far"] > 0.9 * 7.0 * 200_000 / 8 / 300
    shares = [notes.from_whom[f"p{number}"] for number in range(3)]
    assert max(shares) < 1.1 * min(shares)


def test_a_network_with_room_is_not_touched_and_says_nothing() -> None:
    notes = run(network(1_000_000.0))
    assert notes.got["far"] == notes.got["near"] == notes.published
    assert (notes.rated, notes.withheld, notes.lost) == (0, 0, 0)


@pytest.mark.parametrize("rates", [{"wait": 0.0}, {"slow_start": False}])
def test_its_parts_can_be_switched_off(rates: dict[str, object]) -> None:
    notes = run(network(200_000.0, **rates))
    assert notes.got["near"] == notes.published
    assert notes.lost <= 0.02 * notes.published


def test_switched_off_it_does_nothing() -> None:
    notes = run(network(200_000.0, enabled=False))
    assert notes.lost > 0.2 * notes.published
    assert (notes.rated, notes.withheld) == (0, 0)


def test_a_plan_without_rates_and_absurd_rates_are_survived() -> None:
    scenario = network(200_000.0)
    links = tuple(msgspec.structs.replace(link, rate_bits_per_s=None) for link in scenario.link)
    free = run(msgspec.structs.replace(scenario, link=links))
    assert free.got["far"] == free.published
    slow = run(network(1.0))
    assert slow.got["near"] == slow.published
    fast = run(network(1e11))
    assert fast.got["far"] == fast.published


def chosen(when_full: str, *, waits: int = 0, narrow_bits: float = 200_000.0) -> Scenario:
    """As `network`, but the first publisher says what becomes of its messages."""
    scenario = network(narrow_bits)
    first, *others = scenario.client
    publishing = tuple(msgspec.structs.replace(one, waits=waits) for one in first.publish)
    settings = {"rates": RatesClientConfig(when_full=when_full)}  # type: ignore[arg-type]  # a parameter of the test
    first = msgspec.structs.replace(first, services=settings, publish=publishing)
    return msgspec.structs.replace(scenario, client=(first, *others))


def test_who_waits_loses_nothing_and_takes_no_more_than_its_share() -> None:
    notes = run(chosen("wait", waits=1))
    assert notes.withheld_of["p0"] == 0
    assert notes.withheld_of["p1"] > 0
    assert notes.lost == 0
    shares = [notes.got_from["far", f"p{number}"] for number in range(3)]
    assert max(shares) < 1.15 * min(shares)
    assert notes.got_from["near", "p0"] - shares[0] < 40, "it publishes no faster than its share"
    assert notes.got_from["near", "p1"] >= notes.published_by["p1"] - 2


def test_who_waits_and_publishes_on_is_held_and_what_finds_no_room_ends_in_the_client() -> None:
    notes = run(chosen("wait"))
    assert notes.withheld_of["p0"] == 0
    assert 0 < notes.got_from["near", "p0"] < 0.9 * notes.published_by["p0"]
    assert notes.got_from["near", "p1"] >= notes.published_by["p1"] - 2


def test_who_drops_waits_for_nothing_in_slow_start_neither() -> None:
    notes = run(chosen("drop"))
    assert notes.withheld_of["p0"] > 0
    assert notes.got["far"] + notes.lost + notes.withheld == notes.got["near"] + notes.by_first_link
    assert notes.got_from["near", "p1"] >= notes.published_by["p1"] - 2


@pytest.mark.parametrize(("share_by", "together"), [("connection", 2.0), ("group", 1.0)])
def test_many_connections_have_many_shares_unless_groups_share_one(share_by: str, together: float) -> None:
    scenario = network(200_000.0, share_by=share_by)
    names = {"p0": "pool/0", "p1": "pool/1", "p2": "alone"}
    clients = tuple(msgspec.structs.replace(one, name=names.get(one.name, one.name)) for one in scenario.client)
    notes = run(msgspec.structs.replace(scenario, client=clients))
    pool = notes.got_from["far", "pool/0"] + notes.got_from["far", "pool/1"]
    assert pool / notes.got_from["far", "alone"] == pytest.approx(together, rel=0.15)
    assert notes.got["far"] + notes.lost + notes.withheld == notes.published
    assert notes.lost <= 0.01 * notes.published
