"""Assembly: a node from a list of services, each machine made from a context of its own, in the order of the list."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import pytest
from msgspec import Struct

from penstock.content.bloom import EncodingScheme
from penstock.errors import InvalidService, NotPossibleHere
from penstock.kernel.link import Link, LinkInfo
from penstock.kernel.machine import SERVICE_SUBSCRIPTIONS, Effect, Send
from penstock.kernel.packet import BROKER, CLIENT, Lane, Packet
from penstock.kernel.queue import LaneBounds, Overflow, QueueConfig
from penstock.kernel.service import NUMBERS_PER_SERVICE, Context, HasStatus, HasTimers, Service, TakesPackets, can
from penstock.kernel.storage import Get, StorageResult, Ticket
from penstock.kernel.timers import Key
from penstock.overlay.assembly import Life, NodeConfig, broker_node, client_node
from penstock.overlay.broker import Broker
from penstock.overlay.client import Client
from penstock.overlay.config import RoutingConfig
from penstock.overlay.credit import Credit
from penstock.overlay.packets import Hello
from penstock.overlay.routing import Routing
from penstock.overlay.service import FORWARDING, ROUTING
from penstock.overlay.verbs import Verbs
from penstock.services import services
from penstock.testing import a_client
from penstock.transport.client_service import TransportClient
from penstock.transport.config import TransportConfig

LIFE = Life(name="n", incarnation=3, seed=7, number=5)


class Kept:
    """A machine that keeps its context."""

    def __init__(self, context: Context) -> None:
        self.context = context


class Other(Kept):
    """The same under another name."""


class Numbers(Struct, frozen=True):
    """Settings."""

    n: int = 0


class Beat(IntEnum):
    TICK = 0


def a_service(name: str, machine: Any = Kept, **more: Any) -> Service:
    return Service(name=name, **{"broker": machine, "client": machine, **more})


def contexts(*listed: Service, life: Life = LIFE, config: NodeConfig | None = None) -> list[Context]:
    node = broker_node(listed, life, {4: LinkInfo("peer")}, config)
    return [machine.context for machine in node.machines.values()]


# The order of the list.


def test_machines_stand_in_the_order_of_the_list_and_only_those_that_the_role_has() -> None:
    listed = (a_service("c"), a_service("a", client=None), a_service("b", broker=None), Service(name="nothing"))
    assert list(broker_node(listed, LIFE, {}).machines) == ["c", "a"]
    node, verbs = client_node((*listed, FORWARDING), LIFE, {})
    assert list(node.machines) == ["c", "b", "forwarding"]
    assert isinstance(verbs, Verbs)


def test_the_nodes_of_penstock_are_made_of_these() -> None:
    broker = broker_node(services(), LIFE, {})
    assert list(broker.machines)[:3] == ["routing", "forwarding", "status"]
    client, _ = client_node(services(), LIFE, {})
    assert {"forwarding", "status", "transport"} <= set(client.machines)
    assert [type(broker.machine(kind)) for kind in (Routing, Broker)] == [Routing, Broker]
    assert [type(client.machine(kind)) for kind in (Client, TransportClient)] == [Client, TransportClient]


def test_a_machine_finds_those_below_it_and_none_above() -> None:
    first, second, third = contexts(a_service("first"), a_service("second", Other), a_service("third"))
    assert list(first.machines) == []
    assert list(second.machines) == ["first"]
    assert list(third.machines) == ["first", "second"]
    assert third.below(Other) is third.machines["second"]
    assert third.below(Kept) is third.machines["first"]
    with pytest.raises(AssertionError, match="service 'second' needs a Broker before it in the list of services"):
        second.below(Broker)
    with pytest.raises(AssertionError, match="service 'first' needs a Other before it"):
        first.below(Other)


def test_a_list_in_the_wrong_order_is_a_broken_invariant() -> None:
    with pytest.raises(AssertionError, match="service 'forwarding' needs a Routing before it"):
        broker_node((FORWARDING, ROUTING), LIFE, {})


def test_the_rank_in_the_list_is_the_same_in_both_roles_and_gives_each_its_own_numbers() -> None:
    listed = (a_service("a"), a_service("b", client=None), a_service("c"), FORWARDING)
    ranks = {context.service: context.rank for context in contexts(*listed[:3])}
    assert ranks == {"a": 0, "b": 1, "c": 2}
    node, _ = client_node(listed, LIFE, {})
    assert [node.machines[name].context.rank for name in ("a", "c")] == [0, 2]
    firsts = [node.machines[name].context.first_subscription for name in ("a", "c")]
    assert firsts == [SERVICE_SUBSCRIPTIONS, SERVICE_SUBSCRIPTIONS + 2 * NUMBERS_PER_SERVICE]


# What a machine is made from.


def test_a_context_says_whose_life_it_is() -> None:
    (context,) = contexts(a_service("a", lane=Lane.STREAM))
    assert (context.name, context.role, context.incarnation, context.number, context.seed) == ("n", BROKER, 3, 5, 7)
    assert (context.service, context.lane, context.traced) == ("a", Lane.STREAM, True)
    assert context.links == {4: LinkInfo("peer")}
    (untraced,) = contexts(a_service("a"), life=Life(name="n", incarnation=1, seed=1, traced=False))
    assert not untraced.traced
    node, _ = client_node((a_service("a"), FORWARDING), LIFE, {})
    assert node.machines["a"].context.role == CLIENT


def test_settings_go_to_the_service_they_are_for_and_others_have_their_defaults() -> None:
    config = NodeConfig(scheme=EncodingScheme(bits=256), services={"a": Numbers(4)})
    first, second = contexts(a_service("a"), a_service("b"), config=config)
    assert (first.config, second.config) == (Numbers(4), None)
    assert (first.settings(Numbers), second.settings(Numbers)) == (Numbers(4), Numbers(0))
    assert first.scheme == second.scheme == EncodingScheme(bits=256)
    with pytest.raises(AssertionError, match="the settings of 'a' are no RoutingConfig"):
        first.settings(RoutingConfig)


def test_generators_differ_by_purpose_service_node_life_and_seed_and_are_the_same_again() -> None:
    first, second = contexts(a_service("a"), a_service("b"))
    drawn = {
        "hello": first.random("hello").random(),
        "other purpose": first.random("recovery").random(),
        "other service": second.random("hello").random(),
    }
    lives = {
        "other seed": Life(name="n", incarnation=3, seed=8, number=5),
        "other life": Life(name="n", incarnation=4, seed=7, number=5),
        "other node": Life(name="m", incarnation=3, seed=7, number=5),
    }
    drawn |= {name: contexts(a_service("a"), life=life)[0].random("hello").random() for name, life in lives.items()}
    assert len(set(drawn.values())) == len(drawn)
    (again,) = contexts(a_service("a"))
    assert again.random("hello").random() == drawn["hello"]
    assert first.random("hello").random() == drawn["hello"], "every call begins anew"


def test_a_client_without_settings_of_the_transport_publishes_past_it() -> None:
    plain, configured = a_client("c"), a_client("c", settings={"transport": TransportConfig()})
    assert not plain.node.machine(TransportClient).claims_publication()
    assert configured.node.machine(TransportClient).claims_publication()


def test_timers_and_questions_carry_the_name_of_the_service() -> None:
    first, second = contexts(a_service("a"), a_service("b"))
    assert (first.storage.ask(Get("x")).area, second.storage.ask(Get("x")).area) == ("a", "b")
    first.timers.set(Beat.TICK, 1.0)
    second.timers.set(Beat.TICK, 1.0)
    assert len(first.node.timers) == 2  # type: ignore[attr-defined]


def test_a_service_says_whether_its_lane_holds_and_all_others_stay_as_they_are() -> None:
    queues = QueueConfig(lanes={**QueueConfig().lanes, Lane.STREAM: LaneBounds(bytes_max=5_000, weight=7)})
    holder = a_service("holder", lane=Lane.STREAM, overflow=Overflow.HOLD)
    for listed, first in (((holder,), [Credit(Lane.STREAM, 5_000)]), ((a_service("plain", lane=Lane.STREAM),), [])):
        node = broker_node(listed, LIFE, {}, NodeConfig(queues=queues))
        node.link_changed(4, up=True, now=0.0)
        sent = node.link_ready(4, room_bytes=1_000_000, now=0.0)
        assert [effect.packet for effect in sent if isinstance(effect, Send)] == first
    assert queues.held_lanes == (), "the settings themselves are not touched"


# Storage.


class Storing(Kept):
    """A machine that asks storage."""

    def completed(self, ticket: Ticket, result: StorageResult, *, now: float) -> list[Effect]:
        return []


def test_a_service_that_stores_needs_a_host_that_can_and_the_error_names_both() -> None:
    keeper = Service(name="keeper", broker=Storing, client=Kept, stores=(BROKER,))
    with pytest.raises(NotPossibleHere, match="service 'keeper' stores data, and broker 'n' cannot") as caught:
        broker_node((keeper,), LIFE, {})
    assert "--data" in caught.value.remedy
    able = Life(name="n", incarnation=1, seed=1, storage=True)
    assert list(broker_node((keeper,), able, {}).machines) == ["keeper"]


def test_a_service_that_can_do_without_storage_is_told_whether_there_is_any() -> None:
    told: list[bool] = []

    class Told(Storing):
        def __init__(self, context: Context) -> None:
            super().__init__(context)
            told.append(context.has_storage)

    keeper = Service(name="keeper", broker=Told, stores=(BROKER,), storage_optional=True)
    for storage in (False, True):
        broker_node((keeper,), Life(name="n", incarnation=1, seed=1, storage=storage), {})
    assert told == [False, True]


def test_where_a_service_does_not_store_in_this_role_or_has_no_machine_no_storage_is_needed() -> None:
    keeper = Service(name="keeper", broker=Storing, client=Kept, stores=(BROKER,))
    node, _ = client_node((keeper, FORWARDING), LIFE, {})
    assert list(node.machines) == ["keeper", "forwarding"]
    absent = Service(name="absent", client=Storing, stores=(BROKER, CLIENT))
    assert list(broker_node((absent,), LIFE, {}).machines) == []
    with pytest.raises(NotPossibleHere, match="service 'absent' stores data, and client 'n' cannot"):
        client_node((absent, FORWARDING), LIFE, {})


# What a machine does, its declaration says.


class Taking(Kept):
    """A machine that takes packets and sets timers."""

    packet_kinds: tuple[type[Packet], ...] = (Hello,)

    def receive(self, packets: Sequence[Packet], *, sender: Link, now: float) -> list[Effect]:
        return []

    def expired(self, timer: int, key: Key, *, now: float) -> list[Effect]:
        return []


def test_a_capability_is_there_when_the_class_has_all_of_it() -> None:
    (context,) = contexts(a_service("a"))
    assert can(Taking(context), TakesPackets)
    assert can(Taking(context), HasTimers)
    assert not can(Taking(context), HasStatus)
    assert not can(Kept(context), TakesPackets)


@pytest.mark.parametrize(
    ("service", "problem"),
    [
        (Service(name="a", broker=Taking, timers=Beat), "takes Hello and does not declare it"),
        (Service(name="a", broker=Taking, packets=(Hello,)), "has timers and does not declare"),
        (Service(name="a", broker=Storing), "uses storage and does not say so"),
        (Service(name="a", broker=Kept, stores=(BROKER,)), "uses storage and does not say so"),
    ],
)
def test_a_machine_that_does_what_it_does_not_declare_is_refused(service: Service, problem: str) -> None:
    with pytest.raises(InvalidService, match=problem):
        broker_node((service,), Life(name="n", incarnation=1, seed=1, storage=True), {})


# What is seen of a node.


class Status(Struct):
    """A report."""

    lines: int


class Reporting(Kept):
    """A machine that says how it is."""

    def status(self) -> Status:
        return Status(3)


def test_a_node_reports_what_its_host_and_its_services_say() -> None:
    life = Life(name="n", incarnation=1, seed=1, host_view=lambda: {"links": 2})
    node = broker_node((a_service("a", Reporting), a_service("b"), a_service("c", Reporting)), life, {})
    assert node.status() == {"links": 2, "services": {"a": {"lines": 3}, "c": {"lines": 3}}}


def test_two_services_that_take_one_packet_cannot_stand_side_by_side() -> None:
    twins = [Service(name=name, broker=Taking, packets=(Hello,), timers=Beat) for name in ("a", "b")]
    with pytest.raises(AssertionError, match="two services take Hello"):
        broker_node(twins, LIFE, {})
