"""The transport's header as bytes: sequence number, departure times, and the publication record.

    1 byte   version                    1 byte   flags: entries are shared; this publisher sends heartbeats; see below
    8 bytes  sequence number            8 bytes  departure, in seconds of the publisher's clock
    1 byte   hops, 0 if unknown         1 byte   how many ages follow
    1 byte   how many entries follow    1 byte   bytes of one entry
    18 bytes, if a flag says so: congestion control (see `Control`); 14 more for each further flow that it belongs to,
             at most three, whose number is in the two highest bits of the flags
    4 bytes  per age: microseconds from that departure to this one, newest first
    then the entries, newest first

The i-th entry is the encoding of message n - i, its departure is that of this message less the i-th age (erratum B5:
the paper's text pairs m_i with B_i). In basic mode there are no entries and one age, that of the message before.

Two forms of entries. `whole`: the bits as they are. `shared`: neighbours often have most of their bits in common, so
an entry is the list of bit positions in which it differs from the message after it (the newest one: from the message
that carries the record, whose encoding the receiver works out for itself); or the list of its own bits, or the bits as
they are, whichever is shortest. Each list costs a byte for its length and one (or two) for each position.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from struct import Struct, pack, unpack_from

from penstock.content.bloom import positions
from penstock.errors import ForeignScheme, InvalidHeader
from penstock.transport.config import RECORD_ENTRIES_TAKEN_MAX
from penstock.transport.wire.flow_fields import (
    CONTROL,
    FURTHER_SHIFT,
    Control,
    control_bytes,
    control_flags,
    pack_control,
    unpack_control,
)

LEDGERS = (b"\x02", b"\x03")  # versions of the other scheme (`ledgers/version`)
VERSION = 1
SHARED, HEARTBEATS = 1, 2  # flags, beside CONTROL
AGE_MAX = 0xFFFFFFFF  # microseconds: 71 minutes; whatever is older is of no use to anybody
SEQUENCE_MAX = 1 << 62
_FIXED = Struct("<BBQdBBBB")
_RAW, _OWN = 0x80, 0x40  # marks of the three kinds of shared entries; below _OWN: a list of differences
_LIST_MAX = _OWN - 1


class Header:
    """What the transport carries with a message: its own number and times, and the record of those before it."""

    __slots__ = ("_entries", "_raw", "ages", "control", "departure", "entry_bits", "heartbeats", "hops", "sequence")

    def __init__(
        self,
        sequence: int,
        departure: float,
        ages: tuple[float, ...] = (),
        *,
        hops: int = 0,
        heartbeats: bool = False,
        entry_bits: int = 0,
        entries: tuple[int, ...] = (),
        control: Control | None = None,
    ) -> None:
        self.sequence = sequence
        self.departure = departure
        self.ages = ages  # seconds from the departure of the i-th message before this one to that of this one
        self.hops = hops
        self.heartbeats = heartbeats  # whether whoever asks for them gets this publisher's heartbeats
        self.entry_bits = entry_bits
        self.control = control
        self._entries: tuple[int, ...] | None = entries
        self._raw = b""  # whole entries as they came: most messages come in order, and nobody looks at their record

    @property
    def record_size(self) -> int:
        """How many messages before this one the record covers."""
        return len(self._raw) * 8 // self.entry_bits if self._entries is None else len(self._entries)

    def entries(self) -> tuple[int, ...]:
        """The encodings of the messages before this one, newest first."""
        if self._entries is None:
            raw, size = self._raw, self.entry_bits // 8
            self._entries = tuple([int.from_bytes(raw[at : at + size], "little") for at in range(0, len(raw), size)])
        return self._entries


def encode_header(
    sequence: int,
    departure: float,
    ages: Sequence[float],
    entries: Sequence[bytes],
    *,
    flags: int,
    entry_bytes: int,
    control: Control | None = None,
) -> bytes:
    """The bytes of a header; `entries` are written by `whole_entry` or `shared_entry`."""
    if control is not None:
        flags |= control_flags(control)
    fixed = _FIXED.pack(VERSION, flags, sequence, departure, 0, len(ages), len(entries), entry_bytes)
    times = [min(AGE_MAX, round(age * 1e6)) if age > 0.0 else 0 for age in ages]
    controlled = b"" if control is None else pack_control(control)
    return b"".join((fixed, controlled, pack(f"<{len(times)}I", *times), *entries))


def whole_entry(encoding: int, entry_bytes: int) -> bytes:
    """An encoding as it is."""
    return encoding.to_bytes(entry_bytes, "little")


def shared_entry(encoding: int, following: int, entry_bytes: int) -> bytes:
    """The shortest way to write an encoding for somebody who knows that of the message after it."""
    difference = encoding ^ following
    fewest, mark = min((difference.bit_count(), 0), (encoding.bit_count(), _OWN))
    width = 1 if entry_bytes <= 32 else 2
    if fewest > _LIST_MAX or fewest * width >= entry_bytes:
        return bytes([_RAW]) + whole_entry(encoding, entry_bytes)
    listed = positions(difference if mark == 0 else encoding)
    return bytes([mark | fewest]) + b"".join(position.to_bytes(width, "little") for position in listed)


def needs_own_bits(data: bytes) -> bool:
    """Whether the encoding of the message that carries it is needed to read this header."""
    return len(data) > 1 and data[1] & SHARED != 0


def decode_header(data: bytes, own_bits: int, *, entry_bits: int) -> Header:
    """The header in these bytes. `own_bits` is the encoding of the message that carries it; raises InvalidHeader."""
    if data[:1] in LEDGERS:
        raise ForeignScheme("the publisher uses scheme 'ledgers', this side 'papers': set scheme alike on both")
    if len(data) < _FIXED.size:
        raise InvalidHeader(f"{len(data)} bytes are no transport header")
    version, flags, sequence, departure, hops, ages, entries, entry_bytes = _FIXED.unpack_from(data)
    flags, further = flags & (1 << FURTHER_SHIFT) - 1, flags >> FURTHER_SHIFT
    if version != VERSION or flags > SHARED | HEARTBEATS | CONTROL or (further and not flags & CONTROL):
        raise InvalidHeader(f"version {version}, flags {flags}; this side has version {VERSION}")
    if not 0 < sequence <= SEQUENCE_MAX or not isfinite(departure):
        raise InvalidHeader(f"sequence {sequence}, departure {departure}")
    if entries > RECORD_ENTRIES_TAKEN_MAX or entries >= sequence or entries > ages or ages > max(1, entries):
        raise InvalidHeader(f"a record of {entries} entries and {ages} times on message {sequence}")
    if entries and entry_bytes * 8 != entry_bits:
        raise ForeignScheme(f"entries of {entry_bytes * 8} bits; this side has {entry_bits}: set record_bits alike")
    head = _FIXED.size + (control_bytes(further) if flags & CONTROL else 0)
    start = head + 4 * ages
    if len(data) < start:
        raise InvalidHeader(f"{len(data)} bytes are too few for {ages} times")
    control = unpack_control(data, _FIXED.size, further) if flags & CONTROL else None
    times = unpack_from(f"<{ages}I", data, head)
    if times != tuple(sorted(times)):
        raise InvalidHeader("departure times that run backwards")
    seconds = tuple([time * 1e-6 for time in times])
    header = Header(
        sequence,
        departure,
        seconds,
        hops=hops,
        heartbeats=flags & HEARTBEATS != 0,
        entry_bits=entry_bits,
        control=control,
    )
    if not flags & SHARED:
        if len(data) != start + entries * entry_bytes:
            raise InvalidHeader(f"{len(data) - start} bytes for {entries} entries of {entry_bytes}")
        header._entries = None if entries else ()
        header._raw = data[start:]
    else:
        header._entries = _shared_entries(data, start, entries, entry_bytes, own_bits)
    return header


def _shared_entries(data: bytes, at: int, entries: int, entry_bytes: int, following: int) -> tuple[int, ...]:
    width = 1 if entry_bytes <= 32 else 2
    found = []
    for _ in range(entries):
        mark = data[at] if at < len(data) else _RAW
        length = entry_bytes if mark == _RAW else (mark & _LIST_MAX) * width
        listed = data[at + 1 : at + 1 + length]
        if len(listed) != length or mark > _RAW:
            raise InvalidHeader("a shared entry that is cut off or of an unknown kind")
        if mark == _RAW:
            encoding = int.from_bytes(listed, "little")
        else:
            encoding = 0 if mark & _OWN else following
            for place in range(0, length, width):
                position = int.from_bytes(listed[place : place + width], "little")
                if position >= entry_bytes * 8:
                    raise InvalidHeader(f"bit {position} of {entry_bytes * 8}")
                encoding ^= 1 << position
        found.append(encoding)
        following = encoding
        at += 1 + length
    if at != len(data):
        raise InvalidHeader(f"{len(data) - at} bytes too many")
    return tuple(found)
