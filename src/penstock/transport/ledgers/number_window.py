"""Which numbers of one publisher have come, and of which nothing is known yet.

Numbers are counted from `base`. `_received` has a bit for each that came, and is as long as it must be. `unknown` is an
integer, 0 most of the time, whose bits are those that lie below the highest number, did not come, and were in no record
or ledger yet; all others are settled. What falls out of the window while unknown is counted (`forgotten`): a loss among
them went unnoticed.

Bound: SPAN numbers are remembered, and up to twice as many between two moves of the window. No messages, no timers.
"""

from __future__ import annotations

from penstock.content.bloom import positions

SPAN = 8_192


class NumberWindow:
    """The numbers of one session."""

    __slots__ = ("_received", "base", "forgotten", "top", "unknown")

    def __init__(self, base: int) -> None:
        self.base = base  # numbers below it are too old to be known
        self.top = base - 1  # the highest number known
        self._received = bytearray()
        self.unknown = 0
        self.forgotten = 0

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
        below = base - self.base
        known = min(below, max(0, self.top + 1 - self.base))
        self.forgotten += (self.unknown & ((1 << known) - 1)).bit_count() + below - known
        del self._received[: below // 8]
        self.unknown >>= below
        self.base = base
        self.top = max(self.top, base - 1)
