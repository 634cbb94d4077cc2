"""The directory: adverts are kept, passed on, replaced, and never believed beyond reason."""

from __future__ import annotations

import pytest

from penstock.kernel.machine import Effect, Send
from penstock.kernel.trace import InputRefused, LimitReached
from penstock.overlay.guard import LIFE_SLACK
from penstock.streams import directory as module
from penstock.streams.config import StreamsConfig
from penstock.streams.directory import ADVERT_EVERY_MAX, FORGET_AFTER, Directory, KnownStream
from penstock.streams.packets import Advert

ORDERS = ("orders", 0, 1, 77)


def a_directory(
    broker: int = 0,
    name: str = "edge",
    *,
    declared: dict[str, tuple[str, ...]] | None = None,
    gone: tuple[int, ...] = (),
) -> Directory:
    config = StreamsConfig(declared=declared or {})
    return Directory(broker, name, 1, True, config, lambda other: other not in gone)


def bank(
    version: int = 1,
    *pubends: tuple[str, int, int, int],
    incarnation: int = 1,
    origin: int = 1,
    name: str = "bank",
    stores: bool = True,
) -> Advert:
    return Advert(origin, incarnation, version, name, stores, pubends)


def told(effects: list[Effect]) -> dict[int, list[Advert]]:
    """What went out, by link."""
    found: dict[int, list[Advert]] = {}
    for effect in effects:
        assert isinstance(effect, Send)
        assert isinstance(effect.packet, Advert)
        for link in effect.to:
            found.setdefault(link, []).append(effect.packet)
    return found


def test_an_advert_is_kept_and_passed_on_once_to_all_but_its_sender() -> None:
    known = a_directory()
    advert = bank(1, ORDERS)
    assert told(known.receive(advert, 5, [5, 6, 7], now=1.0)) == {6: [advert], 7: [advert]}
    assert known.receive(advert, 6, [5, 6, 7], now=1.0) == []
    assert known.find("orders/0") == 1
    assert known.epoch_of("orders/0") == 77
    assert known.pubends_of("orders") == {0: (1, 77)}
    assert known.broker_named("bank") == 1
    assert known.name_of(1) == "bank"
    assert known.stores(1)
    assert known.brokers() == [0, 1]


def test_a_removed_stream_is_gone_when_its_host_says_so() -> None:
    known = a_directory()
    known.receive(bank(1, ORDERS, ("notes", 0, 1, 5)), 5, [], now=1.0)
    known.receive(bank(2, ORDERS), 5, [], now=1.0)
    assert known.find("notes/0") is None
    assert known.count_of("notes") == 0
    assert [found.stream for found in known.streams()] == ["orders"]


def test_a_later_life_beats_every_version_of_the_one_before() -> None:
    known = a_directory()
    known.receive(bank(900, ORDERS), 5, [], now=1.0)
    known.receive(bank(1, ("orders", 0, 1, 78), incarnation=2), 5, [], now=1.0)
    assert known.epoch_of("orders/0") == 78
    assert known.receive(bank(901, ORDERS), 5, [6], now=1.0) == []
    assert known.epoch_of("orders/0") == 78


def test_what_an_unreachable_broker_hosts_stays_known_and_the_error_names_it() -> None:
    known = a_directory(gone=(1,))
    known.receive(bank(1, ORDERS), 5, [], now=1.0)
    assert known.find("orders/0") == 1
    assert known.problem_of("orders/0") == (
        "orders/0: its broker 'bank' cannot be reached; it serves again when it is back"
    )
    assert "did you mean 'orders'?" in known.problem_of("ordes/0")
    assert "penstock stream add notes --at BROKER" in known.problem_of("notes/0")
    assert "there is no 'orders/7'" in known.problem_of("orders/7")


def test_declared_streams_are_known_before_any_advert() -> None:
    known = a_directory(declared={"orders": ("bank", "shop")})
    assert known.count_of("orders") == 2
    assert known.find("orders/1") is None
    assert "its broker 'shop' cannot be reached" in known.problem_of("orders/1")
    assert known.streams() == [KnownStream("orders", 2, ("bank", "shop"), True)]
    known.receive(bank(1, origin=9, name="shop"), 5, [], now=1.0)
    assert known.find("orders/1") == 9
    assert known.epoch_of("orders/1") == 0
    assert known.problem_of("orders/1") == ""
    known.receive(bank(2, ("orders", 1, 2, 4), origin=9, name="shop"), 5, [], now=1.0)
    assert known.pubends_of("orders") == {1: (9, 4)}


def test_of_two_that_claim_a_pubend_the_one_that_can_be_reached_counts_then_the_higher_epoch() -> None:
    known = a_directory(gone=(1,))
    known.receive(bank(1, ("orders", 0, 4, 500)), 5, [], now=1.0)
    known.receive(bank(1, ("orders", 0, 2, 90), origin=2, name="shop"), 5, [], now=1.0)
    known.receive(bank(1, ("orders", 0, 1, 80), origin=3, name="mill"), 5, [], now=1.0)
    assert known.find("orders/0") == 2
    assert known.count_of("orders") == 2


def test_our_own_pubends_are_known_here_and_told_at_the_next_refresh_then_ever_more_seldom() -> None:
    known = a_directory()
    known.host([ORDERS])
    assert known.find("orders/0") == 0
    assert known.problem_of("orders/0") == ""
    times = [second for second in range(100) if known.refresh([5], now=float(second))]
    assert times == [0, 1, 3, 7, 15, 31, 47, 63, 79, 95]
    assert times[-1] - times[-2] == ADVERT_EVERY_MAX
    known.host([])
    (advert,) = told(known.refresh([5], now=96.0))[5]
    assert advert.pubends == ()
    assert known.find("orders/0") is None
    known.host([])
    assert known.refresh([5], now=96.5) == []


def test_a_new_neighbour_is_told_all_and_every_telling_has_a_higher_version() -> None:
    known = a_directory()
    known.receive(bank(1, ORDERS), 5, [], now=1.0)
    first, others = told(known.neighbour_up(6, now=1.0))[6]
    assert (first.origin, others.origin) == (0, 1)
    assert known.refresh([5], now=1.0) == []  # who hosts nothing need not be known everywhere
    known.host([("news", 0, 1, 3)])
    (second,) = told(known.refresh([5], now=1.0))[5]
    assert second.version > first.version


def test_a_later_life_of_ours_that_others_know_is_outbid() -> None:
    known = a_directory()
    assert known.receive(Advert(0, 9, 40, "edge", True), 5, [5, 6], now=1.0) == []
    (advert,) = told(known.refresh([5], now=2.0))[5]
    assert (advert.incarnation, advert.version) > (9, 40)


@pytest.mark.parametrize(
    "advert",
    [
        bank(1, ORDERS, incarnation=1_000 + LIFE_SLACK + 1),
        bank(1, ORDERS, ORDERS),
        bank(1, ORDERS, stores=False),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(advert: Advert) -> None:
    known = a_directory()
    (refusal,) = known.receive(advert, 5, [6], now=1.0)
    assert isinstance(refusal, InputRefused)
    assert known.brokers() == [0]
    assert known.find("orders/0") is None


def test_the_table_is_bounded_and_who_is_long_gone_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BROKERS_MAX", 2)
    known = a_directory(gone=(1,))
    known.receive(bank(1, ORDERS), 5, [], now=1.0)
    known.receive(bank(1, origin=2, name="shop"), 5, [], now=2.0)
    late = bank(1, origin=3, name="mill")
    assert known.receive(late, 5, [6], now=3.0) == [LimitReached("brokers", 2)]
    assert known.receive(late, 5, [6], now=3.5) == []  # recorded a moment ago
    assert told(known.receive(late, 5, [6], now=2.0 + FORGET_AFTER)) == {6: [late]}
    assert known.brokers() == [0, 2, 3]
    assert known.find("orders/0") is None


def test_pubends_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PUBENDS_KNOWN_MAX", 2)
    known = a_directory()
    known.receive(bank(1, *[("orders", number, 2, 1) for number in range(2)]), 5, [], now=1.0)
    assert known.receive(bank(1, ("notes", 0, 1, 1), origin=2), 5, [], now=1.0) == [LimitReached("pubends known", 2)]
    known.receive(bank(2), 5, [], now=1.0)
    known.receive(bank(1, ("notes", 0, 1, 1), origin=2), 5, [], now=1.0)
    assert known.find("notes/0") == 2
