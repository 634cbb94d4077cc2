"""Spark schemas made from the closed list of records, and the check that a table has the columns that it should.

Every table of a trace begins with `run`, the name of the run that a row belongs to, so that one DataFrame may hold
many runs. Results have their schema as a line of DDL beside the function that makes them, such as

    "run string, publisher string, client string, violations bigint"

A schema is checked where a table comes in and where a result goes out. Only names and types count: whether Spark can
prove that a column holds no null depends on how it was computed, and says nothing about the data.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from penstock.errors import SchemaMismatch
from penstock.kernel.trace import Record
from penstock.kernel.trace_files import columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_DDL = {bool: "boolean", int: "bigint", float: "double", str: "string"}


def file_ddl(kind: type[Record]) -> str:
    """The columns of a part file."""
    return ", ".join(f"`{name}` {_DDL[type_]}" for name, type_ in columns(kind).items())


def table_ddl(kind: type[Record]) -> str:
    """The columns of a kind's table: those of its files after the name of the run."""
    return f"`run` string, {file_ddl(kind)}"


@cache
def parse_ddl(ddl: str) -> StructType:
    """A line of DDL as Spark's own type. It needs no session, so schemas can be compared without one."""
    from pyspark.sql.types import (
        ArrayType,
        BooleanType,
        DataType,
        DoubleType,
        LongType,
        StringType,
        StructField,
        StructType,
    )

    types: dict[str, DataType] = {
        "boolean": BooleanType(),
        "bigint": LongType(),
        "double": DoubleType(),
        "array<double>": ArrayType(DoubleType()),
        "string": StringType(),
    }
    pairs = [column.strip().rsplit(" ", 1) for column in ddl.split(",")]
    return StructType([StructField(name.strip("`"), types[type_]) for name, type_ in pairs])


def checked(table: DataFrame, ddl: str, what: str) -> DataFrame:
    """The table itself, with its columns in the order of the schema; raises SchemaMismatch if one is not as it says."""
    wanted = {field.name: field.dataType for field in parse_ddl(ddl)}
    given = {field.name: field.dataType for field in table.schema}
    problems = [f"no column '{name}'" for name in wanted if name not in given]
    problems += [f"unknown column '{name}'" for name in given if name not in wanted]
    problems += [
        f"'{name}' is {given[name].simpleString()} and should be {type_.simpleString()}"
        for name, type_ in wanted.items()
        if name in given and given[name] != type_
    ]
    if problems:
        raise SchemaMismatch(f"the table {what} has {', '.join(problems)}")
    return table.select(*wanted)
