"""Routing: brokers find each other, agree on the map and on who wants what, and mend what was lost."""

from __future__ import annotations

import dataclasses

import pytest
from msgspec.structs import replace

from penstock.content.bloom import EncodingScheme
from penstock.content.filter_bytes import filter_bytes
from penstock.content.predicate import Equals, Filter
from penstock.kernel.link import LinkInfo
from penstock.kernel.machine import Send
from penstock.kernel.packet import Lane
from penstock.kernel.trace import InputRefused, LimitReached
from penstock.overlay.assembly import NodeConfig
from penstock.overlay.config import RoutingConfig
from penstock.overlay.interest import ENTRIES_PER_PACKET, read_entries
from penstock.overlay.interest_form import ENTRY_ROOM, ExactForm
from penstock.overlay.node import Node
from penstock.overlay.origins import STALE_AFTER
from penstock.overlay.packets import Hello, Interest, LinkState, Summary
from penstock.overlay.records import NeighbourChanged
from penstock.overlay.routing import Routing
from penstock.overlay.topology import Way
from penstock.testing import Pump, a_broker, attach, broker_name, broker_network

CONFIG = RoutingConfig()
FORM = ExactForm.fingerprint
CHAIN = [(0, 1), (1, 2)]
SQUARE = [(0, 1), (1, 2), (2, 3), (3, 0)]


def configured(config: RoutingConfig) -> NodeConfig:
    return NodeConfig(services={"routing": config})


def routing(pump: Pump, number: int) -> Routing:
    node = pump.machines[broker_name(number)]
    assert isinstance(node, Node)
    return node.machine(Routing)


def reaches(pump: Pump, number: int) -> list[int]:
    """Which brokers this one can reach."""
    return sorted(routing(pump, number).exits())


def wants(pump: Pump, number: int, values: list[int]) -> None:
    """A client of this broker wants all messages with one of these values."""
    part = routing(pump, number)
    part.want(read_entries(entries(*values), part.form), now=pump.now)


def seen_from(pump: Pump, number: int, *values: int) -> tuple[int, ...]:
    """Who wants a message with one of these values (by default, any that the tests use), in the eyes of one broker."""
    found, _ = routing(pump, number).form.wanting([{"n": value} for value in values or range(400)])
    return tuple(sorted({broker for brokers in found for broker in brokers}))


def picture(pump: Pump, number: int) -> object:
    """All that a broker believes, for comparing before and after."""
    part = routing(pump, number)
    origins = {
        broker: (origin.incarnation, origin.links_version, origin.links, origin.interest.version, len(origin.interest))
        for broker, origin in part.origins.items()
    }
    return origins, dict(part.exits()), part.is_neighbour(0), len(part.form)


def hello(number: int, incarnation: int = 1, *, scheme: str = FORM, versions_hash: int = 0) -> Hello:
    return Hello(number, incarnation, scheme, versions_hash)


def entries(*values: int) -> tuple[bytes, ...]:
    return tuple(filter_bytes(Filter((Equals("n", value),))) for value in values)


# Neighbours.


def test_a_link_that_comes_up_is_greeted_at_once() -> None:
    pump = Pump()
    pump.add("b0", a_broker(0))
    pump.join("b0", "b1")
    pump.link_changed("b0", 0, up=True)
    assert [(flight.kind, flight.lane) for flight in pump.flights] == [("Hello", Lane.CONTROL)]


def test_a_hello_makes_a_neighbour_and_is_answered_with_hello_and_summary() -> None:
    pump = Pump()
    pump.add("b0", a_broker(0))
    pump.join("b0", "b1")
    pump.link_changed("b0", 0, up=True)
    effects = pump.receive("b0", hello(1), sender=0)
    assert effects[0] == NeighbourChanged(neighbour=1, up=True, cause="hello")
    assert [type(effect.packet) for effect in effects[1:] if isinstance(effect, Send)] == [Hello, Summary]


def test_a_healthy_network_exchanges_nothing_but_hellos() -> None:
    pump = broker_network(SQUARE)
    seen: list[str] = []
    pump.loses = lambda flight: bool(seen.append(flight.kind))
    pump.advance(5.0)
    assert set(seen) == {"Hello"}
    assert len(seen) == pytest.approx(5.0 / CONFIG.hello_interval * 2 * len(SQUARE), abs=2 * len(SQUARE))


def test_brokers_learn_the_whole_map() -> None:
    pump = broker_network([(0, 1), (1, 2), (2, 3), (3, 4)])
    assert [reaches(pump, number) for number in range(5)] == [
        [other for other in range(5) if other != number] for number in range(5)
    ]
    assert routing(pump, 0).way(4) == Way(1, 4)
    assert routing(pump, 0).way(99) is None


def test_the_cost_of_a_link_decides_the_way() -> None:
    pump = Pump()
    dear = {0: LinkInfo("b1", cost=9), 1: LinkInfo("b2", cost=1)}
    pump.add("b0", a_broker(0, links=dear))
    pump.add("b1", a_broker(1))
    pump.add("b2", a_broker(2))
    for a, b in (("b0", "b1"), ("b0", "b2"), ("b1", "b2")):
        pump.connect(a, b)
    pump.advance(2.0)
    assert routing(pump, 0).way(1) == Way(2, 2)
    assert routing(pump, 1).way(0) == Way(2, 2)


def test_of_two_links_to_one_neighbour_the_cheaper_is_used_and_the_other_takes_over() -> None:
    pump = Pump()
    pump.add("b0", a_broker(0, links={0: LinkInfo("b1", cost=5), 1: LinkInfo("b1", cost=2)}))
    pump.add("b1", a_broker(1))
    pump.connect("b0", "b1")
    pump.connect("b0", "b1")
    pump.advance(1.0)
    assert routing(pump, 0).exits() == {1: 1}
    pump.link_changed("b0", 1, up=False)
    assert routing(pump, 0).exits() == {1: 0}


def test_a_neighbour_is_lost_when_its_link_goes_down() -> None:
    pump = broker_network(CHAIN)
    pump.change("b1", "b2", up=False)
    pump.advance(0.1)
    assert pump.records_of("b1", NeighbourChanged)[-1] == NeighbourChanged(2, False, "link down")
    assert [reaches(pump, number) for number in range(3)] == [[1], [0], []]


def test_a_silent_neighbour_is_lost_and_not_a_moment_too_early() -> None:
    pump = broker_network(CHAIN)
    pump.loses = lambda flight: flight.sender == "b2"
    pump.advance(CONFIG.dead_after - CONFIG.hello_interval)
    assert reaches(pump, 1) == [0, 2]
    pump.advance(2 * CONFIG.hello_interval)
    assert pump.records_of("b1", NeighbourChanged)[-1] == NeighbourChanged(2, False, "silent")
    assert reaches(pump, 0) == [1]


def test_any_packet_is_a_sign_of_life() -> None:
    pump = broker_network([(0, 1)])
    pump.loses = lambda flight: flight.sender == "b1"
    for _ in range(40):
        pump.advance(0.25)
        pump.receive("b0", Summary(()), sender=0)
    assert reaches(pump, 0) == [1]


def test_a_way_exists_only_when_both_ends_hear_each_other() -> None:
    pump = Pump()
    pump.add("b0", a_broker(0))
    pump.add("b1", a_broker(1))
    pump.loses = lambda flight: flight.sender == "b0"
    pump.connect("b0", "b1")
    pump.advance(3.0)
    assert routing(pump, 0).is_neighbour(0)
    assert reaches(pump, 0) == reaches(pump, 1) == []


def test_a_client_is_sent_no_hellos_once_it_has_attached() -> None:
    pump = broker_network([(0, 1)])
    attach(pump, "c", "b0")
    seen: list[str] = []
    pump.loses = lambda flight: flight.receiver == "c" and bool(seen.append(flight.kind))
    pump.advance(3.0)
    assert seen == []


# Refusals.


def test_a_broker_with_our_own_id_is_refused() -> None:
    pump = broker_network([(0, 1)])
    pump.join("b0", "stranger")
    pump.link_changed("b0", 1, up=True)
    before = picture(pump, 0)
    effects = pump.receive("b0", hello(0, 7), sender=1)
    assert [type(effect) for effect in effects] == [InputRefused]
    assert "id of its own" in effects[0].problem  # type: ignore[union-attr]
    assert picture(pump, 0) == before


ENCODED = configured(RoutingConfig(interest="encoded"))


@pytest.mark.parametrize(
    ("one", "other"),
    [(None, ENCODED), (ENCODED, dataclasses.replace(ENCODED, scheme=EncodingScheme(bits=256)))],
    ids=["exact and encoded", "two encodings"],
)
def test_a_broker_that_tells_interest_in_another_form_is_refused(one: NodeConfig | None, other: NodeConfig) -> None:
    pump = Pump()
    pump.add("b0", a_broker(0, config=one))
    pump.add("b1", a_broker(1, config=other))
    pump.connect("b0", "b1")
    pump.advance(3.0)
    assert reaches(pump, 0) == reaches(pump, 1) == []
    assert not routing(pump, 0).is_neighbour(0)
    assert "same interest and encoding" in pump.records_of("b0", InputRefused)[0].problem  # type: ignore[attr-defined]


def test_a_neighbour_that_comes_back_with_another_form_is_a_neighbour_no_more() -> None:
    pump = broker_network(CHAIN)
    pump.add("b2", a_broker(2, 2, config=ENCODED))
    pump.advance(1.0)
    assert pump.records_of("b1", NeighbourChanged)[-1] == NeighbourChanged(2, False, "refused")
    assert reaches(pump, 0) == [1]


def test_the_same_id_far_away_in_a_later_life_is_noticed() -> None:
    pump = broker_network(CHAIN)
    before = picture(pump, 0)
    effects = pump.receive("b0", LinkState(0, 2, 1, ()), sender=0)
    assert [type(effect) for effect in effects] == [InputRefused]
    assert picture(pump, 0) == before


@pytest.mark.parametrize("packet", [LinkState(0, 1, 99, ()), Interest(0, 1, 98, 99, ())], ids=["links", "interest"])
def test_the_same_id_far_away_in_the_same_life_is_noticed(packet: LinkState | Interest) -> None:
    pump = broker_network(CHAIN)
    assert [type(effect) for effect in pump.receive("b0", packet, sender=0)] == [InputRefused]


def test_our_own_words_coming_back_are_no_clash() -> None:
    pump = broker_network(CHAIN)
    assert pump.receive("b0", LinkState(0, 1, 1, ()), sender=0) == []


def test_nobody_is_believed_before_saying_hello() -> None:
    pump = Pump()
    pump.add("b0", a_broker(0))
    pump.join("b0", "b1")
    pump.link_changed("b0", 0, up=True)
    packets = (LinkState(5, 1, 1, ()), Interest(5, 1, 0, 1, entries(1)), Summary(()))
    assert pump.receive("b0", *packets, sender=0) == []
    assert seen_from(pump, 0) == ()


def test_a_clients_link_cannot_turn_into_a_brokers() -> None:
    pump = broker_network([(0, 1)])
    attach(pump, "c", "b0")
    effects = pump.receive("b0", hello(9), sender=1)
    assert [type(effect) for effect in effects] == [InputRefused]
    assert not routing(pump, 0).is_neighbour(1)


def test_one_neighbour_too_many_is_refused() -> None:
    config = configured(RoutingConfig(neighbours_max=1))
    pump = broker_network([(0, 1), (0, 2)], config=config)
    assert reaches(pump, 0) == [1]
    assert "neighbours_max is 1" in pump.records_of("b0", InputRefused)[0].problem  # type: ignore[attr-defined]


def test_one_broker_too_many_is_left_out_and_recorded() -> None:
    pump = broker_network(CHAIN, config=configured(RoutingConfig(brokers_max=2)))
    before = picture(pump, 1)
    effects = pump.receive("b1", LinkState(3, 1, 1, ((2, 1),)), sender=1)
    assert effects == [LimitReached("brokers_max", 2)]
    assert picture(pump, 1) == before


def test_intervals_must_grow() -> None:
    with pytest.raises(ValueError, match="intervals must grow"):
        RoutingConfig(hello_interval=3.0)


# Interest.


def test_interest_is_known_everywhere_soon() -> None:
    pump = broker_network([(0, 1), (1, 2), (2, 3)])
    wants(pump, 3, [3])
    pump.advance(CONFIG.announce_delay)
    assert seen_from(pump, 0, 3) == (3,)
    assert seen_from(pump, 0, 5) == ()


def test_changes_that_come_together_are_announced_together() -> None:
    pump = broker_network([(0, 1)])
    for value in range(1, 6):
        wants(pump, 0, [value])
    pump.loses = lambda flight: bool(flights.append(flight.packet))
    flights: list[object] = []
    pump.advance(CONFIG.announce_delay)
    assert [packet for packet in flights if isinstance(packet, Interest)] == [
        Interest(0, 1, 0, 1, entries(1, 2, 3, 4, 5))
    ]


def test_a_steady_trickle_of_changes_cannot_put_off_the_announcement() -> None:
    pump = broker_network([(0, 1)])
    for value in range(1, 21):
        wants(pump, 0, [value])
        pump.advance(CONFIG.announce_delay / 2)
    assert len(routing(pump, 1).form) >= 15


def test_interest_that_is_withdrawn_is_forgotten_everywhere() -> None:
    pump = broker_network(CHAIN)
    wants(pump, 2, [1, 2])
    pump.advance(0.1)
    routing(pump, 2).unwant(entries(1), now=pump.now)
    pump.advance(0.1)
    assert len(routing(pump, 0).form) == 1


def test_news_is_flooded_to_all_neighbours_but_the_one_it_came_from() -> None:
    pump = broker_network([(0, 1), (0, 2), (0, 3)])
    news = Interest(1, 1, 0, 1, entries(5))
    effects = pump.receive("b0", news, sender=0)
    assert sum((effect.to for effect in effects if isinstance(effect, Send)), ()) == (1, 2)
    assert {effect.packet for effect in effects if isinstance(effect, Send)} == {news}
    assert pump.receive("b0", news, sender=1) == []


def test_a_lost_flood_is_repaired_by_the_hashes_in_hellos() -> None:
    pump = broker_network(CHAIN)
    pump.loses = lambda flight: isinstance(flight.packet, Interest)
    wants(pump, 2, [1])
    pump.advance(0.2)
    assert seen_from(pump, 0) == ()
    pump.loses = lambda flight: False
    pump.advance(4 * CONFIG.hello_interval)
    assert seen_from(pump, 0) == seen_from(pump, 1) == (2,)


def test_a_lost_link_state_is_repaired_too() -> None:
    pump = broker_network(CHAIN, settle=3.0)
    pump.add("b3", a_broker(3))
    pump.loses = lambda flight: isinstance(flight.packet, LinkState)
    pump.connect("b2", "b3")
    pump.advance(0.3)
    assert reaches(pump, 0) == [1, 2]
    pump.loses = lambda flight: False
    pump.advance(6 * CONFIG.hello_interval)
    assert reaches(pump, 0) == [1, 2, 3]


def test_one_difference_is_not_enough_for_a_summary_because_news_may_be_under_way() -> None:
    pump = broker_network([(0, 1)])
    assert pump.receive("b0", hello(1, versions_hash=1), sender=0) == []
    effects = pump.receive("b0", hello(1, versions_hash=1), sender=0)
    assert [type(effect.packet) for effect in effects if isinstance(effect, Send)] == [Summary]


def test_a_summary_is_answered_with_what_is_newer_and_links_come_first() -> None:
    pump = broker_network(CHAIN)
    wants(pump, 0, [1])
    wants(pump, 1, [2])
    pump.advance(0.1)
    effects = pump.receive("b1", Summary(((0, 1, 99, 0),)), sender=1)
    packets = [effect.packet for effect in effects if isinstance(effect, Send)]
    assert [(type(packet), packet.origin) for packet in packets] == [  # type: ignore[attr-defined]
        (LinkState, 1),
        (LinkState, 2),
        (Interest, 0),
        (Interest, 1),
    ]
    assert all(effect.to == (1,) for effect in effects if isinstance(effect, Send))


def test_a_summary_from_somebody_who_knows_more_is_answered_with_nothing() -> None:
    pump = broker_network(CHAIN)
    known = tuple((broker, 9, 9, 9) for broker in range(3))
    assert pump.receive("b1", Summary(known), sender=0) == []


def test_a_change_after_a_gap_is_ignored_and_repaired_by_a_snapshot() -> None:
    pump = broker_network(CHAIN)
    for value in (1, 2, 3):
        pump.loses = lambda flight, lost=value == 2: lost and isinstance(flight.packet, Interest)
        wants(pump, 2, [value])
        pump.advance(0.02)
    assert len(routing(pump, 0).form) == 1
    pump.loses = lambda flight: False
    pump.advance(4 * CONFIG.hello_interval)
    assert len(routing(pump, 0).form) == len(routing(pump, 1).form) == 3


def test_a_snapshot_in_parts_gets_through_although_every_try_loses_one() -> None:
    pump = broker_network([(0, 1)])
    size = 3 * ENTRIES_PER_PACKET
    pump.loses = lambda flight: isinstance(flight.packet, Interest)
    wants(pump, 1, list(range(size)))
    pump.advance(0.1)
    tries: list[Interest] = []

    def loses(flight: object) -> bool:
        packet = flight.packet  # type: ignore[attr-defined]
        if not isinstance(packet, Interest):
            return False
        tries.append(packet)
        return packet.part == (len(tries) - 1) // 3 % 3  # the first try loses part 0, the second part 1, ...

    pump.loses = loses
    pump.advance(8 * CONFIG.hello_interval)
    assert {packet.parts for packet in tries} == {3}
    assert len(routing(pump, 0).form) == size


def test_a_bad_entry_is_refused_and_changes_nothing() -> None:
    pump = broker_network(CHAIN)
    before = picture(pump, 0)
    effects = pump.receive("b0", Interest(1, 1, 0, 1, (b"too short",)), sender=0)
    assert [type(effect) for effect in effects] == [InputRefused]
    assert picture(pump, 0) == before


ROOM = ENTRY_ROOM + len(entries(1)[0])  # of an entry of these tests


def limited(entries_max: int) -> NodeConfig:
    return configured(RoutingConfig(interest_room_per_broker_max=entries_max * ROOM))


def test_more_entries_than_a_broker_may_have_are_left_out_and_recorded() -> None:
    pump = broker_network([(0, 1)], config=limited(4))
    before = picture(pump, 0)
    effects = pump.receive("b0", Interest(1, 1, 0, 1, entries(1, 2, 3, 4, 5)), sender=0)
    assert effects == [LimitReached("interest_room_per_broker_max", 4 * ROOM)]
    assert picture(pump, 0) == before


def test_a_snapshot_replaces_so_only_its_own_size_counts() -> None:
    pump = broker_network([(0, 1)], config=limited(4))
    pump.receive("b0", Interest(1, 1, 0, 1, entries(1, 2, 3)), sender=0)
    assert pump.receive("b0", Interest(1, 1, 0, 5, entries(3, 4, 5)), sender=0) == []
    assert len(routing(pump, 0).form) == 3


def test_old_news_is_no_reason_to_speak_of_a_limit() -> None:
    pump = broker_network([(0, 1)], config=limited(4))
    news = Interest(1, 1, 0, 1, entries(1, 2, 3))
    pump.receive("b0", news, sender=0)
    assert pump.receive("b0", news, sender=0) == []


# Lives, partitions and forgetting.


def test_a_new_life_replaces_the_interest_of_the_old_one() -> None:
    pump = broker_network(CHAIN)
    wants(pump, 2, [1])
    pump.advance(0.1)
    assert seen_from(pump, 0) == (2,)
    pump.add("b2", a_broker(2, 2))
    pump.advance(1.0)
    assert reaches(pump, 0) == [1, 2]
    assert seen_from(pump, 0, 1) == (2,)  # until it has said what it wants in this life
    wants(pump, 2, [4])
    pump.advance(0.1)
    assert (seen_from(pump, 0, 1), seen_from(pump, 0, 4)) == ((), (2,))


def test_a_new_life_that_wants_nothing_is_believed_after_a_while() -> None:
    pump = broker_network(CHAIN)
    wants(pump, 2, [1])
    pump.advance(0.1)
    pump.add("b2", a_broker(2, 2))
    pump.advance(STALE_AFTER + 1.0)
    assert reaches(pump, 0) == [1, 2]
    assert seen_from(pump, 0) == seen_from(pump, 1) == ()


def test_words_of_an_earlier_life_are_ignored() -> None:
    pump = broker_network(CHAIN)
    pump.add("b2", a_broker(2, 2))
    pump.advance(1.0)
    before = picture(pump, 1)
    assert pump.receive("b1", LinkState(2, 1, 99, ()), Interest(2, 1, 0, 99, entries(1)), sender=1) == []
    assert picture(pump, 1) == before


def test_a_restart_within_the_silence_limit_is_noticed_by_the_new_incarnation() -> None:
    pump = broker_network(CHAIN)
    pump.add("b2", a_broker(2, 2))
    pump.run()
    assert pump.records_of("b1", NeighbourChanged)[-1] == NeighbourChanged(2, True, "hello")


def test_a_partition_heals_and_both_sides_learn_what_they_missed() -> None:
    pump = broker_network([(0, 1), (1, 2), (2, 3)])
    wants(pump, 0, [1])
    wants(pump, 3, [2])
    pump.advance(0.5)
    pump.change("b1", "b2", up=False)
    pump.advance(5.0)
    wants(pump, 3, [4])
    routing(pump, 0).unwant(entries(1), now=pump.now)
    pump.advance(1.0)
    assert reaches(pump, 0) == [1]
    pump.change("b1", "b2", up=True)
    pump.advance(3.0)
    assert [reaches(pump, number) for number in range(4)] == [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]]
    assert [len(routing(pump, number).form) for number in (0, 1, 2)] == [2, 2, 2]
    assert seen_from(pump, 3) == ()


def quick_to_forget() -> NodeConfig:
    return configured(replace(CONFIG, forget_after=5.0))


def test_an_unreachable_broker_is_remembered_for_a_while_and_then_forgotten() -> None:
    pump = broker_network(CHAIN, config=quick_to_forget())
    wants(pump, 2, [1])
    pump.advance(0.1)
    pump.change("b1", "b2", up=False)
    pump.advance(4.0)
    assert seen_from(pump, 0) == (2,)
    pump.advance(3.0)
    assert seen_from(pump, 0) == seen_from(pump, 1) == ()
    assert routing(pump, 0).origins.get(2) is None


def test_nobody_brings_a_forgotten_broker_back_from_the_dead() -> None:
    pump = broker_network([(0, 1), (1, 2), (0, 3)], config=quick_to_forget())
    wants(pump, 2, [1])
    pump.advance(0.1)
    slow = a_broker(3, 1)  # the same broker with the default patience: it remembers ten times as long
    routing(pump, 3).origins._config = slow.machine(Routing)._config
    pump.change("b1", "b2", up=False)
    pump.advance(20.0)
    assert routing(pump, 3).origins.get(2) is not None
    assert routing(pump, 0).origins.get(2) is None
    pump.change("b0", "b3", up=False)
    pump.change("b0", "b3", up=True)
    pump.advance(5.0)
    assert routing(pump, 0).origins.get(2) is None
    assert seen_from(pump, 0) == ()


def test_a_forgotten_broker_that_returns_is_learnt_from_scratch() -> None:
    pump = broker_network(CHAIN, config=quick_to_forget())
    wants(pump, 2, [1])
    pump.advance(0.1)
    pump.change("b1", "b2", up=False)
    pump.advance(10.0)
    pump.change("b1", "b2", up=True)
    pump.advance(3.0)
    assert seen_from(pump, 0) == (2,)
    assert reaches(pump, 2) == [0, 1]


def test_a_ring_keeps_everybody_reachable_when_one_link_breaks() -> None:
    pump = broker_network(SQUARE)
    pump.change("b0", "b1", up=False)
    pump.advance(0.5)
    assert routing(pump, 0).way(1) == Way(3, 3)
