"""Who slows whom: a client asks, and the publishers that somebody slows down answer.

A publisher knows which of its flows are limited and on whose word; nobody else does. So whoever wants to see the whole
network asks everybody and collects the answers. Brokers have no part in it.

Messages. A Question to all who listen for it, with the asker's name and a number; a Slowed with the same number to the
asker's inbox: the publisher's slowest flows, how many there are in all, and how many messages it has withheld. A
publisher listens from the moment at which a flow of its own is limited for the first time. One whose flows are all free
again says nothing.

State. As publisher: whom it answered in the last second. As asker: the number of the last question, and the last
answer of each publisher. Questions that follow each other closely are one question and have one number. A publisher
that answered us less than a second ago keeps silent, so `found` also counts the answers of the second before.

Forgery and floods. A Question must come from the asker that it names: nobody can have answers sent to somebody else. An
asker gets at most one answer per ANSWER_EVERY, all askers together what a small bucket lets out; a record says when it
runs dry. An answer counts if it has the number of our question and comes from the publisher that it names. Who can read
questions can also lie in the answer; the network below has no secrets.

Bounds: SLOWED_MAX flows in an answer, with texts that are cut; SLOWDOWNS_MAX flows at the asker, with a record. Whom a
publisher answered is bounded by the bucket. No timers.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from heapq import nsmallest
from math import inf
from random import Random

from penstock.kernel.token_bucket import TokenBucket
from penstock.kernel.trace import InputRefused, LimitReached
from penstock.transport.bearer import Publish, TransportEffect
from penstock.transport.own_subscriptions import Listening
from penstock.transport.recovery.distance_estimator import plausible_name
from penstock.transport.sender.rate_limiter import FlowReport
from penstock.transport.sender.send_path import Sending
from penstock.transport.wire.control_messages import (
    FLOW_LENGTH_MAX,
    QUESTION,
    RECEIVER_LENGTH_MAX,
    SLOWED_MAX,
    Question,
    Slowed,
    SlowedFlow,
    Voice,
    decode_talk,
    question_message,
    slowed_message,
)

ANSWER_EVERY = 1.0  # seconds between two answers to the same asker
ANSWERS_PER_S = 5.0  # to all askers together
ANSWERS_AT_ONCE = 10
QUESTION_LIVES = 2.0  # seconds in which a question that is asked again is still the same
ANSWERS_KEPT = 60.0  # seconds; nobody listens for longer without asking again
SLOWDOWNS_MAX = 10_000  # flows that an asker takes note of
NUMBER_BITS = 53


@dataclass(frozen=True, slots=True)
class Slowdown:
    """A flow that somebody slows down, as its publisher told us."""

    publisher: str
    flow: str
    quota: float  # messages/s that leave at most
    limiting_receiver: str
    queue: int  # messages that wait at the publisher
    since: float  # seconds that the flow has been limited
    withheld: int  # messages that the publisher did not send, of all its flows
    flows_in_all: int  # limited flows of this publisher; it tells of the slowest only


@dataclass(frozen=True, slots=True)
class _Heard:
    answer: Slowed
    at: float


class Slowdowns:
    """Asks who slows whom, and answers if somebody slows us."""

    def __init__(self, name: str, voice: Voice, random: Random, sending: Sending, listening: Listening) -> None:
        self._name = name
        self._voice = voice
        self._random = random
        self._sending = sending
        self._listening = listening
        self._answered: OrderedDict[str, float] = OrderedDict()  # askers, in the order in which they were answered
        self._bucket = TokenBucket(ANSWERS_PER_S, ANSWERS_AT_ONCE, 0.0)
        self._dry_told = False
        self._number: int | None = None
        self._asked_at = -inf
        self._heard: dict[str, _Heard] = {}  # by publisher
        self._flows_heard = 0
        self._full_told = False

    def heard(self, kind: str, data: bytes, sender: str, now: float) -> list[TransportEffect]:
        """A question or an answer; raises InvalidHeader."""
        if kind == QUESTION:
            return self.heard_question(decode_talk(data, Question), sender, now)
        return self.heard_answer(decode_talk(data, Slowed), sender, now)

    # The publisher.

    def limited(self) -> list[TransportEffect]:
        """We have heard feedback: if it limits us, we listen for questions from now on."""
        return self._listening.questions() if self._sending.controlled else []

    def heard_question(self, question: Question, sender: str, now: float) -> list[TransportEffect]:
        """Somebody wants to know who slows us."""
        asker = question.asker
        if sender != f"~{asker}" or not plausible_name(asker):
            return [InputRefused(sender[:40], f"a question in the name of {asker[:40]}")]
        if asker == self._name or not self._sending.controlled or self._answered_lately(asker, now):
            return []
        if not self._bucket.take(now):
            told, self._dry_told = self._dry_told, True
            return [] if told else [LimitReached("answers who slows us", ANSWERS_AT_ONCE)]
        self._dry_told = False
        self._answered[asker] = now
        return [Publish(slowed_message(self._voice, asker, self._answer(question.number, now)))]

    def _answered_lately(self, asker: str, now: float) -> bool:
        while self._answered:
            first, at = next(iter(self._answered.items()))
            if 0.0 <= now - at < ANSWER_EVERY:
                break
            del self._answered[first]
        return asker in self._answered

    def _answer(self, number: int, now: float) -> Slowed:
        flows = self._sending.flows()
        told = tuple([self._told(each, now) for each in nsmallest(SLOWED_MAX, flows, key=lambda each: each.quota)])
        return Slowed(self._name, number, told, len(flows), self._sending.withheld)

    def _told(self, report: FlowReport, now: float) -> SlowedFlow:
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
            self._full_told = False
        self._asked_at = now
        for publisher in [name for name, heard in self._heard.items() if not 0.0 <= now - heard.at < ANSWERS_KEPT]:
            self._flows_heard -= len(self._heard.pop(publisher).answer.flows)
        return [Publish(question_message(self._voice, Question(self._name, self._number)))]

    def heard_answer(self, answer: Slowed, sender: str, now: float) -> list[TransportEffect]:
        """A publisher says who slows it; an answer to no question of ours changes nothing."""
        publisher = answer.publisher
        if self._number is None or answer.number != self._number:
            return []
        if sender != f"~{publisher}" or not plausible_name(publisher):
            return [InputRefused(sender[:40], f"an answer in the name of {publisher[:40]}")]
        before = self._heard.get(publisher)
        more = len(answer.flows) - (0 if before is None else len(before.answer.flows))
        if self._flows_heard + more > SLOWDOWNS_MAX:
            told, self._full_told = self._full_told, True
            return [] if told else [LimitReached("slowdowns", SLOWDOWNS_MAX)]
        self._flows_heard += more
        self._heard[publisher] = _Heard(answer, now)
        return []

    def found(self, since: float) -> list[Slowdown]:
        """What publishers have answered since this time, and in the second before; by publisher, slowest first."""
        lately = [heard.answer for heard in self._heard.values() if heard.at >= since - ANSWER_EVERY]
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
