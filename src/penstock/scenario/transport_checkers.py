"""What must hold where subscriptions ask for recovery: whatever was due was delivered, or is reported as lost.

    transport-accounted   of each subscription: delivered + recovered + reported lost = all that was due

It is checked twice. By number: of every message that was due and did not come, the client's transport has said that it
is lost. By count, for clients with a single subscription that is in force at the end: what the report has for lost is
what is missing, neither less nor more.

Due is what matches and was published while the subscription was in force, `settle` after it began, and told before it
ended: whoever unsubscribes sooner is not there to be told. A publisher has told everybody of a message UNTOLD_FOR
seconds after it, or when it was silent for SILENCE_FIRST_MAX, and SLACK later that has reached everybody whose ledger
was not lost. (A lost ledger is made up for by the next; a storm in which that comes after the end fails, and is to be
looked at.) In a scenario that is in pieces until `settled_after` this begins then, since nobody can be told across a
cut. What was published nearer to these ends may come, or be reported, or neither. The same holds for what
a publisher had not told when it crashed: nobody who has not received it can know that it was ever there. A publisher
without settings of the transport numbers nothing: what is lost of it nobody can know, and nothing of it may be
reported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.content.language.parser import parse_predicate
from penstock.content.message import Identity, Message
from penstock.content.predicate import Predicate
from penstock.scenario.checker import Checker
from penstock.scenario.spec import Scenario
from penstock.transport.ledgers.publisher import SILENCE_FIRST_MAX, UNTOLD_FOR
from penstock.transport.records import LossDetected, LossWithheld

SLACK = 2.0  # seconds
TOLD = UNTOLD_FOR + SLACK  # seconds within which everybody is told of a message in any case
TRANSPORT = "transport"
Number = tuple[str, int, int]  # publisher, its life, and the number of the message in it


class _Sent(NamedTuple):
    """A message that has left its publisher."""

    time: float
    message: Message
    number: Number


class _InForce(NamedTuple):
    """A subscription, from when until when."""

    begun: float
    ended: float | None
    predicate: Predicate


class Accounted(Checker):
    """Delivered, recovered or reported: nothing is lost in silence, and nothing is reported that was not lost."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self._single = {client.name for client in scenario.client if len(client.subscribe) == 1}
        self._numbering = {client.name for client in scenario.client if TRANSPORT in client.services}
        self._recover = {
            (client.name, number)
            for client in scenario.client
            for number, subscription in enumerate(client.subscribe)
            if subscription.options.get("recover")
        }
        self._crashes = [
            (fault.client, fault.at) for fault in scenario.fault if fault.kind == "client_crash" and fault.client
        ]
        self._spans: dict[tuple[str, int], list[_InForce]] = {}
        self._sent: list[_Sent] = []
        self._times: dict[tuple[str, int], list[float]] = {}  # when a life has sent its messages
        self._delivered: set[tuple[str, int, Identity]] = set()
        self._declared: set[tuple[str, Number]] = set()
        self._reports: dict[tuple[str, int], int] = {}

    def subscribed(self, time: float, client: str, subscription: int, where: str) -> None:
        if (client, subscription) in self._recover:
            self._spans.setdefault((client, subscription), []).append(_InForce(time, None, parse_predicate(where)))

    def unsubscribed(self, time: float, client: str, subscription: int) -> None:
        spans = self._spans.get((client, subscription))
        if spans:
            spans[-1] = spans[-1]._replace(ended=time)

    def published(self, time: float, client: str, message: Message) -> None:
        if client not in self._numbering:
            return
        life = (client, message.identity.incarnation)
        times = self._times.setdefault(life, [])
        times.append(time)
        self._sent.append(_Sent(time, message, (*life, len(times))))

    def delivered(self, time: float, client: str, subscription: int, message: Message) -> None:
        self._delivered.add((client, subscription, message.identity))

    def declared_lost(self, time: float, client: str, record: LossDetected | LossWithheld) -> None:
        self._declared.add((client, (record.publisher, record.incarnation, record.sequence)))

    def reported(self, time: float, client: str, subscription: int, service: str, report: Any) -> None:
        if service == TRANSPORT:
            self._reports[client, subscription] = reported_lost(report)

    def finish(self) -> None:
        for (client, subscription), spans in self._spans.items():
            missed = [self._missing(client, subscription, span) for span in spans]
            due = [sent for must, _ in missed for sent in must]
            may = [sent for _, perhaps in missed for sent in perhaps]
            for sent in due:
                if (client, sent.number) not in self._declared:
                    text = f"{sent.message.identity} of {sent.time:.6f} (number {sent.number[2]})"
                    self.problem(f"{text} never reached {client}, and nobody was told: {spans[-1].predicate.text}")
            self._check_report(client, subscription, spans, len(due), len(may))

    def _check_report(self, client: str, subscription: int, spans: list[_InForce], due: int, may: int) -> None:
        if client not in self._single or spans[-1].ended is not None:
            return
        found = self._reports.get((client, subscription))
        if found is None:
            self.problem(f"{client} has no report of its subscription {subscription}")
        elif not due <= found <= due + may:
            missing = f"{due}" if not may else f"{due} to {due + may}"
            self.problem(f"{client} reports {found} as lost; missing are {missing}: {spans[-1].predicate.text}")

    def _missing(self, client: str, subscription: int, span: _InForce) -> tuple[list[_Sent], list[_Sent]]:
        """What did not come of what was due, and of what may or may not come."""
        settle, end = self.scenario.settle, span.ended
        due: list[_Sent] = []
        may: list[_Sent] = []
        for sent in self._sent:
            if (client, subscription, sent.message.identity) in self._delivered:
                continue
            if sent.time < span.begun - settle or (end is not None and sent.time > end):
                continue
            if not span.predicate.matches(sent.message.attributes):
                continue
            within = span.begun + settle <= sent.time and (end is None or self._told_at(sent) <= end)
            (due if within and not self._untold(sent) else may).append(sent)
        return due, may

    def _untold(self, sent: _Sent) -> bool:
        """Whether its publisher died before it could tell everybody of the message."""
        crashes = [at for client, at in self._crashes if client == sent.number[0] and at > sent.time]
        return bool(crashes) and min(crashes) < self._told_at(sent)

    def _told_at(self, sent: _Sent) -> float:
        """When everybody has been told of the message."""
        times = self._times[sent.number[:2]]
        silent_from = sent.time
        for time in times[sent.number[2] :]:
            if time - silent_from >= SILENCE_FIRST_MAX or time - sent.time >= UNTOLD_FOR:
                break
            silent_from = time
        told_at = min(sent.time + UNTOLD_FOR, silent_from + SILENCE_FIRST_MAX)
        return max(told_at, self.scenario.settled_after) + SLACK


def reported_lost(report: Any) -> int:
    """What a transport's report has for lost: what it no longer asks for, what it still does, and what was withheld."""
    lost: int = report.known_lost + report.pending + report.withheld
    return lost


TRANSPORT_CHECKERS: dict[str, Callable[[Scenario], Checker]] = {"transport-accounted": Accounted}
