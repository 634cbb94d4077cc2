"""One pubend's knowledge on its way through this broker: learnt from upstream, told downstream, asked for when missing.

A message's way through this file: `learn` takes a Knowledge packet of the upstream neighbour into the cache (at the
pubend's own broker `committed` does, from the log); `_push` tells every downstream neighbour what is new above the
last tick that it was told of, filtered by what it wants: data that it does not want are silence to it. Whatever is
missing is not waited for: whoever misses it asks.

A Nack's way: `nack` answers from the cache what is there. The rest is remembered for that neighbour (`asked`), and
asked for upstream (`ask`), or read from the log at the pubend's own broker. What then comes goes to those who asked.
An answer is a slice of bounded size; if there is more, its last packet is marked *cut*, and whoever asked asks on.

Silence is told to a neighbour only if it was filtered under a version of our own interest that contained what the
neighbour wants (`interest`); it is stamped with the version of the neighbour's Join.

State for each pubend: the cache (`known`), what is wanted, for each downstream neighbour its Join and what it asked
for. Bounds: those of the cache; ASKED_MAX ranges for each neighbour, the rest it asks for again; a neighbour whose Join
is not refreshed is forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from penstock.errors import InvalidEncoding
from penstock.kernel.link import Link
from penstock.kernel.machine import Effect, Send
from penstock.kernel.packet import Lane
from penstock.kernel.trace import InputRefused
from penstock.streams.config import StreamsConfig
from penstock.streams.delay_window import DelayWindow, ShortestRoundTrip
from penstock.streams.interest import PubendInterest, read_filters
from penstock.streams.known import Known, KnownSpan
from penstock.streams.nack_window import NackWindow
from penstock.streams.nacks import NackSchedule
from penstock.streams.packets import (
    ITEMS_MAX,
    RANGES_MAX,
    TICK_MAX,
    Item,
    Join,
    JoinRefresh,
    JoinWanted,
    Knowledge,
    Leave,
    Nack,
    Range,
    Tick,
)
from penstock.streams.ticks import TickRanges

TRUTH = TICK_MAX  # the version of what the pubend itself says: valid for everybody
ASKED_MAX = 256  # ranges that one neighbour may wait for
ANSWER_PACKETS = 256  # spans of one answer to a Nack
PACKET_BYTES = 32_000  # of messages in one Knowledge packet, or one message: it fits a datagram
TICKS_PER_SECOND = 1_000_000
LATE_SHARE = 0.125  # of the cache, for what passes by for somebody who is behind: perhaps for a second one soon
LATE_SHARE_READ = 0.5  # and where readers of our own may be behind, who ask for half a cache ahead


class Downstream:
    """A neighbour that has joined."""

    __slots__ = ("asked", "heard_at", "life", "link", "looked", "told", "version")

    def __init__(self, link: Link, told: Tick) -> None:
        self.link = link
        self.life = self.version = 0
        self.told = told  # the newest tick of which it was told something
        self.looked = told  # the newest up to which we have looked for something that it wants, and found nothing
        self.asked = TickRanges()
        self.heard_at = 0.0


class Relay:
    """What one broker does for one pubend."""

    def __init__(self, pubend: str, epoch: int, life: int, config: StreamsConfig, *, versions_after: int = 0) -> None:
        self.pubend = pubend
        self.epoch = epoch
        self.at_source = False  # whether the pubend itself is at this broker
        self.upstream: Link | None = None
        self.known = Known(bytes_max=config.cache_bytes, runs_max=config.runs_max, late_share=LATE_SHARE)
        self.interest = PubendInterest(versions_after)
        self.nacks = NackSchedule(config)
        self.downstream: dict[Link, Downstream] = {}
        self.newest: Tick = 0  # that anybody has told us of
        self.horizon: Tick = 0  # the doubt horizon: everything up to it is known; 0: nothing has come yet
        self.has_readers = False  # of our own
        self.ignored = 0  # packets beyond the receive window
        self.live_at = -inf  # when messages last came from the pubend here
        self.silence_at = 0.0  # when everybody was last told how far the silence goes
        self.recovering = False  # some were, and the horizon has not come near the newest tick since
        self.nacked = 0  # how often we have asked upstream for something
        self._life = life
        self._config = config
        self.window = self._new_window()
        self._joined = 0  # the version that upstream was told last
        self.reading: dict[int, Range] = {}  # token -> a part of the log that is being read, at the pubend's broker

    def _new_window(self) -> NackWindow | DelayWindow:
        paper = self._config.control_rule == "paper"
        return NackWindow(self._config) if paper else DelayWindow(self._config, ShortestRoundTrip())

    @property
    def idle(self) -> bool:
        """Whether nobody wants anything of it."""
        return not self.interest

    # Joins.

    def join(self, packet: Join, link: Link, *, now: float) -> list[Effect]:
        """A neighbour downstream says what it wants."""
        down = self.downstream.get(link)
        if down is not None and (packet.life, packet.version) < (down.life, down.version):
            return []
        try:
            filters = read_filters(packet.filters)
        except InvalidEncoding as error:
            return [InputRefused(f"link {link}", str(error))]
        if down is None or down.life != packet.life:
            down = self.downstream[link] = Downstream(link, self.known.head)
        self.interest.set(link, filters)
        down.looked = down.told
        down.life, down.version, down.heard_at = packet.life, packet.version, now
        return []

    def refreshed(self, packet: JoinRefresh, link: Link, *, now: float) -> list[Effect]:
        """A neighbour still wants what it wanted."""
        down = self.downstream.get(link)
        if down is None or (down.life, down.version) != (packet.life, packet.version):
            return [Send((link,), JoinWanted(self.pubend), Lane.CONTROL)]
        down.heard_at = now
        return []

    def leave(self, link: Link) -> None:
        """A neighbour wants nothing any more."""
        if self.downstream.pop(link, None) is not None:
            self.interest.remove(link)

    def expire(self, now: float) -> None:
        """Forget neighbours that have not been heard of."""
        for link, down in list(self.downstream.items()):
            if not 0.0 <= now - down.heard_at <= self._config.expire_after:
                if now < down.heard_at:  # the clock was set back
                    down.heard_at = now
                else:
                    self.leave(link)

    def move(self, upstream: Link | None) -> list[Effect]:
        """The way to the pubend leads over this link now."""
        if upstream == self.upstream:
            return []
        left, self.upstream = self.upstream, upstream
        effects: list[Effect] = []
        if left is not None and self._joined:
            effects.append(Send((left,), Leave(self.pubend), Lane.CONTROL))
        self._joined = 0
        self.nacks, self.window = NackSchedule(self._config), self._new_window()
        return effects + self.tell_join()

    def tell_join(self, *, again: bool = False) -> list[Effect]:
        """Tell upstream what we want, if that has changed."""
        if self.upstream is None or self.at_source:
            return []
        to = (self.upstream,)
        if self.idle:
            left, self._joined = self._joined, 0
            return [Send(to, Leave(self.pubend), Lane.CONTROL)] if left else []
        version = self.interest.version
        if version == self._joined and not again:
            return []
        self._joined = version
        return [Send(to, Join(self.pubend, self._life, version, self.interest.told()), Lane.CONTROL)]

    def refresh(self) -> list[Effect]:
        """Tell upstream that we are still there."""
        if self.upstream is None or self.at_source or not self._joined:
            return self.tell_join()
        if self._joined != self.interest.version or self.idle:
            return self.tell_join()
        return [Send((self.upstream,), JoinRefresh(self.pubend, self._life, self._joined), Lane.CONTROL)]

    # Knowledge comes.

    def learn(self, packet: Knowledge, sender: Link, *, now: float) -> list[Effect]:
        """The neighbour upstream tells us something."""
        if sender != self.upstream or packet.epoch != self.epoch:
            return []
        self.gone(packet.gone)
        self.newest = max(self.newest, packet.last)
        if self.horizon == 0:
            self.horizon = packet.first - 1
        if self.has_readers and packet.first > self.horizon + self._config.receive_window * TICKS_PER_SECOND:
            self.ignored += 1
            self.recovering = True
            asked = any(down.asked.overlap(packet.first, packet.last) for down in self.downstream.values())
            if not asked:
                return []
        valid = packet.life == self._life and packet.version <= self.interest.version
        version = packet.version if valid else -1
        if valid:
            self.known.learn(packet.first, packet.last, version, packet.data)
            if self.nacks.answered(packet.first, packet.last, now):
                self.window.answered(self.nacks, self.horizon, now=now)
        else:
            self.known.learn_data(packet.data)
        if packet.cut:
            self.nacks.again(packet.last + 1)
        span = KnownSpan(packet.first, packet.last, list(packet.data))
        effects = self._answer_asked(span, version, cut=packet.cut)
        self._advance_horizon()
        return effects + self.push(packet.first, silence=not packet.data)

    def committed(self, items: Sequence[Item], horizon: Tick) -> list[Effect]:
        """The pubend here knows everything up to the horizon; these data are new."""
        first = self.newest + 1 if self.newest else (items[0][0] if items else horizon)
        if horizon < first:
            return []
        self.known.learn(first, horizon, TRUTH, items)
        self.newest = max(self.newest, horizon)
        self.horizon = self.newest
        return self.push(first, silence=not items)

    def read(self, first: Tick, upto: Tick, items: Sequence[Item], *, cut: bool) -> list[Effect]:
        """A part of the log, for those who asked for it."""
        self.known.learn(first, upto, TRUTH, items)
        return self._answer_asked(KnownSpan(first, upto, list(items)), TRUTH, cut=cut)

    def is_asked(self, first: Tick, last: Tick) -> bool:
        """Whether a neighbour waits for any of these."""
        return any(down.asked.overlap(first, last) for down in self.downstream.values())

    def gone(self, upto: Tick) -> None:
        """The pubend keeps nothing up to this tick: nobody need wait for it."""
        self.known.learn_gone(upto)
        if self.horizon:
            self.horizon = max(self.horizon, upto)
        for down in self.downstream.values():
            if down.asked:
                down.asked.remove(0, upto)

    def read_here(self) -> None:
        """We have readers of our own, from now on: they begin at the present."""
        if not self.has_readers:
            self.has_readers, self.horizon = True, self.newest
            self.known.late_share = LATE_SHARE_READ

    def _advance_horizon(self) -> None:
        known = self.known
        missing = known.unknown(self.horizon + 1, known.head, 0, 1) if known.head > self.horizon else []
        reached = missing[0][0] - 1 if missing else known.head
        self.horizon = max(self.horizon, reached, known.gone)
        if self.newest - self.horizon <= self._config.receive_window * TICKS_PER_SECOND:
            self.recovering = False

    # Knowledge goes.

    def push(self, first: Tick, *, silence: bool) -> list[Effect]:
        """Tell everybody what is new to them; whoever gets no data of it only if silence is worth a packet.

        Something has come from tick `first` on: nobody need look again at what is below.
        """
        effects: list[Effect] = []
        for down in self.downstream.values():
            if down.told < self.known.head and (silence or self._wants_new(down, first)):
                effects += self._tell_new(down)
        return effects

    def lagging(self) -> bool:
        """Whether somebody has not been told of the newest silence."""
        return any(down.told < self.known.head for down in self.downstream.values())

    def _wants_new(self, down: Downstream, first: Tick) -> bool:
        """Whether there is something for it in what has come."""
        spans = self._untold(down, max(down.told, min(down.looked, first - 1)))
        down.looked = self.known.head
        return any(self.interest.selected(down.link, span.items) for span in spans)

    def _tell_new(self, down: Downstream) -> list[Effect]:
        chosen = [(span, self.interest.selected(down.link, span.items)) for span in self._untold(down, down.told)]
        down.told = self.known.head
        return [effect for span, items in chosen for effect in self._told(down, span.first, span.last, items)]

    def _untold(self, down: Downstream, after: Tick) -> list[KnownSpan]:
        known, since = self.known, self.interest.since(down.link)
        return known.known(after + 1, known.head, since, bytes_max=1 << 40, items_max=1 << 40)

    def _told(
        self, down: Downstream, first: Tick, last: Tick, items: Sequence[Item], *, cut: bool = False
    ) -> list[Effect]:
        """As many packets as it takes."""
        to, effects = (down.link,), []
        for part, upto in _packets(items, last, min(ITEMS_MAX, self._config.packet_items)):
            over = cut and upto == last
            packet = Knowledge(
                self.pubend, self.epoch, down.life, down.version, first, upto, part, self.known.gone, over
            )
            effects.append(Send(to, packet, Lane.STREAM))
            first = upto + 1
        return list[Effect](effects)

    # What is missing.

    def nack(self, packet: Nack, link: Link, *, now: float) -> list[Effect]:
        """A neighbour downstream asks for ticks that it knows nothing of."""
        down = self.downstream.get(link)
        effects: list[Effect] = []
        if down is None or (down.life, down.version) != (packet.life, packet.version):
            effects.append(Send((link,), JoinWanted(self.pubend), Lane.CONTROL))
        if down is None or down.life != packet.life:
            return effects
        if packet.ranges[0][0] <= self.known.gone:
            effects += self._told(down, self.known.gone, self.known.gone, ())
        room = self._config.answer_bytes
        for first, last in packet.ranges:
            last = min(last, self.newest)
            if first > last:
                continue
            if room <= 0 or len(effects) >= ANSWER_PACKETS:  # the rest is asked for again when this has come
                break
            sent, used = self._answered(down, first, last, room)
            room -= used
            effects += sent
        return effects

    def _answered(self, down: Downstream, first: Tick, last: Tick, room: int) -> tuple[list[Effect], int]:
        """Of one range what we know, within the room; the rest is remembered.

        At the pubend's broker silence before something that the log is read for is told with that, and not in a packet
        of its own. A part of the log ends with the silence up to the next message, so that whoever asks for one range
        after the other would get such a packet for each.
        """
        since = self.interest.since(down.link)
        limits = {"bytes_max": room, "items_max": ITEMS_MAX, "spans_max": ANSWER_PACKETS}
        spans = self.known.known(first, last, since, **limits)
        used = sum(message.size_bytes for span in spans for _, message in span.items)
        full = used >= room or len(spans) >= ANSWER_PACKETS or sum(len(span.items) for span in spans) >= ITEMS_MAX
        reached = spans[-1].last if full else last
        missing = self.known.unknown(first, reached, since, ASKED_MAX)
        silent = {span.last + 1: span.first for span in spans if self.at_source and not span.items}
        with_more = {silent[begin]: None for begin, _ in missing if begin in silent}
        effects: list[Effect] = []
        for span in spans:
            if span.first in with_more:
                continue
            items = self.interest.selected(down.link, span.items)
            upto = self._silence_beyond(span.last, since) if span.last >= last else span.last
            cut = full and span is spans[-1] and span.last < last
            effects += self._told(down, span.first, upto, items, cut=cut)
        for begin, end in missing:
            if len(down.asked) < ASKED_MAX:
                down.asked.add(silent.get(begin, begin), end)
        return effects, used

    def _silence_beyond(self, tick: Tick, since: int) -> Tick:
        """The last tick of the silence that follows: it costs nothing to tell, and saves another question."""
        more = self.known.contiguous(tick, since, bytes_max=1, items_max=1)
        if more is None:
            return tick
        return more.items[0][0] - 1 if more.items else more.last

    def _answer_asked(self, span: KnownSpan, version: int, *, cut: bool) -> list[Effect]:
        """Something has come: tell whoever asked for it."""
        effects: list[Effect] = []
        for down in self.downstream.values():
            asked = down.asked.overlap(span.first, span.last) if down.asked else []
            if not asked:
                continue
            if version >= self.interest.since(down.link):
                for first, last in asked:
                    items = [item for item in span.items if first <= item[0] <= last]
                    over = cut and last == span.last
                    effects += self._told(down, first, last, self.interest.selected(down.link, items), cut=over)
                    down.asked.remove(first, last)
            else:
                effects += self._answer_data(down, span.items)
            rest = down.asked.around(span.last + 1) if cut else None
            if rest is not None:  # it asks on
                down.asked.remove(*rest)
        return effects

    def _answer_data(self, down: Downstream, items: Sequence[Item]) -> list[Effect]:
        """Silence that is none for this neighbour: only the data count."""
        effects: list[Effect] = []
        for item in self.interest.selected(down.link, items):
            if down.asked.overlap(item[0], item[0]):
                down.asked.remove(item[0], item[0])
                effects += self._told(down, item[0], item[0], (item,))
        return effects

    def asked(self) -> TickRanges:
        """All that neighbours wait for, and we do not know."""
        every = TickRanges()
        for down in self.downstream.values():
            for first, last in down.asked:
                every.add(first, last)
        return every

    def ask(self, wanted: TickRanges, *, now: float) -> list[Effect]:
        """Ask upstream for what is due; the rest has been asked for lately."""
        if self.upstream is None or self.at_source:
            return []
        due = self.nacks.due(list(wanted), now)
        if not due:
            return []
        self.nacked += 1
        effects: list[Effect] = self.tell_join()
        return [*effects, *self._nacks(due)]

    def _nacks(self, due: Sequence[Range]) -> list[Effect]:
        assert self.upstream is not None
        life, version, to = self._life, self.interest.version, (self.upstream,)
        return [
            Send(to, Nack(self.pubend, life, version, tuple(due[at : at + RANGES_MAX])), Lane.CONTROL)
            for at in range(0, len(due), RANGES_MAX)
        ]


def _packets(items: Sequence[Item], last: Tick, items_max: int) -> list[tuple[tuple[Item, ...], Tick]]:
    """Data in portions that fit a packet, each with the tick up to which it tells everything."""
    portions: list[tuple[tuple[Item, ...], Tick]] = []
    begin = size_bytes = 0
    for at, (_, message) in enumerate(items):
        if at > begin and (size_bytes + message.size_bytes > PACKET_BYTES or at - begin >= items_max):
            portions.append((tuple(items[begin:at]), items[at - 1][0]))
            begin, size_bytes = at, 0
        size_bytes += message.size_bytes
    portions.append((tuple(items[begin:]), last))
    return portions
