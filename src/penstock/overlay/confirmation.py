"""When does the whole network know what our clients want? Propagation of information with feedback.

A subscriber wants to know when messages that are published anywhere will find it. Its home broker asks for
confirmation of a version of its interest: a ConfirmRequest goes out to all neighbours and on from there, behind the
Interest that it asks about. A broker asks its other neighbours in turn, and sends a Confirmation to the neighbour
from which the first request came as soon as it has that version itself and all whom it asked have answered. Two
brokers that ask each other count as having answered: each has another neighbour that waits for it. So a round costs
two small packets on each link, and ends when the last broker that can be reached has the interest (the echo algorithm;
Chang 1982, Segall 1983).

A broker that does not have the version yet remembers who asked, and goes on when it has it.

Requests and confirmations may be lost where links lose packets: a broker that waits asks again with every Hello. One
that waits for others itself answers such a repetition with those it waits for, so that the origin can name them. A
neighbour that has not answered for `SILENT_AFTER` is waited for no longer, and whom it waits for is named; one that
said nothing at all, or that it lacks the version itself, is not waited for in the next rounds either, until it confirms
something: one that is full, broken, or lies must not make every subscriber wait. Nobody waits for
what is behind a link that goes down, either: it cannot be reached, or is reached another way and hears the interest
with the repair of that change.

Many subscriptions cost few rounds: at most `ROUNDS_IN_FLIGHT` of one origin are on their way, and whoever asks
meanwhile shares the next one.

Pure: `Confirmations` is a part of `Routing`, which passes on packets, neighbours and the time.

State: the last rounds of each origin that routing knows; who waits for our own. Bounds: `ROUNDS_PER_ORIGIN`, and
`WAITING_MAX`, beyond which whoever asks is answered at once that it is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from penstock.kernel.link import Link
from penstock.kernel.machine import Effect, Send
from penstock.kernel.packet import Lane
from penstock.overlay.packets import UNCONFIRMED_MAX, BrokerId, Confirmation, ConfirmRequest, Ready

ROUNDS_IN_FLIGHT = 2  # of our own; with the next one the brokers catch up
ROUNDS_PER_ORIGIN = 4  # the oldest is forgotten
FORGOTTEN_AFTER = 30.0  # seconds: no client waits longer (READY_WITHIN_MAX)
SILENT_AFTER = 4.0  # seconds: some eight tries
WAITING_MAX = 10_000
WAITING_PER_CLIENT_MAX = 256

_Version = tuple[int, int]  # incarnation, version of the interest
OURSELVES: Link = -1


class _Round:
    __slots__ = ("begun_at", "missing", "parent", "reported", "waiting")

    def __init__(self, parent: Link, waiting: Iterable[Link], now: float) -> None:
        self.parent = parent  # who asked us first
        self.waiting = dict.fromkeys(waiting)  # whom we asked and who has not answered
        self.reported: dict[Link, tuple[BrokerId, ...]] = {}  # for whom they wait, by what they said last
        self.missing: dict[BrokerId, None] = {}  # brokers that nobody waits for any more, and that have not confirmed
        self.begun_at = now

    @property
    def done(self) -> bool:
        return not self.waiting


class _Waiter(NamedTuple):
    link: Link
    ticket: int
    version: int | None  # None: that of the next announcement
    until: float


class Confirmations:
    """The rounds that pass through one broker, and those of its own."""

    def __init__(self, broker: BrokerId, incarnation: int, peer_name: Callable[[BrokerId], str]) -> None:
        self.incarnation = incarnation
        self._broker = broker
        self._peer_name = peer_name
        self._neighbours: dict[Link, BrokerId] = {}
        self._rounds: dict[BrokerId, dict[_Version, _Round]] = {broker: {}}  # by origin
        self._early: dict[BrokerId, dict[Link, ConfirmRequest]] = {}  # who asked for a version that we do not have yet
        self._waiters: list[_Waiter] = []
        self._version = 0  # of our interest, as announced
        self._confirmed = 0  # and as known to all
        self._missing_last: tuple[BrokerId, ...] = ()  # but these, which gave no answer
        self._silent: dict[Link, None] = {}  # neighbours that gave none for long

    # Our own interest.

    def ask(self, link: Link, ticket: int, within: float, *, untold: bool, now: float) -> list[Effect]:
        """A client wants to know when all know what it has asked for; `untold`: something is yet to be announced."""
        own = sum(waiter.link == link for waiter in self._waiters)
        if len(self._waiters) >= WAITING_MAX or own >= WAITING_PER_CLIENT_MAX:
            return [_ready(link, ticket, ("this broker, where too many wait for an answer",))]
        version = None if untold else self._version
        self._waiters.append(_Waiter(link, ticket, version, now + within))
        return self._go_on(now)

    def announced(self, version: int, now: float) -> list[Effect]:
        """Our interest has this version now, and the neighbours have been told."""
        self._version = version
        self._waiters = [
            waiter._replace(version=version) if waiter.version is None else waiter for waiter in self._waiters
        ]
        return self._go_on(now)

    def next_deadline(self) -> float | None:
        """When somebody has waited long enough."""
        return min((waiter.until for waiter in self._waiters), default=None)

    def expire(self, now: float) -> list[Effect]:
        """Tell those who have waited long enough who has not confirmed."""
        late = [waiter for waiter in self._waiters if waiter.until <= now]
        if not late:
            return []
        self._waiters = [waiter for waiter in self._waiters if waiter.until > now]
        return [_ready(waiter.link, waiter.ticket, self._unconfirmed(waiter)) for waiter in late]

    def doubt(self) -> None:
        """There may be brokers that do not know what all knew: whoever asks from now on needs a new round."""
        self._confirmed, self._missing_last = 0, ()

    def client_left(self, link: Link) -> None:
        """Nobody waits at this link any more."""
        self._waiters = [waiter for waiter in self._waiters if waiter.link != link]

    def restart(self, incarnation: int) -> None:
        """Our interest is announced anew, in another life: what was confirmed counts no more."""
        self._rounds[self._broker].clear()
        self.incarnation = incarnation
        self._confirmed = 0

    # Rounds of all.

    def requested(self, packet: ConfirmRequest, sender: Link, *, known: bool, now: float) -> list[Effect]:
        """A neighbour asks about an origin that we know; `known`: we have that version."""
        origin, version = packet.origin, (packet.incarnation, packet.version)
        if not known:
            self._early.setdefault(origin, {})[sender] = packet
            return [_confirmation(origin, version, sender, (self._broker,), False)] if packet.again else []
        found = self._rounds.setdefault(origin, {}).get(version)
        if found is None:
            if origin == self._broker:  # forgotten long since
                return []
            found, request = self._begin(origin, version, sender, now)
            return request + self._settled(origin, version, found, now)
        if sender != found.parent:  # it has that version, and another neighbour waits for it
            answer: list[Effect] = [_confirmation(origin, version, sender)] if packet.again else []
            return answer + self._answered(origin, version, found, sender, now)
        if packet.again:
            return [_confirmation(origin, version, sender, self._missing(found), found.done)]
        return []

    def confirmed(self, packet: Confirmation, sender: Link, *, now: float) -> list[Effect]:
        """A neighbour answers: all behind it have that version, or it names those it waits for."""
        version = (packet.incarnation, packet.version)
        if packet.done and self._silent.pop(sender, 0) is None:
            self.doubt()
        found = self._rounds.get(packet.origin, {}).get(version)
        if found is None or sender not in found.waiting:
            return []
        if not packet.done:
            found.reported[sender] = packet.unconfirmed
            return []
        found.missing |= dict.fromkeys(packet.unconfirmed)
        return self._answered(packet.origin, version, found, sender, now)

    def learnt(self, origin: BrokerId, incarnation: int, version: int, *, now: float) -> list[Effect]:
        """We have this version of an origin's interest."""
        effects: list[Effect] = []
        early = self._early.get(origin, {})
        for link, packet in list(early.items()):
            if packet.incarnation == incarnation and packet.version <= version:
                del early[link]
                effects += self.requested(packet, link, known=True, now=now)
        return effects

    def forget(self, origin: BrokerId) -> None:
        """Routing knows this broker no longer."""
        self._rounds.pop(origin, None)
        self._early.pop(origin, None)

    def neighbour_up(self, link: Link, broker: BrokerId) -> None:
        """A neighbour; rounds that have begun go on without it."""
        self._neighbours[link] = broker
        self.doubt()

    def neighbour_down(self, link: Link, now: float) -> list[Effect]:
        """Nobody waits for what is behind this link, and it waits for nobody."""
        self._neighbours.pop(link, None)
        self._silent.pop(link, None)
        for early in self._early.values():
            early.pop(link, None)
        effects: list[Effect] = []
        for origin, version, found in self._all():
            if found.parent == link:
                del self._rounds[origin][version]
            else:
                effects += self._answered(origin, version, found, link, now)
        return effects

    def repeat(self, now: float) -> list[Effect]:
        """Ask again where no answer came; forget what is old."""
        effects: list[Effect] = []
        for origin, version, found in self._all():
            if now - found.begun_at > FORGOTTEN_AFTER:
                del self._rounds[origin][version]
            elif found.waiting and found.begun_at < now:
                request = ConfirmRequest(origin, *version, again=True)
                effects.append(Send(tuple(found.waiting), request, Lane.CONTROL))
                if now - found.begun_at > SILENT_AFTER:
                    for link in list(found.waiting):
                        effects += self._give_up(origin, version, found, link, now)
        return effects + self._go_on(now)

    # Inside.

    def _give_up(self, origin: BrokerId, version: _Version, found: _Round, link: Link, now: float) -> list[Effect]:
        """It has not answered for long; whom it named, or it itself, is missing."""
        broker = self._neighbours[link]
        named = found.reported.get(link) or (broker,)
        if broker in named:
            self._silent[link] = None
        found.missing |= dict.fromkeys(named)
        return self._answered(origin, version, found, link, now)

    def _all(self) -> list[tuple[BrokerId, _Version, _Round]]:
        return [(origin, version, one) for origin, rounds in self._rounds.items() for version, one in rounds.items()]

    def _go_on(self, now: float) -> list[Effect]:
        """Answer whom we can, and begin a round if somebody waits for one."""
        self._waiters, answered = _split(self._waiters, self._confirmed)
        missing = self._names(self._missing_last)
        effects: list[Effect] = [_ready(waiter.link, waiter.ticket, missing) for waiter in answered]
        wanted = max((waiter.version for waiter in self._waiters if waiter.version is not None), default=0)
        flying = [version for (_, version), one in self._rounds[self._broker].items() if not one.done]
        if wanted <= max(flying, default=self._confirmed) or len(flying) >= ROUNDS_IN_FLIGHT:
            return effects
        asked = (self.incarnation, self._version)
        begun, request = self._begin(self._broker, asked, OURSELVES, now)
        return effects + request + self._settled(self._broker, asked, begun, now)

    def _begin(self, origin: BrokerId, version: _Version, parent: Link, now: float) -> tuple[_Round, list[Effect]]:
        """A new round, and the question to all neighbours but the one that asked us."""
        rounds = self._rounds[origin]
        while len(rounds) >= ROUNDS_PER_ORIGIN:
            del rounds[next(iter(rounds))]
        others = tuple(link for link in self._neighbours if link != parent)
        begun = rounds[version] = _Round(parent, (link for link in others if link not in self._silent), now)
        begun.missing |= dict.fromkeys(self._neighbours[link] for link in others if link in self._silent)
        return begun, [Send(others, ConfirmRequest(origin, *version), Lane.CONTROL)] if others else []

    def _answered(self, origin: BrokerId, version: _Version, found: _Round, link: Link, now: float) -> list[Effect]:
        if link not in found.waiting:
            return []
        del found.waiting[link]
        found.reported.pop(link, None)
        return self._settled(origin, version, found, now)

    def _settled(self, origin: BrokerId, version: _Version, found: _Round, now: float) -> list[Effect]:
        """Tell whoever waits for this round, if it is done."""
        if not found.done:
            return []
        if found.parent != OURSELVES:
            return [_confirmation(origin, version, found.parent, self._missing(found))]
        if version[1] >= self._confirmed:
            self._confirmed, self._missing_last = version[1], self._missing(found)
        return self._go_on(now)

    def _missing(self, found: _Round) -> tuple[BrokerId, ...]:
        """The brokers that a round waits for, as far as we know."""
        missing = dict(found.missing)
        for link in found.waiting:
            missing |= dict.fromkeys(found.reported.get(link) or (self._neighbours[link],))
        return tuple(sorted(missing)[:UNCONFIRMED_MAX])

    def _unconfirmed(self, waiter: _Waiter) -> tuple[str, ...]:
        """In words: who has not confirmed what this client asked for."""
        wanted = waiter.version if waiter.version is not None else self._version + 1
        rounds = self._rounds[self._broker].items()
        stuck = [(version, one) for (_, version), one in rounds if not one.done]
        waiting = [one for version, one in stuck if version >= wanted] or [one for _, one in stuck]
        missing = self._missing(waiting[0]) if waiting else tuple(sorted(set(self._neighbours.values())))
        return self._names(missing)

    def _names(self, brokers: tuple[BrokerId, ...]) -> tuple[str, ...]:
        return tuple(map(self._peer_name, brokers[:UNCONFIRMED_MAX]))


def _split(waiters: list[_Waiter], confirmed: int) -> tuple[list[_Waiter], list[_Waiter]]:
    """Who has to wait on, and who is answered."""
    answered = [waiter for waiter in waiters if waiter.version is not None and waiter.version <= confirmed]
    if not answered:
        return waiters, []
    return [waiter for waiter in waiters if waiter.version is None or waiter.version > confirmed], answered


def _ready(link: Link, ticket: int, unconfirmed: tuple[str, ...] = ()) -> Send:
    return Send((link,), Ready(ticket, unconfirmed), Lane.CONTROL)


def _confirmation(
    origin: BrokerId, version: _Version, link: Link, unconfirmed: tuple[BrokerId, ...] = (), done: bool = True
) -> Send:
    return Send((link,), Confirmation(origin, *version, unconfirmed, done), Lane.CONTROL)
