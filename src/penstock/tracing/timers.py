"""The timers of tracing."""

from __future__ import annotations

from enum import IntEnum


class TracingTimer(IntEnum):
    """When a node wakes up for it."""

    END = 0  # tracing was ordered until now
