"""Who slows whom: publishers that are slowed answer whoever asks, sparingly; only what was asked for is believed."""

from __future__ import annotations

from math import inf, nan
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from narrow_bus import CONFIG, NarrowBus, Path, a_bus
from penstock.content.envelope import HEADER_BYTES_MAX, control_message, kind_of, opened
from penstock.content.message import Identity
from penstock.errors import InvalidHeader
from penstock.kernel.machine import SERVICE_SUBSCRIPTIONS
from penstock.kernel.trace import InputRefused, LimitReached
from penstock.live.wire.udp import DATAGRAM_BYTES_MAX
from penstock.transport.bearer import BearerPublish, BearerSubscribe, TransportEffect
from penstock.transport.config import papers_config
from penstock.transport.flow_query import (
    ANSWER_EVERY,
    ANSWERS_AT_ONCE,
    ANSWERS_KEPT,
    ANSWERS_PER_S,
    QUESTION_LIVES,
    SLOWDOWNS_MAX,
    FlowQuery,
    Slowdown,
)
from penstock.transport.own_subscriptions import OwnSubscriptions
from penstock.transport.sender.rate_limiter import FlowReport
from penstock.transport.wire.control_messages import (
    FLOW_LENGTH_MAX,
    QUESTION,
    RECEIVER_LENGTH_MAX,
    SLOWED,
    SLOWED_MAX,
    TO,
    ControlIdentities,
    Question,
    Slowed,
    SlowedFlow,
    decode_control,
)


class Limits:
    """What a publisher's send path would report."""

    def __init__(self, *flows: FlowReport, withheld: int = 0) -> None:
        self.reports = list(flows)
        self.withheld = withheld

    @property
    def controlled(self) -> bool:
        return bool(self.reports)

    def flows(self) -> list[FlowReport]:
        return self.reports


def a_flow(name: str = "kind = 'bulk'", quota: float = 100.0, receiver: str = "slow", since: float = 0.0) -> FlowReport:
    return FlowReport(name, quota, receiver, 7, since)


def made(*flows: FlowReport, name: str = "p", withheld: int = 0, seed: int = 1) -> FlowQuery:
    limits: Any = Limits(*flows, withheld=withheld)
    return FlowQuery(name, ControlIdentities(name, 1), Random(seed), limits, OwnSubscriptions(name, ""))


def asked(by: str = "asker", number: int = 5) -> tuple[Question, str]:
    return Question(by, number), f"~{by}"


def sent(effects: list[TransportEffect], kind: Any) -> Any:
    """The one control message that was sent."""
    (effect,) = effects
    assert isinstance(effect, BearerPublish)
    return decode_control(opened(effect.message)[0], kind)


def an_answer(number: int, publisher: str = "p", flows: int = 1, quota: float = 100.0) -> tuple[Slowed, str]:
    reported = tuple(SlowedFlow(f"n = {n}", quota, "slow", 0, 1.0) for n in range(flows))
    return Slowed(publisher, number, reported, flows, 0), f"~{publisher}"


def an_asker(now: float = 0.0) -> tuple[FlowQuery, int]:
    asker = made(name="asker")
    return asker, sent(asker.ask(now), Question).number


# The publisher.


def test_a_publisher_says_which_flows_are_limited_by_whom_and_since_when() -> None:
    publisher = made(a_flow(since=10.0), withheld=3)
    effects = publisher.question_received(*asked(number=77), now=12.5)
    assert isinstance(effects[0], BearerPublish)
    assert effects[0].message.attributes[TO] == "asker"
    assert kind_of(effects[0].message) == SLOWED
    reported = SlowedFlow("kind = 'bulk'", 100.0, "slow", 7, 2.5)
    assert sent(effects, Slowed) == Slowed("p", 77, (reported,), 1, 3)


def test_a_clock_that_was_set_back_makes_no_time_of_the_future() -> None:
    publisher = made(a_flow(since=1_000.0))
    assert sent(publisher.question_received(*asked(), now=10.0), Slowed).flows[0].since == 0.0
    assert publisher.question_received(*asked(), now=-500.0)  # and whoever was answered then may ask again


def test_whom_nobody_slows_has_nothing_to_say() -> None:
    publisher = made()
    assert publisher.question_received(*asked(), now=0.0) == []
    assert publisher.limited() == []


def test_a_publisher_subscribes_to_questions_from_the_first_limit_on_and_asks_for_it_once() -> None:
    publisher = made(a_flow())
    (effect,) = publisher.limited()
    assert isinstance(effect, BearerSubscribe)
    assert effect.where == f"_t = '{QUESTION}'"
    assert publisher.limited() == []


def test_nobody_answers_itself() -> None:
    assert made(a_flow()).question_received(*asked("p"), now=0.0) == []


def test_of_many_flows_the_slowest_are_reported_and_all_are_counted() -> None:
    quotas = [float(place * 37 % 101) for place in range(100)]
    publisher = made(*(a_flow(f"n = {n}", quota) for n, quota in enumerate(quotas)))
    answer = sent(publisher.question_received(*asked(), now=1.0), Slowed)
    assert [flow.quota for flow in answer.flows] == sorted(quotas)[:SLOWED_MAX]
    assert answer.in_all == 100


def test_the_longest_answer_fits_into_a_datagram_and_shows_what_was_cut() -> None:
    publisher = made(*(a_flow("😀" * 5_000 + str(n), receiver="😀" * 4_000) for n in range(SLOWED_MAX)), name="😀" * 31)
    effects = publisher.question_received(*asked("😎" * 31), now=1.0)
    assert isinstance(effects[0], BearerPublish)
    assert len(effects[0].message.body) < min(HEADER_BYTES_MAX, DATAGRAM_BYTES_MAX - 1_000)
    (first, *_) = sent(effects, Slowed).flows
    assert (len(first.flow), first.flow[-1]) == (FLOW_LENGTH_MAX, "…")
    assert (len(first.limiting_receiver), first.limiting_receiver[-1]) == (RECEIVER_LENGTH_MAX, "…")


def test_an_asker_gets_one_answer_per_second() -> None:
    publisher = made(a_flow())
    times = [place * 0.125 for place in range(81)]  # ten seconds, in steps that a float holds exactly
    answered = [now for now in times if publisher.question_received(*asked(), now=now)]
    assert answered == [float(second) for second in range(11)]
    assert ANSWER_EVERY == 1.0


def test_a_flood_of_questions_becomes_no_flood_of_answers_and_a_record_says_so_once() -> None:
    publisher = made(a_flow())
    effects = [publisher.question_received(*asked(f"a{n}"), now=n / 1000.0) for n in range(5_000)]
    flat = [effect for each in effects for effect in each]
    answers = [effect for effect in flat if isinstance(effect, BearerPublish)]
    assert len(answers) <= ANSWERS_AT_ONCE + ANSWERS_PER_S * 5.0
    dry = [effect for effect in flat if effect == LimitReached("answers who slows us", ANSWERS_AT_ONCE)]
    assert 0 < len(dry) <= len(answers)
    assert len(dry) + len(answers) == len(flat)
    assert len(publisher._answered) <= ANSWERS_AT_ONCE + ANSWERS_PER_S * ANSWER_EVERY
    assert publisher.question_received(*asked("patient"), now=10.0)


@pytest.mark.parametrize("sender", ["~liar", "victim", "", "~"])
def test_nobody_can_have_answers_sent_to_somebody_else(sender: str) -> None:
    (record,) = made(a_flow()).question_received(Question("victim", 1), sender, now=0.0)
    assert isinstance(record, InputRefused)


@pytest.mark.parametrize("name", ["", "x" * 5_000])
def test_names_that_nobody_has_are_refused(name: str) -> None:
    (record,) = made(a_flow()).question_received(Question(name, 1), f"~{name}", now=0.0)
    assert isinstance(record, InputRefused)
    assert len(record.sender) <= 40


# The asker.


def test_an_answer_to_our_question_counts() -> None:
    asker, number = an_asker()
    answer, sender = Slowed("p", number, (SlowedFlow("f", 20.0, "slow", 3, 4.0),), 9, 5), "~p"
    assert asker.answer_received(answer, sender, 0.1) == []
    assert asker.found(0.0) == [Slowdown("p", "f", 20.0, "slow", 3, 4.0, withheld=5, flows_in_all=9)]


def test_answers_are_sorted_and_the_last_of_each_publisher_counts() -> None:
    asker, number = an_asker()
    asker.answer_received(*an_answer(number, "q", 2), 0.1)
    asker.answer_received(*an_answer(number, "p", 1), 0.2)
    asker.answer_received(*an_answer(number, "q", 1, quota=7.0), 0.3)
    assert [(each.publisher, each.quota) for each in asker.found(0.0)] == [("p", 100.0), ("q", 7.0)]


def test_answers_that_nobody_asked_for_change_nothing() -> None:
    stranger = made(name="asker")
    assert stranger.answer_received(*an_answer(0), 0.0) == []
    asker, number = an_asker()
    assert asker.answer_received(*an_answer(number + 1), 0.1) == []
    assert stranger.found(-inf) == asker.found(-inf) == []


def test_an_answer_in_anothers_name_is_refused_with_a_record() -> None:
    asker, number = an_asker()
    for sender in ("~liar", "p", ""):
        (record,) = asker.answer_received(an_answer(number)[0], sender, 0.1)
        assert isinstance(record, InputRefused)
    assert asker.found(0.0) == []


def test_questions_close_together_are_one_and_later_ones_another() -> None:
    asker, number = an_asker(0.0)
    later = QUESTION_LIVES - 0.1
    assert sent(asker.ask(later), Question).number == number
    assert sent(asker.ask(later + QUESTION_LIVES), Question).number != number
    assert asker.answer_received(*an_answer(number), 5.0) == []
    assert asker.found(-inf) == []


def test_numbers_are_not_to_be_guessed() -> None:
    numbers = [sent(made(name="asker", seed=seed).ask(0.0), Question).number for seed in range(50)]
    assert len(dict.fromkeys(numbers)) == 50


def test_who_keeps_silent_because_it_has_just_answered_is_not_missed() -> None:
    """Otherwise a second look within a second would show a network in which nobody slows anybody."""
    publisher, asker = made(a_flow()), made(name="asker")
    shown = []
    for place in range(40):
        now = place * 0.25
        question = sent(asker.ask(now), Question)
        for effect in publisher.question_received(question, "~asker", now):
            assert isinstance(effect, BearerPublish)
            asker.received(SLOWED, opened(effect.message)[0], "~p", now)
        shown.append(len(asker.found(now)))
    assert shown == [1] * 40


def test_what_was_answered_long_ago_is_not_shown_and_not_kept() -> None:
    asker, number = an_asker()
    asker.answer_received(*an_answer(number, flows=5), 0.1)
    assert asker.found(ANSWER_EVERY)
    assert asker.found(0.2 + ANSWER_EVERY) == []
    asker.ask(0.1 + ANSWERS_KEPT)
    assert asker.found(-inf) == []
    assert asker._flows_received == 0


def test_an_asker_takes_note_of_so_many_flows_and_says_once_that_there_were_more() -> None:
    asker, number = an_asker()
    effects: list[TransportEffect] = []
    for place in range(SLOWDOWNS_MAX // SLOWED_MAX + 50):
        effects += asker.answer_received(*an_answer(number, f"p{place}", SLOWED_MAX), 0.1)
    assert effects == [LimitReached("slowdowns", SLOWDOWNS_MAX)]
    assert SLOWDOWNS_MAX - SLOWED_MAX < len(asker.found(0.0)) <= SLOWDOWNS_MAX
    before = len(asker.found(0.0))
    assert asker.answer_received(*an_answer(number, "p0", 1), 0.2) == []  # one that is known may still change
    assert len(asker.found(0.0)) == before - SLOWED_MAX + 1


@given(st.lists(st.tuples(st.sampled_from("pqr"), st.integers(1, SLOWED_MAX), st.floats(0, 100)), max_size=40))
def test_the_count_of_flows_is_that_of_the_answers_that_are_kept(events: list[tuple[str, int, float]]) -> None:
    asker, now = made(name="asker"), 0.0
    for publisher, flows, step in events:
        now += step
        number = sent(asker.ask(now), Question).number
        asker.answer_received(*an_answer(number, publisher, flows), now)
        assert asker._flows_received == len(asker.found(-inf))


# On the wire.

GOOD = SlowedFlow("f", 1.0, "slow", 1, 1.0)
BAD: dict[str, Question | Slowed] = {
    "a number below nothing": Question("a", -1),
    "a number beyond all": Question("a", 1 << 63),
    "no flows": Slowed("p", 1, (), 0, 0),
    "too many flows": Slowed("p", 1, (GOOD,) * (SLOWED_MAX + 1), 100, 0),
    "more flows than there are": Slowed("p", 1, (GOOD, GOOD), 1, 0),
    "a quota that is no number": Slowed("p", 1, (msgspec.structs.replace(GOOD, quota=nan),), 1, 0),
    "an endless quota": Slowed("p", 1, (msgspec.structs.replace(GOOD, quota=inf),), 1, 0),
    "a queue below nothing": Slowed("p", 1, (msgspec.structs.replace(GOOD, queue=-1),), 1, 0),
    "a time of the future": Slowed("p", 1, (msgspec.structs.replace(GOOD, since=-1.0),), 1, 0),
    "a flow with a long name": Slowed("p", 1, (msgspec.structs.replace(GOOD, flow="x" * 201),), 1, 0),
    "a long name": Slowed("p", 1, (msgspec.structs.replace(GOOD, limiting_receiver="x" * 129),), 1, 0),
    "withheld below nothing": Slowed("p", 1, (GOOD,), 1, -1),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_is_refused(name: str) -> None:
    with pytest.raises(InvalidHeader, match="cannot be"):
        decode_control(msgspec.msgpack.encode(BAD[name]), type(BAD[name]))


@given(st.sampled_from([QUESTION, SLOWED]), st.binary(max_size=80))
def test_any_bytes_are_taken_or_refused(kind: str, data: bytes) -> None:
    asker, _ = an_asker()
    try:
        asker.received(kind, data, "~p", 0.1)
    except InvalidHeader:
        assert asker.found(-inf) == []


# On a bus.


def congested() -> NarrowBus:
    """Two publishers, each slowed down by a receiver of its own, and one that nobody slows down."""
    bus = a_bus()
    for name in ("q", "free"):
        bus.add(name, CONFIG, publishes=True)
    bus.add("asker", papers_config(publisher_answers=False), publishes=True)
    bus.subscriber("slow", "kind = 'bulk'", Path(100.0))
    bus.subscriber("snail", "price < 10", Path(40.0))
    bus.subscriber("nosy", "TRUE")
    bus.add("plain", None)
    bus.subscribe("plain", 1, "TRUE")
    for place in range(3_000):
        bus.publish("p", {"kind": "bulk"}, at=place / 300.0)
        bus.publish("q", {"price": 5}, at=place / 300.0)
        bus.publish("free", {"kind": "news"}, at=place / 300.0)
    return bus


def ask(bus: NarrowBus, name: str = "asker") -> list[Slowdown]:
    """Ask, and let a moment pass."""
    member = bus.members[name]
    assert member.transport is not None
    began = member.local(bus.now)
    bus.apply(member, member.transport.flow_query.ask(began))
    bus.run(bus.now + 0.2)
    return member.transport.flow_query.found(began)


def subscribes(bus: NarrowBus, name: str) -> bool:
    return any(QUESTION in where.text for where in bus.members[name].wheres.values())


def test_two_publishers_are_reported_to_a_third_client() -> None:
    bus = congested()
    assert ask(bus) == []
    assert not any(subscribes(bus, name) for name in bus.members)
    bus.run(6.0)
    found = ask(bus)
    assert [(each.publisher, each.limiting_receiver) for each in found] == [("p", "slow"), ("q", "snail")]
    assert found[0].quota == pytest.approx(100.0, rel=0.4)
    assert found[1].quota == pytest.approx(40.0, rel=0.4)
    assert found[1].flow == "price < 10"
    assert all(each.withheld > 0 and each.flows_in_all == 1 for each in found)
    assert all(2.0 < each.since < 6.2 for each in found)
    assert [subscribes(bus, name) for name in ("p", "q", "free", "asker", "nosy")] == [True, True, False, False, False]


def test_no_application_receives_the_question_or_the_answer() -> None:
    bus = congested()
    bus.run(6.0)
    assert ask(bus)
    assert len(bus.control_messages(QUESTION)) == 1
    assert len(bus.control_messages(SLOWED)) == 2
    for name in ("nosy", "plain"):
        assert len(bus.got(name, 1)) > 1_000
        assert {message.identity.publisher for message in bus.got(name, 1)} == {"p", "q", "free"}
    assert bus.members["asker"].delivered == []


def test_who_was_slowed_down_once_stays_subscribed_and_does_not_answer_when_it_is_free() -> None:
    bus = congested()
    bus.run(6.0)
    for name in ("slow", "snail"):
        bus.unsubscribe(name, 1)
    bus.run(12.0)
    assert ask(bus) == []
    assert subscribes(bus, "p")
    assert bus.control_messages(SLOWED) == []


def test_a_forged_answer_on_the_bus_is_refused_and_changes_nothing() -> None:
    bus = congested()
    bus.run(6.0)
    before = ask(bus)
    number = decode_control(opened(bus.control_messages(QUESTION)[-1].message)[0], Question).number
    forged = [
        ("~liar", msgspec.msgpack.encode(an_answer(number)[0])),
        ("~p", msgspec.msgpack.encode(BAD["an endless quota"])),
        ("~p", b"garbage"),
        ("~p", b""),
    ]
    for place, (sender, data) in enumerate(forged, start=1):
        bus.hand(
            "asker", (SERVICE_SUBSCRIPTIONS,), control_message(Identity(sender, 1, place), SLOWED, {TO: "asker"}, data)
        )
    transport = bus.members["asker"].transport
    assert transport is not None
    assert transport.flow_query.found(bus.members["asker"].local(bus.now - 0.5)) == before
    assert len(bus.records_of("asker", InputRefused)) == len(forged)
