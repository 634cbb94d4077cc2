"""When a publisher gets feedback: the timer of a session, and suppression where many are short of the same."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from math import inf
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.content.envelope import kind_of, opened, wrap
from penstock.content.language.parser import parse_predicate
from penstock.content.message import Identity, Message, make_message
from penstock.kernel.machine import SERVICE_SUBSCRIPTIONS
from penstock.kernel.randomness import generator
from penstock.kernel.timers import ServiceTimers, Timers
from penstock.kernel.trace import LimitReached
from penstock.transport.bearer import BearerPublish, TransportEffect
from penstock.transport.config import TransportConfig, papers_config
from penstock.transport.receiver.feedback_suppression import GROWS, FeedbackSuppression
from penstock.transport.receiver.rate_controller import receiver_hash
from penstock.transport.receiver.receiver_flows import RECEIVER_FLOWS_MAX
from penstock.transport.transport import Transport
from penstock.transport.wire.control_messages import (
    ANSWER,
    ECHO,
    FEEDBACK,
    TO,
    ControlIdentities,
    EchoReply,
    EchoRequest,
    Feedback,
    decode_control,
    echo_reply_message,
)
from penstock.transport.wire.flow_fields import Control
from penstock.transport.wire.header import encode_header

CONFIG = papers_config(congestion=True, record_entries=0, publisher_answers=False)
TRIP = 0.08
INBOX = SERVICE_SUBSCRIPTIONS  # the first of the transport's own


class Subscriber:
    """A transport that gets messages of `p`, or of another publisher, whose clock is the same."""

    def __init__(
        self, *wheres: str, config: TransportConfig = CONFIG, answers: bool = True, trip: float = TRIP
    ) -> None:
        self.trip = trip
        self.timers = Timers()
        timers = ServiceTimers("transport", self.timers)
        self.transport = Transport("s", 1, config, timers, partial(generator, 1, "s"), publishes=False)
        self.now = 0.0
        self.answers = answers
        self.sent: list[tuple[float, Feedback]] = []
        self.reported: dict[str, Feedback] = {}  # the last one, by publisher
        self.echoes = 0
        self.sequences: dict[str, int] = {}
        for number, where in enumerate(wheres, start=1):
            self.do(
                self.transport.subscribe(number, parse_predicate(where), ordered=False, recover=False, now=self.now)
            )

    def do(self, effects: list[TransportEffect]) -> None:
        for effect in effects:
            if isinstance(effect, BearerPublish):
                self._received_by_publisher(effect.message)

    def _received_by_publisher(self, message: Message) -> None:
        header, _ = opened(message)
        if kind_of(message) == FEEDBACK:
            sent = decode_control(header, Feedback)
            self.sent.append((self.now, sent))
            self.reported[str(message.attributes[TO])] = sent
        elif kind_of(message) == ECHO:
            self.echoes += 1
            if self.answers:
                asked = decode_control(header, EchoRequest)
                to = str(message.attributes[TO])
                back = echo_reply_message(ControlIdentities(to, 1), "s", EchoReply(to, asked.sent_at, asked.sent_at))
                assert kind_of(back) == ANSWER
                self.do(self.transport.arrived((INBOX,), back, now=self.now + self.trip))

    def get(
        self,
        *,
        publisher: str = "p",
        limiting: str = "",
        place: int = 0,
        after: float = 0.01,
        numbers: tuple[int, ...] = (1,),
        **attributes: int | bool,
    ) -> Message:
        self.run(self.now + after)
        sequence = self.sequences[publisher] = self.sequences.get(publisher, 0) + 1
        message = make_message(Identity(publisher, 1, sequence), attributes or {"a": True})
        control = Control(
            100.0, receiver_hash(limiting) if limiting else 0, self.trip / 2.0, 1 if limiting else 0, place
        )
        ages = [after] if sequence > 1 else []
        header = encode_header(sequence, self.now - self.trip / 2.0, ages, [], flags=0, entry_bytes=32, control=control)
        self.do(self.transport.arrived(numbers, wrap(message, header), now=self.now))
        return message

    def quotas(self) -> dict[str, float]:
        """What each publisher was last asked for."""
        return {publisher: sent.flows[0].quota for publisher, sent in self.reported.items()}

    def lose(self) -> None:
        """The application's own queue was full."""
        self.transport.dropped_here(self.get(), now=self.now)

    def run(self, until: float) -> None:
        while (deadline := self.timers.deadline()) is not None and deadline <= until:
            self.now = max(self.now, deadline)
            while (name := self.timers.pop_due(self.now)) is not None:
                self.do(self.transport.expired(int(name[1]), name[2:], now=self.now))
        self.now = until


def test_nothing_lost_no_feedback() -> None:
    subscriber = Subscriber("a")
    for _ in range(300):
        subscriber.get()
    assert subscriber.sent == []


def test_a_loss_is_reported_a_round_trip_later_and_then_once_per_round_trip() -> None:
    subscriber = Subscriber("a")
    for _ in range(200):
        subscriber.get()
    subscriber.lose()
    lost_at = subscriber.now
    while len(subscriber.sent) < 3:
        subscriber.get()
    times = [time for time, _ in subscriber.sent]
    assert times[0] - lost_at == pytest.approx(TRIP, rel=0.1)
    assert times[1] - times[0] == pytest.approx(TRIP, rel=0.1)
    (asked,) = subscriber.sent[0][1].flows
    assert asked.quota < 60.0


def test_a_publisher_that_has_fallen_silent_gets_no_feedback() -> None:
    subscriber = Subscriber("a")
    for _ in range(200):
        subscriber.get(limiting="s")
    subscriber.lose()
    subscriber.run(subscriber.now + 60.0)
    assert subscriber.sent[-1][0] < subscriber.now - 57.0
    reported = len(subscriber.sent)
    for _ in range(20):
        subscriber.get(limiting="s")
    assert len(subscriber.sent) > reported  # and when it publishes again, so do we


def test_an_echo_that_was_lost_is_asked_for_again() -> None:
    """Erratum C6: who is not the limiting receiver needs one."""
    subscriber = Subscriber("a", answers=False)
    subscriber.get()
    assert subscriber.echoes == 1
    for _ in range(10):
        subscriber.get()
    subscriber.lose()
    for _ in range(400):
        subscriber.get()
    assert subscriber.echoes >= 2


def test_a_message_without_control_says_that_its_publisher_obeys_nobody() -> None:
    subscriber = Subscriber("a")
    for sequence in range(1, 50):
        message = make_message(Identity("p", 1, sequence), {"a": True})
        header = encode_header(sequence, sequence * 0.01, [0.01] if sequence > 1 else [], [], flags=0, entry_bytes=32)
        subscriber.do(subscriber.transport.arrived((1,), wrap(message, header), now=sequence * 0.01))
        subscriber.transport.dropped_here(message, now=sequence * 0.01)
    subscriber.run(5.0)
    assert subscriber.sent == []


def test_another_subscription_leaves_what_is_known_of_the_first() -> None:
    subscriber = Subscriber("a")
    for place in range(1, 200):
        subscriber.get(limiting="s", place=place)
    (session,) = subscriber.transport.scheme._sessions.values()
    assert session.rate_controller is not None
    (before,) = session.rate_controller.flows.values()
    subscriber.transport.subscribe(2, parse_predicate("b"), ordered=False, recover=False, now=subscriber.now)
    subscriber.get(limiting="s", place=200)
    assert list(session.rate_controller.flows.values()) == [before]
    assert before.limiting
    assert before.rate.rate(subscriber.now) == pytest.approx(100.0, rel=0.05)


def test_the_timer_of_a_session_goes_with_it() -> None:
    subscriber = Subscriber("a", config=papers_config(congestion=True, record_entries=0, session_idle=5.0))
    for _ in range(100):
        subscriber.get()
    subscriber.lose()
    subscriber.run(60.0)
    assert subscriber.timers.deadline() is None
    assert subscriber.transport._feedback_scheduler._suppressions == {}


# --- The reader's pace.


def test_a_slow_reader_is_reported_a_round_trip_later_and_again_while_it_lasts_though_nothing_is_lost() -> None:
    """What is no news is sent every other round trip, so that the flow does not become free."""
    subscriber = Subscriber("a")
    for _ in range(200):
        subscriber.get()
    subscriber.transport.reader_takes(1, 30.0, now=subscriber.now)
    began = subscriber.now
    while len(subscriber.sent) < 3:
        subscriber.get(limiting="s")
    times = [time for time, _ in subscriber.sent]
    assert times[0] - began == pytest.approx(TRIP, rel=0.1)
    assert times[1] - times[0] == pytest.approx(2.0 * TRIP, rel=0.1)
    assert subscriber.quotas() == {"p": pytest.approx(30.0)}
    report = subscriber.transport.control()
    assert (report.loss_event_rate, report.allowed_rate, report.feedbacks) == (0.0, 30.0, 3)


def test_the_last_report_about_the_reader_counts_and_infinity_ends_it() -> None:
    subscriber = Subscriber("a")
    for _ in range(200):
        subscriber.get()
    for rate in (30.0, 60.0, 20.0):
        subscriber.transport.reader_takes(1, rate, now=subscriber.now)
        for _ in range(30):
            subscriber.get(limiting="s")
        assert subscriber.quotas() == {"p": pytest.approx(rate)}
    subscriber.transport.reader_takes(1, inf, now=subscriber.now)
    reported = len(subscriber.sent)
    for _ in range(300):
        subscriber.get(limiting="s")
    last_quotas = [sent.flows[0].quota for _, sent in subscriber.sent[reported:]]
    assert len(last_quotas) <= 1  # then nothing, so that the publisher's entry grows old
    assert all(quota > 100.0 for quota in last_quotas)  # and no less than comes
    assert subscriber.transport.control().allowed_rate is None


def test_what_the_reader_takes_is_shared_by_publishers_as_they_send() -> None:
    subscriber = Subscriber("a")
    for _ in range(200):
        subscriber.get(publisher="much", after=0.004)
        subscriber.get(publisher="much", after=0.003)
        subscriber.get(publisher="little", after=0.003)
    subscriber.transport.reader_takes(1, 90.0, now=subscriber.now)
    for _ in range(20):
        subscriber.get(publisher="much", after=0.004)
        subscriber.get(publisher="much", after=0.003)
        subscriber.get(publisher="little", after=0.003)
    assert subscriber.quotas() == {"much": pytest.approx(60.0, rel=0.05), "little": pytest.approx(30.0, rel=0.05)}
    assert sum(subscriber.quotas().values()) == pytest.approx(90.0)


def test_a_reader_that_takes_more_than_comes_has_nothing_to_ask_for() -> None:
    subscriber = Subscriber("a")
    for _ in range(200):
        subscriber.get()
    subscriber.transport.reader_takes(1, 150.0, now=subscriber.now)
    for _ in range(100):
        subscriber.get()
    assert subscriber.sent == []


def test_a_reader_that_is_slow_in_one_subscription_leaves_the_others_alone_and_ends_with_its_own() -> None:
    subscriber = Subscriber("a", "b")
    for _ in range(200):
        subscriber.get(a=True, b=True, numbers=(1, 2))
    subscriber.transport.reader_takes(2, 30.0, now=subscriber.now)
    assert subscriber.transport.control(1).allowed_rate is None
    assert subscriber.transport.control(2).allowed_rate == subscriber.transport.control().allowed_rate == 30.0
    for _ in range(20):
        subscriber.get(a=True, b=True, numbers=(1, 2))
    (asked,) = subscriber.reported["p"].flows
    assert asked.where == "b = TRUE"
    assert asked.quota == pytest.approx(30.0)
    subscriber.transport.unsubscribe(2, now=subscriber.now)
    reported = len(subscriber.sent)
    for _ in range(100):
        subscriber.get(a=True, b=True)
    assert len(subscriber.sent) == reported
    assert subscriber.transport.control().allowed_rate is None
    subscriber.transport.reader_takes(2, 30.0, now=subscriber.now)  # too late
    assert subscriber.transport.control().allowed_rate is None


def test_however_short_the_round_trip_feedback_is_not_sent_more_often_than_every_ten_milliseconds() -> None:
    subscriber = Subscriber("a", trip=0.0002)
    for _ in range(500):
        subscriber.get(after=0.001, limiting="s")
    subscriber.transport.reader_takes(1, 30.0, now=subscriber.now)
    for _ in range(500):
        subscriber.get(after=0.001, limiting="s")
    times = [time for time, _ in subscriber.sent]
    assert len(times) > 15
    assert min(after - before for before, after in pairwise(times)) >= 0.01 - 1e-9


def test_own_flows_have_a_bound_and_a_record_says_when_it_is_hit() -> None:
    subscriber = Subscriber("a")
    records = []
    for number in range(2, RECEIVER_FLOWS_MAX + 5):
        where = parse_predicate(f"n = {number}")
        records += subscriber.transport.subscribe(number, where, ordered=False, recover=False, now=0.0)
    assert [record for record in records if isinstance(record, LimitReached)] == [
        LimitReached("receiver flows", RECEIVER_FLOWS_MAX)
    ]


def test_a_publisher_without_control_or_before_its_first_message_gets_no_feedback() -> None:
    subscriber = Subscriber("a")
    subscriber.transport.reader_takes(1, 10.0, now=0.0)  # nobody publishes yet
    for sequence in range(1, 100):
        message = make_message(Identity("p", 1, sequence), {"a": True})
        header = encode_header(sequence, sequence * 0.01, [0.01] if sequence > 1 else [], [], flags=0, entry_bytes=32)
        subscriber.do(subscriber.transport.arrived((1,), wrap(message, header), now=sequence * 0.01))
        subscriber.transport.reader_takes(1, 10.0, now=sequence * 0.01)
    subscriber.run(5.0)
    assert subscriber.sent == []


# --- FeedbackSuppression.


def suppression(patience: float = 0.0, seed: int = 1) -> FeedbackSuppression:
    made = FeedbackSuppression(6.0, Random(seed))
    made.patience = patience
    return made


def test_who_has_no_company_sends_at_once() -> None:
    assert suppression().send_at(0.5, (0,), TRIP, 10.0) == 10.0
    assert suppression().send_at(0.5, (7,), TRIP, 10.0) == 10.0


def test_a_request_that_is_as_good_as_granted_is_suppressed() -> None:
    quiet = suppression()
    assert quiet.send_at(0.95, (7,), TRIP, 10.0) == 10.0 + TRIP
    assert quiet.silent == 1
    assert quiet.send_at(0.95, (0,), TRIP, 11.0) == 11.0  # nobody limits the flow yet
    assert quiet.send_at(0.95, (7, 0), TRIP, 12.0) == 12.0  # or only one of two


def test_who_was_not_followed_has_company_and_grows_patient() -> None:
    one = suppression()
    for turn in range(1, 6):
        now = float(turn)
        while one.send_at(0.5, (7,), TRIP, now) > now:
            now += 0.01
        one.look(limiting=False, round_trip=TRIP, now=now + TRIP)  # too early to tell
        one.look(limiting=False, round_trip=TRIP, now=now + 2.0 * TRIP)
        assert one.patience == min(6.0, turn * GROWS)
    one.send_at(0.5, (7,), TRIP, one.send_at(0.5, (7,), TRIP, 90.0))
    one.look(limiting=True, round_trip=TRIP, now=91.0)
    assert one.patience == 3.0


def test_who_waits_keeps_silent_when_the_publisher_begins_to_follow_another() -> None:
    one = suppression(6.0)
    until = one.send_at(0.5, (0,), TRIP, 10.0)
    assert until > 10.0
    assert one.send_at(0.5, (7,), TRIP, until) == until + TRIP
    assert one.silent == 1


def test_a_wait_that_passed_without_a_request_is_forgotten() -> None:
    one = suppression(6.0)
    until = one.send_at(0.5, (0,), TRIP, 10.0)
    assert one.send_at(0.5, (0,), TRIP, until + 50.0) > until + 50.0


def test_of_many_only_few_come_early() -> None:
    """Outside: TFMCC."""
    waits = sorted(suppression(6.0, seed).send_at(0.5, (0,), 1.0, 0.0) for seed in range(2000))
    first = waits[0]
    assert len([wait for wait in waits if wait < first + 1.0]) < 60  # a round trip later all know
    assert 0.0 <= first < waits[-1] <= 6.0


@given(share=st.floats(0.0, 1.0), patience=st.floats(0.0, 6.0), now=st.floats(-1e6, 1e6), seed=st.integers(0, 50))
def test_no_wait_is_longer_than_patience_and_in_the_end_a_lasting_request_is_sent(
    share: float, patience: float, now: float, seed: int
) -> None:
    one = suppression(patience, seed)
    until = one.send_at(share, (0,), TRIP, now)
    assert now <= until <= now + patience * TRIP + 1e-9
    assert one.send_at(share, (0,), TRIP, until) == until


def test_no_patience_no_suppression() -> None:
    eager = FeedbackSuppression(0.0, Random(1))
    for now in range(100):
        assert eager.send_at(0.99, (7,), TRIP, float(now)) == float(now)
