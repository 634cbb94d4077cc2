"""What must hold of priced sending in every run (protocols section 7), whatever its seed.

    priced-paid      nothing of a class is sent on or delivered before its home bought it, and nothing is bought twice;
                     nobody is told that such a message has left before it was bought
    priced-accounts  no account goes below nothing or above what may be saved; where a message is worth 1 its price is
                     the fee at least, so that 1/price is a probability; periods stay within their bounds
    priced-once      copies that are under way name disjoint brokers, and no broker is served twice
    priced-kept      while brokers live and there are ways, no copy is dropped but what a link had taken that went down,
                     whatever becomes of the tree; every broker that a copy named was served, or a record says why not;
                     no message of a client is refused its place
    priced-drains    in the end every application knows what became of its messages, and every message of a class that
                     its client had, through no crash and no cut of its own connection, was bought or its end recorded:
                     nobody waits for ever, on rings and meshes neither
    priced-fair      after the last fault, of senders that are equal nobody starves

That what was bought arrives, once the faults are over, is what `nothing-missed` shows. All but the last two are safe to
judge at any time; those are for runs that heal, and have time to drain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from math import inf
from typing import Any

from penstock.content.language.parser import parse_predicate
from penstock.content.message import Identity, Message
from penstock.kernel.trace import Dropped
from penstock.overlay.packets import BrokerId
from penstock.pricing.config import PricingConfig
from penstock.pricing.packets import PricedPublication
from penstock.pricing.records import MessageBought
from penstock.scenario.checker import Checker
from penstock.scenario.joined import Joined
from penstock.scenario.node_config import broker_config
from penstock.scenario.spec import ClientSpec, Scenario

ROUNDING = 1e-9
EXCUSES = ("link down", "crash", "not connected", "sender gone", "refused")  # of the last the client was told
APART = ("no way", "hop limit", "sender unknown")  # excuses while the network is not whole, or has just come to be
AGREED = 2.0  # seconds until all brokers have the same map
FAIR_MEAN = 20  # messages that equal senders must have bought on the mean before they are compared
FAIR_SHARE = 0.1  # of the mean: whoever has less starves; storms are too short to show that shares are equal


class PricedPaid(Checker):
    """Nothing leaves that is not paid."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self._classes = [parse_predicate(one.where) for one in scenario.classes]
        self._bought: set[Identity] = set()
        self._priced: set[Identity] = set()
        self._accepted: set[Identity] = set()

    def published(self, time: float, client: str, message: Message) -> None:
        if any(one.matches(message.attributes) for one in self._classes):
            self._priced.add(message.identity)
            self._judge(time, message.identity)

    def answered(self, time: float, client: str, identity: Identity, accepted: bool) -> None:
        if accepted:
            self._accepted.add(identity)
            self._judge(time, identity)

    def _judge(self, time: float, identity: Identity) -> None:
        """Whoever publishes may be answered before or after it is known what was published."""
        if identity in self._accepted and identity in self._priced and identity not in self._bought:
            self.problem(f"{time:.6f}: the publisher of {identity} was told that it has left; nobody has bought it")

    def bought(self, time: float, broker: str, record: MessageBought) -> None:
        identity = _identity(record)
        if identity in self._bought:
            self.problem(f"{time:.6f}: {broker} bought {identity} again")
        self._bought.add(identity)

    def copy_sent(self, time: float, packet: PricedPublication) -> None:
        if packet.message.identity not in self._bought:
            self.problem(f"{time:.6f}: a copy of {packet.message.identity} leaves unpaid")

    def delivered(self, time: float, client: str, subscription: int, message: Message) -> None:
        if message.identity not in self._bought and any(one.matches(message.attributes) for one in self._classes):
            self.problem(f"{time:.6f}: {client} got {message.identity}, which nobody has bought")


class PricedAccounts(Checker):
    """Balances, prices and periods stay within their bounds."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        config = pricing_of(scenario)
        self._config = config
        self._saved_max = config.savings + (config.salary if config.cap == "before" else 0.0)
        self._price_min = config.fee if {one.benefit for one in scenario.classes} <= {"sent"} else 0.0
        self._period_min = min(config.period_min, config.first_period)
        self._period_max = max(config.period_max, config.first_period)

    def bought(self, time: float, broker: str, record: MessageBought) -> None:
        what = f"{time:.6f}: {_identity(record)}"
        if not 0.0 <= record.balance <= record.balance + record.price <= self._saved_max + ROUNDING:
            self.problem(f"{what} for {record.price} left {record.balance}; nobody has more than {self._saved_max}")
        if not record.price >= self._price_min - ROUNDING:
            self.problem(f"{what} cost {record.price}, less than the fee")
        if not self._period_min - ROUNDING <= record.period <= self._period_max + ROUNDING:
            self.problem(f"{what}: a period of {record.period}")


class PricedOnce(Checker):
    """Copies under way name disjoint brokers, and no broker is served twice."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self._served: defaultdict[Identity, set[BrokerId]] = defaultdict(set)

    def copy_sent(self, time: float, packet: PricedPublication) -> None:
        again = self._served[packet.message.identity].intersection(packet.destinations)
        if again:
            self.problem(f"{time:.6f}: {packet.message.identity} goes to {sorted(again)}, which have it")

    def copy_arrived(self, time: float, broker: BrokerId, packet: PricedPublication) -> None:
        if broker in packet.destinations:
            served = self._served[packet.message.identity]
            if broker in served:
                self.problem(f"{time:.6f}: broker {broker} was served twice with {packet.message.identity}")
            served.add(broker)


class PricedKept(Checker):
    """Lanes that hold drop nothing; what ends before its time has an excuse and a record."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self._unserved: defaultdict[Identity, set[BrokerId]] = defaultdict(set)
        self._explained: defaultdict[Identity, int] = defaultdict(int)
        self._joined = Joined(scenario)

    def copy_sent(self, time: float, packet: PricedPublication) -> None:
        self._unserved[packet.message.identity].update(packet.destinations)

    def copy_arrived(self, time: float, broker: BrokerId, packet: PricedPublication) -> None:
        if broker in packet.destinations:
            self._unserved[packet.message.identity].discard(broker)

    def dropped(self, time: float, record: Dropped) -> None:
        if record.kind not in ("PricedPublication", "PricedPublish"):
            return
        apart = record.cause in APART and self._joined.for_seconds(time) < AGREED
        if record.cause not in EXCUSES and not apart:
            who = f"{record.publisher} {record.count}"
            self.problem(f"{time:.6f}: a {record.kind} of {who} was dropped: {record.place}, {record.cause}")
        if record.kind == "PricedPublication":
            self._explained[Identity(record.publisher, record.incarnation, record.count)] += record.destinations

    def finish(self) -> None:
        for identity, brokers in self._unserved.items():
            explained = self._explained[identity]
            if len(brokers) > explained:
                self.problem(f"{identity} never reached brokers {sorted(brokers)}; records explain {explained} of them")


class PricedDrains(Checker):
    """Nobody waits for ever."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self._classes = [parse_predicate(one.where) for one in scenario.classes]
        self._waiting: dict[Identity, float] = {}
        self._awaited: dict[Identity, float] = {}
        self._cut_at = {client.name: _last_cut(scenario, client) for client in scenario.client}

    def published(self, time: float, client: str, message: Message) -> None:
        if any(one.matches(message.attributes) for one in self._classes):
            self._waiting[message.identity] = time

    def bought(self, time: float, broker: str, record: MessageBought) -> None:
        self._waiting.pop(_identity(record), None)

    def dropped(self, time: float, record: Dropped) -> None:
        self._waiting.pop(Identity(record.publisher, record.incarnation, record.count), None)

    def awaited(self, time: float, client: str, identity: Identity) -> None:
        self._awaited[identity] = time

    def answered(self, time: float, client: str, identity: Identity, accepted: bool) -> None:
        del self._awaited[identity]

    def finish(self) -> None:
        crashed = _crashed(self.scenario)
        for identity, time in self._awaited.items():
            if identity.publisher in crashed:
                continue
            self.problem(f"nobody has told its publisher what became of {identity} of {time:.6f}")
        for identity, time in self._waiting.items():
            if time > self._cut_at[identity.publisher]:
                self.problem(f"{identity} of {time:.6f} still waits in the end")


class PricedFair(Checker):
    """Equal senders get comparable shares, once the faults are over."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self._counts: dict[str, int] = {client.name: 0 for client in scenario.client}
        self._healed_at = max((fault.at for fault in scenario.fault), default=0.0)

    def bought(self, time: float, broker: str, record: MessageBought) -> None:
        if time >= self._healed_at:
            self._counts[record.publisher] += 1

    def finish(self) -> None:
        equals: dict[Any, list[str]] = {}
        crashed = _crashed(self.scenario)
        for client in self.scenario.client:
            if client.name in crashed:
                continue
            key = (client.broker, client.access_rate_bits_per_s, repr(client.publish), repr(client.services))
            equals.setdefault(key, []).append(client.name)
        for names in equals.values():
            counts = {name: self._counts[name] for name in names}
            mean = sum(counts.values()) / len(counts)
            if mean >= FAIR_MEAN and min(counts.values()) < FAIR_SHARE * mean:
                self.problem(f"equal senders bought {counts}")


PRICED_CHECKERS: dict[str, Callable[[Scenario], Checker]] = {
    "priced-paid": PricedPaid,
    "priced-accounts": PricedAccounts,
    "priced-once": PricedOnce,
    "priced-kept": PricedKept,
    "priced-drains": PricedDrains,
    "priced-fair": PricedFair,
}


def pricing_of(scenario: Scenario) -> PricingConfig:
    """The settings of all brokers."""
    config = broker_config(scenario).services.get("pricing", PricingConfig())
    assert isinstance(config, PricingConfig)
    return config


def _last_cut(scenario: Scenario, client: ClientSpec) -> float:
    """When the connection of a client broke for the last time: nobody knows what became of what was on its way."""
    link = {client.name, client.broker}
    cuts = [
        fault.at
        for fault in scenario.fault
        if (fault.kind in ("crash", "leave") and fault.broker == client.broker)
        or (fault.kind == "link_down" and set(fault.link or ()) == link)
        or fault.client == client.name
    ]
    return max(cuts, default=-inf)


def _crashed(scenario: Scenario) -> set[str | None]:
    """Clients that do not live to the end."""
    return {fault.client for fault in scenario.fault if fault.kind == "client_crash"}


def _identity(record: MessageBought) -> Identity:
    return Identity(record.publisher, record.incarnation, record.count)
