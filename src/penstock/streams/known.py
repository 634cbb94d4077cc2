"""What a broker knows of one pubend's ticks: data, silence, and nothing.

A tick is data (its message is kept), silence, gone (final: up to `gone` the pubend keeps nothing), or unknown. Silence
has a version: that of our Join under whose filters it was told. It is silence for those whose filters that Join had;
for a newer filter the tick is unknown. So every question names the version `since` which it counts. Data are data for
everybody.

State:
    runs       three lists of the same length: first tick, last tick, version. In order, without overlap; neighbours
               that touch have different versions. Every tick in a run is known: data if its message is kept, otherwise
               silence under that version. A live stream is one run that grows, however many messages it has.
    messages   tick -> message, in the order in which they were learnt. Those told without silence around them
               (`learn_data`) stand in no run.
    late       of these the ones that were learnt after a newer one: somebody behind has asked for them.
    ticks      the ticks of the messages, sorted. A message that goes leaves its tick behind; such ticks are
               swept out together when they are one in 32.

A tick only moves from unknown to silence or data, from silence to data, and from anything to gone; and back to unknown
when something is forgotten:
    bytes_max  the messages learnt longest ago go first, but none of the packet that was just learnt, so the bound may
               be exceeded by one packet. Late ones go if they take more than `late_share` of the room, otherwise the
               others: what passes by for one who is behind does not drive out the newest, which it needs last. If no
               message stands before it in its run, the run now begins behind it (the silence before it is forgotten
               too); otherwise the run is split there.
    runs_max   the lowest runs go first, but none that the packet which was just learnt speaks of. Their messages stay.

Cost: learning at the end of the stream is O(1), amortised, the message that goes for it included (2.5 microseconds in
all). In the middle it is a binary search, a shift of the lists (a few microseconds for ten thousand runs or fifty
thousand messages), and the length of the packet. A question is two binary searches, and then as long as its answer,
apart from ticks left behind.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from penstock.content.message import Message
from penstock.streams.packets import TICK_MAX, Item, Range, Tick

SWEEP_MIN = 64  # ticks left behind that are always tolerated
BEYOND = TICK_MAX + 1


class KnownSpan(NamedTuple):
    """Every tick from `first` to `last` is known: these are data, all others silence."""

    first: Tick
    last: Tick
    items: list[Item]


class Known:
    """What is known of one pubend, bounded."""

    __slots__ = (
        *("_bytes_max", "_firsts", "_lasts", "_late", "_late_bytes", "_messages"),
        *("_newest", "_runs_max", "_ticks", "_versions", "gone", "head", "late_share", "size_bytes"),
    )

    def __init__(self, *, bytes_max: int, runs_max: int, late_share: float = 0.5) -> None:
        self.head: Tick = 0  # the highest tick that was ever learnt as data or silence; 0: none
        self.gone: Tick = 0  # up to here the pubend keeps nothing
        self.size_bytes = 0  # of the messages kept
        self.late_share = late_share  # of the room, that late messages may take from others
        self._bytes_max = bytes_max
        self._runs_max = runs_max
        self._firsts: list[Tick] = []
        self._lasts: list[Tick] = []
        self._versions: list[int] = []
        self._messages: OrderedDict[Tick, Message] = OrderedDict()
        self._late: OrderedDict[Tick, None] = OrderedDict()  # in the order in which they were learnt
        self._late_bytes = 0
        self._newest: Tick = 0  # of the messages that there were
        self._ticks: list[Tick] = []

    @property
    def messages(self) -> int:
        """How many are kept."""
        return len(self._messages)

    @property
    def runs(self) -> int:
        """How many ranges it takes to say what is known."""
        return len(self._firsts)

    # Learning.

    def learn(self, first: Tick, last: Tick, version: int, data: Sequence[Item]) -> None:
        """Every tick from `first` to `last` is data if listed, otherwise silence under `version`.

        The data are in order and within the range. What is known as data stays data, and silence of a higher version
        keeps it.
        """
        if first <= self.gone:
            first = self.gone + 1
        if first > last:
            return
        if last > self.head:
            self.head = last
        self._cover(first, last, version)
        if data:
            self._keep(data)
        if len(self._firsts) > self._runs_max:
            self._bound_runs(first, last)

    def learn_data(self, data: Sequence[Item]) -> None:
        """These ticks are data; of those between them nothing was said."""
        if data:
            self.head = max(self.head, data[-1][0])
            self._keep(data)
            self._bound_runs(data[0][0], data[-1][0])

    def learn_gone(self, upto: Tick) -> None:
        """The pubend keeps nothing up to this tick. A lower one than before says nothing new. The head stays."""
        if upto <= self.gone:
            return
        low, high = bisect_right(self._ticks, self.gone), bisect_right(self._ticks, upto)
        for tick in self._ticks[low:high]:
            if tick in self._messages:
                self._drop(tick)
        self._sweep()
        below = bisect_right(self._lasts, upto)
        self._forget_runs(0, below)
        if self._firsts and self._firsts[0] <= upto:
            self._firsts[0] = upto + 1
        self.gone = upto

    def _cover(self, first: Tick, last: Tick, version: int) -> None:
        lasts = self._lasts
        if lasts and first >= self._firsts[-1]:  # the end of the stream, where nearly everything comes
            newest = lasts[-1]
            if first <= newest + 1 and version == self._versions[-1]:
                if last > newest:
                    lasts[-1] = last
                return
            if first <= newest:
                self._merge(first, last, version)
                return
        elif lasts:
            self._merge(first, last, version)
            return
        self._firsts.append(first)
        lasts.append(last)
        self._versions.append(version)

    def _merge(self, first: Tick, last: Tick, version: int) -> None:
        """Cover a range that may lie over runs, or touch them: of two versions the higher stays."""
        low = bisect_left(self._lasts, first - 1)
        high = bisect_right(self._firsts, last + 1)
        runs: list[tuple[Tick, Tick, int]] = []
        at = first  # the next tick to be covered
        for begin, end, old in self._runs(low, high):
            if begin < first:
                _append_run(runs, begin, min(end, first - 1), old)
            if at <= last and at < begin:
                _append_run(runs, at, min(last, begin - 1), version)
            if begin <= last and end >= first:
                _append_run(runs, max(begin, first), min(end, last), max(old, version))
            if end > last:
                _append_run(runs, max(begin, last + 1), end, old)
            at = max(at, end + 1)
        if at <= last:
            _append_run(runs, at, last, version)
        self._firsts[low:high] = [begin for begin, _, _ in runs]
        self._lasts[low:high] = [end for _, end, _ in runs]
        self._versions[low:high] = [old for _, _, old in runs]

    def _keep(self, data: Sequence[Item]) -> None:
        messages, ticks = self._messages, self._ticks
        if data[0][0] <= self.gone:
            data = [item for item in data if item[0] > self.gone]
            if not data:
                return
        fresh = len(data)
        inserted: list[Tick] = []
        for tick, message in data:
            if tick not in messages:
                messages[tick] = message
                self.size_bytes += message.size_bytes
                if not ticks or tick > ticks[-1]:
                    ticks.append(tick)
                else:
                    inserted.append(tick)
            else:
                messages.move_to_end(tick)
                if tick not in self._late:
                    continue
            if tick < self._newest:
                self._is_late(tick, message)
                fresh -= 1
        if self._newest < data[-1][0]:
            self._newest = data[-1][0]
        if inserted:
            low, high = bisect_left(ticks, inserted[0]), bisect_right(ticks, inserted[-1])
            ticks[low:high] = sorted(dict.fromkeys(ticks[low:high] + inserted))
        if self.size_bytes > self._bytes_max:
            self._evict(fresh, len(data) - fresh)

    def _is_late(self, tick: Tick, message: Message) -> None:
        if tick in self._late:
            self._late.move_to_end(tick)
        else:
            self._late[tick] = None
            self._late_bytes += message.size_bytes

    # Forgetting.

    def _evict(self, fresh: int, late: int) -> None:
        """Messages go until the others fit, but none of the packet just learnt, which has so many of each kind."""
        gone: list[Tick] = []
        while self.size_bytes > self._bytes_max and len(self._messages) > fresh + late:
            many = self._late_bytes > self.late_share * self._bytes_max
            others = len(self._messages) - len(self._late) > fresh
            tick = next(iter(self._late)) if len(self._late) > late and (many or not others) else self._oldest()
            self._drop(tick)
            gone.append(tick)
        begin = 0
        while begin < len(gone):
            begin = self._forget_ticks(gone, begin)
        self._sweep()

    def _oldest(self) -> Tick:
        """The message learnt longest ago of those that are not late."""
        messages = self._messages
        tick = next(iter(messages))
        while tick in self._late:
            messages.move_to_end(tick)
            tick = next(iter(messages))
        return tick

    def _drop(self, tick: Tick) -> None:
        size_bytes = self._messages.pop(tick).size_bytes
        self.size_bytes -= size_bytes
        if tick in self._late:
            del self._late[tick]
            self._late_bytes -= size_bytes

    def _forget_ticks(self, gone: Sequence[Tick], begin: int) -> int:
        """These are unknown, from `begin` on, and perhaps the silence before them.

        As many at once as stand side by side, without another message or a hole between them; returns where the rest
        begins.
        """
        ticks, tick = self._ticks, gone[begin]
        run = bisect_left(self._lasts, tick)
        if run == len(self._firsts) or self._firsts[run] > tick:
            return begin + 1
        first, last, version = self._firsts[run], self._lasts[run], self._versions[run]
        place = bisect_left(ticks, tick)
        count = 1
        for another, beside in zip(gone[begin + 1 :], ticks[place + 1 : place + len(gone) - begin], strict=False):
            if another != beside or another > last:
                break
            count += 1
        newest = gone[begin + count - 1]
        if place > 0 and ticks[place - 1] >= first:
            self._firsts.insert(run, first)
            self._lasts.insert(run, tick - 1)
            self._versions.insert(run, version)
            run += 1
        if newest < last:
            self._firsts[run] = newest + 1
        else:
            self._forget_runs(run, run + 1)
        if count > 1:
            del ticks[place : place + count]
        return begin + count

    def _bound_runs(self, first: Tick, last: Tick) -> None:
        """The lowest runs go until the others fit, but none between `first` and `last`."""
        excess = len(self._firsts) - self._runs_max
        if excess <= 0:
            return
        below = min(excess, bisect_left(self._lasts, first))
        above = bisect_right(self._firsts, last)
        self._forget_runs(above, above + excess - below)
        self._forget_runs(0, below)

    def _forget_runs(self, low: int, high: int) -> None:
        if low < high:
            del self._firsts[low:high], self._lasts[low:high], self._versions[low:high]

    def _sweep(self) -> None:
        """Sweep out the ticks of messages that are kept no longer, if there are many."""
        kept = len(self._messages)
        if len(self._ticks) - kept > kept // 32 + SWEEP_MIN:
            self._ticks = [tick for tick in self._ticks if tick in self._messages]

    # Questions.

    def known(
        self, first: Tick, last: Tick, since: int, *, bytes_max: int, items_max: int, spans_max: int = 1 << 40
    ) -> list[KnownSpan]:
        """The known parts of a range, at most so many, each as long as can be, in order; nothing up to `gone`.

        When so many bytes or messages are listed, the last part ends just before the next message. One message more
        than `bytes_max` allows may be listed.
        """
        spans: list[KnownSpan] = []
        items_left, bytes_left = items_max, bytes_max
        for begin, end in self._stretches(max(first, self.gone + 1), last, since):
            span = self._filled(begin, end, bytes_left, items_left)
            if span.last >= begin:
                spans.append(span)
            if span.last < end or len(spans) >= spans_max:
                break
            items_left -= len(span.items)
            bytes_left -= sum(message.size_bytes for _, message in span.items)
        return spans

    def unknown(self, first: Tick, last: Tick, since: int, count_max: int) -> list[Range]:
        """The unknown parts of a range above `gone`, lowest first, at most so many."""
        first = max(first, self.gone + 1)
        holes: list[Range] = []
        for begin, end in self._stretches(first, last, since):
            if len(holes) >= count_max:
                return holes
            if first < begin:
                holes.append((first, begin - 1))
            first = end + 1
        if first <= last and len(holes) < count_max:
            holes.append((first, last))
        return holes

    def fits(self) -> int:
        """About how many messages like those that are kept fit half of the cache."""
        if not self.size_bytes:
            return self._bytes_max
        return self._bytes_max * len(self._messages) // (2 * self.size_bytes)

    def between(self, first: Tick, last: Tick) -> int:
        """About how many messages are known from `first` to `last`: perhaps a few that are kept no longer."""
        return bisect_right(self._ticks, last) - bisect_left(self._ticks, first)

    def contiguous(
        self, after: Tick, since: int, *, bytes_max: int, items_max: int, upto: Tick | None = None
    ) -> KnownSpan | None:
        """What comes after a tick, as far as it is known without a hole and fits; None if the next tick is unknown.

        Also None if the next tick is gone: whoever is there has missed something, and must be told.
        """
        first = after + 1
        if first <= self.gone:
            return None
        last = self.head if upto is None else min(upto, self.head)
        for begin, end in self._stretches(first, last, since):
            return self._filled(begin, end, bytes_max, items_max) if begin == first else None
        return None

    def _filled(self, first: Tick, last: Tick, bytes_left: int, items_left: int) -> KnownSpan:
        """A known range with its messages, up to just before the first for which nothing is left."""
        items: list[Item] = []
        ticks, messages = self._ticks, self._messages
        for place in range(bisect_left(ticks, first), len(ticks)):
            tick = ticks[place]
            if tick > last:
                break
            message = messages.get(tick)
            if message is None:
                continue
            if bytes_left <= 0 or len(items) >= items_left:
                last = tick - 1
                break
            bytes_left -= message.size_bytes
            items.append((tick, message))
        return KnownSpan(first, last, items)

    def _stretches(self, first: Tick, last: Tick, since: int) -> Iterator[Range]:
        """The known parts of a range, as long as can be, in order and found as they are asked for."""
        begin = end = 0
        for part_begin, part_end in self._parts(first, last, since):
            if end and part_begin == end + 1:
                end = part_end
                continue
            if end:
                yield begin, end
            begin, end = part_begin, part_end
        if end:
            yield begin, end

    def _parts(self, first: Tick, last: Tick, since: int) -> Iterator[Range]:
        """Runs whose silence counts, and single messages outside them; parts may touch."""
        firsts, lasts, versions, ticks = self._firsts, self._lasts, self._versions, self._ticks
        run, place = bisect_left(lasts, first), bisect_left(ticks, first)
        while first <= last:
            while run < len(firsts) and versions[run] < since:
                run += 1
            covered = firsts[run] if run < len(firsts) else BEYOND
            if covered <= first:
                yield first, min(last, lasts[run])
                first = lasts[run] + 1
                run += 1
                continue
            place = bisect_left(ticks, first, place)
            while place < len(ticks) and ticks[place] < covered and ticks[place] not in self._messages:
                place += 1
            single = ticks[place] if place < len(ticks) else BEYOND
            first = min(covered, single)
            if single < covered and single <= last:
                yield single, single
                first = single + 1

    def _runs(self, low: int, high: int) -> Iterator[tuple[Tick, Tick, int]]:
        return zip(self._firsts[low:high], self._lasts[low:high], self._versions[low:high], strict=True)


def _append_run(runs: list[tuple[Tick, Tick, int]], first: Tick, last: Tick, version: int) -> None:
    """One more run, joined to the one before it if they touch and have the same version."""
    if runs and runs[-1][2] == version and runs[-1][1] == first - 1:
        runs[-1] = (runs[-1][0], last, version)
    else:
        runs.append((first, last, version))
