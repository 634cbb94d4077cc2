"""What a user may say with `option(...)`, read and checked; a mistake is said at the driver, in one line.

Names are as Kafka users know them, where Kafka has the same thing; case does not count, as everywhere in Spark.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from penstock.content.language.parser import parse_predicate
from penstock.errors import InvalidOption, InvalidPredicate, PredicateSyntaxError, did_you_mean

CONNECTION = ("servers", "stream", "giveUpAfter")
SOURCE = (
    *CONNECTION,
    *("where", "startingOffsets", "startingOffsetsByTimestamp", "endingOffsets", "minPartitions", "failOnDataLoss"),
    *("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "maxBytesPerTrigger", "includeHeaders"),
    *("onTypeMismatch", "durable"),
)
OF_QUERIES = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "maxBytesPerTrigger")
BEST_EFFORT = ("servers", "subscribe", "includeHeaders", "onTypeMismatch")
SINK = (*CONNECTION, "idColumn", "mayStoreTwice")
OF_SPARK = ("checkpointlocation", "path")  # which Spark itself passes on; a path says nothing to us
MISMATCHES = ("null", "error")
SECOND = 1_000_000  # ticks
TRIGGER_DELAY = 900.0  # seconds, as Kafka's
SPANS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}

Ticks = dict[int, int]  # pubend -> tick


@dataclass(frozen=True)
class Boundary:
    """Where to begin or end: a word for all pubends, or for each the first tick that is read, or is not."""

    word: str = ""  # earliest, latest; empty: the ticks count
    ticks: Ticks = field(default_factory=dict)
    exact: bool = True  # ticks that a user named; otherwise they are times, which may lie ahead


EARLIEST, LATEST = Boundary("earliest"), Boundary("latest")
EARLIEST_TICK, LATEST_TICK = -2, -1  # as Kafka writes them in JSON


@dataclass(frozen=True)
class SourceOptions:
    """What is read, and how."""

    servers: str
    stream: str
    where: str = "TRUE"
    starting: Boundary | None = None  # None: as the kind of query has it
    ending: Boundary = LATEST
    partitions_min: int = 1
    fail_on_data_loss: bool = True
    offsets_max: int = 0  # 0: no limit
    offsets_min: int = 0
    trigger_delay: float = TRIGGER_DELAY
    bytes_max: int = 0
    headers: bool = False
    misfit_is_error: bool = False
    of_queries: tuple[str, ...] = ()  # options that were given and mean nothing to a batch
    durable: str = ""  # the name under which the stream keeps what is not read; empty: it does not wait
    give_up_after: float = 60.0


@dataclass(frozen=True)
class SinkOptions:
    """What is written to."""

    servers: str
    stream: str
    id_column: str = ""
    checkpoint: str = ""  # of the query, if it was said to the sink
    may_store_twice: bool = False  # if it cannot be known whether an earlier try has stored a row
    give_up_after: float = 60.0


class Given:
    """The options as they were given; reading one checks it."""

    def __init__(self, options: Mapping[str, str], names: tuple[str, ...]) -> None:
        self._values = {name.lower(): value for name, value in options.items()}
        known = {name.lower(): name for name in names}
        for name in self._values:
            if name not in known and name not in OF_SPARK:
                near = did_you_mean(name, list(known))
                advice = next((f"; did you mean '{known[low]}'?" for low in known if f"'{low}'" in near), "")
                raise InvalidOption(name, f"there is no such option{advice or '; there are ' + ', '.join(names)}")

    def text(self, name: str, default: str = "") -> str:
        return self._values.get(name.lower(), default)

    def needed(self, name: str, example: str) -> str:
        found = self.text(name)
        if not found:
            raise InvalidOption(name, f'is missing; say .option("{name}", "{example}")')
        return found

    def number(self, name: str, default: int = 0) -> int:
        found = self.text(name, str(default))
        if not found.isdecimal() or (int(found) == 0 and default):
            raise InvalidOption(name, f"is '{found}'; say a whole number above 0")
        return int(found)

    def yes(self, name: str, default: bool) -> bool:
        found = self.text(name, str(default)).lower()
        if found not in ("true", "false"):
            raise InvalidOption(name, f"is '{found}'; say true or false")
        return found == "true"

    def seconds(self, name: str, default: float) -> float:
        found = self.text(name, f"{default}s").strip()
        digits = found.rstrip("abcdefghijklmnopqrstuvwxyz ")
        unit = found[len(digits) :].strip() or "s"
        try:
            value = float(digits) * SPANS[unit]
        except (ValueError, KeyError):
            value = 0.0
        if not 0.0 < value < 1e9:
            raise InvalidOption(name, f"is '{found}'; say a time above 0, such as 30s or 15m")
        return value


def is_best_effort(options: Mapping[str, str]) -> bool:
    """Whether a subscription is asked for, and no stream."""
    return any(name.lower() == "subscribe" for name in options)


def best_effort_options(options: Mapping[str, str]) -> SourceOptions:
    """What a best-effort subscription is asked for; raises InvalidOption."""
    if any(name.lower() == "stream" for name in options):
        raise InvalidOption("subscribe", "is for messages that no stream stores; with a stream, say where")
    given = Given(options, BEST_EFFORT)
    return SourceOptions(
        servers=given.needed("servers", "penstock://127.0.0.1:7420"),
        stream="",
        where=one_line_where("subscribe", given.needed("subscribe", "symbol = 'IBM'")),
        headers=given.yes("includeHeaders", False),
        misfit_is_error=_misfit_is_error(given),
    )


def _misfit_is_error(given: Given) -> bool:
    mismatch = given.text("onTypeMismatch", "null").lower()
    if mismatch not in MISMATCHES:
        raise InvalidOption("onTypeMismatch", f"is '{mismatch}'; say null or error")
    return mismatch == "error"


def source_options(options: Mapping[str, str]) -> SourceOptions:
    """What a read is asked for; raises InvalidOption."""
    given = Given(options, SOURCE)
    stream = given.needed("stream", "orders")
    return SourceOptions(
        servers=given.needed("servers", "penstock://127.0.0.1:7420"),
        stream=stream,
        where=one_line_where("where", given.text("where", "TRUE")),
        starting=_starting(given, stream),
        ending=_place(given, "endingOffsets", stream) or LATEST,
        partitions_min=given.number("minPartitions", 1),
        fail_on_data_loss=given.yes("failOnDataLoss", True),
        offsets_max=given.number("maxOffsetsPerTrigger"),
        offsets_min=given.number("minOffsetsPerTrigger"),
        trigger_delay=given.seconds("maxTriggerDelay", TRIGGER_DELAY),
        bytes_max=given.number("maxBytesPerTrigger"),
        headers=given.yes("includeHeaders", False),
        misfit_is_error=_misfit_is_error(given),
        of_queries=tuple(name for name in OF_QUERIES if given.text(name)),
        durable=given.text("durable"),
        give_up_after=given.seconds("giveUpAfter", 60.0),
    )


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """What a write is asked for; raises InvalidOption."""
    given = Given(options, SINK)
    return SinkOptions(
        servers=given.needed("servers", "penstock://127.0.0.1:7420"),
        stream=given.needed("stream", "orders"),
        id_column=given.text("idColumn"),
        checkpoint=given.text("checkpointLocation"),
        may_store_twice=given.yes("mayStoreTwice", False),
        give_up_after=given.seconds("giveUpAfter", 60.0),
    )


def one_line_where(option: str, where: str) -> str:
    """The text, if it is a predicate; raises InvalidOption, with the place of the mistake."""
    try:
        parse_predicate(where)
    except PredicateSyntaxError as error:
        raise InvalidOption(option, f"{error.problem}, at character {error.position + 1} of: {where}") from None
    except InvalidPredicate as error:
        raise InvalidOption(option, str(error)) from None
    return where


def _starting(given: Given, stream: str) -> Boundary | None:
    by_time = given.text("startingOffsetsByTimestamp")
    if by_time and given.text("startingOffsets"):
        raise InvalidOption("startingOffsetsByTimestamp", "and startingOffsets exclude each other")
    return (
        _times("startingOffsetsByTimestamp", by_time, stream) if by_time else _place(given, "startingOffsets", stream)
    )


def _place(given: Given, name: str, stream: str) -> Boundary | None:
    text = given.text(name)
    if text.lower() in ("earliest", "latest", ""):
        return Boundary(text.lower()) if text else None
    example = f'say earliest, latest, or a tick for each pubend, such as {{"{stream}": {{"0": 1700000000000000}}}}'
    ticks = _by_pubend(name, text, stream, example)
    if not all(type(tick) is int and tick >= EARLIEST_TICK for tick in ticks.values()):
        raise InvalidOption(name, f"is {text}; {example}")
    return Boundary(ticks=ticks)


def _times(name: str, text: str, stream: str) -> Boundary:
    """A time for all, or for each pubend: milliseconds since 1970, as Kafka has it, or a date with its time."""
    example = (
        f'say a time, such as 2026-03-01T12:00:00Z, or one for each pubend: {{"{stream}": {{"0": 1700000000000}}}}'
    )
    if not text.lstrip().startswith("{"):
        return Boundary(ticks={-1: _time_tick(name, text, example)}, exact=False)
    ticks = {
        pubend: _time_tick(name, time, example) for pubend, time in _by_pubend(name, text, stream, example).items()
    }
    return Boundary(ticks=ticks, exact=False)


def _time_tick(name: str, time: Any, example: str) -> int:
    if type(time) is int or str(time).isdecimal():
        return int(time) * SECOND // 1_000
    try:
        read = datetime.fromisoformat(str(time))
    except ValueError:
        raise InvalidOption(name, f"is '{time}'; {example}") from None
    return int((read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp() * SECOND)


def _by_pubend(name: str, text: str, stream: str, example: str) -> dict[int, Any]:
    """JSON with a value for each pubend, under the stream's name or plainly."""
    try:
        found = json.loads(text)
        if isinstance(found, dict) and any(isinstance(value, dict) for value in found.values()):
            if list(found) != [stream]:
                raise InvalidOption(name, f"is about {', '.join(found)}; the stream is '{stream}'")
            found = found[stream]
        return {int(pubend): value for pubend, value in found.items()}
    except (ValueError, AttributeError, TypeError):
        raise InvalidOption(name, f"is {text}; {example}") from None
