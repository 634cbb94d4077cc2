"""How often do encodings match what the filter does not, and what does it cost to make one?

Workload: 20 attribute names, 10 strings (8 characters, 100 values each) and 10 integers (0..9999). A message carries 10
of the names at random. A filter has 1, 2 or 3 constraints on distinct names. EQ: equalities with values of the pools.
RANGE: `lo <= x <= lo + 99` for integers, LIKE with the first four characters of a value for strings. The rate is the
share of pairs whose bits match among those that do not match exactly; for RANGE it holds both hash collisions and what
the tags cannot say. `wide` are the schemes with interval and prefix tags, `narrow` those without.

    python bench/bloom.py            a table in Markdown
    python bench/bloom.py --json     one object per row
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator
from itertools import product
from typing import Any

from penstock.content.bloom import EncodingScheme, matches
from penstock.content.language.evaluate import filter_matches
from penstock.content.predicate import Constraint, Equals, Filter, Like, Range

SEED = 20
STRING_NAMES = [f"s{index}" for index in range(10)]
NUMBER_NAMES = [f"n{index}" for index in range(10)]
Message = dict[str, Any]


def make_pools(source: random.Random) -> dict[str, list[str]]:
    letters = "abcdefghijklmnopqrstuvwxyz"
    return {name: ["".join(source.choices(letters, k=8)) for _ in range(100)] for name in STRING_NAMES}


def make_value(source: random.Random, pools: dict[str, list[str]], name: str) -> str | int:
    return source.choice(pools[name]) if name in pools else source.randrange(10_000)


def make_message(source: random.Random, pools: dict[str, list[str]]) -> Message:
    return {name: make_value(source, pools, name) for name in source.sample(STRING_NAMES + NUMBER_NAMES, 10)}


def make_filter(source: random.Random, pools: dict[str, list[str]], kind: str, size: int) -> Filter:
    def constraint(name: str) -> Constraint:
        value = make_value(source, pools, name)
        if kind == "EQ":
            return Equals(name, value)
        return Like(name, value[:4] + "%") if isinstance(value, str) else Range(name, value, value + 99)

    return Filter(tuple(constraint(name) for name in source.sample(STRING_NAMES + NUMBER_NAMES, size)))


def false_positive_rate(messages: list[int], filters: list[int], wrong_pairs: list[tuple[int, int]]) -> float:
    hits = sum(matches(filters[f], messages[m]) for f, m in wrong_pairs)
    return hits / len(wrong_pairs)


def measure_rates(messages_count: int, filters_count: int) -> Iterator[dict[str, Any]]:
    source = random.Random(SEED)
    pools = make_pools(source)
    messages = [make_message(source, pools) for _ in range(messages_count)]
    groups = {
        f"{kind} {size}": [make_filter(source, pools, kind, size) for _ in range(filters_count)]
        for kind, size in product(("EQ", "RANGE"), (1, 2, 3))
    }
    wrong = {
        label: [
            (f, m)
            for f, made in enumerate(g)
            for m, message in enumerate(messages)
            if not filter_matches(made, message)
        ]
        for label, g in groups.items()
    }
    for bits, hashes, wide in product((128, 256, 512, 1024), (2, 3, 4, 5), (False, True)):
        scheme = EncodingScheme(bits=bits, hashes=hashes, wide_tags=wide, fill_limit=1.0)
        encoded = [scheme.encode_message(message) for message in messages]
        row: dict[str, Any] = {"bits": bits, "hashes": hashes, "tags": "wide" if wide else "narrow"}
        row["fill"] = sum(map(scheme.fill, encoded)) / len(encoded)
        for label, group in groups.items():
            row[label] = false_positive_rate(encoded, [scheme.encode_filter(made) for made in group], wrong[label])
        yield row


def measure_speed(messages_count: int = 2000) -> Iterator[dict[str, Any]]:
    """Microseconds per message of 10 attributes: the best of five passes, of one pass where a second would be warm."""
    source = random.Random(SEED)
    pools = make_pools(source)
    messages = [make_message(source, pools) for _ in range(messages_count)]
    unseen = [{name: source.uniform(0, 1e9) for name in NUMBER_NAMES} for _ in range(messages_count)]
    one_unseen = [{**message, "time": source.uniform(0, 1e9)} for message in messages]
    scheme = EncodingScheme()
    yield {"encode": "all values unseen", "us": _pass_us(EncodingScheme(), unseen)}
    _pass_us(scheme, messages)
    yield {"encode": "one value of 11 unseen", "us": _pass_us(scheme, one_unseen)}
    yield {"encode": "all values seen before", "us": min(_pass_us(scheme, messages) for _ in range(5))}


def _pass_us(scheme: EncodingScheme, messages: list[Message]) -> float:
    start = time.perf_counter()
    for message in messages:
        scheme.encode_message(message)
    return (time.perf_counter() - start) / len(messages) * 1e6


def as_markdown(rows: list[dict[str, Any]]) -> str:
    def cell(label: str, value: Any) -> str:
        if not isinstance(value, float):
            return str(value)
        return f"{value:.1f}" if label == "us" else f"{value:.2f}" if label == "fill" else f"{value:.3%}"

    lines = ["| " + " | ".join(rows[0]) + " |", "|" + "---|" * len(rows[0])]
    lines += ["| " + " | ".join(cell(label, value) for label, value in row.items()) + " |" for row in rows]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object per row")
    parser.add_argument("--messages", type=int, default=1000)
    parser.add_argument("--filters", type=int, default=200, help="of each kind and size")
    arguments = parser.parse_args()
    speed = list(measure_speed())
    rates = list(measure_rates(arguments.messages, arguments.filters))
    if arguments.json:
        for row in rates + speed:
            print(json.dumps(row))
    else:
        print(as_markdown(rates), as_markdown(speed), sep="\n\n")


if __name__ == "__main__":
    main()
