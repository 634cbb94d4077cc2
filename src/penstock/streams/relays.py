"""All relays of one broker: where each gets its knowledge from, and when it asks, reads and tells.

At the pubend's own broker a relay is fed by the pubend: what was committed, and slices of the log that somebody asked
for. Elsewhere it is fed by the neighbour on the way there, and follows that way when it changes. After every input that
told us something, the cursors of our readers move on, and what is still missing is asked for upstream, or read from the
log (`settle`).

Timers, for each pubend: JOIN (tell upstream what is wanted, a moment after it changed), NACK (ask again),
PUBEND_SILENCE (tell downstream how far the silence goes: soon after the last data, and every `silence_interval`: who
wants nothing of a busy stream must know how far it is, and that nothing was lost).
State: a relay for each pubend that somebody wants, or that is here. Bound: there are no more pubends than the directory
knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from penstock.kernel.link import Link
from penstock.kernel.machine import Effect
from penstock.kernel.timers import ServiceTimers
from penstock.streams.config import StreamsConfig
from penstock.streams.delay_window import DelayWindow
from penstock.streams.directory import Directory
from penstock.streams.edge import Edge
from penstock.streams.known import KnownSpan
from penstock.streams.packets import ITEMS_MAX, Item, Join, JoinRefresh, JoinWanted, Knowledge, Leave, Nack, Tick
from penstock.streams.pubend import Pubend
from penstock.streams.reader import fitting
from penstock.streams.relay import TRUTH, Relay
from penstock.streams.ticks import TickRanges
from penstock.streams.timers import StreamTimer

JOIN_DELAY = 0.002  # seconds for which changes of interest are gathered
READ_AGAIN = 0.2  # seconds after the log could not be read
READ_ENTRIES = ITEMS_MAX // 2
OWN_SLICES = 2  # of the log at once, for readers of our own
LIVE_SLICES = 8  # into so many parts a slice is cut while live messages come, which would otherwise wait for it
LIVE_WITHIN = 0.1  # seconds since the last live message

OnPacket = Callable[..., list[Effect]]


class Relays:
    """The relays of one broker, by pubend."""

    def __init__(
        self,
        life: int,
        config: StreamsConfig,
        timers: ServiceTimers,
        directory: Directory,
        pubends: Mapping[str, Pubend],  # those of this broker
        exits: Callable[[], Mapping[int, Link]],
    ) -> None:
        self._life = life
        self._config = config
        self._timers = timers
        self._directory = directory
        self._pubends = pubends
        self._exits = exits
        self._relays: dict[str, Relay] = {}
        self._tokens = 0
        self._versions = 0  # of interest, that relays which are forgotten have used
        self.edge: Edge  # set once, by whoever makes both
        self.handlers: dict[type, OnPacket] = {
            Join: self._join,
            JoinRefresh: self._join_refresh,
            JoinWanted: self._join_wanted,
            Leave: self._leave,
            Knowledge: self._knowledge,
            Nack: self._nack,
        }

    def __iter__(self) -> Iterator[Relay]:
        yield from list(self._relays.values())

    def __len__(self) -> int:
        return len(self._relays)

    def get(self, pubend: str) -> Relay | None:
        """The relay of a pubend, if there is one."""
        return self._relays.get(pubend)

    def need(self, pubend: str) -> Relay | None:
        """The relay of a pubend, made if need be; None if nobody knows the pubend."""
        relay = self._relays.get(pubend)
        if relay is not None:
            return relay
        here = self._pubends.get(pubend)
        epoch = here.epoch if here is not None and here.ready else self._directory.epoch_of(pubend)
        if not epoch:
            return None
        relay = self._relays[pubend] = Relay(pubend, epoch, self._life, self._config, versions_after=self._versions)
        relay.at_source = here is not None
        if here is not None:
            relay.gone(here.gone)
        else:
            relay.upstream = self._upstream(pubend)
        self._share_round_trip(relay)
        return relay

    def _share_round_trip(self, relay: Relay) -> None:
        """Pubends of one broker that come over the same link are as far away."""
        host = self._directory.find(relay.pubend)
        for other in self._relays.values():
            near = other.upstream == relay.upstream and self._directory.find(other.pubend) == host
            if near and other is not relay and isinstance(other.window, DelayWindow):
                relay.window = DelayWindow(self._config, other.window.shortest)
                return

    def drop(self, pubend: str) -> None:
        """Forget all that is known of it, but no version of its interest is used again in this life."""
        relay = self._relays.pop(pubend, None)
        if relay is not None:
            self._versions = max(self._versions, relay.interest.version)

    def renew(self, pubend: str, epoch: int, *, now: float) -> list[Effect]:
        """A pubend has this epoch; if ours has another one, it is another pubend under the same name."""
        relay = self._relays.get(pubend)
        if relay is None or epoch in (0, relay.epoch):
            return []
        effects = self.edge.pubend_replaced(pubend, now=now)
        self.drop(pubend)
        return effects

    # What neighbours say.

    def _join(self, packet: Join, sender: Link, now: float) -> list[Effect]:
        relay = self._downstream_relay(packet.pubend, sender)
        if relay is None:
            return []
        effects = relay.join(packet, sender, now=now)
        self.interest_changed(relay, now)
        return effects + (self.silence(relay, now) if relay.at_source else [])

    def _join_refresh(self, packet: JoinRefresh, sender: Link, now: float) -> list[Effect]:
        relay = self._downstream_relay(packet.pubend, sender)
        return [] if relay is None else relay.refreshed(packet, sender, now=now)

    def _join_wanted(self, packet: JoinWanted, sender: Link, now: float) -> list[Effect]:
        relay = self._relays.get(packet.pubend)
        return relay.tell_join(again=True) if relay is not None and relay.upstream == sender else []

    def _leave(self, packet: Leave, sender: Link, now: float) -> list[Effect]:
        relay = self._relays.get(packet.pubend)
        if relay is not None:
            relay.leave(sender)
            self.interest_changed(relay, now)
        return []

    def _knowledge(self, packet: Knowledge, sender: Link, now: float) -> list[Effect]:
        relay = self._relays.get(packet.pubend)
        if relay is None:
            return []
        effects = relay.learn(packet, sender, now=now)
        if relay.lagging():
            self._silence_after(relay, self._config.silence_interval, now)
        return effects + self.settle(relay, now)

    def _nack(self, packet: Nack, sender: Link, now: float) -> list[Effect]:
        relay = self._downstream_relay(packet.pubend, sender)
        return [] if relay is None else relay.nack(packet, sender, now=now) + self.settle(relay, now)

    def _downstream_relay(self, pubend: str, sender: Link) -> Relay | None:
        """The relay, unless the sender is the one we ask ourselves: two that ask each other would never end."""
        relay = self.need(pubend)
        return None if relay is None or sender == relay.upstream else relay

    # What pubends here say.

    def committed(self, pubend: Pubend, data: Sequence[Item], *, now: float) -> list[Effect]:
        """These are on disk."""
        relay = self.need(pubend.name)
        if relay is None:
            return []
        relay.live_at = now
        effects = relay.committed(data, data[-1][0])
        self._silence_after(relay, self._config.silence_first, now)
        return effects + self.settle(relay, now)

    def gone(self, pubend: Pubend) -> None:
        """It keeps less than before."""
        relay = self._relays.get(pubend.name)
        if relay is not None:
            relay.gone(pubend.gone)

    def slice_read(
        self, pubend: Pubend, token: int, first: Tick, upto: Tick, items: Sequence[Item], *, now: float
    ) -> list[Effect]:
        """A part of the log. More may have been read than was asked for: so it is known how far the silence goes."""
        relay = self._relays.get(pubend.name)
        asked = relay.reading.pop(token, None) if relay is not None else None
        if relay is None or asked is None:
            return []
        if upto < first:  # nothing is settled there, or it is gone
            relay.gone(pubend.gone)
            return []
        inside = [item for item in items if item[0] <= asked[1]]
        kept = fitting(inside, self._slice_bytes(relay, *asked, now), len(inside))
        cut = kept < len(inside) or (len(items) == len(inside) and upto < asked[1])
        if kept < len(inside):
            upto = inside[kept - 1][0]
        elif len(items) > len(inside):
            upto = items[len(inside)][0] - 1
        effects = self._fed(relay, KnownSpan(first, upto, inside[:kept]))
        if effects is None:
            effects = relay.read(first, upto, inside[:kept], cut=cut)
        return effects + self.settle(relay, now)

    def _fed(self, relay: Relay, span: KnownSpan) -> list[Effect] | None:
        """Give it straight to the one reader that it was read for; None if it is not for one reader alone.

        Whoever reads a long log would otherwise drive out of the cache what all others are about to want.
        """
        readers = self.edge.group_of(relay)
        if readers is None or relay.is_asked(span.first, span.last):
            return None
        fed = readers.feed(span)
        if fed is None:
            return None
        effects, rest = fed
        if rest.first <= rest.last:  # it has no room for the rest now
            relay.known.learn(rest.first, rest.last, TRUTH, rest.items)
        return effects

    def _slice_bytes(self, relay: Relay, first: Tick, last: Tick, now: float) -> int:
        """How much may be read at once: one answer if a neighbour waits for it, whom it is sent to in one answer.

        Little if live messages come for somebody else: they wait for the loop while it is dealt with.
        """
        answer_bytes = self._config.answer_bytes
        others = len(self.edge.group_of(relay) or ()) + len(relay.downstream) > 1
        if others and 0.0 <= now - relay.live_at < LIVE_WITHIN:
            return answer_bytes // LIVE_SLICES
        return answer_bytes if relay.is_asked(first, last) else OWN_SLICES * answer_bytes

    def slice_failed(self, pubend: Pubend, token: int, *, now: float) -> None:
        """The log could not be read."""
        relay = self._relays.get(pubend.name)
        if relay is not None and relay.reading.pop(token, None) is not None:
            self._timers.set(StreamTimer.NACK, now + READ_AGAIN, pubend.name)

    # What is missing, and what is new.

    def settle(self, relay: Relay, now: float) -> list[Effect]:
        """Let readers have what is known now, and ask for what they, or neighbours, still miss."""
        effects = self.edge.advance(relay)
        wanted = self.edge.wanted(relay)
        for first, last in relay.asked():
            wanted.add(first, last)
        pubend = self._pubends.get(relay.pubend)
        if pubend is not None:
            return effects + self._read_log(relay, pubend, wanted, now)
        effects += relay.ask(wanted, now=now)
        at = relay.nacks.next_at()
        if at is not None:
            self._timers.set(StreamTimer.NACK, at, relay.pubend)
        return effects

    def _read_log(self, relay: Relay, pubend: Pubend, wanted: TickRanges, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for first, last in relay.reading.values():
            wanted.remove(first, last)
        for first, last in list(wanted):
            if len(relay.reading) >= self._config.reads_max:
                break
            self._tokens += 1
            relay.reading[self._tokens] = (first, last)
            size_bytes = self._slice_bytes(relay, first, last, now)
            effects += pubend.read(
                first,
                relay.known.head,
                count=OWN_SLICES * READ_ENTRIES,
                bytes_wanted=size_bytes,
                token=self._tokens,
                now=now,
            )
        return effects

    def silence(self, relay: Relay, now: float) -> list[Effect]:
        """Tell everybody of the newest silence."""
        pubend = self._pubends.get(relay.pubend)
        relay.silence_at = now
        if pubend is None:
            return relay.push(relay.known.head, silence=True) + self.settle(relay, now)
        if not pubend.ready:
            return []
        if relay.interest:
            self._timers.set(StreamTimer.PUBEND_SILENCE, now + self._config.silence_interval, relay.pubend)
        return relay.committed((), pubend.horizon(now)) + self.settle(relay, now)

    def _silence_after(self, relay: Relay, idle: float, now: float) -> None:
        """Tell it when nothing has come for so long; or, since a busy stream is never idle, once in an interval."""
        busy = max(now, relay.silence_at + self._config.silence_interval)
        self._timers.set(StreamTimer.PUBEND_SILENCE, min(now + idle, busy), relay.pubend)

    # Time and the network.

    def expired(self, timer: int, pubend: str, *, now: float) -> list[Effect]:
        """One of our timers."""
        relay = self._relays.get(pubend)
        if relay is None:
            return []
        if timer == StreamTimer.JOIN:
            return relay.tell_join()
        return self.settle(relay, now) if timer == StreamTimer.NACK else self.silence(relay, now)

    def interest_changed(self, relay: Relay, now: float) -> None:
        """Tell upstream soon; a pubend here begins to say how far its silence goes."""
        self._timers.set(StreamTimer.JOIN, now + JOIN_DELAY, relay.pubend)
        if relay.at_source and relay.interest:
            self._timers.set(StreamTimer.PUBEND_SILENCE, now + JOIN_DELAY, relay.pubend)

    def link_down(self, link: Link, *, now: float) -> None:
        """A neighbour is gone."""
        for relay in self:
            if link in relay.downstream:
                relay.leave(link)
                self.interest_changed(relay, now)

    def follow(self) -> list[Effect]:
        """The map of the network has changed."""
        effects: list[Effect] = []
        for relay in self:
            upstream = self._upstream(relay.pubend)
            if not relay.at_source and upstream != relay.upstream:
                effects += relay.move(upstream)
                self._share_round_trip(relay)
        return effects

    def refresh(self, *, now: float) -> list[Effect]:
        """Keep Joins alive, here and upstream; forget relays that nobody needs."""
        effects: list[Effect] = []
        for relay in self:
            relay.expire(now)
            effects += relay.refresh() + self.settle(relay, now)
            if relay.idle and not relay.at_source:
                effects += relay.move(None)
                self.drop(relay.pubend)
        return effects

    def _upstream(self, pubend: str) -> Link | None:
        host = self._directory.find(pubend)
        return self._exits().get(host) if host is not None else None
