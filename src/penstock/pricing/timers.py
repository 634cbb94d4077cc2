"""The timers of priced sending."""

from __future__ import annotations

from enum import IntEnum


class PricingTimer(IntEnum):
    """When a broker wakes up for it."""

    LOOK = 0  # at the buffers of our links
    SALARY = 1  # (link of the client, number of the flow): a message waits for money
    AGAIN = 2  # (the same): chance has refused a message that could be paid
