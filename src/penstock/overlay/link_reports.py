"""What every broker says of its own links, to all others, at an interval: prices, say.

A part that has something to say gives `measure`, which is asked at each interval for a number for each of this broker's
links. Numbers that have changed are flooded at once, all of a broker in one packet; when nothing changes, every
`keepalive`. A link whose number is 0 is not named. Whoever hears something newer keeps it and passes it on. So the
traffic grows with the number of links that have a number and with nothing else.

Not everything is believed. Numbers must be finite and from 0 to VALUE_MAX; those of links that the map does not show,
or not yet, are left out, and recorded if that lasts. A neighbour that brings more reports of one broker than that may
say is left unheard about it until its budget has grown again; what others bring of the same broker is heard. A report
belongs to the life of its broker that the map is of. Of a neighbour only its own words count; it learns what others say
in its name. Whoever hears a later report of itself than it has told begins behind that one, so that nobody can speak
for it for long. Numbers of reports grow by one, and nobody believes one that is JUMP_MAX ahead: what was forged counts
until it expires at most, and its victim keeps numbers that it can go on from. What is wrong is recorded, at a bounded
rate.

What has not been said again for `expire_after` counts no longer, and whatever the broker says next is believed. After
twice that time it is recorded as silent: a link that fails takes a while to be noticed, and until then a neighbour's
words are awaited over it. Where somebody measures, a broker that has never said anything is silent too.

State: for each broker the latest packet, and a budget for each link. Bound: the brokers of the map, our links. Timers:
MEASURE, if anybody measures; CHANGED, at once after news, because what follows from them comes of no link (`egress`
counts what came over each).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from math import inf, isfinite
from typing import Self

from msgspec import Struct

from penstock.content.message import MessageLimits
from penstock.kernel.link import Link
from penstock.kernel.machine import Effect, Send
from penstock.kernel.packet import BROKER, Lane, Packet, check_integers, increasing, require
from penstock.kernel.service import Context
from penstock.kernel.timers import Key
from penstock.kernel.token_bucket import TokenBucket
from penstock.kernel.trace import InputRefused
from penstock.overlay.packets import BROKER_ID_MAX, BrokerId
from penstock.overlay.routing import Routing
from penstock.overlay.spanning_tree import Hop

VALUE_MAX = 1e6
LINKS_MAX = 4_096  # of one broker
COMPLAINTS_RATE, COMPLAINTS_BURST = 1.0, 20.0
NUMBER_MAX = 1 << 53
JUMP_MAX = 1 << 20  # the whole budget of a forger takes years from here to NUMBER_MAX
BUDGET = 4.0  # packets of one broker over one link for each interval: its floods may come in bunches
BURST = 40.0

Measure = Callable[[float], Mapping[BrokerId, float]]  # now -> a number for each neighbour
Listener = Callable[[float], list[Effect]]  # now -> what follows from new numbers


class LinkReport(Packet, frozen=True):
    """A number for each link of a broker that has one, by the neighbour at its other end, increasing."""

    sent_by = (BROKER,)

    origin: BrokerId
    life: int
    number: int  # of the report, in this life
    values: tuple[tuple[BrokerId, float], ...]

    def checked(self, limits: MessageLimits) -> Self:
        check_integers(self)
        require(self.origin <= BROKER_ID_MAX, "the origin is no broker id")
        require(self.number < NUMBER_MAX, f"number {self.number}")
        require(len(self.values) <= LINKS_MAX, f"{len(self.values)} links; the limit is {LINKS_MAX}")
        neighbours = tuple(neighbour for neighbour, _ in self.values)
        require(all(0 <= neighbour <= BROKER_ID_MAX for neighbour in neighbours), "a neighbour is no broker id")
        require(increasing(neighbours), "neighbours must increase")
        return self


class ReportsTimer(IntEnum):
    """The timers of link reports."""

    MEASURE = 0
    CHANGED = 1  # tell the listener


class ReportsConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of brokers: [services.reports]."""

    interval: float = 0.1  # seconds between two measurements
    keepalive: float = 1.0  # and between two reports that say the same
    expire_after: float = 3.0
    change: float = 0.01  # what counts as one, in parts of the number; and this much of 1

    def __post_init__(self) -> None:
        if not 0.0 < self.interval <= self.keepalive < self.expire_after:
            raise ValueError("intervals must grow: 0 < interval <= keepalive < expire_after")
        if self.change < 0.0:
            raise ValueError("change must not be negative")


class ReportsStatus(Struct, frozen=True):
    """A part of a broker's report: who says nothing of its links, and how many reports were refused."""

    silent: tuple[str, ...]
    refused: int


class _Heard:
    __slots__ = ("_budgets", "at", "life", "number", "silent", "strange_since", "values")

    def __init__(self, now: float) -> None:
        self.life = self.number = -1
        self.values: dict[BrokerId, float] = {}
        self.at = now
        self.silent = False  # for too long, and recorded
        self.strange_since: float | None = None  # it reports on links that the map does not show
        self._budgets: dict[Link, TokenBucket] = {}

    def budget(self, link: Link, interval: float, now: float) -> TokenBucket:
        """Of what this link may bring."""
        found = self._budgets.get(link)
        if found is None:
            found = self._budgets[link] = TokenBucket(BUDGET / interval, BURST, now)
        return found

    def link_down(self, link: Link) -> None:
        self._budgets.pop(link, None)


class LinkReports:
    """The machine of brokers."""

    packet_kinds: tuple[type[Packet], ...] = (LinkReport,)

    def __init__(self, context: Context) -> None:
        self._routing = context.below(Routing)
        self._config = context.settings(ReportsConfig)
        self._timers = context.timers
        self._names = {number: name for name, number in (context.brokers or {}).items()}
        self._number = 0
        self._measure: Measure | None = None
        self._listener: Listener = lambda now: []
        self._heard: dict[BrokerId, _Heard] = {}
        self._told: dict[BrokerId, float] = {}
        self._told_at = 0.0
        self._complaints = TokenBucket(COMPLAINTS_RATE, COMPLAINTS_BURST, 0.0)
        self._measuring = False
        self._refused = 0

    # What others of this broker use.

    @property
    def interval(self) -> float:
        """Seconds between two reports."""
        return self._config.interval

    def use(self, measure: Measure, listener: Listener) -> None:
        """Measure our links by this, and call the listener whenever numbers have changed."""
        assert self._measure is None, "one part measures"
        self._measure, self._listener = measure, listener

    def value(self, hop: Hop, now: float) -> float:
        """What the broker at the near end says of this link; 0 if it has said nothing lately."""
        heard = self._heard.get(hop[0])
        return 0.0 if heard is None or self._expired(heard, now) else heard.values.get(hop[1], 0.0)

    def status(self) -> ReportsStatus:
        silent = sorted(broker for broker, heard in self._heard.items() if heard.silent)
        return ReportsStatus(tuple(map(self._name, silent)), self._refused)

    # Inputs.

    def link_changed(self, link: Link, *, up: bool, now: float) -> list[Effect]:
        if up and self._measure is not None and not self._measuring:
            self._measuring = True
            self._timers.set(ReportsTimer.MEASURE, now + self._config.interval)
        if not up:
            for heard in self._heard.values():
                heard.link_down(link)
        return []

    def expired(self, timer: int, key: Key, *, now: float) -> list[Effect]:
        """Measure, and tell everybody if that is news; or tell the listener of news from elsewhere."""
        if timer == ReportsTimer.CHANGED:
            return self._listener(now)
        assert self._measure is not None
        self._timers.set(ReportsTimer.MEASURE, now + self._config.interval)
        values = {neighbour: value for neighbour, value in sorted(self._measure(now).items()) if value}
        if not self._is_news(values) and self._told_at <= now < self._told_at + self._config.keepalive:
            return []
        self._told, self._told_at = values, now
        self._number += 1
        report = LinkReport(self._routing.broker, self._routing.incarnation, self._number, tuple(values.items()))
        self._keep(report, self._heard_from(report.origin, now), now)
        return [*self._look_for_silence(now), *self._flood(report, None), *self._listener(now)]

    def receive(self, packets: Sequence[Packet], *, sender: Link, now: float) -> list[Effect]:
        effects: list[Effect] = []
        news = False
        for packet in packets:
            assert isinstance(packet, LinkReport)
            if packet.origin == self._routing.broker:
                effects += self._of_ourselves(packet, now)
            if not self._is_known(packet, sender):
                continue
            heard = self._heard_from(packet.origin, now)
            later = (packet.life, packet.number) > (heard.life, heard.number)
            if not later and not self._expired(heard, now):
                continue
            own_link = self._routing.link_to.get(packet.origin, sender)
            if own_link != sender:  # a neighbour speaks for itself
                told = heard.budget(sender, self._config.interval, now).take(now)
                effects += [Send((own_link,), packet, Lane.CONTROL)] if told else []
                continue
            problem = self._problem(packet, heard, sender, now)
            if problem:
                effects += self._complain(packet.origin, problem, now)
                continue
            self._keep(packet, heard, now)
            effects += self._strange(packet, heard, now)
            news = True
            effects += self._flood(packet, sender)
        if news:
            self._timers.set(ReportsTimer.CHANGED, now)
        return effects

    def _is_known(self, packet: LinkReport, sender: Link) -> bool:
        """Whether this comes from a broker of the map, in its present life."""
        routing = self._routing
        known = routing.origins.get(packet.origin)
        if not routing.is_neighbour(sender) or known is None or known.incarnation != packet.life:
            return False  # it is not on the map, or not yet
        return routing.way(packet.origin) is not None

    def _of_ourselves(self, packet: LinkReport, now: float) -> list[Effect]:
        """Somebody else speaks in our name, or a late word of our own comes back: what we say next counts more."""
        if packet.life != self._routing.incarnation or packet.number <= self._number:
            return []
        if packet.number - self._number <= JUMP_MAX:
            self._number = packet.number
            self._told_at = -inf  # say it soon
        return self._complain(packet.origin, "somebody else reports on our links", now)

    def _complain(self, broker: BrokerId, problem: str, now: float) -> list[Effect]:
        self._refused += 1
        return [InputRefused(f"broker {self._name(broker)}", problem)] if self._complaints.take(now) else []

    def _look_for_silence(self, now: float) -> list[Effect]:
        """Forget brokers that are not on the map; record those on it that say nothing."""
        routing = self._routing
        gone = [b for b in self._heard if b != routing.broker and routing.way(b) is None]
        for broker in gone:
            del self._heard[broker]
        effects: list[Effect] = []
        for broker in routing.exits():
            heard = self._heard_from(broker, now)
            if abs(now - heard.at) > 2 * self._config.expire_after and not heard.silent:
                heard.silent = True
                effects += self._complain(broker, "it has long said nothing of its links", now)
        return effects

    def _expired(self, heard: _Heard, now: float) -> bool:
        """Whether it was said too long ago; also by a clock that was set back."""
        return abs(now - heard.at) > self._config.expire_after

    def _name(self, broker: BrokerId) -> str:
        return self._names.get(broker, str(broker))

    def _problem(self, packet: LinkReport, heard: _Heard, sender: Link, now: float) -> str:
        """What is wrong with a report, if anything is."""
        if not heard.budget(sender, self._config.interval, now).take(now):
            return "it reports on its links more often than it may"
        known = heard.life == packet.life and not self._expired(heard, now)
        if known and packet.number - heard.number > JUMP_MAX:
            return f"its report {packet.number} comes after {heard.number}: somebody else has made it up"
        for neighbour, value in packet.values:
            if not isfinite(value) or not 0.0 <= value <= VALUE_MAX:
                return f"it says {value} of its link to broker {neighbour}"
        return ""

    def _strange(self, packet: LinkReport, heard: _Heard, now: float) -> list[Effect]:
        """Leave out links that the map does not show; it may be behind, for a while."""
        has_line = self._routing.topology.has_line
        strange = [neighbour for neighbour, _ in packet.values if not has_line(packet.origin, neighbour)]
        for neighbour in strange:
            del heard.values[neighbour]
        if not strange:
            heard.strange_since = None
        elif heard.strange_since is None:
            heard.strange_since = now
        elif abs(now - heard.strange_since) > self._config.expire_after:
            heard.strange_since = now
            return self._complain(packet.origin, f"it reports on a link to broker {strange[0]} that is not there", now)
        return []

    def _is_news(self, values: Mapping[BrokerId, float]) -> bool:
        change, pairs = (
            self._config.change,
            [(self._told.get(n, 0.0), values.get(n, 0.0)) for n in {**self._told, **values}],
        )
        return any(abs(value - told) > change * max(1.0, told) for told, value in pairs)

    def _heard_from(self, origin: BrokerId, now: float) -> _Heard:
        heard = self._heard.get(origin)
        if heard is None:
            known = self._routing.origins
            self._heard = {b: h for b, h in self._heard.items() if b in known or b == self._routing.broker}
            heard = self._heard[origin] = _Heard(now)
        return heard

    def _keep(self, packet: LinkReport, heard: _Heard, now: float) -> None:
        heard.life, heard.number, heard.at, heard.silent = packet.life, packet.number, now, False
        heard.values = dict(packet.values)

    def _flood(self, packet: LinkReport, sender: Link | None) -> list[Effect]:
        to = tuple(link for link in self._routing.link_to.values() if link != sender)
        return [Send(to, packet, Lane.CONTROL)] if to else []
