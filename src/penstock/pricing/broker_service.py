"""Priced sending at brokers: each prices its links, and buys for its own clients every message's way (003 section 4).

Follow one message:
1. `_published`: its publisher's home asks who wants it, as for any message, and lets it wait in the flow of that set of
   brokers (`sender`).
2. `_buy`: its price is the fee and what all links of its way cost (`ways`), divided by what it is worth (`benefit`). If
   the account can pay, it is bought with probability 1/price; otherwise chance is asked again within an interval. If it
   cannot, the message waits for the next salary, or for lower prices.
3. One copy for each neighbour on the spanning tree, in the priced lane (`passing`). Nothing is dropped there: a lane
   that is full holds the neighbours that fill it (`overlay.credit`), and what would find no room here is not bought.
4. `_receive`: a neighbour's copy is delivered here, goes on, or both. Deliveries to clients are best effort, so that a
   client that does not read holds nobody.

Prices: buffers are looked at some times in each interval of the link reports, and their mean gives the price that is
told to all brokers (`overlay.link_reports`). Nobody asks receivers anything.

Content of a class that a client publishes plainly is taken over: it is bought like the rest, and nobody waits for it,
also when the client has gone meanwhile. What a client that is gone waited for is dropped.

State: for each client its flows (`sender`). Bounds: `held_max` messages of a client that were sent to be bought, which
is the window that it is told, and as many that were published plainly. Timers: LOOK; SALARY and AGAIN for flows in
which something waits.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.content.envelope import DATA, FLAG
from penstock.content.language.parser import parse_predicate
from penstock.content.message import Attributes, Message
from penstock.content.predicate import Predicate
from penstock.kernel.link import Link
from penstock.kernel.machine import Effect, Send
from penstock.kernel.packet import Lane, Packet
from penstock.kernel.service import Context
from penstock.kernel.timers import Key
from penstock.kernel.trace import InputRefused, LimitReached
from penstock.overlay.broker import Broker
from penstock.overlay.link_reports import VALUE_MAX, LinkReports
from penstock.overlay.packets import BrokerId, Publish
from penstock.overlay.routing import Routing
from penstock.pricing.account import Account
from penstock.pricing.benefit import BENEFITS, BenefitName, Worth
from penstock.pricing.buffer_means import BufferMeans
from penstock.pricing.config import PricedClass, PricingConfig
from penstock.pricing.costs import link_cost
from penstock.pricing.doubts import DOUBTED_AFTER, Doubts
from penstock.pricing.packets import (
    NUMBERS_MAX,
    Bought,
    ClassesRequest,
    NotBought,
    PricedClasses,
    PricedPublication,
    PricedPublish,
    PriceRequest,
    Prices,
)
from penstock.pricing.passing import Copy, PricedPassing, copies, ended
from penstock.pricing.patience import Patience, eagerness
from penstock.pricing.records import LinkPriced, MessageBought
from penstock.pricing.sender import NOBODY_WAITS, Held, PricedFlow, PricedSender
from penstock.pricing.senders import PricedSenders
from penstock.pricing.status import LinkPrice, PriceReport, PricingStatus
from penstock.pricing.timers import PricingTimer
from penstock.pricing.ways import PricedWays, TreeWay

ANSWERS_MAX = 16  # to one batch of requests
NO_WAY_MAX = 10.0  # seconds that a message waits for a way to any of its brokers
RECEIVERS_TOLD_MAX = 16  # of one flow, by name
WAITING_TOLD_MAX = 50  # clients of which a report names each flow


class PricedBroker:
    """The machine of brokers."""

    packet_kinds: tuple[type[Packet], ...] = (ClassesRequest, PricedPublish, PricedPublication, PriceRequest)

    def __init__(self, context: Context) -> None:
        self._config = context.settings(PricingConfig)
        self._routing = context.below(Routing)
        self._broker = context.below(Broker)
        self._reports = context.below(LinkReports)
        doubted_from = self._config.savings - self._config.fee
        self._doubts = Doubts(doubted_from, self._routing.broker, self._reports.value)
        self._ways = PricedWays(self._routing, self._reports, context.links, self._config.lines)
        self._node = context.node
        self._passing = PricedPassing(context.node, self._routing, self._ways, parks=bool(self._config.classes))
        self._timers = context.timers
        self._traced = context.traced
        self._random = context.random("buying")
        self._names = {number: name for name, number in (context.brokers or {}).items()}
        self._classes: list[tuple[PricedClass, Predicate]] = [
            (one, parse_predicate(one.where)) for one in self._config.classes
        ]
        self._senders = PricedSenders(self._config.flows_max)
        self._means: BufferMeans[BrokerId] = BufferMeans()
        self._prices: dict[BrokerId, tuple[float, float]] = {}  # mean and price of our links
        self._noted: list[Effect] = []  # records of the prices of this interval
        self._promised: dict[Link, int] = {}  # bytes that this input has bought so far, and that wait nowhere yet
        self._patience = Patience()
        self._looking = False
        self._now = 0.0  # when buffers were looked at last
        if self._config.classes:
            self._reports.use(self._measure, self._prices_changed)
            self._broker.take_over = self._take_over

    # Inputs.

    def receive(self, packets: Sequence[Packet], *, sender: Link, now: float) -> list[Effect]:
        self._promised.clear()
        effects: list[Effect] = []
        answers: list[Effect] = []
        for packet in packets:
            match packet:
                case PricedPublication():
                    effects += self._receive(packet, sender)
                case PricedPublish():
                    effects += self._publish(packet, sender, now)
                case _ if len(answers) == ANSWERS_MAX:
                    answers.append(LimitReached("requests for prices at once", ANSWERS_MAX))
                case ClassesRequest() if len(answers) < ANSWERS_MAX:
                    texts = tuple(one.where for one in self._config.classes)
                    answers.append(Send((sender,), PricedClasses(texts, self._config.held_max), Lane.CONTROL))
                case PriceRequest() if len(answers) < ANSWERS_MAX:
                    report = msgspec.json.encode(self._accounts(sender, now))
                    answers.append(Send((sender,), Prices(packet.ticket, report), Lane.CONTROL))
        return effects + answers

    def link_changed(self, link: Link, *, up: bool, now: float) -> list[Effect]:
        if up and self._config.classes and not self._looking:
            self._looking = True
            self._timers.set(PricingTimer.LOOK, now)
        return [] if up else self._gone(link, now)

    def _gone(self, link: Link, now: float) -> list[Effect]:
        """A client has gone: what nobody waits for is bought nevertheless."""
        sender = self._senders.close(link)
        if sender is None:
            return []
        for number in sender.flows:
            self._cancel(link, number)
        lost = sender.forget_awaited()
        kept = self._senders.keep(sender) if any(sender.held) else None
        if kept is None:
            lost += [one for flow in sender.flows.values() for one in flow.held]
        else:
            self._wake_flows(kept, sender, now)
        return [ended("sender gone", one) for one in lost]

    def _wake_flows(self, link: Link, sender: PricedSender, now: float) -> None:
        """Its flows have timers under this link from now on."""
        for number, flow in sender.flows.items():
            flow.cost_too_high = None
            if flow.held:
                self._timers.set(PricingTimer.AGAIN, now, link, number)

    def expired(self, timer: int, key: Key, *, now: float) -> list[Effect]:
        self._promised.clear()
        if timer == PricingTimer.LOOK:
            return self._look(now)
        link, number = int(key[0]), int(key[1])
        sender = self._senders.get(link)
        flow = None if sender is None else sender.flows.get(number)
        return [] if sender is None or flow is None else self._buy(link, sender, number, flow, now)

    # Prices.

    def _look(self, now: float) -> list[Effect]:
        """At the buffers of our links to neighbours, and at what waits beside the tree."""
        self._now = now
        self._timers.set(PricingTimer.LOOK, now + self._reports.interval / self._config.samples)
        neighbours = self._routing.link_to.items()
        self._means.look({broker: self._node.lane_packets(link, Lane.PRICED) for broker, link in neighbours})
        effects, self._noted = self._noted, []
        effects += self._passing.look(now)
        for near, far in self._doubts.look(now):
            told = f"its link to broker {self._name(far)} has cost more than can be saved for {DOUBTED_AFTER:g} s"
            effects.append(InputRefused(f"broker {self._name(near)}", told))
        return effects

    def _measure(self, now: float) -> dict[BrokerId, float]:
        """The price of each of our links, for all brokers."""
        config = self._config
        found = {broker: self._means_of(mean, most, broker) for broker, (mean, most) in self._means.take().items()}
        self._prices = {broker: found[broker] for broker in self._routing.link_to if broker in found}
        return {broker: min(price + config.link_fee, VALUE_MAX) for broker, (_, price) in self._prices.items()}

    def _means_of(self, mean: float, most: int, broker: BrokerId) -> tuple[float, float]:
        config = self._config
        price = link_cost(config.cost, mean, config.soft_limit, config.savings)
        if self._traced:
            self._noted.append(LinkPriced(broker, mean, most, price))
        return mean, price

    def _prices_changed(self, now: float) -> list[Effect]:
        """Whoever waits for money may be able to pay now, if it is its own way that costs something else."""
        self._promised.clear()
        effects, self._noted = self._noted, []
        costs: dict[tuple[BrokerId, ...], float] = {}
        for link, sender in self._senders.items():
            for number, flow in sender.flows.items():
                if flow.cost_too_high is None:
                    continue
                destinations = flow.held[0].destinations
                cost = costs.get(destinations)
                if cost is None:
                    cost = costs[destinations] = self._cost(self._ways.to(destinations), now)
                if cost != flow.cost_too_high:
                    effects += self._buy(link, sender, number, flow, now)
        return effects

    # The way of a message.

    def _publish(self, packet: PricedPublish, link: Link, now: float) -> list[Effect]:
        """A client sends a message to be bought."""
        client = self._broker.attached(link)
        if client is None:
            problem = "the broker does not know its sender"
            return [ended("sender unknown", packet), *self._refuse(link, packet.number, problem)]
        if packet.message.identity.publisher != client.name or FLAG in packet.message.attributes:
            problem = "a client publishes under its own name, and only content of applications is priced"
            refused = [InputRefused(client.name, problem)] if client.records.take(now) else []
            return [ended("not its name", packet), *refused, *self._refuse(link, packet.number, problem)]
        kept = [] if self._broker.uploads is None else self._broker.uploads([packet.message], now)
        return kept + self._published(packet.message, packet.number, link, client.name, now)

    def _take_over(
        self, packets: list[Publish], link: Link, name: str, now: float
    ) -> tuple[list[Publish], list[Effect]]:
        """Of what a client has published plainly, priced content is bought, also in a transport's envelope.

        Returns the rest, and with it what services say to each other: that is no content of an application.
        """
        self._promised.clear()
        plain: list[Publish] = []
        effects: list[Effect] = []
        for packet in packets:
            attributes = packet.message.attributes
            if attributes.get(FLAG, DATA) != DATA or self._class_of(attributes) is None:
                plain.append(packet if packet.lane is not Lane.PRICED else Publish(packet.message))
            else:
                effects += self._published(packet.message, NOBODY_WAITS, link, name, now)
        return plain, effects

    def _class_of(self, attributes: Attributes) -> PricedClass | None:
        return next((one for one, predicate in self._classes if predicate.matches(attributes)), None)

    def _published(self, message: Message, number: int, link: Link, name: str, now: float) -> list[Effect]:
        """A message of our own client: who wants it, and what it is worth; then it waits its turn."""
        found, problems = self._routing.form.wanting([message.attributes])
        if problems:
            refused = [InputRefused(name, problem) for problem in problems.values()]
            return [*refused, *self._refuse(link, number, problems[0])]
        chosen = self._class_of(message.attributes)
        one = Held(number, message, found[0], "sent" if chosen is None else chosen.benefit, now)
        sender = self._senders.get(link)
        if sender is None:
            sender = self._arrived(link, name, now)
        if sender.held[one.awaited] >= self._config.held_max:
            problem = f"more messages wait at the broker than may; the limit held_max is {self._config.held_max}"
            return [ended("queue full", one), *self._refuse(link, number, problem)]
        opened = sender.flow_to(found[0])
        if opened is None:
            phase = self._random.random()
            account = Account(self._config, self._reports.interval, phase, now)
            opened = sender.open(found[0], account)
        flow_number, flow = opened
        sender.put(flow, one)
        if len(flow.held) > 1:
            return []  # those before it wait
        return self._buy(link, sender, flow_number, flow, now)

    def _arrived(self, link: Link, name: str, now: float) -> PricedSender:
        """A client that sends priced content, for the first time or again."""
        sender, before = self._senders.open(link, name)
        if before is not None:
            for number in sender.flows:
                self._cancel(before, number)
            self._wake_flows(link, sender, now)
        return sender

    def _buy(self, link: Link, sender: PricedSender, number: int, flow: PricedFlow, now: float) -> list[Effect]:
        """Buy what the account can pay, in order; set a timer for the rest."""
        self._cancel(link, number)
        flow.cost_too_high = None
        effects: list[Effect] = []
        bought: list[int] = []
        account, interval = flow.account, self._reports.interval
        while flow.held:
            one = flow.held[0]
            way = self._ways.to(one.destinations)
            if self._may_find_a_way(flow, one, way, now):
                self._timers.set(PricingTimer.AGAIN, now + interval, link, number)
                break
            share = self._share(sender, flow, now)
            account.settle(now, share)
            cost = self._cost(way, now)
            price = self._payable(self._price(one.benefit, len(one.destinations), account, cost, now), way, now)
            parts = copies(one.message, way, 1)
            if not self._have_room(parts):
                account.block(price, now)
                self._timers.set(PricingTimer.AGAIN, now + interval, link, number)
                break
            if not account.can_pay(price, now):
                flow.cost_too_high = cost
                self._timers.set(PricingTimer.SALARY, account.next_salary, link, number)
                break
            if not account.may_buy(price, self._random, share):
                wait = self._random.random() * self._until_next_try(way, cost, now)
                self._timers.set(PricingTimer.AGAIN, now + wait, link, number)
                break
            account.buy(price, now)
            flow.held.popleft()
            sender.held[one.awaited] -= 1
            for first, copy in parts:
                self._promised[first] = self._promised.get(first, 0) + copy.size_bytes()
            if self._traced:
                effects.append(_bought(one, price, account, now))
            effects += self._passing.buy(one) + self._deliver(one.message)
            if one.awaited:
                bought.append(one.number)
        self._senders.tidy(link)
        return effects + self._answer(link, bought)

    def _may_find_a_way(self, flow: PricedFlow, one: Held, way: TreeWay, now: float) -> bool:
        """Whether nobody who wants it can be reached, and that may change soon: routing remembers them."""
        if way.groups or not one.destinations or self._deliver(one.message):
            flow.no_way_since = None
            return False
        if flow.no_way_since is None:
            flow.no_way_since = now
        remembered = any(broker in self._routing.origins for broker in one.destinations)
        return remembered and abs(now - flow.no_way_since) <= NO_WAY_MAX

    def _payable(self, price: float, way: TreeWay, now: float) -> float:
        """No more than can be saved, if what is said of its links cannot be true."""
        savings = self._config.savings
        return savings if price > savings and self._doubts.any_of(way.hops, now) else price

    def _cost(self, way: TreeWay, now: float) -> float:
        """What the links of a way cost: others' as they were told last, our own as they are if that is more."""
        return self._ways.cost(way, now, self._cost_of_own)

    def _cost_of_own(self, link: Link) -> float:
        config, waiting = self._config, self._node.lane_packets(link, Lane.PRICED)
        if not waiting or not config.own_links_now:
            return 0.0
        return config.link_fee + link_cost(config.cost, waiting, config.soft_limit, config.savings)

    def _until_next_try(self, way: TreeWay, cost: float, now: float) -> float:
        """At most so long."""
        interval = self._reports.interval
        if not self._config.patient:
            return interval
        dearest = self._ways.dearest(way, now)
        longest = interval if dearest is None else self._patience.wait(*dearest, interval, now)
        return eagerness(cost) * longest

    def _cancel(self, link: Link, number: int) -> None:
        self._timers.cancel(PricingTimer.SALARY, link, number)
        self._timers.cancel(PricingTimer.AGAIN, link, number)

    def _price(self, benefit: BenefitName, brokers: int, account: Account, links: float, now: float) -> float:
        """What a message to so many brokers costs its sender."""
        worth = Worth(brokers, account.sent_lately(now), links / self._config.savings)
        return (self._config.fee + links) / BENEFITS[benefit](worth)

    def _share(self, sender: PricedSender, flow: PricedFlow, now: float) -> float:
        """Flows of one client that have the same dearest link share a salary."""
        if len(sender.flows) == 1:
            return 1.0
        dearest = [self._dearest(other, now) for other in sender.busy()]
        return 1.0 / max(1, dearest.count(self._dearest(flow, now)))

    def _dearest(self, flow: PricedFlow, now: float) -> object:
        """The link that a flow's first message finds dearest."""
        found = self._ways.dearest(self._ways.to(flow.held[0].destinations), now)
        return None if found is None else found[0]

    def _have_room(self, parts: list[Copy]) -> bool:
        """Whether none of them would be dropped, behind all that this input has bought before."""
        room, promised = self._node.has_room, self._promised
        if parts and self._passing.full():
            return False
        return all(room(link, Lane.PRICED, copy.size_bytes(), promised.get(link, 0)) for link, copy in parts)

    def _receive(self, packet: PricedPublication, sender: Link) -> list[Effect]:
        """A neighbour's copy."""
        if not self._routing.is_neighbour(sender):
            return [ended("sender unknown", packet, len(packet.destinations))]
        effects = self._passing.receive(packet, sender)
        if self._routing.broker in packet.destinations:
            effects += self._deliver(packet.message)
        return effects

    def _deliver(self, message: Message) -> list[Effect]:
        return self._broker.deliver([Publish(message)])

    def _answer(self, link: Link, numbers: list[int]) -> list[Effect]:
        numbers = [number for number in numbers if number != NOBODY_WAITS]
        parts = [tuple(numbers[at : at + NUMBERS_MAX]) for at in range(0, len(numbers), NUMBERS_MAX)]
        return [Send((link,), Bought(part), Lane.CONTROL) for part in parts]

    def _refuse(self, link: Link, number: int, problem: str) -> list[Effect]:
        return [Send((link,), NotBought(number, problem), Lane.CONTROL)] if number != NOBODY_WAITS else []

    # Reports.

    def status(self) -> PricingStatus:
        links = {self._name(broker): LinkPrice(mean, price) for broker, (mean, price) in self._prices.items()}
        waiting = [sender for _, sender in self._senders.items() if any(sender.held)]
        named = waiting[:WAITING_TOLD_MAX]
        flows = {sender.name: [self._account(flow, self._now) for flow in sender.busy()] for sender in named}
        return PricingStatus(links, flows, len(waiting))

    def _accounts(self, link: Link, now: float) -> list[PriceReport]:
        """How the flows of one client stand."""
        sender = self._senders.get(link)
        return [self._account(flow, now) for flow in sender.flows.values()] if sender is not None else []

    def _account(self, flow: PricedFlow, now: float) -> PriceReport:
        account = flow.account
        first = flow.held[0] if flow.held else None
        destinations = first.destinations if first is not None else flow.destinations
        way = self._ways.to(destinations)
        dearest = self._ways.dearest(way, now, self._cost_of_own)
        price = self._price(flow.benefit, len(destinations), account, self._cost(way, now), now)
        return PriceReport(
            receivers=tuple(map(self._name, destinations[:RECEIVERS_TOLD_MAX])),
            receivers_in_all=len(destinations),
            balance=account.balance,
            price=self._payable(price, way, now),
            dearest_link=None if dearest is None else (self._name(dearest[0][0]), self._name(dearest[0][1])),
            dearest_price=0.0 if dearest is None else dearest[1],
            salary_period=account.period,
            waiting=len(flow.held),
            blocked_for=None if account.blocked_since is None else max(0.0, now - account.blocked_since),
        )

    def _name(self, broker: BrokerId) -> str:
        return self._names.get(broker, str(broker))


def _bought(one: Held, price: float, account: Account, now: float) -> MessageBought:
    identity = one.message.identity
    held = max(0.0, now - one.arrived)
    return MessageBought(
        identity.publisher, identity.incarnation, identity.count, price, account.balance, account.period, held
    )
