"""What tracing writes into a trace: that it was switched."""

from __future__ import annotations

from penstock.kernel.trace import Record


class TracingSwitched(Record, frozen=True):
    """A node sends its records to the stream `_trace` from now on, or no longer."""

    on: bool
    one_in: int  # records of one in so many messages are sent; 1: of all


RECORDS: tuple[type[Record], ...] = (TracingSwitched,)
