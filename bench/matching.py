"""How fast is matching, and beside what? Run: `python bench/matching.py [--quick] [--json FILE]`.

The workloads: 20 typed attribute names, a message carries 10 of them at random, a filter has 2-4 constraints on
distinct attributes.

    EQ    strings; 100 values, Zipf(1.0) for filters and messages
    MIX   10 names are strings as in EQ, 8 are integers in 0..9999 with ranges lo <= x <= lo + 1000, 2 are booleans

Everything is measured in one process on one core, from a list of dicts to lists of keys, in batches of 64 for Penstock
and one by one for the others, which have no batches. The contenders take turns within each repetition, so a noisy
neighbour hits all of them; the median counts. Rates and times are per second of processor time (everything here is one
thread that never waits), because on a shared machine the wall clock measures the neighbours; the index's wall-clock
rate stands beside. A slow contender gets fewer messages (a time budget for each turn) or is
left out of a size whose set-up alone would take too long; nothing is extrapolated, the tables say how many messages
were tried. Each answer of each contender is compared with the index's answer; a difference ends the run.

The contenders: `brute force` is one compiled Python lambda for each filter. `sqlite` counts fulfilled constraints by a
join over an in-memory table with an index. `rule-engine` and `cel` (common-expression-language) are packages from PyPI
(`pip install penstock[bench]`), one compiled rule for each filter.

Memory is what tracemalloc sees while the filters are added: the index alone, without the predicates.
"""

from __future__ import annotations

import argparse
import bisect
import gc
import hashlib
import itertools
import json
import random
import sqlite3
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from penstock.content.matching.compiled import warm_up
from penstock.content.matching.encoded_index import EncodingIndex
from penstock.content.matching.exact_index import PredicateIndex
from penstock.content.message import Attributes, Value
from penstock.content.predicate import Constraint, Equals, Filter, Predicate, Range

BATCH = 64
NAMES = [f"attribute_{i:02}" for i in range(20)]
KINDS = {"EQ": ["string"] * 20, "MIX": ["string"] * 10 + ["integer"] * 8 + ["boolean"] * 2}
VALUES_CUMULATED = list(itertools.accumulate(1 / rank for rank in range(1, 101)))
SETUP_FILTERS_MAX = {"rule-engine": 10_000}  # compiling a rule takes 0.15 ms
ENCODING_BITS, ENCODING_HASHES = 256, 3
OWNERS = 500

Match = Callable[[Sequence[Attributes]], list[list[int]]]


# Workloads --------------------------------------------------------------------------------------------------------


def zipf(rng: random.Random) -> str:
    return f"value-{bisect.bisect(VALUES_CUMULATED, rng.random() * VALUES_CUMULATED[-1])}"


def constraint_of(rng: random.Random, name: str, kind: str) -> Constraint:
    if kind == "string":
        return Equals(name, zipf(rng))
    if kind == "boolean":
        return Equals(name, rng.random() < 0.5)
    low = rng.randint(0, 8999)
    return Range(name, low, low + 1000)


def value_of(rng: random.Random, kind: str) -> Value:
    if kind == "string":
        return zipf(rng)
    return rng.random() < 0.5 if kind == "boolean" else rng.randint(0, 9999)


def workload(name: str, filters: int, messages: int, seed: int = 1) -> tuple[list[Filter], list[dict[str, Value]]]:
    rng = random.Random(seed)
    kinds = dict(zip(NAMES, KINDS[name], strict=True))
    made = [
        Filter(tuple(constraint_of(rng, one, kinds[one]) for one in rng.sample(NAMES, rng.randint(2, 4))))
        for _ in range(filters)
    ]
    return made, [{one: value_of(rng, kinds[one]) for one in rng.sample(NAMES, 10)} for _ in range(messages)]


def ends_of(constraint: Constraint) -> tuple[Value | None, Value | None]:
    if isinstance(constraint, Range):
        return constraint.low, constraint.high
    assert isinstance(constraint, Equals), "the workloads have no other constraints"
    return constraint.value, constraint.value


def predicate_of(filter_: Filter) -> Predicate:
    return Predicate("", (filter_,), closure(filter_))


# Contenders -------------------------------------------------------------------------------------------------------


def closure(filter_: Filter) -> Callable[[Attributes], bool]:
    def test(one: Constraint) -> str:
        low, high = ends_of(one)
        if isinstance(one, Range):
            return f"(x := m.get({one.name!r})) is not None and {low} <= x <= {high}"
        return f"m.get({one.name!r}) == {low!r}"

    source = "lambda m: " + " and ".join(map(test, filter_.constraints))
    compiled: Callable[[Attributes], bool] = eval(source)
    return compiled


def penstock(filters: list[Filter]) -> Match:
    made = PredicateIndex()
    for key, filter_ in enumerate(filters):
        made.add(key, predicate_of(filter_))
    return made.match


def brute_force(filters: list[Filter]) -> Match:
    tests = list(enumerate(map(closure, filters)))
    return lambda batch: [[key for key, test in tests if test(message)] for message in batch]


def sqlite(filters: list[Filter]) -> Match:
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE wanted (name TEXT, low ANY, high ANY, key INTEGER, size INTEGER)")
    rows = []
    for key, filter_ in enumerate(filters):
        for one in filter_.constraints:
            rows.append((one.name, *ends_of(one), key, len(filter_.constraints)))
    database.executemany("INSERT INTO wanted VALUES (?, ?, ?, ?, ?)", rows)
    database.execute("CREATE INDEX by_name ON wanted (name, low, high, key, size)")
    each = "SELECT key, size FROM wanted WHERE name = ? AND low <= ? AND high >= ?"
    equal = "SELECT key, size FROM wanted WHERE name = ? AND low = ? AND high = ?"

    def answer(message: Attributes) -> list[int]:
        parts = " UNION ALL ".join(each if type(v) is int else equal for v in message.values())
        query = f"SELECT key FROM ({parts}) GROUP BY key HAVING count(*) = size ORDER BY key"
        values = [v for name, value in message.items() for v in (name, value, value)]
        return [row[0] for row in database.execute(query, values)]

    return lambda batch: [answer(message) for message in batch]


def rule_engine(filters: list[Filter]) -> Match:
    import rule_engine as package

    def text(one: Constraint) -> str:
        if isinstance(one, Range):
            return f"{one.name} != null and {one.name} >= {one.low} and {one.name} <= {one.high}"
        return f"{one.name} == {json.dumps(ends_of(one)[0])}"

    context = package.Context(default_value=None)
    rules = [
        (key, package.Rule(" and ".join(map(text, filter_.constraints)), context=context).matches)
        for key, filter_ in enumerate(filters)
    ]
    return lambda batch: [[key for key, matches in rules if matches(message)] for message in batch]


def cel(filters: list[Filter]) -> Match:
    import cel as package

    def text(one: Constraint) -> str:
        if isinstance(one, Range):
            return f"has(m.{one.name}) && m.{one.name} >= {one.low} && m.{one.name} <= {one.high}"
        return f"has(m.{one.name}) && m.{one.name} == {json.dumps(ends_of(one)[0])}"

    programs = [
        (key, package.compile(" && ".join(map(text, filter_.constraints))).execute)
        for key, filter_ in enumerate(filters)
    ]

    def answer(message: Attributes) -> list[int]:
        context = package.Context({"m": message})
        return [key for key, execute in programs if execute(context)]

    return lambda batch: [answer(message) for message in batch]


CONTENDERS: dict[str, Callable[[list[Filter]], Match]] = {
    "penstock": penstock,
    "brute force": brute_force,
    "sqlite": sqlite,
    "rule-engine": rule_engine,
    "cel": cel,
}


# Measuring --------------------------------------------------------------------------------------------------------


def run_for(
    match: Match, messages: list[dict[str, Value]], budget: float, batch: int
) -> tuple[float, float, list[list[int]]]:
    """Match messages until they or the time run out: seconds of the processor and of the wall, the answers so far."""
    answers: list[list[int]] = []
    wall, started = time.perf_counter(), time.process_time()
    for i in range(0, len(messages), batch):
        answers += match(messages[i : i + batch])
        if time.process_time() - started > budget:
            break
    return time.process_time() - started, time.perf_counter() - wall, answers


def compare(
    name: str, size: int, messages_count: int, repetitions: int, budget: float, contenders: Iterable[str]
) -> dict[str, Any]:
    filters, messages = workload(name, size, messages_count)
    matchers: dict[str, Match] = {}
    skipped: dict[str, str] = {}
    for contender in contenders:
        if size > SETUP_FILTERS_MAX.get(contender, size):
            skipped[contender] = "set-up too slow"
            continue
        try:
            matchers[contender] = CONTENDERS[contender](filters)
        except ImportError:
            skipped[contender] = "not installed"
    truth = [one for i in range(0, len(messages), BATCH) for one in matchers["penstock"](messages[i : i + BATCH])]
    rates: dict[str, list[float]] = {contender: [] for contender in matchers}
    walls: list[float] = []
    tried: dict[str, int] = {}
    for _ in range(repetitions):
        for contender, match in matchers.items():
            seconds, wall, answers = run_for(match, messages, budget, BATCH if contender == "penstock" else 1)
            if answers != truth[: len(answers)]:
                sys.exit(f"{contender} and the index differ on {name} with {size} filters")
            rates[contender].append(len(answers) / seconds)
            tried[contender] = len(answers)
            if contender == "penstock":
                walls.append(len(answers) / wall)
    return {
        "workload": name,
        "filters": size,
        "matches_per_message": sum(map(len, truth)) / len(truth),
        "messages_per_s": {contender: statistics.median(some) for contender, some in rates.items()},
        "penstock_by_wall_clock": statistics.median(walls),
        "messages_tried": tried,
        "skipped": skipped,
    }


def microseconds(call: Callable[..., object], arguments: Sequence[tuple[Any, ...]]) -> float:
    """For each call, one after the other."""
    started = time.process_time()
    for one in arguments:
        call(*one)
    return (time.process_time() - started) / len(arguments) * 1e6


def changes(name: str, size: int, repetitions: int) -> dict[str, Any]:
    """Building, changing and memory of the predicate index."""
    filters, messages = workload(name, size, 100)
    all_of_them = [(key, predicate_of(filter_)) for key, filter_ in enumerate(filters)]
    part = all_of_them[:: max(1, size // 1000)]
    keys = [(key,) for key, _ in part]
    samples: dict[str, list[float]] = {"build_s": [], "add_us": [], "remove_us": [], "change_and_match_us": []}
    for _ in range(repetitions):
        made = PredicateIndex()
        samples["build_s"].append(microseconds(made.add, all_of_them) * size / 1e6)
        samples["remove_us"].append(microseconds(made.remove, keys))
        samples["add_us"].append(microseconds(made.add, part))
        turns = [(made, *one, message) for one, message in zip(part, itertools.cycle(messages), strict=False)]
        samples["change_and_match_us"].append(microseconds(change_and_match, turns) / 2)
    size_bytes = measured_bytes(lambda: fill(PredicateIndex(), all_of_them))
    medians = {what: statistics.median(some) for what, some in samples.items()}
    return {"workload": name, "filters": size, **medians, "bytes_per_filter": size_bytes / size}


def change_and_match(made: PredicateIndex, key: int, predicate: Predicate, message: Attributes) -> None:
    """Twice a change and a message: no cost of a change is put off to a later batch."""
    made.remove(key)
    made.match([message])
    made.add(key, predicate)
    made.match([message])


def fill(made: Any, arguments: Iterable[tuple[Any, ...]]) -> Any:
    for one in arguments:
        made.add(*one)
    return made


def measured_bytes(make: Callable[[], Any]) -> int:
    gc.collect()
    tracemalloc.start()
    kept = make()
    gc.collect()
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    del kept
    return size


@cache
def tag(name: str, value: Value | None) -> int:
    digest = hashlib.blake2b(f"{name}={value}".encode(), digest_size=2 * ENCODING_HASHES).digest()
    places = (int.from_bytes(digest[2 * i : 2 * i + 2]) % ENCODING_BITS for i in range(ENCODING_HASHES))
    return sum(1 << place for place in set(places))


def encoding_of(tags: Iterable[int]) -> int:
    encoding = 0
    for one in tags:
        encoding |= one
    return encoding


def encodings(size: int, messages_count: int, repetitions: int) -> dict[str, Any]:
    """The index over encodings of the EQ filters, spread over owners, with batches of 64 and of 1."""
    filters, messages = workload("EQ", size, messages_count)
    rng = random.Random(2)
    made_of = (encoding_of(tag(c.name, ends_of(c)[0]) for c in f.constraints) for f in filters)
    pairs = list(dict.fromkeys((rng.randrange(OWNERS), one) for one in made_of))
    bits = [encoding_of(tag(name, value) for name, value in message.items()) for message in messages]
    part = pairs[:1000]
    samples: dict[str, list[float]] = {"add_us": [], "remove_us": [], "batches_of_64": [], "batches_of_1": []}
    samples["scan"] = []
    for _ in range(repetitions):
        made = EncodingIndex(ENCODING_BITS)
        samples["add_us"].append(microseconds(made.add, pairs))
        samples["remove_us"].append(microseconds(made.remove, part))
        fill(made, part)
        found: dict[int, list[tuple[int, ...]]] = {}
        for batch in (BATCH, 1):
            started = time.process_time()
            found[batch] = [one for i in range(0, len(bits), batch) for one in made.match(bits[i : i + batch])]
            samples[f"batches_of_{batch}"].append(len(bits) / (time.process_time() - started))
        started = time.process_time()
        scanned = [tuple(sorted({o for o, e in pairs if not e & ~one})) for one in bits[:20]]
        samples["scan"].append(len(scanned) / (time.process_time() - started))
        if found[1] != found[BATCH] or found[1][:20] != scanned:
            sys.exit(f"the encoding index and the scan differ with {size} encodings")
    size_bytes = measured_bytes(lambda: fill(EncodingIndex(ENCODING_BITS), pairs))
    medians = {what: statistics.median(some) for what, some in samples.items()}
    owners = sum(map(len, found[1])) / len(bits)
    return {"encodings": len(pairs), "owners_found": owners, **medians, "bytes_per_encoding": size_bytes / len(pairs)}


# Reporting --------------------------------------------------------------------------------------------------------


def print_table(title: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    print(f"\n### {title}\n\n| " + " | ".join(header) + " |\n|" + "---|" * len(header))
    for row in rows:
        print("| " + " | ".join(map(str, row)) + " |")


def rate_cell(result: dict[str, Any], contender: str, messages: int) -> str:
    if contender in result["skipped"]:
        return f"({result['skipped'][contender]})"
    rate, tried = result["messages_per_s"][contender], result["messages_tried"][contender]
    text = f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"
    return text if tried == messages else f"{text} ({tried} tried)"


def report(results: dict[str, Any], messages: int) -> None:
    rows = [
        [r["workload"], f"{r['filters']:,}", f"{r['matches_per_message']:.1f}", f"{r['penstock_by_wall_clock']:,.0f}"]
        + [rate_cell(r, contender, messages) for contender in CONTENDERS]
        for r in results["matching"]
    ]
    header = ["workload", "filters", "matches/message", "penstock by wall clock", *CONTENDERS]
    print_table("Messages/s, all answers equal", header, rows)
    rows = [
        [r["workload"], f"{r['filters']:,}", f"{r['build_s']:.3f}"]
        + [f"{r[what]:.1f}" for what in ("add_us", "remove_us", "change_and_match_us")]
        + [f"{r['bytes_per_filter']:.0f}"]
        for r in results["changes"]
    ]
    header = ["workload", "filters", "build s", "add us", "remove us", "change + match of 1, us", "bytes/filter"]
    print_table("Changes and memory of the predicate index", header, rows)
    rows = [
        [f"{r['encodings']:,}", f"{r['owners_found']:.1f}"]
        + [f"{r[what]:,.0f}" for what in ("batches_of_64", "batches_of_1", "scan")]
        + [f"{r['add_us']:.1f}", f"{r['remove_us']:.1f}", f"{r['bytes_per_encoding']:.0f}"]
        for r in results["encodings"]
    ]
    header = [
        "encodings",
        "owners/message",
        "messages/s by 64",
        "by 1",
        "Python scan",
        "add us",
        "remove us",
        "bytes each",
    ]
    print_table(f"Encoding index, {ENCODING_BITS} bits, {OWNERS} owners", header, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="1k and 10k filters, 500 messages, one repetition")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there as well")
    options = parser.parse_args()
    sizes = [1_000, 10_000] if options.quick else [1_000, 10_000, 100_000]
    messages, repetitions, budget = (500, 1, 0.5) if options.quick else (2_000, 5, 1.0)
    started = time.perf_counter()
    warm_up()
    results: dict[str, Any] = {"warm_up_s": time.perf_counter() - started}
    results["matching"] = [
        compare(name, size, messages, repetitions, budget, CONTENDERS) for name in KINDS for size in sizes
    ]
    results["changes"] = [changes(name, size, min(3, repetitions)) for name in KINDS for size in sizes]
    results["encodings"] = [encodings(size, messages, min(3, repetitions)) for size in sizes]
    print(f"import and compile (cached on disk or not): {results['warm_up_s']:.1f} s")
    report(results, messages)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
