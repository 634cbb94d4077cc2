"""The congestion control fields of a header: which limited flows a message belongs to, as bytes.

    18 bytes  publisher's rate; of the slowest flow: limiting receiver's hash, travel of its feedback, number, place
    14 bytes  for each further flow, at most three: the last four of these

The header's flags say whether they are there, and in their two highest bits how many further flows follow.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from penstock.errors import InvalidHeader

CONTROL = 4  # the flag
FURTHER_SHIFT, FURTHER_MAX = 6, 3  # of the number of further flows among the flags
_CONTROL = Struct("<fIIHI")
_FURTHER = Struct("<IIHI")
TRAVEL_WRAPS = (1 << 32) * 1e-6  # seconds: only sums of two travels mean anything, and those are below a minute


class Followed(NamedTuple):
    """A limited flow that a message belongs to."""

    limiting: int  # the hash of its limiting receiver's name
    travel: float  # of that receiver's last feedback, by two clocks (erratum C6), modulo TRAVEL_WRAPS
    flow: int  # the publisher's number for it
    place: int  # the how-manieth message of it this is: its limiting receiver sees every loss


class Control(NamedTuple):
    """The congestion control fields of a message (000 Figure 2).

    The papers have room for one limiting receiver (erratum C7). One whose flow shares most messages with slower flows
    would hardly ever be named, take itself for not followed, send no more feedback and have its flow set free. So all
    are named, up to four, the slowest first.
    """

    rate: float  # messages/s that leave this publisher (erratum C14: leave, not are offered)
    limiting: int = 0  # as in Followed, of the slowest flow that it belongs to; 0: of none
    travel: float = 0.0
    flow: int = 0
    place: int = 0
    further: tuple[Followed, ...] = ()  # the next slowest

    @property
    def followed(self) -> tuple[Followed, ...]:
        """All flows that it belongs to, as far as they are named."""
        return (Followed(*self[1:5]), *self.further) if self.limiting else ()

    @property
    def names_all(self) -> bool:
        """Whether it names all flows that it belongs to; otherwise those who are not named know nothing."""
        return len(self.further) < FURTHER_MAX


def control_flags(control: Control) -> int:
    """What stands among the flags of a header with these fields."""
    return CONTROL | len(control.further) << FURTHER_SHIFT


def control_bytes(further: int) -> int:
    """How long the fields are, with so many further flows."""
    return _CONTROL.size + further * _FURTHER.size


def pack_control(control: Control) -> bytes:
    """The travel as microseconds: a float of four bytes could not tell two days from two days and a round trip."""
    rate, limiting, travel, flow, place, further = control
    packed = _CONTROL.pack(rate, limiting, round(travel * 1e6) % (1 << 32), flow, place)
    for one in further:
        packed += _FURTHER.pack(one.limiting, round(one.travel * 1e6) % (1 << 32), one.flow, one.place)
    return packed


def unpack_control(data: bytes, start: int, further: int) -> Control:
    """The fields that begin at `start`; raises InvalidHeader."""
    rate, limiting, travel, flow, place = _CONTROL.unpack_from(data, start)
    if not 0.0 <= rate < 1e9:
        raise InvalidHeader(f"a rate of {rate} messages/s")
    others = []
    for number in range(further):
        limiting_, late, other, where = _FURTHER.unpack_from(data, start + _CONTROL.size + number * _FURTHER.size)
        others.append(Followed(limiting_, late * 1e-6, other, where))
    return Control(rate, limiting, travel * 1e-6, flow, place, tuple(others))
