"""The verbs of an application: each goes to the service that claims it, and what comes back goes to its owner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import Struct

from penstock.content.envelope import FLAG, wrap
from penstock.content.message import DEFAULT_LIMITS, Identity, Message, MessageLimits, make_message
from penstock.kernel.machine import Accepted, Deliver, Done, Effect, Refused, Send
from penstock.kernel.packet import Lane
from penstock.kernel.service import Context, Reading, Service
from penstock.kernel.storage import Ticket
from penstock.kernel.trace import InputRefused, Published, Subscribed, Unsubscribed
from penstock.overlay.assembly import Life, NodeConfig, client_node
from penstock.overlay.client import Client
from penstock.overlay.node import Node
from penstock.overlay.packets import Answer, Delivery, Publish, Subscribe, Unsubscribe
from penstock.overlay.service import FORWARDING
from penstock.overlay.verbs import Verbs
from penstock.testing import a_message

HOME = 0
SMALL = MessageLimits(body_bytes_max=10)


class FirstOptions(Struct, frozen=True, kw_only=True):
    """What the first service can be asked for."""

    first: bool = False


class SecondOptions(Struct, frozen=True, kw_only=True):
    """What the second service can be asked for."""

    second: bool = False
    times: int = 1


class Options(Struct, frozen=True, kw_only=True):
    """All of it, as `services.options` gives it."""

    first: bool = False
    second: bool = False
    times: int = 1


class Claims(Struct, frozen=True):
    """Settings that make a service claim what asks for nothing."""


class Server:
    """A service that serves, carries and watches; with settings it claims also what asks for nothing."""

    limits = SMALL

    def __init__(self, context: Context) -> None:
        self.name = context.service
        self.client = context.below(Client)
        self.rank = context.rank
        self.claims = context.config is not None
        self.given: list[tuple[Any, ...]] = []

    def claims_publication(self) -> bool:
        return self.claims

    def may_wait(self) -> bool:
        return True

    def publish(
        self,
        messages: Sequence[Message],
        options: Any,
        *,
        tickets: Sequence[Ticket],
        now: float,
        began: Sequence[float] = (),
    ) -> list[Effect]:
        self.given.append(("publish", len(messages), options, tuple(tickets)))
        return self.client.sent(messages, Lane.STREAM)

    def claims_subscription(self) -> bool:
        return self.claims

    def subscribe(self, number: int, where: str, options: Any, *, ticket: Ticket, now: float) -> list[Effect]:
        self.given.append(("subscribe", number, options))
        return self.client.subscribe(number, where, ticket=ticket, now=now, owner=self.rank)

    def unsubscribe(self, number: int, *, ticket: Ticket, now: float) -> list[Effect]:
        self.given.append(("unsubscribe", number))
        return self.client.unsubscribe(number, ticket=ticket, now=now)

    def delivered(self, numbers: tuple[int, ...], message: Message, *, now: float) -> list[Effect]:
        self.given.append(("delivered", numbers))
        return [Deliver(number, message) for number in numbers]

    def refused(self, number: int, *, now: float) -> list[Effect]:
        self.given.append(("refused", number))
        return []

    def report(self, number: int) -> str | None:
        return f"report of {number}" if ("unsubscribe", number) not in self.given else None

    def read(self, number: int, reading: Reading, *, now: float) -> list[Effect]:
        self.given.append(("read", number, reading))
        return []


FIRST, SECOND = [
    Service(name=name, client=Server, subscription_options=options, publication_options=options)
    for name, options in (("first", FirstOptions), ("second", SecondOptions))
]


class Bench:
    """A client with both services."""

    def __init__(self, *listed: Service, claiming: Sequence[str] = (), up: bool = True) -> None:
        config = NodeConfig(services={name: Claims() for name in claiming})
        life = Life(name="c", incarnation=1, seed=1)
        made: tuple[Node, Verbs] = client_node((FORWARDING, *(listed or (FIRST, SECOND))), life, {}, config)
        self.node, self.verbs = made
        if up:
            self.node.link_changed(HOME, up=True, now=0.0)
            self.node.link_ready(HOME, room_bytes=1 << 30, now=0.0)

    def server(self, name: str) -> Server:
        machine = self.node.machines[name]
        assert isinstance(machine, Server)
        return machine

    def given(self, name: str, verb: str) -> list[tuple[Any, ...]]:
        return [tuple(rest) for found, *rest in self.server(name).given if found == verb]

    def subscribe(self, number: int, options: Options | None = None) -> list[Effect]:
        return self.verbs.subscribe(number, "n > 0", options, ticket=number, now=0.0)

    def deliver(self, message: Message, *numbers: int) -> list[Effect]:
        return self.node.receive([Delivery(numbers, message)], sender=HOME, now=0.0)


# Subscriptions.


def test_a_subscription_goes_to_the_service_whose_options_it_sets_and_otherwise_to_best_effort() -> None:
    bench = Bench()
    choices = {1: None, 2: Options(), 3: Options(second=True), 4: Options(first=True), 5: Options(times=2)}
    for number, options in choices.items():
        effects = bench.subscribe(number, options)
        assert effects[0] == Subscribed(number, "n > 0")
        assert [type(effect.packet) for effect in effects if isinstance(effect, Send)] == [Subscribe]
    assert bench.given("first", "subscribe") == [(4, Options(first=True))]
    assert bench.given("second", "subscribe") == [(3, Options(second=True)), (5, Options(times=2))]


@pytest.mark.parametrize(("listed", "owner"), [((FIRST, SECOND), "first"), ((SECOND, FIRST), "second")])
def test_what_asks_for_nothing_goes_to_the_first_service_in_the_list_that_claims_it(
    listed: tuple[Service, ...], owner: str
) -> None:
    bench = Bench(*listed, claiming=("first", "second"))
    bench.subscribe(1)
    bench.subscribe(2, Options())
    assert bench.given(owner, "subscribe") == [(1, None), (2, Options())]
    other = "first" if owner == "second" else "second"
    bench.subscribe(3, Options(**{other: True}))
    assert bench.given(other, "subscribe") == [(3, Options(**{other: True}))], "whose options are set goes before"


def test_one_delivery_serves_the_application_and_then_each_owner_in_the_order_of_the_list() -> None:
    bench = Bench()
    for number, options in ((1, Options(second=True)), (2, None), (3, Options(first=True)), (4, Options(second=True))):
        bench.subscribe(number, options)
    effects = bench.deliver(a_message(), 1, 2, 3, 4, 99)
    assert effects == [Deliver(number, a_message()) for number in (2, 3, 1, 4)]
    assert bench.given("first", "delivered") == [((3,),)]
    assert bench.given("second", "delivered") == [((1, 4),)]


def test_owners_and_the_application_get_what_is_in_an_envelope_and_nothing_that_services_send_each_other() -> None:
    bench = Bench()
    bench.subscribe(1)
    bench.subscribe(2, Options(first=True))
    inside = a_message(1, body=b"body")
    enveloped = wrap(inside, b"header")
    assert bench.deliver(enveloped, 1, 2) == [Deliver(1, inside), Deliver(2, inside)]
    between_services = make_message(Identity("~p", 1, 1), {FLAG: "heartbeat"}, b"", reserved=True)
    assert bench.deliver(between_services, 1, 2) == []


def test_unsubscribing_is_the_owners_business_and_stops_deliveries_to_it() -> None:
    bench = Bench()
    bench.subscribe(1, Options(first=True))
    effects = bench.verbs.unsubscribe(1, ticket=9, now=0.0)
    assert Unsubscribed(1) in effects
    assert Done(9, Accepted()) in effects
    assert [effect.packet for effect in effects if isinstance(effect, Send)] == [Unsubscribe(0, 1)]
    assert (bench.given("first", "unsubscribe"), bench.given("second", "unsubscribe")) == ([(1,)], [])
    assert bench.deliver(a_message(), 1) == []
    bench.subscribe(1)
    assert bench.deliver(a_message(), 1) == [Deliver(1, a_message())]
    assert bench.given("first", "delivered") == []


def test_only_the_owner_hears_that_its_subscription_was_refused() -> None:
    bench = Bench()
    bench.subscribe(1, Options(second=True))
    effects = bench.node.receive([Answer(1, "no good")], sender=HOME, now=0.0)
    assert effects == [InputRefused("c", "no good"), Unsubscribed(1), Done(1, Refused("no good"))]
    assert (bench.given("first", "refused"), bench.given("second", "refused")) == ([], [(1,)])
    assert bench.deliver(a_message(), 1) == []


def test_after_a_reconnection_the_owner_may_hear_it_too_and_no_ticket_is_answered_twice() -> None:
    bench = Bench()
    bench.subscribe(1, Options(second=True))
    bench.node.receive([Answer(1)], sender=HOME, now=0.0)
    bench.node.link_changed(HOME, up=False, now=1.0)
    bench.node.link_changed(HOME, up=True, now=2.0)
    effects = bench.node.receive([Answer(2, "no good")], sender=HOME, now=3.0)
    assert [effect for effect in effects if isinstance(effect, Done)] == []
    assert bench.given("second", "refused") == [(1,)]


def test_reports_are_those_of_the_services_that_know_the_subscription() -> None:
    bench = Bench()
    assert bench.verbs.reports(5) == {"first": "report of 5", "second": "report of 5"}
    bench.server("first").given.append(("unsubscribe", 5))
    assert bench.verbs.reports(5) == {"second": "report of 5"}


# Publications.


def test_without_a_service_that_claims_it_a_publication_goes_by_best_effort() -> None:
    bench = Bench()
    messages = [a_message(1), a_message(2)]
    effects = bench.verbs.publish(messages, tickets=(5, 6), now=0.0)
    sends = [effect for effect in effects if isinstance(effect, Send)]
    assert sends == [Send((HOME,), Publish(message), Lane.BEST_EFFORT) for message in messages]
    assert [effect for effect in effects if isinstance(effect, Done)] == [Done(5, Accepted()), Done(6, Accepted())]
    assert bench.verbs.carrier() is None
    assert bench.verbs.limits() == DEFAULT_LIMITS


def test_the_first_service_that_claims_publications_carries_them_in_its_lane_and_its_limits_hold() -> None:
    bench = Bench(claiming=("first", "second"))
    effects = bench.verbs.publish((a_message(),), tickets=(5,), now=0.0)
    assert [type(effect) for effect in effects] == [Published, Send]
    assert effects[1] == Send((HOME,), Publish(a_message(), Lane.STREAM), Lane.STREAM)
    assert bench.given("first", "publish") == [(1, None, (5,))]
    assert bench.given("second", "publish") == []
    assert bench.verbs.carrier() is bench.server("first")
    assert bench.verbs.limits() == SMALL


def test_options_of_a_publication_decide_who_carries_it() -> None:
    bench = Bench()
    options = Options(second=True)
    bench.verbs.publish((a_message(),), options, now=0.0)
    assert bench.given("second", "publish") == [(1, options, ())]
    assert bench.verbs.carrier(options) is bench.server("second")
    assert (bench.verbs.limits(options), bench.verbs.limits(Options())) == (SMALL, DEFAULT_LIMITS)
    claimed = Bench(claiming=("first",))
    claimed.verbs.publish((a_message(),), options, now=0.0)
    assert (claimed.given("first", "publish"), len(claimed.given("second", "publish"))) == ([], 1)


# Reading.


def test_the_owner_hears_how_the_application_reads() -> None:
    bench, reading = Bench(), Reading(1, 2, 3, (a_message(),))
    bench.subscribe(4, Options(second=True))
    bench.subscribe(5)
    assert bench.verbs.read(4, reading, now=0.0) == bench.verbs.read(5, reading, now=0.0) == []
    assert (bench.given("first", "read"), bench.given("second", "read")) == ([], [(4, reading)])


def test_a_number_that_a_service_serves_is_in_use() -> None:
    bench = Bench()
    bench.subscribe(4, Options(second=True))
    assert bench.verbs.subscribe(4, "TRUE", None, ticket=7, now=0.0) == [
        Done(7, Refused("subscription 4 exists; choose another number"))
    ]


def test_a_number_whose_subscription_a_broker_refused_is_free_again() -> None:
    bench = Bench()
    bench.subscribe(1, Options(second=True))
    bench.node.receive([Answer(1, "no good")], sender=HOME, now=0.0)
    bench.server("second").given.append(("unsubscribe", 1))  # it reports nothing of it any more
    assert not [effect for effect in bench.subscribe(1) if isinstance(effect, Done)]
    assert bench.deliver(a_message(), 1) == [Deliver(1, a_message())]
    assert bench.verbs.read(1, Reading(1, 2, 3), now=0.0) == []
    assert (bench.given("second", "delivered"), bench.given("second", "read")) == ([], [])


# The way out.


def test_what_verbs_want_sent_waits_for_room_like_everything_else() -> None:
    bench = Bench(up=False)
    bench.node.link_changed(HOME, up=True, now=0.0)
    assert bench.verbs.publish((a_message(1),), now=0.0) == [Published("p", 1, 1, '{"n":1}', 0)], (
        "recorded, and not on the wire yet"
    )
    assert bench.subscribe(1) == [Subscribed(1, "n > 0")]
    kinds = [
        type(effect.packet).__name__
        for effect in bench.node.link_ready(HOME, room_bytes=1 << 20, now=0.0)
        if isinstance(effect, Send)
    ]
    assert kinds == ["Attach", "Subscribe", "Publish"], "control first"
