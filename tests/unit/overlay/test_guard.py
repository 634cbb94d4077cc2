"""Routing does not believe everything, and does not do whatever one neighbour makes it do.

The network is the chain b0 - b1 - b2. Whoever attacks speaks over b1's link 2, as a neighbour that the plan knows and
that is not there: broker 9.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from penstock.content.filter_bytes import filter_bytes
from penstock.content.predicate import Equals, Filter
from penstock.kernel.link import LinkInfo
from penstock.kernel.machine import Effect, Send
from penstock.kernel.packet import Packet
from penstock.kernel.trace import InputRefused, LimitReached
from penstock.overlay.assembly import Life, NodeConfig, broker_node
from penstock.overlay.config import RoutingConfig
from penstock.overlay.guard import ANSWERS_BURST, LIFE_SLACK, LIVES_BURST, OUTBID_EVERY, SUMMARIES_BURST, Guard
from penstock.overlay.interest import read_entries
from penstock.overlay.interest_form import ExactForm
from penstock.overlay.node import Node
from penstock.overlay.packets import Hello, Interest, LinkState, Summary
from penstock.overlay.routing import Routing
from penstock.services import services
from penstock.testing import Pump, a_broker, attach, broker_network

ROOM = 70  # of an entry `n = 1` to `n = 127`
CHAIN = [(0, 1), (1, 2)]
ATTACKER = 9
IN = 2  # the link over which b1 hears it
LATER = 1_000  # a plausible later life: the simulator's clock has just begun


def routing(pump: Pump, name: str) -> Routing:
    node = pump.machines[name]
    assert isinstance(node, Node)
    return node.machine(Routing)


def attacked(config: RoutingConfig | None = None, edges: list[tuple[int, int]] = CHAIN) -> Pump:
    """The chain, with a subscriber at its last broker, and the attacker at b1."""
    node = NodeConfig(services={"routing": config}) if config is not None else None
    pump = broker_network(edges, config=node)
    attach(pump, "reader", f"b{max(map(max, edges))}", "n > 0")
    pump.advance(1.0)
    pump.join("b1", "attacker")
    pump.loses = lambda flight: flight.receiver == "attacker"
    pump.machines["attacker"] = a_broker(ATTACKER)  # its answers are lost: only what a test sends counts
    pump.link_changed("b1", IN, up=True)
    pump.receive("b1", Hello(ATTACKER, 1, ExactForm.fingerprint, 0), sender=IN)
    pump.advance(0.1)
    return pump


def entries(values: Iterable[int]) -> tuple[bytes, ...]:
    return tuple(filter_bytes(Filter((Equals("n", value),))) for value in values)


def wants(pump: Pump, name: str, values: Iterable[int]) -> None:
    """A client of this broker wants all messages with one of these values."""
    part = routing(pump, name)
    part.want(read_entries(entries(values), part.form), now=pump.now)


def says(pump: Pump, *packets: Packet) -> list[Effect]:
    """The attacker sends these to b1."""
    effects = pump.receive("b1", *packets, sender=IN)
    pump.run()
    return effects


def sent(effects: list[Effect], kind: type[Packet]) -> int:
    return sum(isinstance(effect, Send) and isinstance(effect.packet, kind) for effect in effects)


def way_and_wish(pump: Pump, name: str, broker: int = 2) -> tuple[bool, bool]:
    """Whether this broker knows a way to another, and that somebody there wants something."""
    part = routing(pump, name)
    return broker in part.exits(), broker in part.form.wanting([{"n": 1}])[0][0]


SILENCING = {
    "a later life": [LinkState(2, LATER, 1, ()), Interest(2, LATER, 0, 1, ())],
    "a later version": [LinkState(2, 1, 1 << 40, ()), Interest(2, 1, 0, 1 << 40, ())],
}


# Lives.


@pytest.mark.parametrize("lie", SILENCING)
def test_what_others_say_of_a_neighbour_does_not_silence_it(lie: str) -> None:
    pump = attacked()
    for _ in range(20):
        says(pump, *SILENCING[lie])
        assert way_and_wish(pump, "b0") == way_and_wish(pump, "b1") == (True, True)
        pump.advance(0.1)
    assert way_and_wish(pump, "b0") == way_and_wish(pump, "b1") == (True, True)


@pytest.mark.parametrize("lie", SILENCING)
def test_a_broker_far_away_outbids_a_false_later_life_of_itself(lie: str) -> None:
    pump = attacked(edges=[(0, 1), (1, 2), (2, 3)])
    says(pump, *[type(packet)(3, *packet_fields(packet)[1:]) for packet in SILENCING[lie]])
    pump.advance(0.5)
    for name in ("b0", "b1", "b2"):
        assert way_and_wish(pump, name, 3) == (True, True)
    problems = [record.problem for record in pump.records_of("b3", InputRefused)]  # type: ignore[attr-defined]
    assert any("later life" in problem for problem in problems)


def test_ever_later_lies_do_not_lead_a_broker_out_of_what_others_believe() -> None:
    pump = attacked()
    for step in range(1, 5):
        says(pump, LinkState(1, int(pump.now * 1000) + step * (LIFE_SLACK * 47 // 48), 1, ()))
        pump.advance(1.1)
    pump.advance(2.0)
    assert routing(pump, "b0").exits().keys() == {1, 2}
    assert routing(pump, "b2").exits().keys() == {0, 1}


@pytest.mark.parametrize("every", [0.3, 1.1])
def test_lives_claimed_for_a_neighbour_again_and_again_do_not_silence_it(every: float) -> None:
    pump = attacked()
    wants(pump, "b2", range(10, 600))
    pump.advance(1.0)
    for _ in range(20):
        says(pump, LinkState(2, routing(pump, "b2").incarnation + 1, 1, ()))
        pump.advance(every)
        assert way_and_wish(pump, "b0") == (True, True)


def packet_fields(packet: Packet) -> list[object]:
    return [getattr(packet, name) for name in packet.__struct_fields__]


def test_a_liar_cannot_make_a_broker_flood() -> None:
    pump = attacked()
    lives: list[int] = []

    def watched(flight: object) -> bool:
        packet = flight.packet  # type: ignore[attr-defined]
        if isinstance(packet, LinkState) and flight.sender == "b2":  # type: ignore[attr-defined]
            lives.append(packet.incarnation)
        return flight.receiver == "attacker"  # type: ignore[attr-defined]

    pump.loses = watched
    seconds = 3
    for number in range(50 * seconds):
        says(pump, LinkState(2, LATER + 100 * number, 1, ()))
        pump.advance(1 / 50)
    assert 2 <= len(set(lives)) <= 1 + seconds / OUTBID_EVERY


def test_after_the_last_lie_the_truth_wins_although_it_had_to_wait() -> None:
    pump = attacked(edges=[(0, 1), (1, 2), (2, 3)])
    for number in range(10):
        says(pump, LinkState(3, LATER + number, 1, ()))
        pump.advance(0.02)
    pump.advance(OUTBID_EVERY + 1.0)
    assert way_and_wish(pump, "b0", 3) == (True, True)


@pytest.mark.parametrize("far", [LIFE_SLACK + 10_000_000, 1 << 62])
def test_a_life_that_begins_in_the_future_is_refused_and_changes_nothing(far: int) -> None:
    pump = attacked()
    effects = says(pump, LinkState(5, far, 1, ((ATTACKER, 1),)), Interest(5, far, 0, 1, ()))
    assert [type(effect) for effect in effects] == [InputRefused]  # one record, not one for each packet
    assert "in the future" in effects[0].problem  # type: ignore[union-attr]
    assert 5 not in routing(pump, "b1").origins


def test_a_hello_from_the_future_makes_no_neighbour() -> None:
    pump = broker_network(CHAIN)
    pump.join("b1", "attacker")
    pump.link_changed("b1", IN, up=True)
    effects = pump.receive("b1", Hello(ATTACKER, 1 << 62, ExactForm.fingerprint, 0), sender=IN)
    assert "in the future" in effects[0].problem  # type: ignore[union-attr]
    assert not routing(pump, "b1").is_neighbour(IN)


def test_live_lives_are_milliseconds_of_the_wall_clock() -> None:
    guard = Guard(RoutingConfig(), None)
    now = 1_800_000_000.0
    assert guard.plausible(1_800_000_000_000, now=now)
    assert guard.plausible(1_800_000_000_000 + LIFE_SLACK, now=now)
    assert not guard.plausible(1_800_000_000_001 + LIFE_SLACK, now=now)


def test_a_neighbour_brings_few_later_lives_of_one_broker() -> None:
    pump = attacked(edges=[(0, 1), (1, 2), (2, 3)])
    part = routing(pump, "b1")
    for number in range(LIVES_BURST + 20):
        pump.receive("b1", LinkState(3, LATER + number, 1, ()), sender=IN)  # not handed on yet: nobody outbids
    assert part.origins[3].incarnation == LATER + LIVES_BURST - 1
    assert pump.records_of("b1", LimitReached)[-1].table == "later lives"  # type: ignore[attr-defined]


# Who may be a neighbour.


def test_a_hello_with_another_id_than_the_plan_has_is_refused() -> None:
    pump = Pump()
    pump.add("b0", a_broker(0, links={0: LinkInfo("b1", broker=1)}))
    pump.join("b0", "b1")
    pump.link_changed("b0", 0, up=True)
    effects = pump.receive("b0", Hello(7, 1, ExactForm.fingerprint, 0), sender=0)
    assert "the plan has broker 1 ('b1')" in effects[0].problem  # type: ignore[union-attr]
    assert not routing(pump, "b0").is_neighbour(0)
    pump.receive("b0", Hello(1, 1, ExactForm.fingerprint, 0), sender=0)
    assert routing(pump, "b0").is_neighbour(0)


# Brokers that do not exist.


def mesh(size: int) -> list[LinkState]:
    numbers = range(100, 100 + size)
    lines = [tuple((other, 1) for other in numbers if other != number) for number in numbers]
    return [LinkState(number, 1, 1, claimed) for number, claimed in zip(numbers, lines, strict=True)]


def planned(numbers: range, config: RoutingConfig | None = None) -> Node:
    life = Life(
        name="b0", incarnation=1, seed=1, number=0, storage=True, brokers={f"b{number}": number for number in numbers}
    )
    return broker_node(services(), life, {}, NodeConfig(services={"routing": config or RoutingConfig()}))


def met(node: Node) -> Pump:
    """A broker with a plan, and the attacker as its neighbour at link 0."""
    pump = Pump()
    pump.add("b0", node)
    pump.join("b0", "attacker")
    pump.loses = lambda flight: True
    pump.link_changed("b0", 0, up=True)
    pump.receive("b0", Hello(ATTACKER, 1, ExactForm.fingerprint, 0), sender=0)
    return pump


def test_of_brokers_that_no_plan_names_only_few_are_kept() -> None:
    pump = met(planned(range(10), RoutingConfig(strangers_max=3)))
    pump.receive("b0", *mesh(20), sender=0)
    part = routing(pump, "b0")
    assert sorted(part.origins) == [100, 101, 102]
    assert pump.records_of("b0", LimitReached) == [LimitReached("strangers_max", 3)]
    pump.receive("b0", LinkState(5, 1, 1, ()), sender=0)
    assert 5 in part.origins  # the plan names it


def test_a_link_state_with_more_neighbours_than_anybody_may_have_is_left_out() -> None:
    pump = attacked(RoutingConfig(neighbours_max=4))
    effects = says(pump, mesh(8)[0])
    assert effects == [LimitReached("neighbours_max", 4)]
    assert 100 not in routing(pump, "b1").origins


# Work.


def test_the_map_is_worked_out_as_often_as_its_budget_allows_and_is_right_in_the_end() -> None:
    pump = attacked(RoutingConfig(map_rate=50, news_burst=100_000))
    part = routing(pump, "b1")
    worked_out: list[float] = []
    ways_from = part.topology.ways_from

    def counted(root: int) -> object:
        worked_out.append(pump.now)
        return ways_from(root)

    part.topology.ways_from = counted  # type: ignore[assignment, method-assign]
    for version in range(1, 201):
        for number in (100, 101):
            other = 100 if number == 101 else 101
            pump.receive("b1", LinkState(number, 1, version, ((other, version),)), sender=IN)
            assert part.exits()[2] == 1  # the pair has its way all the time
    assert len(worked_out) < 40  # of 400 changes
    before = part.topology.lines
    pump.receive("b1", LinkState(ATTACKER, 1, 1, ((1, 1),)), sender=IN)
    pump.advance(1.5)
    assert ATTACKER in part.exits()
    assert part.topology.lines == before + 1


def test_a_storm_of_news_is_cut_off_and_recorded_once_a_second() -> None:
    pump = attacked(RoutingConfig(news_rate=10, news_burst=1_024))
    part = routing(pump, "b1")
    pump.advance(1.0)
    for version in range(1, 3_001):
        pump.receive("b1", LinkState(100, 1, version, ()), sender=IN)
    assert part.origins[100].links_version == 1_024
    assert pump.records_of("b1", LimitReached).count(LimitReached("news_rate", 10)) == 1
    assert way_and_wish(pump, "b0") == (True, True)
    assert routing(pump, "b1").is_neighbour(0)


def test_a_new_connection_is_no_new_budget() -> None:
    pump = attacked(RoutingConfig(news_rate=10, news_burst=1_024))
    for version in range(1, 2_001):
        if version == 1_500:
            pump.link_changed("b1", IN, up=False)
            pump.link_changed("b1", IN, up=True)
            pump.receive("b1", Hello(ATTACKER, 1, ExactForm.fingerprint, 0), sender=IN)
        pump.receive("b1", LinkState(100, 1, version, ()), sender=IN)
    assert routing(pump, "b1").origins[100].links_version <= 1_025


def test_much_interest_at_once_is_taken_in_piece_by_piece() -> None:
    config = NodeConfig(services={"routing": RoutingConfig(work_rate=1_000)})
    pump = broker_network(CHAIN, config=config)
    wants(pump, "b2", range(1, 3_001))
    asked: list[object] = []
    pump.loses = lambda flight: isinstance(flight.packet, Summary) and bool(asked.append(flight))
    pump.advance(0.2)
    assert len(routing(pump, "b0").form) < 1_024
    pump.advance(2.0)
    assert not [flight for flight in asked if flight.sender == "b1"], "it asks for nothing that waits its turn"  # type: ignore[attr-defined]
    pump.advance(20.0)
    assert len(routing(pump, "b0").form) == len(routing(pump, "b1").form) == 3_000


def test_empty_summaries_are_answered_a_few_times_and_not_for_ever() -> None:
    pump = attacked()
    answered = [sent(pump.receive("b1", Summary(()), sender=IN), LinkState) > 0 for _ in range(1_000)]
    assert ANSWERS_BURST - 1 <= sum(answered) <= ANSWERS_BURST
    pump.drop_where(lambda flight: True)
    pump.advance(1.0)
    assert sent(pump.receive("b1", Summary(()), sender=IN), LinkState) > 0


def test_hellos_with_ever_new_hashes_draw_few_summaries() -> None:
    pump = attacked()
    effects = [
        effect
        for number in range(500)
        for effect in pump.receive("b1", Hello(ATTACKER, 1, ExactForm.fingerprint, number), sender=IN)
    ]
    assert sent(effects, Summary) <= SUMMARIES_BURST
    effects = [
        effect
        for number in range(500)
        for effect in pump.receive("b1", Hello(ATTACKER, number, ExactForm.fingerprint, 0), sender=IN)
    ]
    assert sent(effects, Hello) <= LIVES_BURST


# Room.


def test_interest_in_all_is_bounded_and_who_has_less_than_a_share_still_gets_in() -> None:
    pump = attacked(RoutingConfig(interest_room_max=40 * ROOM))
    greedy = entries(range(1, 36))
    says(pump, Interest(100, 1, 0, 1, greedy))
    more = entries(range(50, 70))
    assert says(pump, Interest(101, 1, 0, 1, more)) == [LimitReached("interest_room_max", 40 * ROOM)]
    wants(pump, "b0", [1, 2])
    pump.advance(0.2)
    assert routing(pump, "b1").origins[0].interest.announced() == list(entries([1, 2]))


def test_an_unfinished_snapshot_counts_too() -> None:
    pump = attacked(RoutingConfig(interest_room_max=40 * ROOM))
    part = entries(range(1, 21))
    says(pump, Interest(100, 1, 0, 1, part, part=0, parts=3))
    assert says(pump, Interest(101, 1, 0, 1, part, part=0, parts=3)) == [LimitReached("interest_room_max", 40 * ROOM)]
