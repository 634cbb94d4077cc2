"""What was handed over to a connection and is not known to have arrived: counts, never the messages.

Each end of a connection tells the other, now and then, how many packets it has had in all (`frames.Acknowledgement`).
Until then what was written may be in a buffer of ours, of the kernel's, or on its way; when the connection is lost,
nobody can say how much of it arrived. So the sender counts all of it as lost: never too little, sometimes too much.

State: a pair of running totals for each write that is not acknowledged. Bound: `WRITES_MAX` pairs; beyond them the last
pair stands for several writes, which are acknowledged together.
"""

from __future__ import annotations

from collections import deque

from penstock.errors import InvalidPacket

WRITES_MAX = 1024


class HandedOver:
    """The sending half of one connection."""

    __slots__ = ("_messages", "_messages_arrived", "_writes", "packets", "packets_arrived")

    def __init__(self) -> None:
        self.packets = 0  # in all
        self.packets_arrived = 0  # as far as we know
        self._messages = 0  # packets with a message in them, in all
        self._messages_arrived = 0
        self._writes: deque[tuple[int, int]] = deque()  # both totals after each write

    def wrote(self, packets: int, messages: int) -> None:
        """So many packets were written, so many of them with a message."""
        self.packets += packets
        self._messages += messages
        writes = self._writes
        if len(writes) < WRITES_MAX:
            writes.append((self.packets, self._messages))
        else:
            writes[-1] = (self.packets, self._messages)

    def arrived(self, packets: int) -> None:
        """The peer has had so many packets in all; raises InvalidPacket if that cannot be."""
        if not self.packets_arrived <= packets <= self.packets:
            raise InvalidPacket(f"{packets} packets are acknowledged; {self.packets} were sent")
        self.packets_arrived = packets
        writes = self._writes
        while writes and writes[0][0] <= packets:
            self._messages_arrived = writes.popleft()[1]

    @property
    def messages_unknown(self) -> int:
        """How many messages are not known to have arrived."""
        return self._messages - self._messages_arrived
