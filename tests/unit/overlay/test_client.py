"""The client: verbs, tickets answered exactly once, subscriptions that outlive the connection, and envelopes."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.content.envelope import FLAG, control_message, wrap
from penstock.content.message import Identity, Message, Value
from penstock.kernel.link import LinkInfo, LinkKind
from penstock.kernel.machine import SERVICE_SUBSCRIPTIONS, Accepted, Deliver, Done, Effect, Refused, Send
from penstock.kernel.packet import Lane
from penstock.kernel.trace import Dropped, InputRefused, Published, Subscribed, Unsubscribed
from penstock.overlay.assembly import Life, NodeConfig, client_node
from penstock.overlay.broker import Broker
from penstock.overlay.client import Client
from penstock.overlay.config import BrokerConfig, ClientConfig
from penstock.overlay.node import Node
from penstock.overlay.packets import Answer, Attach, Delivery, Hello, Publish, Subscribe, Unsubscribe
from penstock.overlay.records import ServiceSubscriptionRefused
from penstock.overlay.service import FORWARDING
from penstock.overlay.timers import ForwardingTimer
from penstock.testing import Pump, a_broker, a_client, a_message, attach, broker_network, publish
from penstock.transport.config import TransportConfig

LINK = 0
INFO = LinkInfo("b", LinkKind.RELIABLE, 1, 100)


def a_service(*, up: bool = True, subscriptions_max: int = 1000, traced: bool = True) -> Client:
    life = Life(name="c", incarnation=1, seed=1, traced=traced)
    config = NodeConfig(services={"forwarding": ClientConfig(subscriptions_max=subscriptions_max)})
    client = client_node((FORWARDING,), life, {}, config)[0].machine(Client)
    if up:
        client.link_changed(LINK, up=True, now=0.0)
    return client


def subscribe(client: Client, number: int, where: str = "n = 1", *, ticket: int = 1) -> list[object]:
    return list(client.subscribe(number, where, ticket=ticket, now=0.0))


def answer(client: Client, ticket: int, problem: str = "") -> list[object]:
    return list(client.receive([Answer(ticket, problem)], sender=LINK, now=0.0))


def state(client: Client) -> object:
    return dict(client._where), dict(client._unanswered), dict(client._asked), client._home


def test_the_first_word_on_a_link_is_attach() -> None:
    effects = a_service(up=False).link_changed(LINK, up=True, now=0.0)
    assert effects == [Send((LINK,), Attach("c", 1), Lane.CONTROL)]


def test_a_publication_is_recorded_sent_and_done() -> None:
    message = a_message(1, {"b": True, "a": 1.5})
    effects = a_service().publish((message,), tickets=(9,), now=0.0)
    assert effects == [
        Published("p", 1, 1, '{"a":1.5,"b":true}', 0),
        Send((LINK,), Publish(message), Lane.BEST_EFFORT),
        Done(9, Accepted()),
    ]


def test_the_record_says_how_long_ago_the_application_published() -> None:
    messages = (a_message(1), a_message(2))
    effects = a_service().publish(messages, tickets=(), now=5.0, began=(4.5, 5.0))
    assert [effect.waited for effect in effects if isinstance(effect, Published)] == [0.5, 0.0]


def test_publishing_while_the_link_is_down_is_refused_at_once() -> None:
    effects = a_service(up=False).publish((a_message(),), tickets=(9,), now=0.0)
    assert isinstance(effects[0], Dropped), "nobody could have received it, but it is not lost in silence"
    (done,) = effects[1:]
    assert isinstance(done, Done)
    assert isinstance(done.outcome, Refused)
    assert "not connected" in done.outcome.problem


def test_a_subscription_is_recorded_asked_for_and_answered_when_the_broker_answers() -> None:
    client = a_service()
    assert subscribe(client, 4, "n = 1", ticket=7) == [
        Subscribed(4, "n = 1"),
        Send((LINK,), Subscribe(1, 4, "n = 1"), Lane.CONTROL),
    ]
    assert answer(client, 1) == [Done(7, Accepted())]
    assert answer(client, 1) == []


def test_a_refused_subscription_tells_why_and_is_no_more() -> None:
    client = a_service()
    subscribe(client, 4, ticket=7)
    assert answer(client, 1, "no good") == [
        InputRefused("c", "no good"),
        Unsubscribed(4),
        Done(7, Refused("no good")),
    ]
    assert client.receive([Delivery((4,), a_message())], sender=LINK, now=0.0) == []


def test_a_number_in_use_is_refused_and_changes_nothing() -> None:
    client = a_service()
    subscribe(client, 4)
    before = state(client)
    (done,) = subscribe(client, 4, "n = 2", ticket=8)
    assert isinstance(done, Done)
    assert isinstance(done.outcome, Refused)
    assert state(client) == before


def test_one_subscription_too_many_is_refused_and_changes_nothing() -> None:
    client = a_service(subscriptions_max=1)
    subscribe(client, 4)
    before = state(client)
    (done,) = subscribe(client, 5, ticket=8)
    assert "subscriptions_max is 1" in done.outcome.problem  # type: ignore[attr-defined]
    assert state(client) == before


def test_a_subscription_made_while_the_link_is_down_is_answered_later() -> None:
    client = a_service(up=False)
    assert subscribe(client, 4, ticket=7) == [Subscribed(4, "n = 1")]
    effects = client.link_changed(LINK, up=True, now=0.0)
    assert [type(effect.packet) for effect in effects if isinstance(effect, Send)] == [Attach, Subscribe]
    assert answer(client, 1) == [Done(7, Accepted())]


def test_subscriptions_are_made_again_when_the_link_comes_back_and_answered_once() -> None:
    client = a_service()
    subscribe(client, 4, ticket=7)
    subscribe(client, 5, ticket=8)
    assert answer(client, 1) == [Done(7, Accepted())]
    client.link_changed(LINK, up=False, now=0.0)
    effects = client.link_changed(LINK, up=True, now=0.0)
    asked = [effect.packet for effect in effects if isinstance(effect, Send) and isinstance(effect.packet, Subscribe)]
    assert [packet.subscription for packet in asked] == [4, 5]
    assert answer(client, asked[0].ticket) == []
    assert answer(client, asked[1].ticket) == [Done(8, Accepted())]


def test_unsubscribing_is_done_at_once_and_stops_deliveries_at_once() -> None:
    client = a_service()
    subscribe(client, 4, ticket=7)
    answer(client, 1)
    assert client.unsubscribe(4, ticket=9, now=0.0) == [
        Unsubscribed(4),
        Done(9, Accepted()),
        Send((LINK,), Unsubscribe(0, 4), Lane.CONTROL),
    ]
    assert client.receive([Delivery((4,), a_message())], sender=LINK, now=0.0) == []


def test_unsubscribing_what_is_not_there_is_refused() -> None:
    client = a_service()
    before = state(client)
    (done,) = client.unsubscribe(4, ticket=9, now=0.0)
    assert isinstance(done, Done)
    assert isinstance(done.outcome, Refused)
    assert state(client) == before


def test_unsubscribing_before_the_answer_answers_both_tickets() -> None:
    client = a_service()
    subscribe(client, 4, ticket=7)
    effects = client.unsubscribe(4, ticket=9, now=0.0)
    done = {effect.ticket: type(effect.outcome) for effect in effects if isinstance(effect, Done)}
    assert done == {9: Accepted, 7: Refused}
    assert answer(client, 1) == []


@pytest.mark.parametrize("problem", ["", "no good"])
def test_a_late_answer_to_an_old_subscription_says_nothing_about_a_new_one_of_its_number(problem: str) -> None:
    client = a_service()
    subscribe(client, 4, "n = 1", ticket=7)
    client.unsubscribe(4, ticket=8, now=0.0)
    subscribe(client, 4, "n = 2", ticket=9)
    assert answer(client, 1, problem) == []
    assert answer(client, 2) == [Done(9, Accepted())]
    assert client.receive([Delivery((4,), a_message())], sender=LINK, now=0.0) == [Deliver(4, a_message())]


def test_a_delivery_reaches_each_subscription_that_is_in_force() -> None:
    client = a_service()
    for number in (1, 2, 3):
        subscribe(client, number, ticket=number)
    client.unsubscribe(2, ticket=9, now=0.0)
    effects = client.receive([Delivery((1, 2, 3, 99), a_message())], sender=LINK, now=0.0)
    assert effects == [Deliver(1, a_message()), Deliver(3, a_message())]


def test_an_answer_to_nothing_and_a_brokers_hello_are_ignored() -> None:
    client = a_service()
    before = state(client)
    assert client.receive([Answer(99, "no"), Hello(1, 1, "s", 0)], sender=LINK, now=0.0) == []
    assert state(client) == before


def test_another_links_end_is_not_the_home_links_end() -> None:
    client = a_service()
    client.link_changed(7, up=False, now=0.0)
    assert any(isinstance(effect, Send) for effect in client.publish((a_message(),), tickets=(1,), now=0.0))


def test_a_client_with_the_most_subscriptions_gets_all_of_them_back_after_a_break() -> None:
    node = a_client("c")
    for number in range(1000):
        node.subscribe(number, "x" * 4096, ticket=number, now=0.0)
    assert node.link_changed(LINK, up=True, now=0.0) == []
    effects = node.link_ready(LINK, room_bytes=1 << 30, now=0.0)
    asked = [effect.packet for effect in effects if isinstance(effect, Send) and isinstance(effect.packet, Subscribe)]
    assert [packet.subscription for packet in asked] == list(range(1000))


def test_a_broker_that_restarts_is_told_everything_again() -> None:
    pump = broker_network([], numbers=1)
    attach(pump, "c", "b0", "n = 1")
    attach(pump, "p", "b0")
    for client in ("c", "p"):
        pump.change(client, "b0", up=False)
    pump.add("b0", a_broker(0, 2))
    for client in ("c", "p"):
        pump.change(client, "b0", up=True)
    pump.run()
    publish(pump, "p", a_message(1))
    pump.run()
    assert pump.got("c") == [(1, a_message(1))]


VERBS = st.one_of(
    st.tuples(st.just("subscribe"), st.integers(0, 2), st.sampled_from(["n = 1", "n = = 1"])),
    st.tuples(st.just("unsubscribe"), st.integers(0, 2)),
    st.tuples(st.just("publish")),
    st.tuples(st.just("down")),
    st.tuples(st.just("up")),
    st.tuples(st.just("deliver"), st.integers(0, 9)),
)


@given(st.lists(VERBS, max_size=40))
def test_whatever_happens_every_ticket_is_answered_exactly_once(verbs: list[tuple[object, ...]]) -> None:
    pump = broker_network([], numbers=1)
    node = a_client("c")
    pump.add("c", node)
    pump.join("c", "b0")
    up, ticket = False, 0
    for verb in verbs:
        if verb[0] in ("subscribe", "unsubscribe", "publish"):
            ticket += 1
        match verb:
            case ("subscribe", int(number), str(where)):
                pump.apply("c", node.subscribe(number, where, ticket=ticket, now=pump.now))
            case ("unsubscribe", int(number)):
                pump.apply("c", node.unsubscribe(number, ticket=ticket, now=pump.now))
            case ("publish",):
                pump.apply("c", node.publish(a_message(ticket), ticket=ticket, now=pump.now))
            case ("down" | "up" as change,) if up != (change == "up"):
                up = change == "up"
                pump.change("c", "b0", up=up)
            case ("deliver", int(count)):
                for _ in range(min(count, len(pump.flights))):
                    pump.deliver()
    if not up:
        pump.change("c", "b0", up=True)
    pump.run()
    assert Counter(done.ticket for _, done in pump.done) == Counter(range(1, ticket + 1))
    home = pump.machines["b0"]
    assert isinstance(home, Node)
    served = home.machine(Broker)._clients[0].keys
    assert set(served) == set(node.node.machine(Client)._where), "client and broker agree in the end"


def test_pumps_of_clients_need_no_time() -> None:
    pump = Pump()
    pump.add("c", a_client("c"))
    assert pump.machines["c"].deadline() is None


def test_messages_without_tickets_go_out_together_and_are_recorded_when_they_cannot() -> None:
    messages = [a_message(1), a_message(2)]
    sent = a_service().publish(messages, tickets=(), now=0.0)
    assert [type(effect) for effect in sent] == [Published, Send] * 2
    assert [effect.packet.carried() for effect in sent if isinstance(effect, Send)] == messages
    lost = a_service(up=False).publish(messages, tickets=(), now=0.0)
    assert [(type(effect), effect.cause) for effect in lost] == [(Dropped, "not connected")] * 2  # type: ignore[union-attr]


def test_with_tickets_each_message_is_answered() -> None:
    messages = [a_message(1), a_message(2)]
    for up, outcome in ((True, Accepted), (False, Refused)):
        effects = a_service(up=up).publish(messages, tickets=(7, 8), now=0.0)
        done = [(effect.ticket, type(effect.outcome)) for effect in effects if isinstance(effect, Done)]
        assert done == [(7, outcome), (8, outcome)]


def test_where_nobody_keeps_records_publications_make_none() -> None:
    effects = a_service(traced=False).publish([a_message()], tickets=(), now=0.0)
    assert effects == [Send((LINK,), Publish(a_message()), Lane.BEST_EFFORT)]


# Envelopes, without a service that wants them.


def in_an_envelope(count: int = 1, header: bytes = b"header") -> Message:
    return wrap(a_message(count, body=b"body"), header)


def test_a_plain_client_takes_envelopes_off() -> None:
    client = a_service()
    subscribe(client, 4)
    effects = client.receive([Delivery((4,), in_an_envelope())], sender=LINK, now=0.0)
    assert effects == [Deliver(4, a_message(1, body=b"body"))]


def test_a_plain_client_hears_no_talk_between_services() -> None:
    client = a_service()
    subscribe(client, 4)
    said = control_message(Identity("~p", 1, 1), "repair", {"n": 1}, b"header", b"body")
    assert client.receive([Delivery((4,), said)], sender=LINK, now=0.0) == []


def test_a_damaged_envelope_is_refused_with_a_record() -> None:
    client = a_service()
    subscribe(client, 4)
    cut = Message(Identity("p", 1, 1), {"n": 1, FLAG: "data"}, b"\x00\x09short", 40)
    (refused,) = client.receive([Delivery((4,), cut)], sender=LINK, now=0.0)
    assert isinstance(refused, InputRefused)
    assert refused.sender == "p"


@pytest.mark.parametrize("flag", [1, True, 2.5, "unknown"])
def test_a_flag_that_nobody_sets_is_no_message_of_an_application(flag: Value) -> None:
    client = a_service()
    subscribe(client, 4)
    odd = Message(Identity("p", 1, 1), {"n": 1, FLAG: flag}, b"\x00\x00", 40)
    assert client.receive([Delivery((4,), odd)], sender=LINK, now=0.0) == []


# A service that uses the client's verbs.

OURS = SERVICE_SUBSCRIPTIONS


class Taker:
    """A service that serves subscriptions: it writes down what comes, and delivers message 99 for each."""

    opens_envelopes = True

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.taken: list[tuple[tuple[int, ...], Message, float]] = []
        self.refusals: list[int] = []

    def delivered(self, numbers: tuple[int, ...], message: Message, *, now: float) -> list[Effect]:
        self.taken.append((numbers, message, now))
        return [Deliver(number, a_message(99)) for number in numbers if number < SERVICE_SUBSCRIPTIONS]

    def refused(self, number: int, *, now: float) -> list[Effect]:
        self.refusals.append(number)
        return [InputRefused("taker", str(number))]


def with_takers(*ranks: int) -> tuple[Client, list[Taker]]:
    client, takers = a_service(), [Taker(rank) for rank in ranks]
    for taker in takers:
        client.serve(taker.rank, taker)  # type: ignore[arg-type]
    return client, takers


def test_a_service_takes_what_arrives_for_its_own_subscriptions_that_are_in_force() -> None:
    client, (taker,) = with_takers(3)
    client.subscribe(1, "n = 1", ticket=1, now=0.0, owner=3)
    client.listen(OURS, "_to = 'c'", 3)
    effects = client.receive([Delivery((1, 2, OURS), in_an_envelope())], sender=LINK, now=3.0)
    assert taker.taken == [((1, OURS), in_an_envelope(), 3.0)]
    assert effects == [Deliver(1, a_message(99))], "what it makes of it is what counts"


def test_a_delivery_goes_to_the_application_first_and_then_to_the_owners_in_the_order_of_the_list() -> None:
    client, (second, first) = with_takers(5, 2)
    for number, owner in ((1, 5), (2, None), (3, 2), (4, 5)):
        client.subscribe(number, "n = 1", ticket=number, now=0.0, owner=owner)
    effects = client.receive([Delivery((1, 2, 3, 4), a_message(7))], sender=LINK, now=0.0)
    assert effects == [Deliver(2, a_message(7)), *(Deliver(number, a_message(99)) for number in (3, 1, 4))]
    assert [numbers for numbers, *_ in first.taken] == [(3,)]
    assert [numbers for numbers, *_ in second.taken] == [(1, 4)]


def test_a_subscription_that_is_given_up_has_no_owner_any_more() -> None:
    client, (taker,) = with_takers(3)
    client.subscribe(1, "n = 1", ticket=1, now=0.0, owner=3)
    client.unsubscribe(1, ticket=2, now=0.0)
    subscribe(client, 1, ticket=3)
    effects = client.receive([Delivery((1,), a_message())], sender=LINK, now=0.0)
    assert effects == [Deliver(1, a_message())]
    assert taker.taken == []


@pytest.mark.parametrize("later", [False, True])
def test_the_owner_of_a_refused_subscription_is_told_now_or_after_a_reconnection(later: bool) -> None:
    client, (taker, other) = with_takers(3, 4)
    client.subscribe(1, "n = 1", ticket=7, now=0.0, owner=3)
    if later:
        assert answer(client, 1) == [Done(7, Accepted())]
        client.link_changed(LINK, up=False, now=0.0)
        client.link_changed(LINK, up=True, now=0.0)
    effects = answer(client, 2 if later else 1, "no good")
    done = [] if later else [Done(7, Refused("no good"))]
    assert effects == [InputRefused("c", "no good"), Unsubscribed(1), InputRefused("taker", "1"), *done]
    assert (taker.refusals, other.refusals) == ([1], [])
    assert client.receive([Delivery((1,), a_message())], sender=LINK, now=0.0) == []


def test_a_service_listens_without_a_ticket_and_without_a_place_in_the_trace() -> None:
    client = a_service()
    assert client.listen(OURS, "_to = 'c'", 3) == [Send((LINK,), Subscribe(1, OURS, "_to = 'c'"), Lane.CONTROL)]
    assert answer(client, 1) == []
    assert client.ignore(OURS) == [Send((LINK,), Unsubscribe(0, OURS), Lane.CONTROL)]
    assert client.ignore(OURS) == []


def test_a_service_subscription_outlives_the_connection_too() -> None:
    client = a_service(up=False)
    assert client.listen(OURS, "_to = 'c'", 3) == []
    for _ in range(2):
        effects = client.link_changed(LINK, up=True, now=0.0)
        asked = [effect.packet for effect in effects if isinstance(effect, Send)][1:]
        assert [packet.subscription for packet in asked] == [OURS]  # type: ignore[attr-defined]
        client.link_changed(LINK, up=False, now=0.0)
    assert client.ignore(OURS) == []
    assert len(client.link_changed(LINK, up=True, now=0.0)) == 1


def test_a_service_subscription_that_is_refused_is_recorded_and_tried_again_ever_more_rarely() -> None:
    node = client_node((FORWARDING,), Life(name="c", incarnation=1, seed=1), {LINK: INFO})[0]
    client = node.machine(Client)
    client.serve(3, taker := Taker(3))  # type: ignore[arg-type]
    client.link_changed(LINK, up=True, now=0.0)
    subscribe(client, 4)
    assert answer(client, 1) == [Done(1, Accepted())]
    client.listen(OURS, "_to = 'c'", 3)
    now, waits = 0.0, []
    for ticket in range(2, 10):
        refusal, told = client.receive([Answer(ticket, "full")], sender=LINK, now=now)
        assert refusal == InputRefused("c", "full")
        assert isinstance(told, ServiceSubscriptionRefused)
        assert (told.where, told.problem) == ("_to = 'c'", "full")
        deadline = node.deadline()
        assert deadline == now + told.again_in
        waits.append(told.again_in)
        now = deadline
        assert node.timers.pop_due(now) == ("forwarding", ForwardingTimer.SUBSCRIBE_AGAIN, OURS)
        (sent,) = client.expired(ForwardingTimer.SUBSCRIBE_AGAIN, (OURS,), now=now)
        assert sent == Send((LINK,), Subscribe(ticket + 1, OURS, "_to = 'c'"), Lane.CONTROL)
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    assert client.receive([Answer(10, "")], sender=LINK, now=now) == []
    client.receive([Delivery((OURS,), a_message())], sender=LINK, now=now)
    assert (len(taker.taken), taker.refusals, node.deadline()) == (1, [], None), "as if nothing had been"
    client.link_changed(LINK, up=False, now=now)
    client.link_changed(LINK, up=True, now=now)
    client.receive([Answer(12, "full")], sender=LINK, now=now)
    assert node.deadline() == now + 1.0, "what was accepted begins anew"


def test_a_client_of_which_nothing_was_accepted_attaches_again_before_it_asks_again() -> None:
    pump = broker_network([], numbers=1, config=NodeConfig(services={"forwarding": BrokerConfig(clients_max=1)}))
    pump.add("first", a_client("first"))
    pump.connect("first", "b0")
    pump.run()
    pump.add("second", a_client("second", settings={"transport": TransportConfig()}))
    pump.connect("second", "b0")
    pump.run()
    refused = pump.records_of("second", ServiceSubscriptionRefused)
    assert [record.again_in for record in refused] == [1.0], "its inbox"
    pump.change("first", "b0", up=False)
    pump.advance(1.5)
    assert len(pump.records_of("second", ServiceSubscriptionRefused)) == 1
    broker = pump.machines["b0"]
    assert isinstance(broker, Node)
    assert broker.machine(Broker).subscriptions_of(pump.link("b0", "second")) == 1


@pytest.mark.parametrize("end", ["ignored", "link down"])
def test_a_refused_service_subscription_that_is_no_longer_wanted_is_not_tried_again(end: str) -> None:
    node = client_node((FORWARDING,), Life(name="c", incarnation=1, seed=1), {LINK: INFO})[0]
    client = node.machine(Client)
    client.link_changed(LINK, up=True, now=0.0)
    client.listen(OURS, "_to = 'c'", 3)
    answer(client, 1, "full")
    assert node.deadline() is not None
    if end == "ignored":
        client.ignore(OURS)
    else:
        client.link_changed(LINK, up=False, now=0.0)
    assert node.deadline() is None
    subscribed = [effect for effect in client.link_changed(LINK, up=True, now=0.0) if isinstance(effect, Send)][1:]
    assert len(subscribed) == (0 if end == "ignored" else 1)


def test_an_application_cannot_take_a_number_of_a_service() -> None:
    client = a_service()
    before = state(client)
    (done,) = subscribe(client, OURS)
    assert isinstance(done, Done)
    assert isinstance(done.outcome, Refused)
    assert state(client) == before


@pytest.mark.parametrize("lane", [Lane.STREAM, Lane.TRANSPORT])
def test_what_a_service_carries_is_recorded_only_if_it_is_dropped(lane: Lane) -> None:
    assert a_service().carry(a_message(), lane) == Send((LINK,), Publish(a_message(), lane), lane)
    lost = a_service(up=False).carry(a_message(), lane)
    assert isinstance(lost, Dropped)
    assert (lost.place, lost.cause, lost.lane) == ("egress", "not connected", lane)


def test_messages_of_the_application_leave_in_the_lane_of_the_service_that_sends_them() -> None:
    published, send = a_service().sent([a_message()], Lane.TRANSPORT)
    assert isinstance(published, Published)
    assert send == Send((LINK,), Publish(a_message(), Lane.TRANSPORT), Lane.TRANSPORT)
