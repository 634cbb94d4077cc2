"""The send path under congestion control: numbers, tickets, repairs, and what a message carries about its flow."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.content.envelope import DATA, kind_of, opened
from penstock.content.language.parser import parse_predicate
from penstock.content.message import Identity, Message, make_message
from penstock.kernel import machine
from penstock.kernel.machine import SERVICE_SUBSCRIPTIONS, Accepted, Done, Refused, Send
from penstock.kernel.randomness import generator
from penstock.kernel.timers import ServiceTimers, Timers
from penstock.kernel.trace import Counted, InputRefused, Published
from penstock.overlay.client import NOT_CONNECTED
from penstock.overlay.packets import Delivery, Subscribe
from penstock.pricing.config import PricingClientConfig
from penstock.testing import a_client
from penstock.transport.bearer import BearerPublish, TransportEffect
from penstock.transport.config import TransportConfig, papers_config
from penstock.transport.receiver.rate_controller import receiver_hash
from penstock.transport.records import MessageWithheld, RepairSent
from penstock.transport.sender.flow_table import flow_of
from penstock.transport.transport import Transport
from penstock.transport.wire.control_messages import (
    ECHO,
    FEEDBACK,
    REQUEST,
    TO,
    ControlIdentities,
    Feedback,
    FlowQuota,
    Key,
    Request,
    feedback_message,
    request_to_publisher,
)
from penstock.transport.wire.flow_fields import Control
from penstock.transport.wire.header import Header, decode_header

DROP = papers_config(congestion=True, when_full="drop", flow_queue=3, record_entries=2, quota_floor=0.1)
WAIT = papers_config(congestion=True, when_full="wait", record_entries=2, quota_floor=0.1)
INBOX = SERVICE_SUBSCRIPTIONS  # the first of the transport's own


class Publisher:
    """A transport, what left it, and how its tickets were answered."""

    def __init__(self, config: TransportConfig = DROP) -> None:
        self.config = config
        self.timers = Timers()
        timers = ServiceTimers("transport", self.timers)
        self.transport = Transport("p", 1, config, timers, partial(generator, 1, "p"), publishes=True)
        self.identities: dict[str, ControlIdentities] = {}
        self.count = 0
        self.now = 0.0
        self.left: list[tuple[float, Message]] = []
        self.control_messages: list[Message] = []
        self.outcomes: dict[int, list[machine.Outcome]] = {}
        self.records: list[object] = []

    def do(self, effects: list[TransportEffect]) -> None:
        for effect in effects:
            if isinstance(effect, BearerPublish) and kind_of(effect.message) == DATA:
                self.left.append((self.now, effect.message))
            elif isinstance(effect, BearerPublish):
                self.control_messages.append(effect.message)
            elif isinstance(effect, Done):
                self.outcomes.setdefault(effect.ticket, []).append(effect.outcome)
            else:
                self.records.append(effect)

    def publish(self, **attributes: int | str | bool) -> int:
        self.count += 1
        message = make_message(Identity("p", 1, self.count), attributes)
        self.do(self.transport.publish(message, now=self.now, ticket=self.count))
        return self.count

    def receive(self, subscriber: str, *flows: tuple[str, float], sent_at: float | None = None) -> None:
        asked = tuple(
            FlowQuota(
                quota,
                self.config.encoding.to_bytes(
                    flow_of(parse_predicate(where), self.config.encoding, exact=False).encoding
                ),
            )
            for where, quota in flows
        )
        identities = self.identities.setdefault(subscriber, ControlIdentities(subscriber, 1))
        feedback = Feedback(subscriber, self.now - 0.02 if sent_at is None else sent_at, asked)
        self.do(self.transport.arrived((INBOX,), feedback_message(identities, "p", feedback), now=self.now))

    def run(self, until: float) -> None:
        while (deadline := self.timers.deadline()) is not None and deadline <= until:
            self.now = max(self.now, deadline)
            while (name := self.timers.pop_due(self.now)) is not None:
                self.do(self.transport.expired(int(name[1]), name[2:], now=self.now))
        self.now = until

    def headers(self) -> list[Header]:
        found = []
        for _, message in self.left:
            data, _ = opened(message)
            found.append(decode_header(data, 0, entry_bits=self.config.record_bits))
        return found

    def controls(self) -> list[Control]:
        return [header.control for header in self.headers() if header.control is not None]


# --- Numbers and headers.


def test_numbers_are_given_when_leaving_and_not_when_queued() -> None:
    """Erratum C10."""
    publisher = Publisher()
    publisher.receive("s", ("a", 10.0))
    for _ in range(4):
        publisher.publish(a=True)
    publisher.publish(b=True)
    publisher.run(1.0)
    assert [header.sequence for header in publisher.headers()] == [1, 2, 3, 4, 5]
    counts = [opened(message)[1].identity.count for _, message in publisher.left]
    assert counts == [1, 2, 5, 3, 4]
    departures = [header.departure for header in publisher.headers()]
    assert departures == [pytest.approx(time) for time, _ in publisher.left]


def test_the_trace_says_how_long_each_message_waited_since_it_was_published() -> None:
    """Delay is what the application sees: it begins with publish(), not where the rate limiter lets a message go."""
    publisher = Publisher(WAIT)
    publisher.receive("s", ("a", 10.0))
    publisher.now = 3.0
    for _ in range(4):
        publisher.publish(a=True)
    publisher.publish(b=True)
    message = make_message(Identity("p", 1, 6), {"b": True})
    publisher.do(publisher.transport.publish(message, now=3.0, ticket=6, began=2.5))
    publisher.run(5.0)
    left = {opened(message)[1].identity.count: at for at, message in publisher.left}
    waited = {fact.count: fact.waited for fact in publisher.records if isinstance(fact, Published)}
    assert waited == {count: pytest.approx(at - 3.0) for count, at in left.items()} | {6: 0.5}
    assert max(waited.values()) > 0.1, "some had to wait for tokens"


def test_a_withheld_message_takes_no_number() -> None:
    publisher = Publisher()
    publisher.receive("s", ("a", 10.0))
    for _ in range(20):
        publisher.publish(a=True)
    publisher.run(2.0)
    assert [header.sequence for header in publisher.headers()] == [1, 2, 3, 4, 5]
    assert len([record for record in publisher.records if isinstance(record, MessageWithheld)]) == 15


def test_the_record_tells_of_what_left_in_the_order_it_left() -> None:
    publisher = Publisher()
    publisher.receive("s", ("a", 10.0))
    for name in ("a", "a", "a", "b"):
        publisher.publish(**{name: True})
    publisher.run(1.0)
    scheme = publisher.config.encoding
    last = publisher.headers()[-1]
    assert last.entries()[0] == scheme.encode_message({"b": True})
    assert last.entries()[1] == scheme.encode_message({"a": True})


def test_a_message_names_the_limiting_receiver_of_its_slowest_flow() -> None:
    """Erratum C7: there is room for one."""
    publisher = Publisher()
    publisher.receive("fast", ("a", 50.0))
    publisher.receive("slow", ("b", 5.0))
    publisher.publish(a=True, b=True)
    publisher.publish(a=True)
    publisher.publish(c=True)
    assert [control.limiting for control in publisher.controls()] == [receiver_hash("slow"), receiver_hash("fast"), 0]


def test_a_flow_counts_the_messages_that_name_it() -> None:
    """Nobody sees a gap where nothing was lost."""
    publisher = Publisher()
    publisher.receive("fast", ("a", 500.0))
    publisher.receive("slow", ("b", 60.0))
    for names in ("a", "ab", "a", "ab", "a", "b"):
        publisher.publish(**dict.fromkeys(names, True))
    places: dict[int, list[int]] = {}
    for control in publisher.controls():
        for flow in control.followed:
            places.setdefault(flow.limiting, []).append(flow.place)
    assert places == {receiver_hash("fast"): [1, 2, 3, 4, 5], receiver_hash("slow"): [1, 2, 3]}


def test_a_message_names_the_four_slowest_of_its_flows() -> None:
    """Erratum C7. Who is not named counts nothing, and keeps what it knows."""
    publisher = Publisher()
    for number, name in enumerate("abcde"):
        publisher.receive(name, (name, 100.0 - number))
    publisher.publish(**dict.fromkeys("abcde", True))
    publisher.publish(a=True)
    crowded, alone = publisher.controls()
    assert [flow.limiting for flow in crowded.followed] == [receiver_hash(name) for name in "edcb"]
    assert not crowded.names_all
    assert [(flow.limiting, flow.place) for flow in alone.followed] == [(receiver_hash("a"), 1)]
    assert alone.names_all


def test_the_header_says_how_long_the_feedback_travelled_by_two_clocks() -> None:
    """Erratum C6. The clocks may be years apart."""
    for apart in (0.0, -5.0, 1e4, -1e7, 1.7e9):
        publisher = Publisher()
        publisher.receive("s", ("a", 50.0), sent_at=publisher.now + apart - 0.034)
        publisher.publish(a=True)
        (control,) = publisher.controls()
        down = 0.012 + apart  # by the subscriber's clock
        assert (down + control.travel) % ((1 << 32) * 1e-6) == pytest.approx(0.046, abs=2e-6)


def test_the_rate_in_the_header_is_of_what_leaves() -> None:
    """Erratum C14: of what is offered it would be wrong while a flow is held back."""
    publisher = Publisher()
    for step in range(1000):
        publisher.run(step * 0.01)
        if step == 100:
            publisher.receive("s", ("a", 20.0))
        if step > 100 and step % 10 == 0:
            publisher.receive("s", ("a", 20.0))
        publisher.publish(a=True)
    assert publisher.controls()[-1].rate == pytest.approx(20.0, rel=0.2)


# --- Tickets.


def test_a_ticket_is_answered_when_its_message_has_left() -> None:
    publisher = Publisher(WAIT)
    publisher.receive("s", ("a", 10.0))
    tickets = [publisher.publish(a=True) for _ in range(4)]
    assert publisher.outcomes == {1: [Accepted()], 2: [Accepted()]}
    publisher.run(0.15)
    assert 3 in publisher.outcomes
    assert 4 not in publisher.outcomes
    publisher.run(0.25)
    assert publisher.outcomes == {ticket: [Accepted()] for ticket in tickets}
    assert len([record for record in publisher.records if isinstance(record, Published)]) == 4


def test_who_is_withheld_learns_by_whom() -> None:
    publisher = Publisher()
    publisher.receive("snail", ("a", 10.0))
    for _ in range(6):
        publisher.publish(a=True)
    (outcome,) = publisher.outcomes[6]
    assert isinstance(outcome, machine.Withheld)
    assert "snail takes 10 messages/s" in outcome.problem


def test_when_the_network_goes_away_those_who_wait_are_refused() -> None:
    publisher = Publisher(WAIT)
    publisher.receive("s", ("a", 10.0))
    for _ in range(5):
        publisher.publish(a=True)
    publisher.do(publisher.transport.close("the link is down"))
    assert [publisher.outcomes[ticket] for ticket in (3, 4, 5)] == [[Refused("the link is down")]] * 3
    publisher.run(1.0)
    assert len(publisher.left) == 2
    assert all(len(answers) == 1 for answers in publisher.outcomes.values())


def test_whoever_leaves_lets_out_what_waits_in_slow_start() -> None:
    publisher = Publisher(replace(WAIT, slow_start=True))
    for _ in range(10):
        publisher.publish(x=1)
    assert len(publisher.left) < 10
    publisher.do(publisher.transport.leaving(now=publisher.now))
    assert len(publisher.left) == 10
    assert publisher.transport.left_behind() == []


def test_what_cannot_leave_slow_start_is_refused_and_nobody_need_wait_to_know() -> None:
    transport = Publisher(replace(WAIT, slow_start=True)).transport
    attributes = [{"x": 1}] * 20 + [{f"a{number}": 1 for number in range(64)}]
    for count, one in enumerate(attributes, 1):
        transport.publish(Message(Identity("p", 1, count), one, b"", 100), now=0.0)
    refused = [effect for effect in transport.leaving(now=0.0) if isinstance(effect, InputRefused)]
    assert [one.sender for one in refused] == ["p"]


@pytest.mark.parametrize("ends", ["withdrawn", "closed"])
def test_what_waits_in_slow_start_is_answered_once(ends: str) -> None:
    publisher = Publisher(replace(WAIT, slow_start=True))
    tickets = [publisher.publish(x=1) for _ in range(10)]
    waiting = [ticket for ticket in tickets if ticket not in publisher.outcomes]
    assert 0 < len(waiting) < 10
    if ends == "closed":
        publisher.do(publisher.transport.close("the link is down"))
    else:
        for ticket in waiting:
            publisher.do(publisher.transport.withdraw(ticket, now=publisher.now))
    publisher.run(5.0)
    assert [type(outcome) for ticket in waiting for outcome in publisher.outcomes[ticket]] == [Refused] * len(waiting)
    assert len(publisher.left) == 10 - len(waiting)


def test_a_client_that_loses_its_broker_answers_those_who_wait() -> None:
    node = a_client("p", settings={"transport": WAIT, "pricing": PricingClientConfig(waits_for_classes=False)})
    node.link_changed(0, up=True, now=0.0)
    asked = [effect.packet for effect in node.link_ready(0, room_bytes=1 << 30, now=0.0) if isinstance(effect, Send)]
    inbox = min(packet.subscription for packet in asked if isinstance(packet, Subscribe))
    encoding = flow_of(parse_predicate("a"), WAIT.encoding, exact=False).encoding
    feedback = Feedback("s", 0.0, (FlowQuota(10.0, WAIT.encoding.to_bytes(encoding)),))
    message = feedback_message(ControlIdentities("s", 1), "p", feedback)
    node.receive([Delivery((inbox,), message)], sender=0, now=0.0)
    for count in range(1, 5):
        node.publish(make_message(Identity("p", 1, count), {"a": True}), ticket=count, now=0.0)
    effects = node.link_changed(0, up=False, now=0.05)
    assert [effect for effect in effects if isinstance(effect, Done)] == [
        Done(3, Refused(NOT_CONNECTED)),
        Done(4, Refused(NOT_CONNECTED)),
    ]
    assert not [effect for effect in node.wake(now=5.0) if isinstance(effect, Done)]


STEPS = st.lists(
    st.one_of(
        st.sampled_from(["a", "b", "ab", "c"]),
        st.sampled_from([0.01, 0.2, 4.0]),
        st.tuples(st.sampled_from("st"), st.sampled_from(["a", "b", "a AND b", "TRUE"]), st.sampled_from([0.5, 8.0])),
        st.just(None),
    ),
    max_size=60,
)


@settings(max_examples=80)
@given(steps=STEPS, config=st.sampled_from([DROP, WAIT]))
def test_every_ticket_is_answered_exactly_once(
    steps: list[str | float | tuple[str, str, float] | None], config: TransportConfig
) -> None:
    """Whatever flows come and go meanwhile, and also when the client is closed."""
    publisher = Publisher(config)
    for step in steps:
        if isinstance(step, str):
            publisher.publish(**dict.fromkeys(step, True))
        elif isinstance(step, float):
            publisher.run(publisher.now + step)
        elif step is None:
            publisher.do(publisher.transport.close("closed"))
        else:
            publisher.receive(step[0], (step[1], step[2]))
    publisher.run(publisher.now + 1000.0)
    assert sorted(publisher.outcomes) == list(range(1, publisher.count + 1))
    assert all(len(answers) == 1 for answers in publisher.outcomes.values())
    kinds = Counter(type(answers[0]) for answers in publisher.outcomes.values())
    assert kinds[Accepted] == len(publisher.left)
    assert publisher.timers.deadline() is None  # all is at rest


# --- Stale flows.


def test_a_flow_whose_limiting_receiver_is_silent_is_free_again() -> None:
    publisher = Publisher(WAIT)
    publisher.receive("s", ("a", 0.5))
    for _ in range(9):
        publisher.publish(a=True)
    publisher.run(1.9)
    assert len(publisher.left) == 2
    publisher.run(4.0)
    assert len(publisher.left) == 9
    assert publisher.transport.flows() == []


def test_a_far_receiver_may_be_silent_for_ten_of_its_round_trips() -> None:
    """Experiments 0.4: max(2 s, 10 round trips). The publisher asks its limiting receivers how far they are."""
    publisher = Publisher()
    publisher.receive("far", ("a", 0.5))
    publisher.run(1.0)
    echoes = [message for message in publisher.control_messages if kind_of(message) == ECHO]
    assert [message.attributes[TO] for message in echoes] == ["far"]


def test_flows_and_feedbacks_are_counted_once_per_tick() -> None:
    publisher = Publisher()
    publisher.receive("s", ("a", 5.0), ("b", 5.0))
    publisher.run(0.1)
    publisher.receive("s", ("a", 6.0))
    publisher.run(1.5)
    counted = [record for record in publisher.records if isinstance(record, Counted)]
    assert counted == [Counted("flows", "", 2), Counted("feedback", "", 2)]


# --- Recovery.


def test_a_repair_takes_tokens_before_it_leaves() -> None:
    """002 section 1.2: recovery must not make congestion worse."""
    publisher = Publisher(WAIT)
    for _ in range(5):
        publisher.publish(a=True)
    publisher.publish(b=True)
    publisher.receive("s", ("a", 10.0))
    identities = ControlIdentities("s", 1)

    def ask(sequence: int) -> int:
        request = Request(Key("p", 1, sequence), "s", publisher.now, 0.02, 2.0, 2.0, 1)
        before = len([record for record in publisher.records if isinstance(record, RepairSent)])
        publisher.do(
            publisher.transport.arrived((INBOX,), request_to_publisher(identities, request), now=publisher.now)
        )
        return len([record for record in publisher.records if isinstance(record, RepairSent)]) - before

    assert [ask(sequence) for sequence in (1, 2, 3, 4)] == [1, 1, 1, 0]
    assert ask(6) == 1  # of no limited flow
    assert publisher.publish(a=True) not in publisher.outcomes  # the repairs took the tokens
    publisher.run(0.3)
    assert ask(4) == 1
    assert kind_of(request_to_publisher(identities, Request(Key("p", 1, 1), "s", 0.0, 0.02, 2.0, 2.0, 1))) == REQUEST


def test_feedback_is_nobodys_business_but_a_publishers_with_congestion_control() -> None:
    publisher = Publisher(papers_config())
    publisher.receive("s", ("a", 1.0))
    for _ in range(9):
        publisher.publish(a=True)
    assert len(publisher.left) == 9
    assert publisher.controls() == []
    assert not [message for message in publisher.control_messages if kind_of(message) == FEEDBACK]


def test_a_name_that_nobody_answers_to_is_not_followed_for_long() -> None:
    """Beyond the papers: anybody can write feedback in a name of its own invention; it has another chance at times."""
    publisher = Publisher()
    followed = []
    for second in range(40):
        publisher.receive("nobody", ("a", 5.0))
        publisher.run(float(second))
        followed.append(bool(publisher.transport.flows()))
    assert all(followed[:10])
    assert followed[12:].count(False) >= 5
    assert any(isinstance(record, InputRefused) and "nobody" in record.problem for record in publisher.records)


def test_who_waited_and_would_hold_up_a_faster_flow_is_answered_when_it_is_withheld_after_all() -> None:
    publisher = Publisher()
    publisher.receive("wide", ("a", 100.0))
    for _ in range(40):
        publisher.publish(a=True, b=True)
    publisher.run(3.5)  # all of these have left
    publisher.receive("wide", ("a", 100.0))
    for _ in range(40):
        publisher.publish(a=True, b=True)
    publisher.receive("narrow", ("a AND b", 2.0))
    withheld = [ticket for ticket, outcomes in publisher.outcomes.items() if isinstance(outcomes[0], machine.Withheld)]
    assert len(withheld) > 20
    assert max(withheld) == 80  # the youngest are
    publisher.run(60.0)
    assert all(len(outcomes) == 1 for outcomes in publisher.outcomes.values())
    assert len(publisher.outcomes) == 80


# --- Whoever waits no longer.


def test_a_message_that_is_withdrawn_does_not_leave_and_the_others_leave_in_turn() -> None:
    publisher = Publisher(WAIT)
    publisher.receive("s", ("a", 10.0))
    tickets = [publisher.publish(a=True, n=n) for n in range(5)]
    second, third, fourth = [ticket for ticket in tickets if ticket not in publisher.outcomes]
    publisher.do(publisher.transport.withdraw(third, now=publisher.now))
    (outcome,) = publisher.outcomes[third]
    assert isinstance(outcome, Refused)
    assert "withdrawn" in outcome.problem
    publisher.run(2.0)
    assert [opened(message)[1].attributes["n"] for _, message in publisher.left] == [0, 1, 2, 4]
    assert [header.sequence for header in publisher.headers()] == [1, 2, 3, 4], "it never had a number"
    assert publisher.outcomes[fourth] == [Accepted()]
    assert publisher.transport.withdraw(second, now=publisher.now) == [], "it has left"
    assert publisher.transport.withdraw(third, now=publisher.now) == []
    assert all(len(outcomes) == 1 for outcomes in publisher.outcomes.values())


@pytest.mark.parametrize("config", [DROP, WAIT])
def test_those_that_a_withdrawn_message_held_up_leave_as_if_it_had_never_been(config: TransportConfig) -> None:
    """In order, whoever shares a flow with an older message waits for it; overtaking, it leaves a token for it."""
    publisher = Publisher(config)
    publisher.receive("s", ("slow", 0.1), ("fast", 10.0))
    publisher.publish(slow=True)
    publisher.publish(slow=True)
    both = publisher.publish(slow=True, fast=True)
    fast = [publisher.publish(fast=True, n=n) for n in range(2)]
    publisher.do(publisher.transport.withdraw(both, now=publisher.now))
    publisher.run(1.0)
    assert isinstance(publisher.outcomes[both][0], Refused)
    assert [publisher.outcomes[ticket] for ticket in fast] == [[Accepted()], [Accepted()]]
    assert [opened(message)[1].attributes["n"] for _, message in publisher.left[2:]] == [0, 1]
