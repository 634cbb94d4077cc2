"""Who slows whom: a client asks, and the publishers that somebody slows down answer.

A publisher knows which of its flows are limited and by which receiver; nobody else does. So whoever wants to see the
whole network asks everybody and collects the answers. Brokers have no part in it.

Messages. A Question to all who subscribed to questions, with the asker's name and a number; a Slowed with the same
number to the asker's inbox: the publisher's slowest flows, how many there are in all, and how many messages it has
withheld. A publisher subscribes to questions when a flow of its own is limited for the first time. One whose flows are
all free again does not answer.

State. As publisher: whom it answered in the last second. As asker: the number of the last question, and the last
answer of each publisher. Questions that follow each other closely are one question and have one number. A publisher
that answered us less than a second ago does not answer again, so `found` also counts the answers of the second before.

Forgery and floods. A Question must come from the asker that it names: nobody can have answers sent to somebody else. An
asker gets at most one answer per ANSWER_EVERY, all askers together what a small token bucket lets out; a record says
when it runs dry. An answer counts if it has the number of our question and comes from the publisher that it names. Who
can read questions can also lie in the answer; the network below has no secrets.

Bounds: SLOWED_MAX flows in an answer, with texts that are cut; SLOWDOWNS_MAX flows at the asker, with a record. Whom a
publisher answered is bounded by the token bucket. No timers.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from heapq import nsmallest
from math import inf
from random import Random

from penstock.content.envelope import control_name
from penstock.kernel.token_bucket import TokenBucket
from penstock.kernel.trace import InputRefused, LimitReached
from penstock.transport.bearer import BearerPublish, TransportEffect
from penstock.transport.own_subscriptions import OwnSubscriptions
from penstock.transport.recovery.distance_estimator import plausible_name
from penstock.transport.sender.rate_limiter import FlowReport
from penstock.transport.sender.send_path import SendPath
from penstock.transport.wire.control_messages import (
    FLOW_LENGTH_MAX,
    QUESTION,
    RECEIVER_LENGTH_MAX,
    SLOWED_MAX,
    ControlIdentities,
    Question,
    Slowed,
    SlowedFlow,
    decode_control,
    question_message,
    slowed_message,
)

ANSWER_EVERY = 1.0  # seconds between two answers to the same asker
ANSWERS_PER_S = 5.0  # to all askers together
ANSWERS_AT_ONCE = 10
QUESTION_LIVES = 2.0  # seconds in which a question that is asked again is still the same
ANSWERS_KEPT = 60.0  # seconds; nobody waits for longer without asking again
SLOWDOWNS_MAX = 10_000  # flows that an asker takes note of
NUMBER_BITS = 53


@dataclass(frozen=True, slots=True)
class Slowdown:
    """A flow that somebody slows down, as its publisher reported it."""

    publisher: str
    flow: str
    quota: float  # messages/s that leave at most
    limiting_receiver: str
    queue: int  # messages that wait at the publisher
    since: float  # seconds that the flow has been limited
    withheld: int  # messages that the publisher did not send, of all its flows
    flows_in_all: int  # limited flows of this publisher; it reports the slowest only


@dataclass(frozen=True, slots=True)
class _ReceivedAnswer:
    answer: Slowed
    at: float


class FlowQuery:
    """Asks who slows whom, and answers if somebody slows us."""

    def __init__(
        self,
        name: str,
        identities: ControlIdentities,
        random: Random,
        send_path: SendPath,
        own_subscriptions: OwnSubscriptions,
    ) -> None:
        self._name = name
        self._identities = identities
        self._random = random
        self._send_path = send_path
        self._own_subscriptions = own_subscriptions
        self._answered: OrderedDict[str, float] = OrderedDict()  # askers, in the order in which they were answered
        self._bucket = TokenBucket(ANSWERS_PER_S, ANSWERS_AT_ONCE, 0.0)
        self._dry_reported = False
        self._number: int | None = None
        self._asked_at = -inf
        self._answers: dict[str, _ReceivedAnswer] = {}  # by publisher
        self._flows_received = 0
        self._full_reported = False

    def received(self, kind: str, data: bytes, sender: str, now: float) -> list[TransportEffect]:
        """A question or an answer; raises InvalidHeader."""
        if kind == QUESTION:
            return self.question_received(decode_control(data, Question), sender, now)
        return self.answer_received(decode_control(data, Slowed), sender, now)

    # The publisher.

    def limited(self) -> list[TransportEffect]:
        """Feedback was received: if it limits us, we subscribe to questions from now on."""
        return self._own_subscriptions.questions() if self._send_path.controlled else []

    def question_received(self, question: Question, sender: str, now: float) -> list[TransportEffect]:
        """Somebody wants to know who slows us."""
        asker = question.asker
        if sender != control_name(asker) or not plausible_name(asker):
            return [InputRefused(sender[:40], f"a question in the name of {asker[:40]}")]
        if asker == self._name or not self._send_path.flows() or self._answered_lately(asker, now):
            return []
        if not self._bucket.take(now):
            reported, self._dry_reported = self._dry_reported, True
            return [] if reported else [LimitReached("answers who slows us", ANSWERS_AT_ONCE)]
        self._dry_reported = False
        self._answered[asker] = now
        return [BearerPublish(slowed_message(self._identities, asker, self._answer(question.number, now)))]

    def _answered_lately(self, asker: str, now: float) -> bool:
        while self._answered:
            first, at = next(iter(self._answered.items()))
            if 0.0 <= now - at < ANSWER_EVERY:
                break
            del self._answered[first]
        return asker in self._answered

    def _answer(self, number: int, now: float) -> Slowed:
        flows = self._send_path.flows()
        reported = tuple(
            [self._slowed_flow(each, now) for each in nsmallest(SLOWED_MAX, flows, key=lambda each: each.quota)]
        )
        return Slowed(self._name, number, reported, len(flows), self._send_path.withheld)

    def _slowed_flow(self, report: FlowReport, now: float) -> SlowedFlow:
        return SlowedFlow(
            _cut(report.flow, FLOW_LENGTH_MAX),
            report.quota,
            _cut(report.limiting_receiver, RECEIVER_LENGTH_MAX),
            report.queue,
            max(0.0, now - report.since),
        )

    # The asker.

    def ask(self, now: float) -> list[TransportEffect]:
        """Ask everybody; soon after the last time it is the same question again."""
        if self._number is None or not 0.0 <= now - self._asked_at < QUESTION_LIVES:
            self._number = self._random.getrandbits(NUMBER_BITS)
            self._full_reported = False
        self._asked_at = now
        for publisher in [
            name for name, received in self._answers.items() if not 0.0 <= now - received.at < ANSWERS_KEPT
        ]:
            self._flows_received -= len(self._answers.pop(publisher).answer.flows)
        return [BearerPublish(question_message(self._identities, Question(self._name, self._number)))]

    def answer_received(self, answer: Slowed, sender: str, now: float) -> list[TransportEffect]:
        """A publisher reports who slows it; an answer to no question of ours changes nothing."""
        publisher = answer.publisher
        if self._number is None or answer.number != self._number:
            return []
        if sender != control_name(publisher) or not plausible_name(publisher):
            return [InputRefused(sender[:40], f"an answer in the name of {publisher[:40]}")]
        before = self._answers.get(publisher)
        more = len(answer.flows) - (0 if before is None else len(before.answer.flows))
        if self._flows_received + more > SLOWDOWNS_MAX:
            reported, self._full_reported = self._full_reported, True
            return [] if reported else [LimitReached("slowdowns", SLOWDOWNS_MAX)]
        self._flows_received += more
        self._answers[publisher] = _ReceivedAnswer(answer, now)
        return []

    def found(self, since: float) -> list[Slowdown]:
        """What publishers have answered since this time, and in the second before; by publisher, slowest first."""
        lately = [received.answer for received in self._answers.values() if received.at >= since - ANSWER_EVERY]
        return [
            Slowdown(
                answer.publisher,
                each.flow,
                each.quota,
                each.limiting_receiver,
                each.queue,
                each.since,
                answer.withheld,
                answer.in_all,
            )
            for answer in sorted(lately, key=lambda answer: answer.publisher)
            for each in sorted(answer.flows, key=lambda each: each.quota)
        ]


def _cut(text: str, length_max: int) -> str:
    return text if len(text) <= length_max else text[: length_max - 1] + "…"
