"""What it is worth to send a message: its price is divided by this (003 sections 4.1 and 4.2.2).

    sent      1: as many messages as possible are sent, the paper's choice
    received  how many brokers it reaches: as many as possible arrive
    concave   less for each message that its sender has sent lately, so that nobody starves: 1/sqrt(1 + sent/LATELY)
    latency   less the longer it will wait on its way: 1/(1 + what waits before it, in soft limits)

"Lately" is what the account remembers: half is forgotten every HALF_LIFE seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Literal, NamedTuple

BenefitName = Literal["sent", "received", "concave", "latency"]
LATELY = 50.0  # messages
HALF_LIFE = 5.0  # seconds


class Worth(NamedTuple):
    """What the benefit of a message depends on."""

    brokers: int  # that it reaches
    sent_lately: float  # by its sender
    link_cost: float  # of all links that it takes, in parts of what one costs at its soft limit


BENEFITS: dict[str, Callable[[Worth], float]] = {
    "sent": lambda worth: 1.0,
    "received": lambda worth: float(max(1, worth.brokers)),
    "concave": lambda worth: 1.0 / sqrt(1.0 + worth.sent_lately / LATELY),
    "latency": lambda worth: 1.0 / (1.0 + worth.link_cost),
}
