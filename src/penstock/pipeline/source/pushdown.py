"""Filters of Spark's own that brokers can do too, as text for `where`.

What is pushed may let through more than Spark's filter does, never less, and Spark looks at what comes once more. So a
column whose value is not that of the attribute is left to Spark: floats of 32 bits are rounded, and NULL stands also
for values that do not fit. Not pushed where a value that does not fit is an error: it would not be seen.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DoubleType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
)

from penstock.content.language.parser import parse_predicate
from penstock.errors import InvalidPredicate
from penstock.pipeline.source.columns import OURS

EXACT = 1 << 53  # from here on a double has no room for every integer
OPERATORS: dict[type[Filter], str] = {
    EqualTo: "=",
    EqualNullSafe: "=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
}
PATTERNS: dict[type[Filter], str] = {StringStartsWith: "{}%", StringEndsWith: "%{}", StringContains: "%{}%"}
LITERALS: dict[type, tuple[type, ...]] = {
    BooleanType: (bool,),
    ByteType: (int,),
    ShortType: (int,),
    IntegerType: (int,),
    LongType: (int,),
    DoubleType: (int, float),
    StringType: (str,),
}


def where_of(asked: Filter, schema: StructType) -> str:
    """The filter as text, empty if it stays with Spark."""
    inside = asked.child if isinstance(asked, Not) else asked
    path: tuple[str, ...] = getattr(inside, "attribute", ())
    if len(path) != 1 or path[0] in OURS or path[0] not in schema.fieldNames():
        return ""
    text = _condition(inside, f'"{path[0]}"', type(schema[path[0]].dataType), negated=asked is not inside)
    if not text or '"' in path[0]:
        return ""
    return f"NOT ({text})" if asked is not inside else text


def joined(where: str, pushed: list[str]) -> str:
    """The text of the user and those of Spark, as many as the limits of the language allow."""
    for text in pushed:
        longer = f"({where}) AND {text}" if where != "TRUE" else text
        try:
            parse_predicate(longer)
        except InvalidPredicate:
            continue
        where = longer
    return where


def _condition(asked: Filter, name: str, kind: type, *, negated: bool) -> str:
    if isinstance(asked, IsNotNull):
        return "" if negated else f"{name} IS NOT NULL"
    if kind not in LITERALS:
        return ""
    if type(asked) in OPERATORS:
        literal = _literal(asked.value, kind)  # type: ignore[attr-defined]
        return f"{name} {OPERATORS[type(asked)]} {literal}" if literal else ""
    if isinstance(asked, In):
        literals = [_literal(value, kind) for value in asked.value]
        return f"{name} IN ({', '.join(literals)})" if literals and all(literals) else ""
    if type(asked) in PATTERNS and kind is StringType:
        return f"{name} LIKE {_pattern(PATTERNS[type(asked)], asked.value)}"  # type: ignore[attr-defined]
    return ""


def _literal(value: Any, kind: type) -> str:
    if type(value) not in LITERALS[kind]:
        return ""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, float):
        return repr(value) if abs(value) < EXACT else ""  # neither NaN nor infinite nor rounded
    return str(value) if kind is not DoubleType or abs(value) < EXACT else ""


def _pattern(form: str, text: str) -> str:
    escaped = text.replace("!", "!!").replace("%", "!%").replace("_", "!_")
    return _literal(form.format(escaped), StringType) + " ESCAPE '!'"
