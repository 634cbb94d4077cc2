"""Which numbers of one publisher have come, and of which nothing is known yet.

Numbers are counted from `base`. `_received` has a bit for each that came, and is as long as it must be. `unknown` is an
integer, 0 most of the time, whose bits are those that lie below the highest number, did not come, and were in no record
or ledger yet; all others are settled. What falls out of the window while unknown is counted (`forgotten`): a loss among
them went unnoticed.

A number may leap so far that nothing of the window is left. It may be forged, so the window as it was is kept
(`before`) until this one moves on step by step: it still tells what has come, and can be gone back to.

Bound: SPAN numbers are remembered, and up to twice as many between two moves of the window; as many before a leap. No
messages, no timers.
"""

from __future__ import annotations

from penstock.content.bloom import positions
from penstock.transport.ordering.header_sanity import BELIEVED_AFTER

SPAN = 8_192


class NumberWindow:
    """The numbers of one session."""

    __slots__ = ("_received", "base", "before", "first", "forgotten", "top", "unknown")

    def __init__(self, base: int, *, first: bool = False) -> None:
        self.base = base  # numbers below it are too old to be known
        self.top = base - 1  # the highest number known
        self._received = bytearray()
        self.unknown = 0
        self.forgotten = 0
        self.first = first  # nothing below the base has ever come
        self.before: NumberWindow | None = None  # as it was before the last leap

    def came(self, number: int) -> bool | None:
        """Whether it has come; None if it is too old to be known."""
        if number >= self.base:
            return self.has(number)
        if self.before is not None:
            return self.before.came(number)
        return False if self.first else None

    def has(self, number: int) -> bool:
        """Whether it has come; of those below the window nobody knows."""
        place = number - self.base
        return 0 <= place < 8 * len(self._received) and self._received[place >> 3] >> (place & 7) & 1 == 1

    def is_unknown(self, number: int) -> bool:
        """Whether it did not come, and nothing is known of it."""
        return number >= self.base and self.unknown >> (number - self.base) & 1 == 1

    def receive(self, number: int) -> None:
        """It has come; of those below the window nothing is remembered."""
        if number > self.top:
            if number > self.top + 1 or number - self.base >= 2 * SPAN:
                self.extend(number)
            self.top = number
        place = number - self.base
        if place < 0:
            return
        if self.unknown:
            self.unknown &= ~(1 << place)
        received = self._received
        if place >> 3 >= len(received):
            received.extend(bytes((place >> 3) + 1 - len(received)))
        received[place >> 3] |= 1 << (place & 7)

    def extend(self, number: int) -> None:
        """There are numbers up to this one; of the new ones nothing is known."""
        new = number - self.top
        if new <= 0:
            return
        if number - self.base >= 2 * SPAN:
            self._move(number - SPAN - (number - SPAN - self.base) % 8)
            new = min(new, number - self.base + 1)
        self.unknown |= ((1 << new) - 1) << (number - new + 1 - self.base)
        self.top = number

    def settle(self, number: int) -> None:
        """It is known what becomes of it."""
        if number >= self.base:
            self.unknown &= ~(1 << (number - self.base))

    def settle_below(self, number: int) -> None:
        """Nothing below this number concerns us."""
        if number > self.base:
            self.unknown &= ~((1 << (number - self.base)) - 1)

    def received_above(self, number: int) -> int:
        """How many of the numbers above this one have come."""
        place = max(0, number + 1 - self.base)
        return (int.from_bytes(self._received[place >> 3 :], "little") >> (place & 7)).bit_count()

    def cut(self, number: int) -> None:
        """There are no numbers above this one."""
        if self.base - 1 <= number < self.top:
            place = number + 1 - self.base
            self.unknown &= (1 << place) - 1
            known = int.from_bytes(self._received, "little") & ((1 << place) - 1)
            self._received = bytearray(known.to_bytes((place + 7) // 8, "little"))
            self.top = number

    def unknown_up_to(self, number: int) -> bool:
        """Whether nothing is known of one of these."""
        return number >= self.base and self.unknown & ((1 << (number - self.base + 1)) - 1) != 0

    def unknown_between(self, first: int, last: int) -> list[int]:
        """Of these numbers, those of which nothing is known."""
        first = max(first, self.base)
        if last < first or not self.unknown:
            return []
        bits = self.unknown >> (first - self.base) & ((1 << (last - first + 1)) - 1)
        return [first + place for place in positions(bits)]

    def _move(self, base: int) -> None:
        if base > self.top + 1:
            self._leap()
        else:
            self.before, self.first = None, False
        below = base - self.base
        known = min(below, max(0, self.top + 1 - self.base))
        self.forgotten += (self.unknown & ((1 << known) - 1)).bit_count() + below - known
        del self._received[: below // 8]
        self.unknown >>= below
        self.base = base
        self.top = max(self.top, base - 1)

    def _leap(self) -> None:
        """Nothing of this window will be left. If it is itself hardly more than a leap, the one before counts."""
        if self.before is None or self.received_above(self.base - 1) > BELIEVED_AFTER:
            kept = NumberWindow(self.base, first=self.first)
            kept.top, kept.unknown, kept.forgotten = self.top, self.unknown, self.forgotten
            kept._received = self._received[:]
            self.before = kept
