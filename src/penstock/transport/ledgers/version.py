"""The version of this scheme's wire format: the first byte of every header and of every control message.

A number for each change after which one side would misread the other. Whoever gets another one names both, so that
nobody has to guess: a message is delivered then without order and recovery, a control message is refused.

    1   the papers' scheme has it in its headers (`wire/header`)
    2   sketches and ledgers; control messages began without a version, with an array of msgpack
    3   control messages have a version, and replies the publisher's last number
"""

from __future__ import annotations

from penstock.errors import ForeignScheme, InvalidHeader

VERSION = 3
VERSION_BYTE = bytes([VERSION])
_PAPERS, _LATER_MAX = 1, 63  # what is above begins an array, or is no version that will ever be
_ARRAY = range(0x90, 0xA0)


def versioned(data: bytes, what: str) -> bytes:
    """What stands behind the version; raises ForeignScheme if it is another one, and InvalidHeader if it is none."""
    if data[:1] == VERSION_BYTE:
        return data[1:]
    raise not_ours(data, what)


def not_ours(data: bytes, what: str) -> InvalidHeader:
    """Why this is not of our version."""
    first = data[0] if data else 0
    if first == _PAPERS:
        return ForeignScheme("the publisher uses scheme 'papers', this side 'ledgers': set scheme alike on both")
    if first in _ARRAY or (first != VERSION and 1 < first <= _LATER_MAX):
        theirs = 2 if first in _ARRAY else first
        return ForeignScheme(f"{what} of version {theirs}, this side has {VERSION}: use the same release at both ends")
    return InvalidHeader(f"{len(data)} bytes that begin with {data[:1].hex()} are no {what} of version {VERSION}")
