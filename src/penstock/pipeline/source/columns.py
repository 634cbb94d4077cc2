"""From slices of a stream's log to Arrow batches, as the schema of a query wants them.

A slice is decoded at one stroke, and only what somebody looks at: columns are made by loops in C over the whole slice,
ticks are taken as they stand. Python looks at single values only where one does not fit its column.

    key        string     what it was published under; NULL without one
    value      binary     the body
    stream     string
    partition  int        the number of the pubend
    offset     bigint     the tick
    timestamp  timestamp  when it was stored, which is what the tick says
    headers    array of key and value: publisher, incarnation, count, publication_id; if `includeHeaders`
    attributes map of strings: all attributes
Every other name of the schema is an attribute, as boolean, a kind of integer, float, double or string.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter, methodcaller
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.content.message import Value
from penstock.errors import InvalidOption, PenstockError
from penstock.streams.log_codec import as_array, unpacked_ticks

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
OURS: dict[str, DataType] = {
    "key": StringType(),
    "value": BinaryType(),
    "stream": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "headers": HEADERS,
    "attributes": MapType(StringType(), StringType()),
}
# Types of attributes: which values fit, and what makes the column's value of one that Arrow does not take.
FITTING: dict[type[DataType], tuple[frozenset[type], Callable[[Any], Any]]] = {
    BooleanType: (frozenset({bool}), bool),
    ByteType: (frozenset({int}), int),
    ShortType: (frozenset({int}), int),
    IntegerType: (frozenset({int}), int),
    LongType: (frozenset({int}), int),
    FloatType: (frozenset({int, float}), float),
    DoubleType: (frozenset({int, float}), float),
    StringType: (frozenset({str}), str),
}
NOTHING = type(None)
_KEY_AND_ID = attrgetter("key", "publication_id")


def default_schema(headers: bool) -> StructType:
    """Without one of the user's: all of ours."""
    return StructType([StructField(name, kind) for name, kind in OURS.items() if headers or name != "headers"])


def check_schema(schema: StructType, headers: bool) -> None:
    """Raises InvalidOption if a column can be none."""
    for field in schema.fields:
        ours = OURS.get(field.name)
        if ours is not None and field.dataType.simpleString() != ours.simpleString():
            wrong = f"is {field.dataType.simpleString()}; it is {ours.simpleString()} of each message"
            raise InvalidOption(f"column '{field.name}'", f"{wrong}: an attribute of that name is in 'attributes'")
        if ours is None and type(field.dataType) not in FITTING:
            kinds = "boolean, tinyint to bigint, float, double or string"
            raise InvalidOption(f"column '{field.name}'", f"is {field.dataType.simpleString()}; attributes are {kinds}")
        if not field.nullable:
            raise InvalidOption(f"column '{field.name}'", "is NOT NULL; any message may be without it")
    if "headers" in schema.fieldNames() and not headers:
        raise InvalidOption("column 'headers'", 'needs .option("includeHeaders", "true")')


class Columns:
    """Makes batches of one schema."""

    def __init__(self, schema: StructType, stream: str, *, misfit_is_error: bool) -> None:
        self._stream = stream
        self._misfit_is_error = misfit_is_error
        self._fields = list(schema.fields)
        self._arrow = to_arrow_schema(schema, timezone="UTC")
        attributes = [field.name for field in self._fields if field.name not in OURS]
        self._places = {name: f"a{number}" for number, name in enumerate(attributes)}  # a field cannot have any name
        wanted = {field.name for field in self._fields}
        self._getters = {name: self._getter(name, as_dict="attributes" in wanted) for name in attributes}
        self._decoder = self._made_decoder(wanted)

    def batch(self, number: int, ticks: bytes, entries: bytes) -> pa.RecordBatch:
        """All messages of a slice of pubend `number`."""
        rows = len(ticks) // 8
        found = self._decoder.decode(as_array(rows, entries))
        messages = [entry.message for entry in found]
        attributes = [message.attributes for message in messages]
        columns = []
        for field, target in zip(self._fields, self._arrow, strict=True):
            match field.name:
                case "key":
                    keys = [key if key and key != own else None for key, own in map(_KEY_AND_ID, found)]
                    column = pa.array(keys, target.type)
                case "value":
                    column = pa.array([message.body for message in messages], target.type)
                case "stream":
                    column = pa.repeat(pa.scalar(self._stream or None, target.type), rows)
                case "partition":
                    column = pa.repeat(pa.scalar(number, target.type), rows)
                case "offset" | "timestamp":
                    column = pa.Array.from_buffers(target.type, rows, [None, pa.py_buffer(ticks)])
                case "headers":
                    column = _headers(found, target.type)
                case "attributes":
                    column = self._map(attributes, target.type)
                case name:
                    values = list(map(self._getters[name], attributes))
                    column = self._typed(name, field.dataType, target.type, values, number, ticks)
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=self._arrow)

    def _made_decoder(self, wanted: set[str]) -> msgspec.msgpack.Decoder[Any]:
        """Of what nobody looks at, only the place is found."""
        names = {place: name for name, place in self._places.items()}
        kinds = [(place, Value | None, None) for place in names]
        if "attributes" in wanted:  # a dict has them all
            kinds, names = [], {}
        typed = msgspec.defstruct("Attributes", kinds, gc=False, rename=names)
        identified = "headers" in wanted
        message = msgspec.defstruct(
            "Content",
            [
                ("identity", tuple[str, int, int] if identified else msgspec.Raw),
                ("attributes", dict[str, Value] if "attributes" in wanted else typed),
                ("body", bytes if "value" in wanted else msgspec.Raw),
            ],
            array_like=True,
            gc=False,
        )
        named = identified or "key" in wanted
        fields: list[Any] = [
            ("version", int),
            ("publication_id", str if named else msgspec.Raw),
            ("message", message),
            ("key", str, ""),
        ]
        return msgspec.msgpack.Decoder(list[msgspec.defstruct("Entry", fields, array_like=True, gc=False)])  # type: ignore[misc]

    def _getter(self, name: str, *, as_dict: bool) -> Callable[[Any], Any]:
        """What takes one attribute out of a message's."""
        return methodcaller("get", name) if as_dict else attrgetter(self._places[name])

    def _typed(self, name: str, kind: DataType, target: Any, values: list[Any], number: int, ticks: bytes) -> pa.Array:
        fitting, made = FITTING[type(kind)]
        if fitting | {NOTHING} >= set(map(type, values)):
            try:
                return pa.array(values, target)
            except (pa.ArrowInvalid, OverflowError):
                pass  # an integer that is too large for the column, or for a double
        fits = [self._fitted(value, fitting, made, target) for value in values]
        if self._misfit_is_error:
            for at, (value, fitted) in enumerate(zip(values, fits, strict=True)):
                if value is not None and fitted is None:
                    place = f"{self._stream}/{number} at tick {unpacked_ticks(ticks)[at]}"
                    raise PenstockError(f"{place}: attribute '{name}' is {value!r:.100}, no {kind.simpleString()}")
        return pa.array(fits, target)

    def _fitted(self, value: Any, fitting: frozenset[type], made: Callable[[Any], Any], target: Any) -> Any:
        """The value as its column takes it; None if it does not."""
        if type(value) not in fitting:
            return None
        try:
            return pa.array([made(value)], target)[0].as_py()
        except (pa.ArrowInvalid, OverflowError):
            return None

    def _map(self, attributes: Iterable[dict[str, Value]], target: Any) -> pa.Array:
        offsets, names, texts = [0], list[str](), list[str]()
        for one in attributes:
            names += one
            texts += map(_text, one.values())
            offsets.append(len(names))
        keys, items = pa.array(names, target.key_type), pa.array(texts, target.item_type)
        return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, items, type=target)


def _text(value: Value) -> str:
    return value if type(value) is str else str(value).lower() if type(value) is bool else str(value)


def _headers(entries: Sequence[Any], target: Any) -> pa.Array:
    names = ("publisher", "incarnation", "count", "publication_id")
    values: list[bytes] = []
    for entry in entries:
        values += (str(part).encode() for part in (*entry.message.identity, entry.publication_id))
    keys = pa.array(names * len(entries), pa.string())
    parts = pa.StructArray.from_arrays([keys, pa.array(values, pa.binary())], fields=list(target.value_type))
    offsets = pa.array(range(0, len(values) + 1, len(names)), pa.int32())
    return pa.ListArray.from_arrays(offsets, parts, type=target)
