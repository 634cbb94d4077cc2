"""What is known of the last few thousand numbers of a publisher: received, missing and unknown, missing and wanted.

Three sets of numbers, each an integer whose bit i stands for the number top - i. A gap of any length is then one shift,
"all of these have come" is one comparison, and a number that arrives is struck from everything that waits for it
without looking for who waits. What lies `size` behind the top is forgotten, so a set never takes more than size bits.

A set seen from another number has bit i for that number less i; so the i-th entry of a record and the i-th bit are the
same message (erratum B5: the entry belongs to m_{n-i}).
"""

from __future__ import annotations


class SequenceWindow:
    """Sets of numbers up to `top`, the highest that is known of; -1 before the first."""

    __slots__ = ("_all", "_size", "hopeless", "received", "top", "unknown", "unrevealed", "wanted")

    def __init__(self, size: int) -> None:
        self._size = size
        self._all = (1 << size) - 1
        self.top = -1
        self.received = 0
        self.unknown = 0  # missing, and no record has shown whether we want it
        self.wanted = 0  # missing, wanted, and not yet declared lost
        self.hopeless = 0  # missing, and nobody asks for it
        self.unrevealed = 0  # how many have left the window while unknown

    def extend(self, number: int) -> None:
        """Let the top be at least this number; those between are missing, with nothing known of them."""
        step = number - self.top
        if self.top < 0:
            self.top = number
        elif step > 0:
            self.top = number
            step = min(step, self._size)
            self.received = self.received << step & self._all
            unknown = self.unknown << step | (1 << step) - 1
            self.unrevealed += (unknown >> self._size).bit_count()
            self.unknown = unknown & self._all
            self.hopeless = self.hopeless << step & self._all
            self.wanted = self.wanted << step & self._all

    def receive(self, number: int) -> None:
        """This one is here; those between it and the top are missing."""
        if number == self.top + 1 and not self.unknown and not self.wanted:
            self.top = number
            self.received = (self.received << 1 | 1) & self._all
            self.hopeless = self.hopeless << 1 & self._all
            return
        self.extend(number)
        bit = 1 << (self.top - number)
        self.received |= bit
        self.unknown &= ~bit
        self.wanted &= ~bit

    def despair(self, number: int) -> None:
        """No longer expected."""
        if 0 <= self.top - number < self._size:
            self.hopeless |= 1 << (self.top - number)

    def has(self, number: int) -> bool:
        """Received, or too old to know."""
        behind = self.top - number
        return behind >= self._size or (behind >= 0 and bool(self.received >> behind & 1))

    def too_old(self, number: int) -> bool:
        """Forgotten."""
        return self.top - number >= self._size

    def seen_from(self, bits: int, number: int) -> int:
        """One of the sets, with bit i for number - i."""
        behind = self.top - number
        return bits >> behind if behind >= 0 else bits << -behind

    def seen_from_top(self, bits: int, number: int) -> int:
        """The reverse: what has bit i for number - i, in the form of the sets."""
        behind = self.top - number
        return (bits << behind if behind >= 0 else bits >> -behind) & self._all

    def between(self, below: int, number: int) -> int:
        """The numbers between these two, seen from the second."""
        width = min(number - below, self._size)
        return (1 << width) - 2 if width > 1 else 0
