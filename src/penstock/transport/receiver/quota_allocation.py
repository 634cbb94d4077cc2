"""How a subscriber divides what it may receive from one publisher among its filters (000 Algorithm 1; 002 5.3).

Once per round trip it knows the rate of each filter and the rate that is allowed in all. If the sum is too high, each
filter gets a quota; if there is room, the filters that it limits itself may grow. `allocate_quotas` is the whole
decision, a pure function; the arithmetic of sharing is `max_min` and `by_priority`.

    decrease   quotas share the allowed rate, demands being the rates: the smallest are served first, so filters with
               low rates keep them. By priorities, if the application has some: max-min with weights, so that a filter
               of priority 2 gets twice as much as one of priority 1 where both want more, and nobody gets nothing
    increase   each filter that this subscriber limits gets its rate and a part of what is free, by priority too, but no
               more than alpha times its rate; the others are not reported
    pace       no quota is above what the application can take of it, if that is known; the others may have the rest
    reported   quotas below the filter's rate, and those of filters that this subscriber limits. If there are none,
               there is no feedback at all (erratum C3)

Departures. Lines 6-10 stand after the loop over the entries, not in it: the decision needs the whole sum, and there is
one feedback per round trip (erratum C2). The papers start from quota 0 and never leave it if nothing is received, since
alpha times 0 is 0; so no quota is below `floor`, one message per round trip (erratum C14). That may be above what was
allowed, by at most the floor for each filter. A pace has a floor of its own (`pace_floor`): a slow application does not
take a message per round trip because the way is short. If just the allowed rate is received the quotas are the rates.

No state, no timers. All rates are in messages per second (erratum C5).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import inf, isfinite
from typing import NamedTuple


class Reception(NamedTuple):
    """One filter's entry in the session with a publisher."""

    rate: float  # messages/s that came in lately
    limiting: bool  # the publisher follows us for this flow: we are its limiting receiver
    priority: float = 1.0  # the application's; a weight
    pace: float = inf  # messages/s that the application takes of it; infinity: it keeps up


def allocate_quotas(
    entries: Sequence[Reception], allowed: float, alpha: float, floor: float, pace_floor: float = 0.0
) -> list[float | None]:
    """The quota to send the publisher for each entry; None where there is none to send."""
    paced = [entry._replace(rate=min(entry.rate, entry.pace)) for entry in entries]
    total = sum((entry.rate for entry in paced), 0.0)
    quotas = increase(paced, allowed, alpha) if allowed > total else decrease(paced, allowed)
    bounded = [
        min(max(floor, quota), max(pace_floor, entry.pace)) for quota, entry in zip(quotas, entries, strict=True)
    ]
    return [
        quota if entry.limiting or quota < entry.rate else None for quota, entry in zip(bounded, entries, strict=True)
    ]


def decrease(entries: Sequence[Reception], allowed: float) -> list[float]:
    """Quotas that sum up to what is allowed, none above its rate."""
    return by_priority([entry.rate for entry in entries], [entry.priority for entry in entries], allowed)


def increase(entries: Sequence[Reception], allowed: float, alpha: float) -> list[float]:
    """The rates; where we limit, with a part of what is free on top."""
    limited = sum((entry.priority for entry in entries if entry.limiting), 0.0)
    if not limited:
        return [entry.rate for entry in entries]
    free = (allowed - sum((entry.rate for entry in entries), 0.0)) / limited
    return [
        entry.rate + min(alpha * entry.rate, free * entry.priority) if entry.limiting else entry.rate
        for entry in entries
    ]


def max_min(demands: Sequence[float], capacity: float) -> list[float]:
    """Shares of the capacity, none above its demand, such that none could grow but at the cost of a smaller one."""
    return by_priority(demands, [1.0] * len(demands), capacity)


def by_priority(demands: Sequence[float], priorities: Sequence[float], capacity: float) -> list[float]:
    """Max-min of share by priority: who wants more than it gets, gets in proportion to its priority."""
    _check(demands, priorities, capacity)
    if capacity >= sum(demands):
        return list(demands)
    quotas = [0.0] * len(demands)
    order = sorted(range(len(demands)), key=lambda place: demands[place] / priorities[place])
    weights_left = list(accumulate(priorities[place] for place in reversed(order)))
    left = capacity
    for place in order:
        share = left * (priorities[place] / weights_left.pop())
        quotas[place] = min(demands[place], share)
        left = max(0.0, left - quotas[place])
    return quotas


def _check(demands: Sequence[float], priorities: Sequence[float], capacity: float) -> None:
    if not all(isfinite(demand) and demand >= 0.0 for demand in demands):
        raise ValueError(f"demands of {list(demands)}; they must be finite and not negative")
    if len(priorities) != len(demands) or not all(isfinite(weight) and weight > 0.0 for weight in priorities):
        raise ValueError(f"priorities of {list(priorities)}; each demand has one, finite and above 0")
    if not capacity >= 0.0:
        raise ValueError(f"a capacity of {capacity}; it must not be negative")
