"""What must hold where subscriptions ask for recovery: whatever was due was delivered, or is reported as lost.

    transport-accounted   of each subscription: delivered + recovered + reported lost = all that was due
    transport-ordered     what an ordered subscription gets after a later message is counted as late
    transport-once        no application gets a message twice, unless it asked for nothing and links double messages

The first is checked twice. By number: of every message that was due and did not come, the client's transport has said
that it is lost, or that it was never known whether it was wanted. By count, from the report at the end, or when the
subscription was closed: what it has for lost, and for in doubt, is what is missing, not less. Nor more: but what a
sketch cannot tell of for one subscription of a client, though it can for another, counts for both; and what is still
asked for counts for all of them, so it is added for a single one at the end of the run alone.

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
        self._reports: dict[tuple[str, int], tuple[int, int, int]] = {}  # for good; with what is asked for; in doubt

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
        spans = self._spans.get((client, subscription))
        if service == TRANSPORT and spans and spans[-1].ended is None:
            self._reports[client, subscription] = report.known_lost, reported_lost(report), report.unrevealed
            self._declared.update((client, number) for number in report.lost_numbers)

    def finish(self) -> None:
        missing: dict[str, int] = {}  # of all subscriptions of a client
        counts = {}
        for (client, subscription), spans in self._spans.items():
            missed = [self._missing(client, subscription, span) for span in spans]
            due = [sent for must, _ in missed for sent in must]
            may = [sent for _, perhaps in missed for sent in perhaps]
            for sent in due:
                if (client, sent.number) not in self._declared:
                    text = f"{sent.message.identity} of {sent.time:.6f} (number {sent.number[2]})"
                    self.problem(f"{text} never reached {client}, and nobody was told: {spans[-1].predicate.text}")
            missing[client] = missing.get(client, 0) + len(due) + len(may)
            counts[client, subscription] = len(due), len(may)
        for (client, subscription), (must, perhaps) in counts.items():
            most = must + perhaps if client in self._single else missing[client]
            self._check_report(client, subscription, self._spans[client, subscription], must, most)

    def _check_report(self, client: str, subscription: int, spans: list[_InForce], due: int, most: int) -> None:
        found = self._reports.get((client, subscription))
        if found is None:
            self.problem(f"{client} has no report of its subscription {subscription}")
            return
        for_good, together, doubtful = found
        if client in self._single and spans[-1].ended is None:
            for_good = together
        if not due <= together + doubtful or not for_good <= most:
            reports = f"{together}" if for_good == together else f"{for_good} to {together}"
            missing = f"{due}" if most == due else f"{due} to {most}"
            self.problem(f"{client} reports {reports} as lost; missing are {missing}: {spans[-1].predicate.text}")

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


class LateCounted(Checker):
    """Whoever asked for order gets each publisher's messages in order, but for those that its report has as late."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self._numbering = {client.name for client in scenario.client if TRANSPORT in client.services}
        self._ordered = {
            (client.name, number)
            for client in scenario.client
            for number, subscription in enumerate(client.subscribe)
            if subscription.options.get("ordered") and client.name in self._numbering
        }
        self._highest: dict[tuple[str, int, str, int], int] = {}  # by subscription, publisher and life
        self._disordered: dict[tuple[str, int], int] = {}
        self._late: dict[tuple[str, int], int] = {}

    def delivered(self, time: float, client: str, subscription: int, message: Message) -> None:
        identity = message.identity
        if (client, subscription) not in self._ordered or identity.publisher not in self._numbering:
            return
        life = (client, subscription, identity.publisher, identity.incarnation)
        if identity.count < self._highest.get(life, 0):
            self._disordered[client, subscription] = self._disordered.get((client, subscription), 0) + 1
        self._highest[life] = max(identity.count, self._highest.get(life, 0))

    def reported(self, time: float, client: str, subscription: int, service: str, report: Any) -> None:
        if service == TRANSPORT:
            self._late[client, subscription] = max(report.late, self._late.get((client, subscription), 0))

    def finish(self) -> None:
        for (client, subscription), count in self._disordered.items():
            late = self._late.get((client, subscription), 0)
            if count > late:
                self.problem(f"{client} got {count} out of order for its subscription {subscription}; late are {late}")


class Once(Checker):
    """No application gets a message twice; who asked for nothing may, where a link doubles and does not repair."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        doubles = any(link.duplicate and not link.repair for link in scenario.link)
        self._excused = {
            (client.name, number)
            for client in scenario.client
            for number, wanted in enumerate(client.subscribe)
            if doubles and not (wanted.options.get("ordered") or wanted.options.get("recover"))
        }
        self._seen: set[tuple[str, int, Identity]] = set()

    def delivered(self, time: float, client: str, subscription: int, message: Message) -> None:
        key = (client, subscription, message.identity)
        if key in self._seen and key[:2] not in self._excused:
            self.problem(f"{time:.6f}: {client} got {message.identity} twice for subscription {subscription}")
        self._seen.add(key)


TRANSPORT_CHECKERS: dict[str, Callable[[Scenario], Checker]] = {
    "transport-accounted": Accounted,
    "transport-ordered": LateCounted,
    "transport-once": Once,
}
