"""The timers of fair rates."""

from __future__ import annotations

from enum import IntEnum


class RatesTimer(IntEnum):
    """When a broker wakes up for it."""

    MEASURE = 0  # look at the links that carry something
    SERVE = 1  # a message that waits for its share may leave, or has waited long enough
    TELL = 2  # sum up what was withheld
    READ = 3  # (link, subscription): what waits for a slow reader may leave
    LOOK = 4  # look at the slow links to clients
