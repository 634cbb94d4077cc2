"""Who is there, and who hosts what: every broker's picture of the streams of the network.

State: for each broker the latest Advert heard of it, and the streams that the network file declares, which are known
from the start: their brokers have names, and ids as soon as their adverts come. What a broker hosts stays known while
it cannot be reached, so that an error can say whose pubend is missing. A broker that advertises without a pubend has
it no more.

Messages: an Advert is flooded. Whoever hears a newer one (a later life, or a higher version of the same life) keeps it
and passes it on to its other neighbours; a new neighbour is told all that is known. Floods may get lost, so a broker
tells its own again under a new version: soon after a change, then ever more seldom, up to every ADVERT_EVERY_MAX
refresh intervals. An advert that claims to be of a later life of our own is outbid.

Two brokers may claim one pubend, because a stream was removed and made elsewhere while its first broker was away: of
those that can be reached, the one of the higher epoch counts.

Bounds: BROKERS_MAX brokers, and PUBENDS_KNOWN_MAX pubends of them all. Where they are reached, a broker that was not
heard of for FORGET_AFTER seconds makes room; otherwise the newcomer is left out, and that is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from penstock.errors import did_you_mean
from penstock.kernel.link import Link
from penstock.kernel.machine import Effect, Send
from penstock.kernel.packet import Lane
from penstock.kernel.trace import InputRefused, LimitReached
from penstock.overlay.guard import LIFE_SLACK
from penstock.overlay.packets import BrokerId
from penstock.streams.config import StreamsConfig
from penstock.streams.packets import Advert, pubend_name, stream_of

BROKERS_MAX = 4_096
PUBENDS_KNOWN_MAX = 65_536
FORGET_AFTER = 3_600.0  # seconds
ADVERT_EVERY_MAX = 16  # refresh intervals between two adverts of one broker, when nothing changes
RECORD_EVERY = 1.0  # seconds between two records of a full table

Hosted = tuple[str, int, int, int]  # stream, number, of how many, epoch


class KnownStream(Struct, frozen=True):
    """A stream as this broker knows it."""

    stream: str
    pubends: int
    hosts: tuple[str, ...]  # the names of the brokers, by the number of the pubend; empty: nobody knows
    declared: bool  # by the network file


class _Heard:
    """The latest advert of one broker, and when it came."""

    __slots__ = ("advert", "at")

    def __init__(self, advert: Advert, at: float) -> None:
        self.advert = advert
        self.at = at


class Directory:
    """Part of a broker's machine."""

    def __init__(
        self,
        broker: BrokerId,
        name: str,
        incarnation: int,
        stores: bool,
        config: StreamsConfig,
        reachable: Callable[[BrokerId], bool] = lambda broker: True,
    ) -> None:
        self._broker = broker
        self._config = config
        self._reachable = reachable
        self._own = Advert(broker, incarnation, 1, name, stores)
        self._heard: dict[BrokerId, _Heard] = {}
        self._claims: dict[str, dict[BrokerId, tuple[int, int]]] = {}  # pubend -> broker -> (of how many, epoch)
        self._numbers: dict[str, dict[int, None]] = {}  # stream -> the numbers of its pubends that somebody claims
        self._claimed = 0  # claims in all
        self._names: dict[str, dict[BrokerId, None]] = {name: {broker: None}}
        self._flooded = False  # whoever never hosted anything need not be known everywhere
        self._told_at = 0.0  # when our own advert was last flooded
        self._every = 1  # refresh intervals until it is told again
        self._recorded_at = -RECORD_EVERY

    # Our own part.

    def host(self, pubends: Sequence[Hosted]) -> None:
        """We host these now; the next refresh tells the others."""
        hosted = tuple(sorted(pubends))
        if hosted != self._own.pubends:
            self._claim(self._own, held=False)
            self._own = self._renewed(hosted)
            self._claim(self._own, held=True)
            self._every, self._flooded = 0, True

    def refresh(self, neighbours: Iterable[Link], *, now: float) -> list[Effect]:
        """Tell our own anew, if it is time; to be called every refresh interval, and when what we host has changed."""
        if not self._flooded:
            return []
        if self._every and now < self._told_at + self._every * self._config.refresh_interval:
            return []
        self._told_at = now
        self._every = min(ADVERT_EVERY_MAX, max(1, 2 * self._every))
        self._own = self._renewed(self._own.pubends)
        return _sent(self._own, neighbours)

    def neighbour_up(self, link: Link, *, now: float) -> list[Effect]:
        """Tell a new neighbour all we know."""
        known = [self._own, *(heard.advert for heard in self._heard.values())]
        return [effect for advert in known for effect in _sent(advert, (link,))]

    def _renewed(self, pubends: tuple[Hosted, ...]) -> Advert:
        own = self._own
        return Advert(own.origin, own.incarnation, own.version + 1, own.name, own.stores, pubends)

    # What others say.

    def receive(self, packet: Advert, sender: Link, neighbours: Iterable[Link], *, now: float) -> list[Effect]:
        """Keep it and pass it on, if it is newer than what we know."""
        if packet.incarnation > int(now * 1000) + LIFE_SLACK:
            return [InputRefused(packet.name, f"an advert of broker {packet.origin} from a life that lies ahead")]
        if packet.origin == self._broker:
            self._outbid(packet)
            return []
        before = self._heard.get(packet.origin)
        if before is not None and _age(packet) <= _age(before.advert):
            return []
        problem = _problem(packet)
        if problem:
            return [InputRefused(packet.name, problem)]
        refusal = self._full(packet, before, now)
        if refusal is not None:
            return refusal
        self._forget(packet.origin)
        self._heard[packet.origin] = _Heard(packet, now)
        self._names.setdefault(packet.name, {})[packet.origin] = None
        self._claim(packet, held=True)
        return _sent(packet, [link for link in neighbours if link != sender])

    def _outbid(self, packet: Advert) -> None:
        """Somebody knows of a later life or version of us than we do: the next refresh goes beyond it."""
        own = self._own
        if _age(packet) > _age(own):
            self._own = Advert(
                own.origin, packet.incarnation, packet.version + 1, own.name, own.stores, own.pubends
            )  # refresh adds one more
            self._every, self._flooded = 1, True

    def _full(self, packet: Advert, before: _Heard | None, now: float) -> list[Effect] | None:
        """None if there is room, perhaps because somebody who is gone was forgotten; else what to record."""
        more = len(packet.pubends) - (len(before.advert.pubends) if before is not None else 0)
        while True:
            brokers = len(self._heard) + (before is None)
            if brokers <= BROKERS_MAX and (more <= 0 or self._claimed + more <= PUBENDS_KNOWN_MAX):
                return None
            gone = [broker for broker in self._heard if broker != packet.origin]
            oldest = min(gone, key=lambda broker: self._heard[broker].at, default=None)
            if oldest is None or self._heard[oldest].at > now - FORGET_AFTER or self._reachable(oldest):
                break
            self._forget(oldest)
        if now < self._recorded_at + RECORD_EVERY:
            return []
        self._recorded_at = now
        table, limit = (
            ("brokers", BROKERS_MAX) if len(self._heard) >= BROKERS_MAX else ("pubends known", PUBENDS_KNOWN_MAX)
        )
        return [LimitReached(table, limit)]

    def _forget(self, broker: BrokerId) -> None:
        heard = self._heard.pop(broker, None)
        if heard is not None:
            self._claim(heard.advert, held=False)
            named = self._names[heard.advert.name]
            del named[broker]
            if not named:
                del self._names[heard.advert.name]

    def _claim(self, advert: Advert, *, held: bool) -> None:
        self._claimed += len(advert.pubends) if held else -len(advert.pubends)
        for stream, number, of, epoch in advert.pubends:
            pubend = pubend_name(stream, number)
            if held:
                self._claims.setdefault(pubend, {})[advert.origin] = (of, epoch)
                self._numbers.setdefault(stream, {})[number] = None
                continue
            claims = self._claims[pubend]
            del claims[advert.origin]
            if not claims:
                del self._claims[pubend]
                del self._numbers[stream][number]
                if not self._numbers[stream]:
                    del self._numbers[stream]

    # Who hosts what.

    def find(self, pubend: str) -> BrokerId | None:
        """The broker of a pubend; None if there is no such pubend, or its broker was never heard of."""
        best = self._best(pubend)
        if best is not None:
            return best
        name = self._declared_host(pubend)
        return self.broker_named(name) if name else None

    def epoch_of(self, pubend: str) -> int:
        """0: not known."""
        best = self._best(pubend)
        return 0 if best is None else self._claims[pubend][best][1]

    def pubends_of(self, stream: str) -> dict[int, tuple[BrokerId, int]]:
        """number -> (broker, epoch), as far as their brokers are known; epoch 0 if only the network file names it."""
        found: dict[int, tuple[BrokerId, int]] = {}
        for number in range(self.count_of(stream)):
            pubend = pubend_name(stream, number)
            broker = self.find(pubend)
            if broker is not None:
                found[number] = (broker, self.epoch_of(pubend))
        return found

    def count_of(self, stream: str) -> int:
        """How many pubends it has; 0: there is no such stream."""
        claimed = [pubend_name(stream, number) for number in sorted(self._numbers.get(stream, ()))]
        ranked = [
            (self._rank(pubend, broker), self._claims[pubend][broker][0]) for pubend, broker in self._each(claimed)
        ]
        return max(ranked)[1] if ranked else len(self._config.declared.get(stream, ()))

    def broker_named(self, name: str) -> BrokerId | None:
        """Of several under one name, one that can be reached; then the lowest id."""
        brokers = sorted(self._names.get(name, ()))
        return min(brokers, key=lambda broker: not self._can_reach(broker), default=None)

    def name_of(self, broker: BrokerId) -> str:
        """Empty if it was never heard of."""
        if broker == self._broker:
            return self._own.name
        heard = self._heard.get(broker)
        return heard.advert.name if heard is not None else ""

    def stores(self, broker: BrokerId) -> bool:
        """Whether it can host pubends, as far as known."""
        if broker == self._broker:
            return self._own.stores
        return broker in self._heard and self._heard[broker].advert.stores

    def brokers(self) -> list[BrokerId]:
        """All that were ever heard of, and ourselves."""
        return sorted([self._broker, *self._heard])

    def streams(self) -> list[KnownStream]:
        """All streams that anybody hosts or the network file declares, by name."""
        declared = self._config.declared
        return [
            KnownStream(stream, count, tuple(map(self._host_name, _names_of(stream, count))), stream in declared)
            for stream in sorted({**self._numbers, **declared})
            if (count := self.count_of(stream))
        ]

    # What to tell people.

    def unknown_stream(self, stream: str) -> str:
        """The error for a stream that nobody knows."""
        known = [found.stream for found in self.streams()]
        remedy = did_you_mean(stream, known) or f"; 'penstock stream add {stream} --at BROKER' makes it"
        return f"there is no stream '{stream}'{remedy}"

    def problem_of(self, pubend: str) -> str:
        """Why nothing can be asked of this pubend now; empty if it can."""
        stream, _, number = pubend.rpartition("/")
        count = self.count_of(stream)
        if not count:
            return self.unknown_stream(stream)
        if not number.isdecimal() or int(number) >= count:
            return f"stream '{stream}' has {count} pubends, from {stream}/0 on; there is no '{pubend}'"
        broker = self.find(pubend)
        if broker is not None and self._can_reach(broker):
            return ""
        return f"{pubend}: its broker '{self._host_name(pubend)}' cannot be reached; it serves again when it is back"

    # Parts.

    def _can_reach(self, broker: BrokerId) -> bool:
        return broker == self._broker or self._reachable(broker)

    def _each(self, pubends: Iterable[str]) -> Iterable[tuple[str, BrokerId]]:
        return ((pubend, broker) for pubend in pubends for broker in self._claims.get(pubend, ()))

    def _rank(self, pubend: str, broker: BrokerId) -> tuple[bool, int, int]:
        return (self._can_reach(broker), self._claims[pubend][broker][1], -broker)

    def _best(self, pubend: str) -> BrokerId | None:
        """The broker whose claim counts; none if the stream has fewer pubends than that."""
        claims = self._claims.get(pubend, ())
        return max(claims, key=lambda broker: self._rank(pubend, broker), default=None)

    def _declared_host(self, pubend: str) -> str:
        hosts = self._config.declared.get(stream_of(pubend), ())
        number = pubend.rpartition("/")[2]
        return hosts[int(number)] if number.isdecimal() and int(number) < len(hosts) else ""

    def _host_name(self, pubend: str) -> str:
        best = self._best(pubend)
        return self._declared_host(pubend) if best is None else self.name_of(best)


def _names_of(stream: str, count: int) -> list[str]:
    return [pubend_name(stream, number) for number in range(count)]


def _sent(advert: Advert, links: Iterable[Link]) -> list[Effect]:
    to = tuple(links)
    return [Send(to, advert, Lane.CONTROL)] if to else []


def _age(advert: Advert) -> tuple[int, int]:
    return (advert.incarnation, advert.version)


def _problem(advert: Advert) -> str:
    """What is wrong with an advert beyond what its packet checks; empty if nothing."""
    names = [pubend_name(stream, number) for stream, number, _, _ in advert.pubends]
    if len(dict.fromkeys(names)) != len(names):
        return f"an advert of broker {advert.origin} that names a pubend twice"
    if advert.pubends and not advert.stores:
        return f"an advert of broker {advert.origin} that hosts pubends and stores nothing"
    return ""
