"""Priced sending between clients and brokers: bought in order, nothing leaves unpaid, and nobody gets round it."""

from __future__ import annotations

from math import nan

import msgspec
import pytest

from penstock.content.message import Identity, make_message
from penstock.kernel.machine import Refused, Unknown
from penstock.kernel.packet import Lane
from penstock.kernel.trace import Dropped, InputRefused, LimitReached
from penstock.overlay.egress import OURSELVES, PARKED
from penstock.overlay.node import Node
from penstock.overlay.packets import Publication, Publish
from penstock.pricing.broker_service import NO_WAY_MAX
from penstock.pricing.config import PricedClass, PricingConfig
from penstock.pricing.packets import (
    Bought,
    ClassesRequest,
    PricedClasses,
    PricedPublication,
    PricedPublish,
    PriceRequest,
    Prices,
)
from penstock.pricing.passing import RETURN_AFTER
from penstock.pricing.records import MessageBought
from penstock.pricing.status import PriceReport
from penstock.services import options, publication_options
from priced_network import FREIGHT, INTERVAL, PricedNetwork


def a_line(**config: object) -> PricedNetwork:
    """A sender at b0, a receiver at b2."""
    network = PricedNetwork(**config)  # type: ignore[arg-type]
    network.client("receiver", "b2", "topic = 'freight'")
    network.client("sender", "b0")
    return network


def test_a_message_is_bought_by_its_home_and_its_copy_goes_on_and_its_publisher_learns_it():
    network = a_line(first_balance=5.0)
    network.publish("sender")
    network.pump.advance(0.0)
    assert network.bought() == [1]
    assert network.got("receiver") == [1]
    assert network.accepted("sender") == [1]
    assert [packet.destinations for packet in network.copies()] == [(2,), (2,)]
    assert {flight.lane for flight in network.seen if flight.packet in network.copies()} == {Lane.PRICED}


def test_without_money_it_waits_for_the_salary_and_messages_leave_in_order():
    network = a_line(first_balance=0.0, salary=3.0, first_period=1.0, period_max=1.0, threshold=0.1)
    for _ in range(6):
        network.publish("sender")
    network.pump.advance(0.0)
    assert network.bought() == network.got("receiver") == network.accepted("sender") == []
    network.pump.advance(1.0)
    assert network.bought() == [1, 2, 3]  # a dollar each
    network.pump.advance(1.0)
    assert network.bought() == network.got("receiver") == network.accepted("sender") == [1, 2, 3, 4, 5, 6]


def test_never_more_than_the_window_is_unanswered_and_the_rest_waits_in_the_client():
    network = a_line(first_balance=0.0, first_period=1.0, held_max=4)
    for _ in range(10):
        network.publish("sender")
    network.pump.advance(0.0)
    assert len(network.sending("sender")._unanswered) == 4
    assert network.service("b0").status().waiting["sender"][0].waiting == 4
    network.pump.advance(2.0)
    assert network.accepted("sender") == list(range(1, 11))


def test_chance_decides_where_it_is_asked_and_whoever_loses_is_asked_again():
    network = a_line(randomised=True, fee=4.0, savings=1_000.0, salary=500.0, first_balance=900.0)
    for _ in range(12):
        network.publish("sender")
    network.pump.advance(0.0)
    first = len(network.bought())
    assert first < 12
    network.pump.advance(40 * INTERVAL)
    assert network.bought() == list(range(1, 13))


def test_a_dear_way_blocks_and_a_cheap_one_of_the_same_publisher_goes_on():
    """Content decides who must cross the congested link."""
    network = PricedNetwork(soft_limit=1.0, first_balance=10.0, salary=1.0, period_min=1.0)
    network.client("near", "b1", "topic = 'freight' AND near")
    network.client("far", "b2", "topic = 'freight' AND NOT near")
    network.client("sender", "b0")
    network.room("b1", "b2", 0)
    for _ in range(4):
        network.publish("sender", {"topic": "freight", "near": False})
    network.pump.advance(3 * INTERVAL)
    before = network.bought()
    network.publish("sender", {"topic": "freight", "near": False})
    cheap = network.publish("sender", {"topic": "freight", "near": True})
    network.pump.advance(0.0)
    assert network.bought() == [*before, cheap]
    flows = {flow.receivers: flow for flow in network.service("b0").status().waiting["sender"]}
    assert list(flows) == [("2",)]
    assert flows["2",].dearest_link == ("1", "2")
    assert flows["2",].price > flows["2",].balance
    network.room("b1", "b2", 1 << 30)
    network.pump.advance(20.0)
    assert sorted(network.bought()) == [1, 2, 3, 4, 5, 6]


def test_what_makes_a_price_high_has_a_name_before_links_have_told_their_prices():
    """A broker's own link costs what it costs at this moment, in the price and in what is said of it."""
    network = a_line(savings=1000.0, first_balance=1000.0)
    network.room("b0", "b1", 0)
    for _ in range(20):
        network.publish("sender")
    network.pump.run()
    (flow,) = network.prices("sender")
    assert flow.price > 2.0
    assert flow.dearest_link == ("0", "1")
    assert flow.dearest_price == pytest.approx(flow.price - 1.0)


def test_what_finds_no_room_is_not_bought_and_nothing_is_dropped():
    """Also when many can pay at the same moment."""
    network = a_line(first_balance=0.0, first_period=0.5, salary=20.0, lane_bytes=4_096)
    network.room("b0", "b1", 0)
    for _ in range(16):
        network.publish("sender", body=bytes(1_000))
    network.pump.advance(1.0)
    assert 0 < len(network.bought()) <= 4
    network.room("b0", "b1", 1 << 30)
    network.pump.advance(5.0)
    assert network.got("receiver") == list(range(1, 17))
    assert network.drops("b0") == network.drops("b1") == network.drops("sender") == []


def test_a_message_larger_than_the_lane_goes_when_nothing_of_ours_waits():
    network = a_line(first_balance=10.0, lane_bytes=4_096)
    for _ in range(3):
        network.publish("sender", body=bytes(100_000))
    network.pump.advance(5.0)
    assert network.got("receiver") == [1, 2, 3]


def test_a_clients_own_queue_never_drops_what_its_window_allows():
    """Sixteen messages of a megabyte are more than the queue of its link holds."""
    network = a_line(first_balance=20.0)
    network.room("sender", "b0", 0)
    for _ in range(16):
        network.publish("sender", body=bytes(1_000_000))
    network.pump.advance(0.0)
    network.room("sender", "b0", 1 << 40)
    network.pump.advance(20.0)
    assert network.accepted("sender") == list(range(1, 17))
    assert network.drops("sender") == []


def test_what_is_bought_because_prices_fell_is_not_counted_as_the_neighbours():
    """Or two neighbours with full lanes could wait for each other's credit for ever."""
    network = a_line(first_balance=0.0, first_period=1.0)
    network.room("b0", "b1", 0)
    network.publish("sender")
    network.pump.advance(5.0)
    egress = network.pump.machines["b0"].egress  # type: ignore[attr-defined]
    link = network.pump.link("b0", "b1")
    assert network.bought() == [1]
    assert egress.waiting_bytes_from(link, Lane.PRICED) == egress.waiting_bytes_from(OURSELVES, Lane.PRICED) == 0
    assert egress.lane_packets(link, Lane.PRICED) == 1


def test_plain_publications_of_a_class_are_taken_over_and_nobody_is_answered():
    network = a_line(first_balance=2.0)
    link = network.pump.link("b0", "sender")
    message = make_message(Identity("sender", 1, 1), {"topic": "freight"}, b"")
    network.pump.receive("b0", Publish(message, Lane.BEST_EFFORT), sender=link)
    network.pump.advance(0.0)
    assert network.bought() == network.got("receiver") == [1]
    assert network.told() == []


def test_plain_publications_take_no_place_of_those_for_which_somebody_waits():
    network = a_line(first_balance=0.0, held_max=2)
    link = network.pump.link("b0", "sender")
    for count in range(101, 106):
        message = make_message(Identity("sender", 1, count), {"topic": "freight"}, b"")
        network.pump.receive("b0", Publish(message, Lane.BEST_EFFORT), sender=link)
    assert network.drops("b0") == ["queue full"] * 3
    network.publish("sender")
    network.publish("sender")
    network.pump.advance(5.0)
    assert network.accepted("sender") == [1, 2]


def test_a_publisher_of_priced_and_plain_content():
    network = a_line(first_balance=0.0)
    network.client("all", "b1", "TRUE")
    network.publish("sender")
    plain = network.publish("sender", {"topic": "news"})
    network.pump.run()
    assert network.got("all") == [plain]
    assert plain in network.accepted("sender")
    network.pump.advance(3.0)
    assert sorted(network.got("all")) == [1, 2]


def test_a_priced_lane_is_not_to_be_had_for_nothing():
    """What is not of a class goes on in the usual lane, whatever its publisher says."""
    network = a_line()
    network.client("all", "b1", "TRUE")
    link = network.pump.link("b0", "sender")
    message = make_message(Identity("sender", 1, 1), {"topic": "news"}, b"")
    network.pump.receive("b0", Publish(message, Lane.PRICED), sender=link)
    network.pump.run()
    lanes = {flight.lane for flight in network.seen if isinstance(flight.packet, Publication)}
    assert lanes == {Lane.BEST_EFFORT}


def test_a_message_of_two_classes_belongs_to_the_first():
    classes = (PricedClass(where="urgent", benefit="received"), FREIGHT)
    network = PricedNetwork(classes=classes, first_balance=20.0, fee=2.0)
    for broker in ("b1", "b2"):
        network.client(f"at-{broker}", broker, "topic = 'freight'")
    network.client("sender", "b0")
    network.publish("sender", {"topic": "freight", "urgent": True})
    network.publish("sender", {"topic": "freight", "urgent": False})
    network.pump.advance(0.0)
    assert [one.price for one in network.pump.records_of("b0", MessageBought)] == [1.0, 2.0]


def test_options_of_a_stream_win_over_the_class():
    network = a_line(first_balance=5.0)
    network.publish("sender", options=options({"stream": "orders"}, publication_options()))
    network.pump.advance(0.0)
    assert network.bought() == []
    assert not network.copies()


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        (make_message(Identity("somebody", 1, 1), {"topic": "freight"}, b""), "not its name"),
        (
            make_message(Identity("sender", 1, 1), {"topic": "freight", "_t": "data"}, b"", reserved=True),
            "not its name",
        ),
    ],
)
def test_foreign_names_and_forged_control_messages_go_no_further(message, cause):
    network = a_line(first_balance=5.0)
    network.pump.receive("b0", PricedPublish(1, message), sender=network.pump.link("b0", "sender"))
    assert network.drops("b0") == ["not its name"]
    assert len(network.pump.records_of("b0", InputRefused)) == 1
    assert network.bought() == []


def test_whoever_is_not_attached_publishes_nothing():
    network = a_line(first_balance=5.0)
    message = make_message(Identity("nobody", 1, 1), {"topic": "freight"}, b"")
    network.pump.receive("b0", PricedPublish(1, message), sender=99)
    assert network.drops("b0") == ["sender unknown", "link down"]  # it cannot be told either


def test_a_client_that_ignores_its_window_loses_what_is_too_much_and_repeated_numbers_harm_nobody():
    network = a_line(first_balance=0.0, held_max=3)
    link = network.pump.link("b0", "sender")
    for count in range(1, 8):
        message = make_message(Identity("sender", 1, count), {"topic": "freight"}, b"")
        network.pump.receive("b0", PricedPublish(5, message), sender=link)
    assert network.drops("b0") == ["queue full"] * 4
    network.pump.advance(3.0)
    assert network.bought() == [1, 2, 3]
    assert network.service("b0").status().waiting == {}


def test_requests_beyond_a_few_at_once_are_not_answered():
    network = a_line()
    link = network.pump.link("b0", "sender")
    network.pump.machines["b0"].receive([PriceRequest(n) for n in range(100)], sender=link, now=network.pump.now)
    effects = network.pump.receive("b0", *[ClassesRequest()] * 100, sender=link)
    assert sum(isinstance(effect, LimitReached) for effect in effects) == 1
    assert len(effects) == 17


def test_copies_of_strangers_are_dropped_and_what_must_go_back_waits_until_maps_agree():
    network = a_line(first_balance=5.0)
    message = make_message(Identity("sender", 1, 1), {"topic": "freight"}, b"")
    network.pump.receive("b1", PricedPublication((0, 2), 5, message), sender=99)
    assert network.drops("b1") == ["sender unknown"]
    network.pump.receive("b1", PricedPublication((0, 2), 5, message), sender=network.pump.link("b1", "b0"))
    network.pump.run()
    assert network.got("receiver") == [1]
    node = network.pump.machines["b1"]
    assert isinstance(node, Node)
    back = network.pump.link("b1", "b0")
    assert (node.egress.lane_packets(PARKED, Lane.PRICED), node.egress.lane_packets(back, Lane.PRICED)) == (1, 0)
    assert node.egress.waiting_bytes_from(back, Lane.PRICED) > 0
    network.pump.advance(2 * RETURN_AFTER)
    assert network.copies()[-1].destinations == (0,)
    assert node.egress.lane_packets(PARKED, Lane.PRICED) == 0
    assert node.egress.waiting_bytes_from(back, Lane.PRICED) == 0
    assert network.drops("b1") == ["sender unknown"]
    network.pump.receive("b1", PricedPublication((2,), 0, message), sender=network.pump.link("b1", "b0"))
    assert network.drops("b1")[-1] == "hop limit"


def test_a_connection_that_breaks_leaves_nobody_waiting_and_no_timer_behind():
    network = a_line(first_balance=0.0, held_max=2)
    for _ in range(4):
        network.publish("sender")
    network.pump.run()
    network.pump.change("sender", "b0", up=False)
    assert all(isinstance(outcome, Unknown) for outcome in network.answers("sender").values())
    assert list(network.answers("sender")) == [1, 2]
    assert network.drops("b0") == ["sender gone"] * 2
    assert network.service("b0")._senders.get(network.pump.link("b0", "sender")) is None
    network.pump.change("sender", "b0", up=True)
    network.pump.advance(3.0)
    assert network.got("receiver") == [3, 4]
    assert network.accepted("sender") == [3, 4]


def test_a_broker_that_restarts_knows_nothing_and_its_clients_go_on():
    network = a_line(first_balance=0.0)
    network.publish("sender")
    network.pump.run()
    for other in ("sender", "b1"):
        network.pump.change("b0", other, up=False)
    network.pump.add("b0", network.a_broker(0, incarnation=2))
    for other in ("sender", "b1"):
        network.pump.change("b0", other, up=True)
    network.pump.advance(3.0)
    assert isinstance(network.answers("sender")[1], Unknown)
    count = network.publish("sender")
    network.pump.advance(3.0)
    assert network.got("receiver") == [count]


def test_a_message_whose_receivers_vanish_waits_for_a_way_and_after_a_while_no_longer():
    network = a_line(first_balance=0.0)
    network.publish("sender")
    network.pump.run()
    network.pump.change("b1", "b2", up=False)
    network.pump.advance(3.0)
    assert network.accepted("sender") == network.drops("b0") == []
    network.pump.advance(NO_WAY_MAX)
    assert network.accepted("sender") == [1]
    assert network.drops("b0") == ["no way"]


def test_a_short_cut_does_not_empty_what_waits_into_nothing():
    network = a_line(first_balance=0.0, first_period=0.5, held_max=4)
    network.room("b1", "b2", 0)
    network.pump.change("b1", "b2", up=False)
    network.pump.advance(0.2)
    for _ in range(40):
        network.publish("sender")
    network.pump.advance(0.3)
    assert network.accepted("sender") == []
    network.pump.change("b1", "b2", up=True)
    network.pump.advance(10.0)
    assert network.got("receiver") == network.accepted("sender") == list(range(1, 41))
    assert network.drops("b0") == []


def test_whoever_wants_it_and_can_be_reached_does_not_wait_for_those_who_cannot():
    network = a_line(first_balance=5.0)
    network.client("near", "b1", "topic = 'freight'")
    network.client("here", "b0", "topic = 'freight' AND local")
    network.pump.change("b1", "b2", up=False)
    network.pump.advance(0.2)
    network.publish("sender")
    network.pump.run()
    network.pump.change("b0", "b1", up=False)
    network.pump.advance(0.2)
    network.publish("sender", {"topic": "freight", "local": True})
    network.pump.advance(0.0)
    assert network.got("near") == [1]
    assert network.got("here") == [2]


def test_withdrawn_before_it_left_it_does_not_leave_and_later_it_does():
    network = a_line(first_balance=0.0, held_max=1)
    for _ in range(3):
        network.publish("sender")
    client = network.pump.machines["sender"]
    network.pump.apply("sender", client.withdraw(1_002, now=network.pump.now))
    network.pump.apply("sender", client.withdraw(1_001, now=network.pump.now))
    assert isinstance(network.answers("sender")[2], Refused)
    network.pump.advance(3.0)
    assert network.got("receiver") == [1, 3]


def test_as_many_wait_in_a_client_as_may_and_the_next_is_refused():
    network = a_line(first_balance=0.0, held_max=1)
    network.sending("sender")._config = msgspec.structs.replace(network.sending("sender")._config, waiting_max=2)
    for _ in range(4):
        network.publish("sender")
    assert isinstance(network.answers("sender")[4], Refused)
    assert [one.cause for one in network.pump.records_of("sender", Dropped)] == ["refused"]
    network.pump.advance(5.0)
    assert network.accepted("sender") == [1, 2, 3]


def test_flows_to_the_same_dearest_link_share_a_salary():
    """Sending to more sets of receivers wins nothing."""
    shares = []
    for several in (False, True):
        network = PricedNetwork(4, soft_limit=1e-3, savings=4.0, salary=1.0, period_min=1.0, first_balance=0.0)
        for broker in ("b2", "b3"):
            network.client(broker + "-client", broker, f"topic = 'freight' AND {broker}")
        network.client("sender", "b0")
        service = network.service("b0")
        service._reports.value = lambda hop, now: 1.0 if hop == (0, 1) else 0.0
        for n in range(16):
            network.publish(
                "sender", {"topic": "freight", "b2": several and n % 2 == 0, "b3": not several or n % 2 == 1}
            )
        network.pump.advance(16.0)
        shares.append(len(network.bought()))
    assert shares[0] == pytest.approx(shares[1], abs=3)


def test_prices_are_told_to_whoever_asks_and_nonsense_of_a_broker_is_refused():
    network = a_line(first_balance=0.0)
    network.publish("sender")
    network.pump.run()
    sending = network.sending("sender")
    (flow,) = network.prices("sender")
    assert isinstance(flow, PriceReport)
    assert (flow.receivers, flow.waiting, flow.balance, flow.price) == (("2",), 1, 0.0, 1.0)
    network.pump.apply("sender", sending.ask_prices(9_002))
    network.pump.drop_where(lambda flight: isinstance(flight.packet, PriceRequest))
    network.pump.receive("sender", Prices(9_002, b"[{]"), sender=0)
    assert isinstance(network.pump.done[-1][1].outcome, Refused)
    network.pump.receive("sender", Prices(9_002, b"[]"), Bought((77,)), sender=0)


def test_a_class_that_is_no_predicate_changes_nothing():
    network = a_line(first_balance=5.0)
    network.pump.receive("sender", PricedClasses(("topic = ",), 4), sender=0)
    assert len(network.pump.records_of("sender", InputRefused)) == 1
    network.publish("sender")
    network.pump.advance(0.0)
    assert network.bought() == [1]


def test_where_nothing_is_priced_nothing_changes():
    network = PricedNetwork(classes=())
    network.client("receiver", "b2", "TRUE")
    network.client("sender", "b0")
    network.publish("sender")
    network.pump.run()
    assert network.got("receiver") == network.accepted("sender") == [1]
    assert network.copies() == []
    assert not network.sending("sender").claims_content()


def test_a_broker_whose_reports_are_absurd_is_ignored_and_recorded_and_nobody_stalls_or_floods():
    network = a_line(soft_limit=2.0, savings=20.0, salary=10.0, first_balance=1.0, period_min=0.05)
    network.service("b1")._reports._measure = lambda now: {0: nan, 2: -1e9}
    network.room("b1", "b2", 0)
    for _ in range(16):
        network.publish("sender", body=bytes(30_000))
    network.pump.advance(8.0)
    assert any("it says" in one.problem for one in network.pump.records_of("b0", InputRefused))
    assert "1" in network.service("b0")._reports.status().silent
    assert network.drops("b0") == network.drops("b1") == []
    network.room("b1", "b2", 1 << 40)
    network.pump.advance(5.0)
    assert network.got("receiver") == list(range(1, 17))


def test_a_price_is_never_more_than_a_report_may_say():
    network = a_line(soft_limit=1e-3, cost="exponential-20", savings=1_000.0, first_balance=1_000.0)
    network.room("b1", "b2", 0)
    for _ in range(10):
        network.publish("sender")
    network.pump.advance(5 * INTERVAL)
    assert network.service("b0")._reports.value((1, 2), network.pump.now) > 1e5
    assert network.pump.records_of("b0", InputRefused) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"soft_limit": 0.0},
        {"savings": float("inf")},
        {"salary": float("nan")},
        {"fee": -1.0},
        {"fee": 21.0},
        {"first_balance": 21.0},
        {"period_min": 2.0},
        {"held_max": 0},
        {"cost": "cubic"},
        {"classes": (FREIGHT,) * 65},
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match=r"\w"):
        PricingConfig(**wrong)
