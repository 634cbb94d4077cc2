"""Purses, tables, books and round trips: the small parts of a home broker and of a link."""

from __future__ import annotations

import pytest

from penstock.rates.purse import Purse
from penstock.rates.rate_table import LINKS_MAX, RateTable
from penstock.rates.round_trips import HOMES_MAX, TRIP_MAX, VERSIONS_MAX, RoundTrips
from penstock.rates.upstream import Upstream
from penstock.rates.withheld import KEYS_MAX, WithheldBooks, records
from penstock.testing import a_message


def test_a_purse_pays_at_its_rate_whatever_the_size_of_messages() -> None:
    purse, paid, now = Purse(1_000.0, 100, 0.0), 0, 0.0
    for step in range(10_000):
        now = step * 0.001
        size = 5_000 if step % 7 == 0 else 10
        if purse.can_pay(now):
            purse.pay(size, now)
            paid += size
    assert paid <= 1_000.0 * now + 400.0 + 5_000
    assert paid >= 1_000.0 * now - 5_000


def test_a_purse_is_solvent_when_it_says_so() -> None:
    purse = Purse(1_000.0, 100, 0.0)
    purse.pay(777, 0.0)
    assert not purse.can_pay(purse.solvent_at() - 0.01)
    assert purse.can_pay(purse.solvent_at())


def test_a_rate_counts_until_it_expires_and_later_versions_replace_it() -> None:
    table = RateTable(3.0)
    assert table.hear((1, 2), 7, 5, 100.0, 0.0)
    assert not table.hear((1, 2), 7, 5, 200.0, 0.1)
    assert not table.hear((1, 2), 7, 4, 200.0, 0.1)
    assert table.hear((1, 2), 7, 6, 300.0, 0.1)
    assert table.hear((1, 2), 8, 1, 400.0, 0.2)
    assert table.links() == {(1, 2): 400.0}
    assert table.expire(3.0) == []
    assert table.expire(3.3) == [(1, 2)]
    assert table.rate((1, 2)) is None


def test_the_table_of_rates_is_bounded_and_so_is_what_one_link_may_say() -> None:
    table = RateTable(3.0)
    for number in range(LINKS_MAX + 10):
        table.hear((number, 0), 1, 1, 1.0, 0.0)
    assert len(table) == LINKS_MAX
    assert sum(table.hear((0, 0), 1, version, 1.0, 0.0) for version in range(2, 1_000)) == 50


def test_word_of_a_link_goes_to_those_who_send_over_it() -> None:
    upstream = Upstream()
    upstream.note(1, (5, 6), 0.0)
    upstream.note(2, (7,), 0.0)
    assert upstream.feeding(lambda broker: broker == 6, 1.0) == [1]
    assert upstream.feeding(lambda broker: True, 1.0) == [1, 2]
    assert upstream.feeding(lambda broker: True, 61.0) == []
    upstream.note(2, (7,), 62.0)
    upstream.link_down(2)
    assert upstream.feeding(lambda broker: True, 62.0) == []


def test_everything_withheld_is_told_once() -> None:
    books = WithheldBooks()
    for number in range(KEYS_MAX + 100):
        books.add(f"p{number % 3}", (number, 1), 9, a_message(), float(number))
    assert books.full
    told = records(books.take(1e4))
    told += records(books.take(1e4))
    assert sum(one.messages for one in told) == books.messages == KEYS_MAX + 100
    assert (told[0].since, told[0].origin, told[0].destination) == (0.0, 0, 9)
    assert len(books.lately(float(KEYS_MAX + 100))) <= KEYS_MAX


def test_round_trips_are_averaged_bounded_and_forgotten() -> None:
    trips = RoundTrips()
    trips.told(1, 0.0)
    trips.heard(1, 7, 0.1)
    trips.heard(1, 8, 0.3)
    trips.heard(99, 9, 0.3)
    assert trips.mean(1.0) == pytest.approx(0.2)
    assert trips.mean(60.0) == 0.0
    for version in range(2, 100):
        trips.told(version, 1.0)
    trips.heard(1, 7, 1.1)
    assert trips.mean(1.1) == 0.0, f"only {VERSIONS_MAX} versions are remembered"
    for home in range(2 * HOMES_MAX):
        trips.heard(99, home, 1_000.0)
    assert trips.mean(1_000.0) == TRIP_MAX
