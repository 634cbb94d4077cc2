"""What can be done with one pubend by command. Arguments and answers are JSON.

    info     {"durable": NAME}: its state, what waits to be written and why, and the durable names (one, or those
             furthest behind), each with its lag in messages that match. They are counted in the log, from the newest
             position down, so that whoever is nearly up to date has an exact count; beyond `LAG_ENTRIES_MAX` entries
             a lag is "at least".
    trim     {"tick": N} or {"time": SECONDS} or {"age": SECONDS}, "force": forget everything up to there. Refused
             without force if a durable name still needs it.
    rm       {"durable": NAME, "force"}: forget the name; refused without force while somebody reads under it.
             {"force"}: delete the pubend with all its messages and names; refused without force if it has any.
    failed   {"durable": NAME, "redeliver", "drop"}: what failed too often under a shared name; try it again, or forget
             it.
    verify   read the whole log, and say what is wrong with it. It can be asked of a pubend that has stopped.
    survey   how much there is in a range of the log, and where to cut it: see `log_reads`.
    begin    {"writer", "batch", "part"}: where in the log this batch of this writer began, and whether this part of it
             did before; {"writer", "over": true}: there will be no more of it. See `writer_marks`.

Bounds: `SCANS_MAX` walks through the log at once, `NAMES_LISTED_MAX` names in an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from penstock.content.language.parser import parse_predicate
from penstock.errors import choose_one
from penstock.kernel.machine import Effect
from penstock.kernel.storage import Drop, Extent, LogExtent, StorageFailed, StorageResult
from penstock.overlay.packets import BrokerId
from penstock.streams.command_json import UnreadableJson, read_json
from penstock.streams.durable_names import DurableName, DurableNames
from penstock.streams.log_codec import LogEntry, NameRecord
from penstock.streams.log_reads import LogReads, SurveyedRange
from penstock.streams.log_scan import LogScan
from penstock.streams.packets import TICK_MAX, Command, CommandAnswer, Range, Tick, client_of
from penstock.streams.pubend_clock import SECOND
from penstock.streams.pubend_core import PubendCore
from penstock.streams.registration import DurableReaders
from penstock.streams.retention import ForcedTrim, Retention
from penstock.streams.shared_names import SharedNames
from penstock.streams.writer_marks import BatchBegun, WriterMarks

SCANS_MAX = 4
SLICE_MAX = 1_000  # entries
LAG_ENTRIES_MAX = 100_000
MATCHES_PER_SLICE = 20_000  # of all names together
NAMES_LISTED_MAX = 200
WHERE_SHOWN_MAX = 200  # characters
NAMES_SHOWN_MAX = 5  # in an error

Answer = Callable[[dict[str, Any], str, float], list[Effect]]  # (report, problem, now)


class CommandArguments(Struct, kw_only=True):
    """What any of the commands may be given."""

    durable: str = ""
    tick: int | None = None
    time: float | None = None
    age: float | None = None
    force: bool = False
    redeliver: bool = False
    drop: bool = False
    ranges: dict[str, SurveyedRange] = {}
    begun: BatchBegun = BatchBegun()


class PubendCommands:
    """Carries out the commands of one pubend."""

    def __init__(
        self,
        core: PubendCore,
        names: DurableNames,
        readers: DurableReaders,
        shared: SharedNames,
        retention: Retention,
        reads: LogReads,
        marks: WriterMarks,
        *,
        waiting: Callable[[], dict[str, Any]],
        removed: Callable[[str, Callable[[str, float], list[Effect]], float], list[Effect]],
        reopen: Callable[[float], list[Effect]],
    ) -> None:
        self._core = core
        self._names = names
        self._readers = readers
        self._shared = shared
        self._retention = retention
        self._reads = reads
        self._marks = marks
        self._waiting = waiting
        self._removed = removed
        self._reopen = reopen
        self._scans: list[LogScan] = []

    def command(self, packet: Command, reply_to: BrokerId, now: float) -> list[Effect]:
        def answer(report: dict[str, Any], problem: str, now: float) -> list[Effect]:
            told = CommandAnswer(packet.request, msgspec.json.encode(report), problem)
            return self._core.send(reply_to, told, now)

        verbs = {"info": self._info, "trim": self._trim, "rm": self._rm, "verify": self._verify}
        verbs |= {"failed": self._failed, "survey": self._survey, "begin": self._begin}
        verb = verbs.get(packet.verb)
        if verb is None:
            return answer({}, f"there is no command '{packet.verb}'; {choose_one(packet.verb, verbs)}", now)
        try:
            arguments = read_json(packet.arguments, CommandArguments)
        except UnreadableJson as error:
            return answer({}, f"the arguments of '{packet.verb}': {error}", now)
        return verb(arguments, answer, now)

    # info

    def _info(self, arguments: CommandArguments, answer: Answer, now: float) -> list[Effect]:
        core, extent = self._core, self._retention.extent
        report: dict[str, Any] = {
            "pubend": core.name,
            "epoch": core.epoch,
            "ready": core.ready,
            "problem": core.problem,
            "first": extent.first,
            "last": extent.last,
            "horizon": core.ticks.horizon(now) if core.ready else core.ticks.horizon_told,
            "gone": core.gone,
            "entries": extent.entries,
            "bytes": extent.bytes,
            **self._waiting(),
            "names_in_all": len(self._names),
            "names": [],
        }
        listed = self._listed(arguments.durable)
        if not core.ready:
            report["names"] = [self._name_report(name, None, False) for name in listed]
            return answer(report, "", now)
        if arguments.durable and not listed:
            return answer({}, self._no_such_name(arguments.durable), now)
        counts = LagCount(listed)

        def finished(scan: LogScan, now: float) -> list[Effect]:
            report["names"] = [self._name_report(name, *counts.of(name.name, scan.parts_done)) for name in listed]
            return answer(report, scan.problem, now)

        slice_max = max(16, MATCHES_PER_SLICE // max(1, len(listed)))
        parts = counts.parts(core.gone, report["horizon"])
        return self._scan(parts, min(slice_max, SLICE_MAX), LAG_ENTRIES_MAX, counts.look, finished, answer, now)

    def _listed(self, durable: str) -> list[DurableName]:
        """The one that was asked for; else those furthest behind."""
        if durable:
            found = self._names.find(durable)
            return [] if found is None else [found]
        return sorted(self._names, key=lambda name: (name.newest.position, name.name))[:NAMES_LISTED_MAX]

    def _name_report(self, name: DurableName, lag: int | None, exact: bool) -> dict[str, Any]:
        record, session = name.newest, name.session
        return {
            "name": name.name,
            "where": record.where[:WHERE_SHOWN_MAX],
            "position": record.position,
            "created": record.created,
            "seen": record.seen,
            "reader": "" if session is None else session.reader,
            "broker": None if session is None else session.broker,
            "lag": lag,
            "lag_is_exact": exact,
            "has_gap": record.position < self._core.gone,
            "share": self._shared.report(name),
        }

    # failed

    def _failed(self, arguments: CommandArguments, answer: Answer, now: float) -> list[Effect]:
        problem, _ = self._core.refusal()
        name = self._names.find(arguments.durable)
        if not problem and name is None:
            problem = self._no_such_name(arguments.durable)
        if not problem and self._shared.of(name) is None:
            problem = f"'{arguments.durable}' is not shared, so nothing can fail under it"
        if not problem and arguments.redeliver and arguments.drop:
            problem = "redeliver and drop exclude each other"
        if problem or name is None:
            return answer({}, problem, now)
        report, effects = self._shared.failed(name, redeliver=arguments.redeliver, drop=arguments.drop, now=now)
        return effects + answer(report, "", now)

    # survey

    def _survey(self, arguments: CommandArguments, answer: Answer, now: float) -> list[Effect]:
        return self._reads.survey(arguments.ranges, answer, now)

    # begin

    def _begin(self, arguments: CommandArguments, answer: Answer, now: float) -> list[Effect]:
        return self._marks.begin(arguments.begun, answer, now)

    # trim

    def _trim(self, arguments: CommandArguments, answer: Answer, now: float) -> list[Effect]:
        problem, _ = self._core.refusal()
        upto = self._trim_upto(arguments, now)
        if problem or isinstance(upto, str):
            return answer({}, problem or str(upto), now)
        upto = min(upto, self._retention.extent.last)
        needing = [name.name for name in self._names if name.needed_after < upto and upto > self._core.gone]
        if needing and not arguments.force:
            return answer({}, f"it is still needed by {_some(needing)}; with force it is trimmed all the same", now)
        before = self._retention.extent

        def done(problem: str, now: float) -> list[Effect]:
            after = self._retention.extent
            report = {
                "pubend": self._core.name,
                "entries": before.entries - after.entries,
                "bytes": before.bytes - after.bytes,
                "gone": self._core.gone,
            }
            return answer(report, problem, now)

        return self._retention.force(ForcedTrim(upto, done), now)

    def _trim_upto(self, arguments: CommandArguments, now: float) -> Tick | str:
        given = [value for value in (arguments.tick, arguments.time, arguments.age) if value is not None]
        if len(given) != 1 or not 0 <= given[0] <= TICK_MAX:
            return "say how much to trim: a tick, a time in seconds, or an age in seconds, which is not negative"
        horizon = self._core.ticks.horizon(now)
        if arguments.tick is not None:
            upto = arguments.tick
        elif arguments.time is not None:
            upto = int(arguments.time * SECOND)
        else:
            upto = max(0, horizon - int(given[0] * SECOND))
        future = f"{upto} is in the future; the newest tick of {self._core.name} is {horizon}"
        return future if upto > horizon else upto

    # rm

    def _rm(self, arguments: CommandArguments, answer: Answer, now: float) -> list[Effect]:
        if arguments.durable:
            problem, _ = self._core.refusal()
            return answer({}, problem, now) if problem else self._rm_name(arguments, answer, now)
        entries, names = self._retention.extent.entries, len(self._names)
        if self._core.disk.closed or not (self._core.ready or self._core.problem):
            return answer({}, self._core.refusal()[0], now)
        if (entries or names or self._core.problem) and not arguments.force:
            what = self._core.problem or f"{self._core.name} has {entries} messages and {names} durable names"
            return answer({}, f"{what}; with force all of it is deleted", now)
        return self._drop(answer, now)

    def _rm_name(self, arguments: CommandArguments, answer: Answer, now: float) -> list[Effect]:
        name = self._names.find(arguments.durable)
        if name is None:
            return answer({}, self._no_such_name(arguments.durable), now)
        if name.removed_by is not None:
            return answer({}, f"'{name.name}' is being removed", now)
        if name.session is not None and not arguments.force:
            reader = f"client '{client_of(name.session.reader)}' at broker {name.session.broker}"
            return answer({}, f"'{name.name}' is being read by {reader}; with force it is removed all the same", now)
        shared = self._shared.of(name)
        if shared is not None and shared.window.members and not arguments.force:
            members = f"{len(shared.window.members)} members"
            return answer({}, f"'{name.name}' is being read by {members}; with force it is removed all the same", now)

        def removed(problem: str, now: float) -> list[Effect]:
            return answer({"pubend": self._core.name, "durable": arguments.durable}, problem, now)

        ended = self._readers.end(name, f"'{name.name}' was removed", now)
        return [*ended, *self._names.remove(name.name, removed)]

    def _drop(self, answer: Answer, now: float) -> list[Effect]:
        core = self._core
        report = {"pubend": core.name, "entries": self._retention.extent.entries, "names": len(self._names)}

        def dropped(result: StorageResult, now: float) -> list[Effect]:
            core.disk.closed = False
            if isinstance(result, StorageFailed):
                problem = f"{core.name} could not be deleted: {result.problem}"
                return [*answer({}, problem, now), *self._reopen(now)]
            core.disk.closed = True
            return self._removed(f"{core.name} was removed", forgotten, now)

        def forgotten(problem: str, now: float) -> list[Effect]:
            return answer(report, problem, now)

        core.ready = False
        core.doing = "is being removed"
        effects = core.disk.ask(Drop(), dropped)
        core.disk.closed = True
        for scan in list(self._scans):
            effects += scan.end(f"{core.name} is being removed", now)
        return effects

    # verify

    def _verify(self, arguments: CommandArguments, answer: Answer, now: float) -> list[Effect]:
        def measured(result: StorageResult, now: float) -> list[Effect]:
            if not isinstance(result, LogExtent):
                assert isinstance(result, StorageFailed)
                report = {"pubend": self._core.name, "damage": result.problem} if result.damaged else {}
                problem = "" if result.damaged else result.problem
                return [*self._core.failed(result), *answer(report, problem, now)]
            return self._verify_log(result, answer, now)

        if self._core.disk.closed:
            return answer({}, f"{self._core.name} is removed", now)
        return self._core.disk.ask(Extent(), measured)

    def _verify_log(self, extent: LogExtent, answer: Answer, now: float) -> list[Effect]:
        found = {"entries": 0, "bytes": 0}

        def look(part: int, tick: Tick, data: bytes, entry: LogEntry) -> None:
            found["entries"] += 1
            found["bytes"] += len(data)

        def finished(scan: LogScan, now: float) -> list[Effect]:
            report = {"pubend": self._core.name, **found, "last_whole": scan.last_seen, "damage": scan.problem}
            return answer(report, "", now)

        parts = [(extent.first, extent.last)] if extent.entries else []
        return self._scan(parts, SLICE_MAX, extent.entries + SLICE_MAX, look, finished, answer, now)

    # Parts.

    def _scan(
        self,
        parts: Sequence[Range],
        slice_max: int,
        entries_max: int,
        look: Callable[[int, Tick, bytes, LogEntry], None],
        finished: Callable[[LogScan, float], list[Effect]],
        answer: Answer,
        now: float,
    ) -> list[Effect]:
        if len(self._scans) >= SCANS_MAX:
            return answer({}, f"{SCANS_MAX} commands read the log of {self._core.name} already; try again", now)

        def ended(scan: LogScan, now: float) -> list[Effect]:
            self._scans.remove(scan)
            return finished(scan, now)

        scan = LogScan(self._core, parts, slice_max=slice_max, entries_max=entries_max, look=look, finished=ended)
        self._scans.append(scan)
        return scan.step(now)

    def _no_such_name(self, name: str) -> str:
        known = sorted(found.name for found in self._names)
        there = choose_one(name, known) if known else "there are none"
        return f"{self._core.name} has no durable name '{name}'; {there}"


class LagCount:
    """Counts what matches each name after its position, in parts of the log from the newest position down."""

    def __init__(self, names: Sequence[DurableName]) -> None:
        self._positions = {name.name: _looked_upto(name.newest) for name in names}
        self._levels = sorted(set(self._positions.values()), reverse=True)
        self._matches = {name.name: parse_predicate(name.newest.where).matches for name in names}
        self._counts = {name.name: _open_below(name.newest) for name in names}
        self._counted = [
            [name for name, position in self._positions.items() if position <= level] for level in self._levels
        ]

    def parts(self, gone: Tick, horizon: Tick) -> list[Range]:
        """Part i reaches from the i-th highest position up to the one before it."""
        upper = [horizon, *self._levels]
        return [(max(level, gone) + 1, upper[at]) for at, level in enumerate(self._levels)]

    def look(self, part: int, tick: Tick, data: bytes, entry: LogEntry) -> None:
        attributes = entry.message.attributes
        for name in self._counted[part]:
            if self._matches[name](attributes):
                self._counts[name] += 1

    def of(self, name: str, parts_done: int) -> tuple[int, bool]:
        """Its lag, and whether that is all of it."""
        return self._counts[name], self._levels.index(self._positions[name]) < parts_done


def _looked_upto(record: NameRecord) -> Tick:
    return record.position if record.share is None else record.share.upto


def _open_below(record: NameRecord) -> int:
    """Messages that a shared name has looked at and is not done with."""
    return 0 if record.share is None else len(record.share.given) + len(record.share.failed)


def _some(names: Sequence[str]) -> str:
    """A few of them."""
    shown = ", ".join(f"'{name}'" for name in names[:NAMES_SHOWN_MAX])
    more = f" and {len(names) - NAMES_SHOWN_MAX} more" if len(names) > NAMES_SHOWN_MAX else ""
    return shown + more
