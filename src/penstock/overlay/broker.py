"""How a broker forwards: match once at the home, split by next hop, deliver after exact matching (002 section 2.7).

Follow one message through this file:
1. `_published`: its publisher's home broker asks the index over all brokers' interest who wants it.
2. `_forward`: those brokers are grouped by the neighbour that leads to them; each group gets one copy that names only
   the group. Later brokers do the same with what they receive, so every copy is meant for brokers that no other copy
   names, and nobody can get a message twice.
3. `deliver`: a broker named in a copy matches the message exactly against its own clients' predicates. Where interest
   is encoded, a false positive has cost a trip, never a wrong delivery.

A message keeps its lane on the whole way. There is no acknowledgement, no order, no storage. What cannot go on is
dropped and recorded: no way to a broker, or the hop limit, which stops copies that run in circles while the maps of the
brokers do not agree yet.

State: attached clients and their subscriptions, with the exact index over all of them. Bounds: clients, and
subscriptions per client; over a bound the client gets a refusal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from penstock.content.envelope import CONTROL_MARK
from penstock.content.language.parser import parse_predicate
from penstock.content.matching.exact_index import PredicateIndex
from penstock.content.message import INBOX, Message, Value
from penstock.errors import InvalidEncoding, InvalidPredicate
from penstock.kernel.link import Link
from penstock.kernel.machine import Effect, Send
from penstock.kernel.paced_queue import PacedQueue
from penstock.kernel.packet import Lane, Packet
from penstock.kernel.service import Context
from penstock.kernel.timers import Key
from penstock.kernel.token_bucket import TokenBucket
from penstock.kernel.trace import Dropped, InputRefused, dropped_record
from penstock.overlay.attached_client import AttachedClient
from penstock.overlay.config import BrokerConfig
from penstock.overlay.egress import OURSELVES
from penstock.overlay.interest import ReadEntry
from penstock.overlay.packets import (
    Answer,
    Attach,
    BrokerId,
    Delivery,
    Publication,
    Publish,
    Ready,
    ReadyRequest,
    Subscribe,
    Unsubscribe,
)
from penstock.overlay.routing import Routing
from penstock.overlay.text_work import work_of_text
from penstock.overlay.timers import ForwardingTimer

STRANGERS_RATE = 100.0  # answers per second to all who have not attached
SPLITS_MAX = 10_000  # sets of brokers whose split is remembered
VERBS_WAITING_MAX = 4_096  # of one client


# (packets, link of the client, its name, now) -> what goes on plainly, and what follows for the rest
TakeOver = Callable[[list[Publish], Link, str, float], tuple[list[Publish], list[Effect]]]
# (messages of our own clients, now) -> what follows, beside their way to subscribers
Uploads = Callable[[Sequence[Message], float], list[Effect]]
Leaving = list[tuple[Message, Lane, tuple[BrokerId, ...]]]
# (messages of one client, the brokers that want each, its link, now) -> what leaves now, of these and of earlier ones;
# None: just these
Admit = Callable[[Sequence[Publish], Sequence[tuple[BrokerId, ...]], Link, float], Leaving | None]
# (link of a client, its subscriptions that match, message, its lane, now) -> those of them that get it now
AtEdge = Callable[[Link, tuple[int, ...], Message, Lane, float], tuple[int, ...]]
Groups = list[tuple[tuple[Link], tuple[BrokerId, ...]]]
# (message, its lane, its brokers, the copies: a link and its brokers each, over which link it came, effects, now)
# -> the copies that go out
Watch = Callable[[Message, Lane, tuple[BrokerId, ...], Groups, Link, list[Effect], float], Groups]
_Verb = Subscribe | Unsubscribe | ReadyRequest


class _Subscription:
    __slots__ = ("client", "entries", "link", "number", "numbers", "to")

    def __init__(self, client: AttachedClient, link: Link, number: int, entries: list[ReadEntry]) -> None:
        self.client = client
        self.link = link
        self.number = number
        self.entries = entries  # what it adds to our interest
        self.to = (link,)  # for a message that matches this subscription alone
        self.numbers = (number,)


class _Split:
    """Where the copies for a set of brokers go: a link and its brokers each, how many have no way, the hop limit."""

    __slots__ = ("groups", "hop_limit", "lost")

    def __init__(self, groups: Groups, lost: int, hop_limit: int) -> None:
        self.groups = groups
        self.lost = lost
        self.hop_limit = hop_limit


class Broker:
    """The service that carries publications and serves this broker's clients."""

    packet_kinds: tuple[type[Packet], ...] = (Attach, Subscribe, Unsubscribe, ReadyRequest, Publish, Publication)

    def __init__(self, context: Context) -> None:
        self._routing = context.below(Routing)
        self._config = context.settings(BrokerConfig)
        self._links = context.links
        self._clients: dict[Link, AttachedClient] = {}
        self._strangers = TokenBucket(STRANGERS_RATE, STRANGERS_RATE, 0.0)
        self._timers = context.timers
        config = self._config
        self._verbs: PacedQueue[_Verb] = PacedQueue(config.work_rate, config.work_burst, VERBS_WAITING_MAX)
        self._subscriptions: dict[int, _Subscription] = {}
        self._index = PredicateIndex()
        self._next_key = 0
        self._splits: dict[tuple[BrokerId, ...], _Split] = {}  # how sets of brokers are split, while the ways are these
        self._exits: Mapping[BrokerId, Link] = {}
        self.take_over: TakeOver | None = None  # a service that carries some content in its own way
        self.uploads: Uploads | None = None  # a service that keeps what is published
        self.admit: Admit | None = None  # a service that says when our clients' messages may leave, and to whom
        self.watch: Watch | None = None  # a service that sees copies that go to neighbours, while it wants to
        self.at_edge: AtEdge | None = None  # a service that knows clients that read slowly, while there are any

    # Inputs.

    def receive(self, packets: Sequence[Packet], *, sender: Link, now: float) -> list[Effect]:
        first = packets[0]
        if len(packets) == 1 and isinstance(first, Publication):  # by far the most in the simulator
            return self._passing([first], sender, now)
        effects: list[Effect] = []
        published: list[Publish] = []
        passing: list[Publication] = []
        for packet in packets:
            if isinstance(packet, Publication):
                passing.append(packet)
            elif isinstance(packet, Publish):
                published.append(packet)
            else:
                effects += self._published(published, sender, now)
                published = []
                effects += self._client_verb(packet, sender, now)
        if passing:
            effects += self._passing(passing, sender, now)
        if published:
            effects += self._published(published, sender, now)
        return effects

    def link_changed(self, link: Link, *, up: bool, now: float) -> list[Effect]:
        self._verbs.drop(link)
        client = None if up else self._clients.pop(link, None)
        if client is not None:
            for key in client.keys.values():
                self._drop_subscription(key, now)
        return []

    def attached(self, link: Link) -> AttachedClient | None:
        """The client at this link."""
        return self._clients.get(link)

    def clients(self) -> Iterable[tuple[Link, AttachedClient]]:
        """All clients, by their links."""
        return self._clients.items()

    def subscriptions_of(self, link: Link) -> int:
        """How many subscriptions the client at this link has."""
        client = self._clients.get(link)
        return len(client.keys) if client is not None else 0

    # The way of a message.

    def _published(self, packets: list[Publish], sender: Link, now: float) -> list[Effect]:
        """Messages of our own clients: we are their home broker, the only one to match them against all interest."""
        if not packets:
            return []
        client = self._clients.get(sender)
        if client is None:
            return [_dropped("sender unknown", packet.message, packet.lane, 1, kind="Publish") for packet in packets]
        names = client.names
        foreign = [packet for packet in packets if packet.message.identity.publisher not in names]
        if foreign:
            own = [packet for packet in packets if packet.message.identity.publisher in names]
            return self._foreign(foreign, client, now) + self._published(own, sender, now)
        effects: list[Effect] = []
        if self.uploads is not None:
            effects = self.uploads([packet.message for packet in packets], now)
        if self.take_over is not None:
            packets, taken_over = self.take_over(packets, sender, client.name, now)
            effects += taken_over
            if not packets:
                return effects
        found, problems = self._routing.form.wanting([packet.message.attributes for packet in packets])
        leaving = self.admit(packets, found, sender, now) if self.admit is not None else None
        if leaving is None:
            for packet, destinations in zip(packets, found, strict=True):
                if destinations:
                    self._forward(packet.message, packet.lane, destinations, None, effects, OURSELVES, now)
        else:
            for message, lane, some in leaving:
                self._forward(message, lane, some, None, effects, OURSELVES, now)
        if problems:
            effects += [InputRefused(sender=client.name, problem=problem) for problem in problems.values()]
            packets = [packet for place, packet in enumerate(packets) if place not in problems]
        return effects + self.deliver(packets, now)

    def _foreign(self, packets: list[Publish], client: AttachedClient, now: float) -> list[Effect]:
        """Messages under another's name go no further."""
        effects: list[Effect] = []
        for packet in packets:
            effects.append(_dropped("not its name", packet.message, packet.lane, 1, kind="Publish"))
            if client.records.take(now):
                problem = f"a client publishes under its own name, not as '{packet.message.identity.publisher}'"
                effects.append(InputRefused(client.name, problem))
        return effects

    def forward(self, message: Message, lane: Lane, destinations: tuple[BrokerId, ...], now: float) -> list[Effect]:
        """A client's message sets out for these brokers."""
        effects: list[Effect] = []
        self._forward(message, lane, destinations, None, effects, OURSELVES, now)
        return effects

    def _passing(self, packets: list[Publication], sender: Link, now: float) -> list[Effect]:
        """Copies from a neighbour: keep what is for us, send on what is for others."""
        if not self._routing.is_neighbour(sender):  # it will say Hello soon: we or the link have just come up
            return [
                _dropped("sender unknown", packet.message, packet.lane, len(packet.destinations)) for packet in packets
            ]
        here = self._routing.broker
        effects: list[Effect] = []
        local: list[Publication] = []
        for packet in packets:
            destinations = packet.destinations
            if here in destinations:
                local.append(packet)
                place = destinations.index(here)
                destinations = destinations[:place] + destinations[place + 1 :]
            if destinations:
                self._forward(packet.message, packet.lane, destinations, packet.hops_left, effects, sender, now)
        return effects + self.deliver(local, now) if local else effects

    def _forward(
        self,
        message: Message,
        lane: Lane,
        destinations: tuple[BrokerId, ...],
        hops_left: int | None,
        effects: list[Effect],
        source: Link,
        now: float,
    ) -> None:
        """One copy per neighbour; `hops_left` is None at the home broker, which sets the limit."""
        exits = self._routing.exits()
        if exits is not self._exits or len(self._splits) >= SPLITS_MAX:
            self._exits = exits
            self._splits.clear()
        split = self._splits.get(destinations)
        if split is None:  # many messages go to the same brokers
            split = self._splits[destinations] = self._split(destinations, exits)
        if hops_left is None:
            hops_left = split.hop_limit
        if split.lost:
            effects.append(_dropped("no way", message, lane, split.lost))
        if hops_left == 0 and split.groups:
            effects.append(_dropped("hop limit", message, lane, len(destinations) - split.lost))
            return
        groups = split.groups
        if self.watch is not None:
            groups = self.watch(message, lane, destinations, groups, source, effects, now)
        for to, group in groups:
            effects.append(Send(to, Publication(group, hops_left - 1, message, lane), lane))

    def _split(self, destinations: tuple[BrokerId, ...], exits: Mapping[BrokerId, Link]) -> _Split:
        """The brokers grouped by the neighbour that leads to them."""
        groups: dict[Link, list[BrokerId]] = {}
        lost = 0
        for destination in destinations:
            link = exits.get(destination)
            if link is None:
                lost += 1
            elif link in groups:
                groups[link].append(destination)
            else:
                groups[link] = [destination]
        parts = [((link,), tuple(group)) for link, group in groups.items()]
        return _Split(parts, lost, self._hop_limit(destinations))

    def _hop_limit(self, destinations: Sequence[BrokerId]) -> int:
        """The longest way ahead, and some more for detours."""
        ways = [self._routing.way(destination) for destination in destinations]
        farthest = max((way.hops for way in ways if way is not None), default=0)
        return min(farthest + self._config.hops_spare, self._config.hops_max)

    def deliver(self, packets: Sequence[Publish | Publication], now: float | None = None) -> list[Effect]:
        """Exact matching; one packet per client, whatever the number of its subscriptions that match.

        Without a time it goes to slow readers too.
        """
        at_edge = self.at_edge if now is not None else None
        effects: list[Effect] = []
        subscriptions = self._subscriptions
        matched = self._index.match([packet.message.attributes for packet in packets])
        for packet, keys in zip(packets, matched, strict=True):
            if not keys:
                continue
            message, lane = packet.message, packet.lane
            if INBOX in message.attributes:
                keys = self._addressed(keys, message.attributes[INBOX])
            if len(keys) == 1 and at_edge is None:
                only = subscriptions[keys[0]]
                effects.append(Send(only.to, Delivery(only.numbers, message, lane), lane))
                continue
            by_link: dict[Link, list[int]] = {}
            for key in keys:
                subscription = subscriptions[key]
                by_link.setdefault(subscription.link, []).append(subscription.number)
            for link, numbers in by_link.items():
                numbers.sort()
                getting = tuple(numbers)
                if at_edge is not None and now is not None:
                    getting = at_edge(link, getting, message, lane, now)
                if getting:
                    effects.append(Send((link,), Delivery(getting, message, lane), lane))
        return effects

    def _addressed(self, keys: Sequence[int], name: Value) -> list[int]:
        """Those of the subscriptions that belong to the client with this inbox."""
        return [key for key in keys if self._subscriptions[key].client.name == name]

    # Clients.

    def _client_verb(self, packet: Packet, sender: Link, now: float) -> list[Effect]:
        if isinstance(packet, Attach):
            return self._attach(packet, sender, now)
        assert isinstance(packet, Subscribe | Unsubscribe | ReadyRequest)
        client = self._clients.get(sender)
        if client is None:
            problem = self._full_problem() or "it has not attached; Attach comes first"
            answer = Send((sender,), Answer(packet.ticket, problem), Lane.CONTROL)
            return [InputRefused(f"link {sender}", problem), answer] if self._strangers.take(now) else []
        cost = work_of_text(packet.where if isinstance(packet, Subscribe) else "")
        free = isinstance(packet, Unsubscribe) and packet.subscription in client.keys  # it has paid when it subscribed
        if not (free or client.verbs.take(now)) or not self._verbs.put(sender, packet, cost):
            rate, burst = self._config.verbs_rate, self._config.verbs_burst
            problem = f"too many at once: a client may make {burst:g} subscriptions, and {rate:g} more each second"
            return self._refuse(packet, client, sender, problem, now) if client.answers.take(now) else []
        return self._work_off(now)

    def expired(self, timer: int, key: Key, *, now: float) -> list[Effect]:
        return self._work_off(now)

    def _work_off(self, now: float) -> list[Effect]:
        """Carry out the verbs whose turn it is; a burst of them must not keep messages waiting."""
        effects: list[Effect] = []
        for link, packet in self._verbs.take(now):
            client = self._clients[link]
            if isinstance(packet, Subscribe):
                effects += self._subscribe(packet, client, link, now)
            elif isinstance(packet, ReadyRequest):
                effects += self._routing.tell_when_ready(packet, link, now)
            else:
                key = client.keys.pop(packet.subscription, None)
                if key is not None:
                    self._drop_subscription(key, now)
                effects.append(Send((link,), Answer(packet.ticket), Lane.CONTROL))
        ready_at = self._verbs.ready_at()
        if ready_at is not None:
            self._timers.set(ForwardingTimer.VERBS, ready_at)
        return effects

    def _attach(self, packet: Attach, sender: Link, now: float) -> list[Effect]:
        """A new client, or one that begins again on the same link: either way without subscriptions."""
        if self._routing.is_neighbour(sender):
            return [InputRefused(sender=packet.client, problem="a neighbour's link cannot turn into a client's")]
        before = self._clients.get(sender)
        effects = self.link_changed(sender, up=False, now=now)
        problem = self._name_problem(packet.client, sender) or self._full_problem()
        if problem:
            return [*effects, InputRefused(sender=packet.client, problem=problem)]
        self._clients[sender] = AttachedClient(packet.client, self._config, now, before)
        self._routing.client_attached(sender)
        return effects

    def _name_problem(self, name: str, sender: Link) -> str:
        if name.startswith(CONTROL_MARK):
            return f"a client's name does not begin with '{CONTROL_MARK}'; choose another"
        info = self._links.get(sender)
        return f"it attached as '{name}' and connected as '{info.peer}'" if info and info.peer != name else ""

    def _subscribe(self, packet: Subscribe, client: AttachedClient, sender: Link, now: float) -> list[Effect]:
        limit = self._config.subscriptions_per_client_max
        if packet.subscription not in client.keys and len(client.keys) >= limit:
            problem = f"the limit subscriptions_per_client_max is {limit}"
            return self._refuse(packet, client, sender, problem, now)
        try:
            predicate = parse_predicate(packet.where)
        except InvalidPredicate as error:
            return self._refuse(packet, client, sender, str(error), now)
        try:
            entries = self._routing.entries(predicate)
        except InvalidEncoding as error:
            return self._refuse(packet, client, sender, str(error), now)
        room = sum(entry.room for entry in entries)
        problem = client.inbox_problem(predicate) or self._share_problem(client, room)
        if problem:
            return self._refuse(packet, client, sender, problem, now)
        replaced = client.keys.pop(packet.subscription, None)
        if replaced is not None:
            self._drop_subscription(replaced, now)
        self._next_key += 1
        client.keys[packet.subscription] = self._next_key
        self._index.add(self._next_key, predicate)
        self._subscriptions[self._next_key] = _Subscription(client, sender, packet.subscription, entries)
        client.room += room
        self._routing.want(entries, now=now)
        return [Send((sender,), Answer(packet.ticket), Lane.CONTROL)]

    def _share_problem(self, client: AttachedClient, room: int) -> str:
        limit = max(1, self._routing.room // self._config.client_share)
        if client.room + room <= limit:
            return ""
        share = f"1/{self._config.client_share} of this broker's (client_share)"
        return f"one client may have {limit:,} bytes of room for its filters, {share}: use fewer, or shorter lists"

    def _refuse(self, packet: _Verb, client: AttachedClient, sender: Link, problem: str, now: float) -> list[Effect]:
        if isinstance(packet, ReadyRequest):
            return [Send((sender,), Ready(packet.ticket, ("this broker, which was asked too often",)), Lane.CONTROL)]
        records: list[Effect] = [InputRefused(client.name, problem)] if client.records.take(now) else []
        return [*records, Send((sender,), Answer(packet.ticket, problem), Lane.CONTROL)]

    def _drop_subscription(self, key: int, now: float) -> None:
        self._index.remove(key)
        subscription = self._subscriptions.pop(key)
        subscription.client.room -= sum(entry.room for entry in subscription.entries)
        self._routing.unwant([entry.entry for entry in subscription.entries], now=now)

    def _full_problem(self) -> str:
        limit = self._config.clients_max
        full = len(self._clients) >= limit
        return f"this broker has as many clients as it takes; the limit clients_max is {limit}" if full else ""


def _dropped(cause: str, message: Message, lane: Lane, destinations: int, kind: str = "Publication") -> Dropped:
    return dropped_record("route", cause, "", lane, kind, message, destinations)
