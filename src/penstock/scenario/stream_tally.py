"""What the clients of a run did with streams, counted by themselves: published, stored, read.

A publisher has a tally for each stream, a reader one for each durable name. Both worlds keep the same ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class StreamTally:
    """One client and one stream; `delays` are from publish() to the receipt, or to the reader."""

    offered: int = 0
    stored: int = 0
    not_stored: int = 0  # refused, or nobody knows
    read: int = 0
    delays: list[float] = field(default_factory=list)


StreamTallies = dict[tuple[str, str], StreamTally]  # (stream, durable name; empty: as publisher)


def tally_of(tallies: StreamTallies, stream: str, durable: str = "") -> StreamTally:
    """The one of this stream, made if it is the first time."""
    return tallies.setdefault((stream, durable), StreamTally())
