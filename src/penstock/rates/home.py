"""A home broker's own clients: first slow start, then the shares of limited links; and the books of what was withheld.

State: that of the parts, and the names of clients of whom something may be withheld. Bound: the broker's clients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from penstock.content.envelope import DATA, FLAG
from penstock.content.message import Message
from penstock.kernel.link import Link
from penstock.kernel.packet import Lane
from penstock.overlay.packets import BrokerId, Publish
from penstock.overlay.spanning_tree import Hop
from penstock.rates.config import RatesConfig, WhenFull
from penstock.rates.rate_table import RateTable
from penstock.rates.regulated import LANES, group_of, publisher_of, regulated
from penstock.rates.sharing import HEAD_BYTES, Copy, Sharing, Way
from penstock.rates.slow_start import SlowStart
from penstock.rates.withheld import WithheldBooks

EXPIRE_EVERY = 0.25  # seconds
NO_EXIT: Link = -1
EXITS_MAX = 10_000  # sets of brokers whose links out are remembered


class Home:
    """All clients of this broker."""

    def __init__(self, config: RatesConfig, rates: RateTable, random: Random, lanes: tuple[Lane, ...] = LANES) -> None:
        self.withheld = WithheldBooks()
        self._config = config
        self._lanes = lanes
        self._rates = rates
        self._sharing = Sharing(rates, config.wait, self._withhold, random)
        self._names: dict[Link, str] = {}
        self._starts: dict[Link, dict[Link, SlowStart[Copy]]] = {}
        self._groups: dict[tuple[BrokerId, ...], list[tuple[Link, tuple[BrokerId, ...]]]] = {}
        self._armed: dict[Link, float] = {}
        self._holding: dict[Link, None] = {}  # clients that get no credit now
        self._expire_at = 0.0

    def admit(self, client: Link, copy: Copy, exits: Mapping[BrokerId, Link], way: Way, now: float) -> list[Copy]:
        """A client's message: what leaves now, of it and of what waited."""
        if client not in self._names:
            self._names[client] = publisher_of(copy.message)
            if self._config.share_by == "group":
                self._sharing.pays_as(client, group_of(self._names[client]))
        self.expire(now)
        begun = self._begun(client, copy, exits, way, now) if self._config.slow_start else [copy]
        return self._shared(client, begun, way, now)

    def passes(
        self,
        client: Link,
        packets: Sequence[Publish],
        found: Sequence[tuple[BrokerId, ...]],
        exits: Mapping[BrokerId, Link],
        way: Way,
        now: float,
    ) -> bool:
        """Whether all of these leave at once, and nothing else does; if so, they have.

        The same as `admit` for each of them (`regulated` included) in much less time: they are counted together.
        """
        starts = self._starts.get(client)
        if starts is None or not self._config.slow_start:
            return False
        sizes: dict[tuple[BrokerId, ...], int] = {}  # by the brokers that want them
        to, size_bytes = found[0], 0
        for packet, destinations in zip(packets, found, strict=True):
            message = packet.message
            if packet.lane not in self._lanes or message.attributes.get(FLAG, DATA) != DATA:
                return False
            if destinations != to:
                sizes[to] = sizes.get(to, 0) + size_bytes
                to, size_bytes = destinations, 0
            size_bytes += HEAD_BYTES + message.size_bytes
        sizes[to] = sizes.get(to, 0) + size_bytes
        leaving: dict[Link, int] = {}
        for to, size_bytes in sizes.items():
            if len(self._rates) and self._sharing.limits(to, way):
                return False
            for link, _ in self._by_exit(to, exits):
                leaving[link] = leaving.get(link, 0) + size_bytes
        last_bytes = HEAD_BYTES + packets[-1].message.size_bytes
        if not all(link in starts and starts[link].passes(total, last_bytes, now) for link, total in leaving.items()):
            return False
        for link, total in leaving.items():
            starts[link].pay(total, last_bytes, now)
        return True

    def serve(self, client: Link, way: Way, now: float) -> list[Copy]:
        """What may leave now of what waits."""
        self._armed.pop(client, None)
        self.expire(now)
        begun = [copy for start in self._starts.get(client, {}).values() for copy in start.serve(now)]
        leaving = self._shared(client, begun, way, now) + self._sharing.serve(client, now)
        if client not in self._starts and not self._sharing.jobs(client):
            self._names.pop(client, None)  # it has left
        return leaving

    def rearmed(self, client: Link, now: float) -> float | None:
        """When to serve this client, if that is not known yet."""
        if self._must_hold(client) and client not in self._holding:
            return now
        times = [start.ready_at() for start in self._starts.get(client, {}).values() if start]
        shared = self._sharing.ready_at(client, now)
        if shared is not None:
            times.append(min(shared, now + self._config.expire_after))  # a rate may have expired by then
        at = min(times, default=None)
        if at is None or self._armed.get(client, at + 1.0) <= at:
            return None
        self._armed[client] = at
        return at

    def client_came(self, client: Link) -> None:
        """A client begins at this link."""
        self._sharing.client_came(client)

    def agree(self, client: Link, when_full: WhenFull) -> None:
        """The client says what becomes of its messages for which there is no room."""
        self._sharing.agree(client, when_full)

    def credit_change(self, client: Link) -> bool | None:
        """Whether this client is to be held from now on (True) or no longer (False); None: no change."""
        waits = self._must_hold(client)
        if waits == (client in self._holding):
            return None
        if waits:
            self._holding[client] = None
        else:
            del self._holding[client]
        return waits

    def _must_hold(self, client: Link) -> bool:
        return self._sharing.terms(client) == "wait" and self.waiting(client) > 0

    def rate_changed(self, hop: Hop, now: float) -> list[Link]:
        """A link has another rate; returns the clients that may be served sooner."""
        return self._sharing.rate_changed(hop, now)

    def waiting(self, client: Link | None = None) -> int:
        """How many messages wait, of one client or of all."""
        clients = self._starts.values() if client is None else (self._starts.get(client, {}),)
        return sum(len(start) for starts in clients for start in starts.values()) + self._sharing.jobs(client)

    def forget_ways(self) -> None:
        """The map has changed."""
        self._groups.clear()
        self._sharing.forget_ways()

    def client_gone(self, client: Link, way: Way, now: float) -> list[Copy]:
        """The client has left: what slow start keeps leaves as far as it can be paid, and the rest is withheld."""
        begun = [copy for start in self._starts.pop(client, {}).values() for copy in start.clear()]
        leaving = self._shared(client, begun, way, now)
        self._sharing.client_gone(client, now)
        self._armed.pop(client, None)
        self._holding.pop(client, None)
        if not self._sharing.jobs(client):
            self._names.pop(client, None)
        return leaving

    def _shared(self, client: Link, copies: list[Copy], way: Way, now: float) -> list[Copy]:
        if not len(self._rates):
            return copies
        found: list[Copy] = []
        for copy in copies:
            found += (
                self._sharing.admit(client, copy, way, now)
                if regulated(copy.message, copy.lane, self._lanes)
                else [copy]
            )
        return found

    def _begun(self, client: Link, copy: Copy, exits: Mapping[BrokerId, Link], way: Way, now: float) -> list[Copy]:
        """What slow start lets out, of this message and of those before it."""
        drops = self._sharing.terms(client) == "drop"
        if drops and not regulated(copy.message, copy.lane, self._lanes):
            return [copy]
        starts = self._starts.get(client)
        if starts is None:
            starts = self._starts[client] = {}
        size_bytes = HEAD_BYTES + copy.message.size_bytes
        leaving: list[Copy] = []
        waits = False
        for link, brokers in self._by_exit(copy.destinations, exits):
            mine = Copy(copy.message, copy.lane, brokers)
            if link == NO_EXIT:
                leaving.append(mine)  # forwarding says that there is no way
                continue
            start = starts.get(link)
            if start is None:
                start = starts[link] = SlowStart(size_bytes, now)
            before = len(leaving)
            if drops and not start.passes(size_bytes, size_bytes, now):
                waits = True
                self._leave_out(client, mine, way, now)
                continue
            leaving += start.offer(mine, size_bytes, now)
            waits = waits or len(leaving) != before + 1 or leaving[-1] is not mine
        return leaving if waits else [copy]

    def _by_exit(
        self, destinations: tuple[BrokerId, ...], exits: Mapping[BrokerId, Link]
    ) -> list[tuple[Link, tuple[BrokerId, ...]]]:
        found = self._groups.get(destinations)
        if found is None:
            groups: dict[Link, list[BrokerId]] = {}
            for broker in destinations:
                groups.setdefault(exits.get(broker, NO_EXIT), []).append(broker)
            found = [(link, tuple(brokers)) for link, brokers in groups.items()]
            if len(self._groups) >= EXITS_MAX:
                self._groups.clear()
            self._groups[destinations] = found
        return found

    def _leave_out(self, client: Link, copy: Copy, way: Way, now: float) -> None:
        """What may not wait is withheld, by the first link on its way."""
        for broker in copy.destinations:
            for hop in way(broker)[:1]:
                self._withhold(client, hop, broker, copy.message, now)

    def _withhold(self, client: Link, hop: Hop, destination: BrokerId, message: Message, now: float) -> None:
        self.withheld.add(self._names.get(client, ""), hop, destination, message, now)

    def expire(self, now: float) -> None:
        """Forget rates that are too old."""
        if not 0.0 <= now - self._expire_at < EXPIRE_EVERY:
            self._expire_at = now
            for hop in self._rates.expire(now):
                self._sharing.forget_link(hop)
