"""What must hold of fair rates in every run (protocols 12.7), whatever its seed.

    rates-on-the-way   a destination is thinned by the publisher's own home, and only for a link on the way there
    rates-counted      what is withheld is counted once: of each publisher, delivered + withheld + dropped = due
    rates-readers      what a slow reader's broker withholds is counted once: of each subscription, delivered + withheld
                       + dropped = what came to its broker
    rates-no-hunger    once settled, no publisher gets nothing through for HUNGER seconds to a broker that wants it, nor
                       from there to a client that wants it, nor to a subscription of its that reads slowly

A broker is due a message if somebody there wants it. Who wants what is certain from `settled_after` on, for
subscriptions in force for `settle`; before, a broker *may* be due what anybody there has wanted at about that time. So
no more is counted than may be due and did not come, and no less than was certainly due and neither came nor ended on
the way. In a tree there is one way to a broker whatever fails; elsewhere a link is on the way if a shortest path leads
over it, which can be said only of a network that has settled.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

from penstock.content.language.parser import parse_predicate
from penstock.content.message import Identity, Message
from penstock.content.predicate import Predicate
from penstock.kernel.trace import Dropped
from penstock.overlay.packets import BrokerId, Publication
from penstock.rates.config import RatesConfig
from penstock.rates.records import ReaderThinned, Thinned
from penstock.rates.regulated import group_of
from penstock.scenario.checker import Checker
from penstock.scenario.spec import Scenario

HUNGER = 10.0  # seconds
HUNGRY_MIN = 5  # messages in a row that did not come
PAUSE = 3.0  # seconds in which a publisher says nothing: one that waits says much at once, and then nothing for long


class OnTheWay(Checker):
    """Nobody is thinned for a link that has nothing to do with them."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        numbers = broker_numbers(scenario)
        self._homes = {client.name: numbers[client.broker] for client in scenario.client}
        self._names = {number: name for name, number in numbers.items()}
        self._is_tree = len(scenario.link) == len(scenario.broker) - 1
        self._neighbours: dict[BrokerId, list[tuple[BrokerId, int]]] = {number: [] for number in numbers.values()}
        for link in scenario.link:
            a, b = (numbers[name] for name in link.between)
            self._neighbours[a].append((b, link.cost))
            self._neighbours[b].append((a, link.cost))
        self._from: dict[BrokerId, dict[BrokerId, int]] = {}

    def thinned(self, time: float, broker: str, record: Thinned) -> None:
        home = self._homes[record.publisher]
        what = f"{time:.6f}: {broker} thinned {record.publisher} for broker {record.destination}"
        if broker != self._names[home]:
            self.problem(f"{what}; its home is {self._names[home]}")
        costs = dict(self._neighbours.get(record.origin, ()))
        if record.neighbour not in costs:
            self.problem(f"{what} by a link from {record.origin} to {record.neighbour}, which is not there")
        elif self._is_tree or time >= self.scenario.settled_after:
            over = self._distance(home, record.origin) + costs[record.neighbour]
            over += self._distance(record.neighbour, record.destination)
            if over != self._distance(home, record.destination):
                self.problem(f"{what}; the link from {record.origin} to {record.neighbour} is not on the way there")

    def _distance(self, a: BrokerId, b: BrokerId) -> float:
        if a not in self._from:
            self._from[a] = {}
            queue = [(0, a)]
            while queue:
                cost, broker = heappop(queue)
                if broker not in self._from[a]:
                    self._from[a][broker] = cost
                    for neighbour, more in self._neighbours[broker]:
                        heappush(queue, (cost + more, neighbour))
        return self._from[a].get(b, inf)


class _InForce(NamedTuple):
    """A subscription of somebody at this broker, from when until when."""

    owner: tuple[str, int]  # client and subscription
    broker: BrokerId
    begun: float
    ended: float
    predicate: Predicate


class _Sent(NamedTuple):
    """A message that has left its publisher."""

    time: float
    home: BrokerId
    message: Message


class _Dues(Checker):
    """Which brokers each message was due to, and which of them have it."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        numbers = broker_numbers(scenario)
        self._homes = {client.name: numbers[client.broker] for client in scenario.client}
        self._open: dict[tuple[str, int], tuple[float, str]] = {}
        self._spans: list[_InForce] = []
        self._sent: list[_Sent] = []
        self._served: defaultdict[Identity, dict[BrokerId, float]] = defaultdict(dict)  # when they got it

    def subscribed(self, time: float, client: str, subscription: int, where: str) -> None:
        self.unsubscribed(time, client, subscription)
        self._open[client, subscription] = (time, where)

    def unsubscribed(self, time: float, client: str, subscription: int) -> None:
        if (client, subscription) in self._open:
            begun, where = self._open.pop((client, subscription))
            self._spans.append(
                _InForce((client, subscription), self._homes[client], begun, time, parse_predicate(where))
            )

    def published(self, time: float, client: str, message: Message) -> None:
        self._sent.append(_Sent(time, self._homes[client], message))

    def arrived(self, time: float, broker: BrokerId, packet: Publication) -> None:
        if broker in packet.destinations:
            self._served[packet.message.identity].setdefault(broker, time)

    def dues(self) -> Iterator[tuple[_Sent, set[BrokerId], set[BrokerId]]]:
        """Each message with the brokers that were certainly due it, and those that may have been."""
        for sent, must, may in self.spans_of_messages():
            home = {sent.home}
            yield sent, {span.broker for span in must} - home, {span.broker for span in may} - home

    def spans_of_messages(self) -> Iterator[tuple[_Sent, list[_InForce], list[_InForce]]]:
        """Each message with the subscriptions that were certainly due it, and those that may have been."""
        for client, subscription in list(self._open):
            self.unsubscribed(inf, client, subscription)
        settled, settle = self.scenario.settled_after, self.scenario.settle
        for sent in self._sent:
            wanted = [span for span in self._spans if span.predicate.matches(sent.message.attributes)]
            may = [
                span
                for span in wanted
                if span.begun - settle <= sent.time <= max(span.ended + settle, settled + settle)
            ]
            must = [
                span for span in may if sent.time >= settled and span.begun + settle <= sent.time <= span.ended - settle
            ]
            yield sent, must, may


class WithheldIsCounted(_Dues):
    """What is withheld is counted once."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self._ended: Counter[Identity] = Counter()
        self._thinned: Counter[tuple[str, BrokerId]] = Counter()
        self._thinned_late: Counter[str] = Counter()  # once settled

    def dropped(self, time: float, record: Dropped) -> None:
        if record.kind in ("Publication", "Publish"):  # before its home has it, it ends for everybody
            brokers = record.destinations if record.kind == "Publication" else len(self.scenario.broker)
            self._ended[Identity(record.publisher, record.incarnation, record.count)] += brokers

    def thinned(self, time: float, broker: str, record: Thinned) -> None:
        self._thinned[record.publisher, record.destination] += record.messages
        if time >= self.scenario.settled_after:
            self._thinned_late[record.publisher] += record.messages

    def finish(self) -> None:
        missing: Counter[tuple[str, BrokerId]] = Counter()
        unexplained: Counter[str] = Counter()
        for sent, must, may in self.dues():
            identity = sent.message.identity
            served = self._served[identity].keys()
            missing.update((identity.publisher, broker) for broker in may - served)
            unexplained[identity.publisher] += max(0, len(must - served) - self._ended[identity])
        for (publisher, broker), count in self._thinned.items():
            if count > missing[publisher, broker]:
                self.problem(
                    f"{count} messages of {publisher} are counted as withheld from broker {broker};"
                    f" {missing[publisher, broker]} did not come"
                )
        for publisher, count in unexplained.items():
            if count > self._thinned_late[publisher]:
                self.problem(
                    f"{count} messages of {publisher} were neither delivered nor dropped;"
                    f" {self._thinned_late[publisher]} are counted as withheld"
                )


class ReadersAreTold(_Dues):
    """What is withheld from a slow reader is counted once."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self._delivered: set[tuple[str, int, Identity]] = set()
        self._ended: Counter[Identity] = Counter()
        self._withheld: Counter[tuple[str, int]] = Counter()
        self._withheld_late: Counter[tuple[str, int]] = Counter()

    def delivered(self, time: float, client: str, subscription: int, message: Message) -> None:
        self._delivered.add((client, subscription, message.identity))

    def dropped(self, time: float, record: Dropped) -> None:
        if (record.kind == "Delivery" and record.place != "reader") or record.kind == "Publish":
            self._ended[Identity(record.publisher, record.incarnation, record.count)] += 1

    def reader_thinned(self, time: float, broker: str, record: ReaderThinned) -> None:
        self._withheld[record.client, record.subscription] += record.messages
        if time >= self.scenario.settled_after:
            self._withheld_late[record.client, record.subscription] += record.messages

    def finish(self) -> None:
        must: Counter[tuple[str, int]] = Counter()
        may: Counter[tuple[str, int]] = Counter()
        for sent, certain, possible in self.spans_of_messages():
            identity = sent.message.identity
            for span in possible:
                at = sent.time if span.broker == sent.home else self._served[identity].get(span.broker)
                if at is not None and (*span.owner, identity) not in self._delivered:
                    may[span.owner] += 1
                    in_time = span in certain and at + self.scenario.settle <= span.ended
                    must[span.owner] += in_time and not self._ended[identity]
        for owner, count in self._withheld.items():
            if count > may[owner]:
                self.problem(f"{count} messages are counted as withheld from {owner}; {may[owner]} did not come")
        for owner, count in must.items():
            if count > self._withheld_late[owner]:
                late = self._withheld_late[owner]
                self.problem(f"{count} messages at its broker never reached {owner}; {late} are counted as withheld")


class _Hungry:
    """Who gets nothing of whom, and since when."""

    def __init__(self) -> None:
        # When the first and the last were published that did not come, and how many these are.
        self._since: dict[tuple[str, str], tuple[float, float, int]] = {}
        self._told: set[tuple[str, str]] = set()

    def got(self, publisher: str, who: str) -> None:
        self._since.pop((publisher, who), None)

    def got_nothing(self, publisher: str, who: str, time: float) -> str:
        """One more that did not come; a complaint, once, if that has been so for too long."""
        pair = (publisher, who)
        first, last, count = self._since.get(pair, (time, time, 0))
        if time - last > PAUSE:
            first, count = time, 0
        self._since[pair] = (first, time, count + 1)
        if time - first <= HUNGER or count < HUNGRY_MIN or pair in self._told:
            return ""
        self._told.add(pair)
        return f"from {first:.6f} on nothing of {publisher} reached {who}"


class NoHunger(_Dues):
    """No publisher is shut out for long, neither from a broker nor, there, from a client."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self._delivered: set[tuple[str, int, Identity]] = set()
        rates = scenario.services.get("rates")
        self._grouped = isinstance(rates, RatesConfig) and rates.share_by == "group"
        unaware = {broker.name for broker in scenario.broker if "rates" in broker.without}
        self._dropped_at = {client.name for client in scenario.client if client.broker in unaware}  # queues just drop
        self._slow = {
            (client.name, number)
            for client in scenario.client
            for number, wanted in enumerate(client.subscribe)
            if wanted.reads_messages_per_s is not None
        }

    def delivered(self, time: float, client: str, subscription: int, message: Message) -> None:
        self._delivered.add((client, subscription, message.identity))

    def finish(self) -> None:
        hungry = _Hungry()
        for sent, must, _ in self.spans_of_messages():
            identity = sent.message.identity
            for broker in sorted({span.broker for span in must} - {sent.home}):
                self._see(hungry, sent, f"broker {broker}", came=broker in self._served[identity])
            here = [span.owner for span in must if span.broker in (sent.home, *self._served[identity])]
            came = [owner for owner in here if (*owner, identity) in self._delivered]
            here = [owner for owner in here if owner[0] not in self._dropped_at]
            for client in sorted({client for client, _ in here}):
                self._see(hungry, sent, client, came=any(owner[0] == client for owner in came))
            for owner in here:
                if owner in self._slow:
                    self._see(hungry, sent, f"subscription {owner[1]} of {owner[0]}", came=owner in came)

    def _see(self, hungry: _Hungry, sent: _Sent, who: str, *, came: bool) -> None:
        publisher = sent.message.identity.publisher
        publisher = group_of(publisher) if self._grouped else publisher  # who share are one publisher
        if came:
            hungry.got(publisher, who)
        elif problem := hungry.got_nothing(publisher, who, sent.time):
            self.problem(problem)


RATES_CHECKERS: dict[str, Callable[[Scenario], Checker]] = {
    "rates-on-the-way": OnTheWay,
    "rates-counted": WithheldIsCounted,
    "rates-readers": ReadersAreTold,
    "rates-no-hunger": NoHunger,
}


def broker_numbers(scenario: Scenario) -> dict[str, BrokerId]:
    """The ids of brokers by their names."""
    return {broker.name: number for number, broker in enumerate(scenario.broker)}
