"""What a link costs, by how full its buffer is (003 section 4.2.1).

u is the mean number of messages in the buffer over the soft limit. Every function gives 0 for an empty buffer and
`scale` at the soft limit:

    exponential     scale (e^u - 1)/(e - 1)        the paper's choice: prices rise as soon as a buffer begins to fill
    exponential-20  scale (20^u - 1)/19            what theory asks for; too flat at first, says the paper
    linear          scale u                        both unstable, says the paper
    square          scale u^2
"""

from __future__ import annotations

from collections.abc import Callable
from math import e, expm1, log
from typing import Literal

CostName = Literal["exponential", "exponential-20", "linear", "square"]


def _exponential(base: float) -> Callable[[float], float]:
    rate, full = log(base), base - 1.0
    return lambda use: expm1(rate * use) / full


SHAPES: dict[str, Callable[[float], float]] = {
    "exponential": _exponential(e),
    "exponential-20": _exponential(20.0),
    "linear": lambda use: use,
    "square": lambda use: use * use,
}
USE_MAX = 10.0  # soft limits that a buffer can be full: beyond, nothing is dearer


def link_cost(name: CostName, mean_packets: float, soft_limit: float, scale: float) -> float:
    """The price of one link."""
    return scale * SHAPES[name](min(max(0.0, mean_packets) / soft_limit, USE_MAX))
