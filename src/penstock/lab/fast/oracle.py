"""The most that any network could do with Req 1: what a receiver that sees everything at once could be given."""

from __future__ import annotations

from penstock.lab.fast.news_workload import NewsRequest, NewsWorkload
from penstock.lab.fast.setting import TICKS, NewsSetting


def oracle_satisfaction(setting: NewsSetting, seed: int) -> float:
    """The percentage of lifetimes that could be satisfied, each given the oldest that fits and its chain never had.

    Whole time units: uploads of a unit come before its interests, as in batches, and the printed rule of freshness.
    """
    workload = NewsWorkload(setting, seed)
    units = setting.units
    uploads: dict[int, list[int]] = {}
    had: dict[int, list[int]] = {}  # by chain, in each unit
    ends: dict[int, list[tuple[NewsRequest, int]]] = {}
    ended = satisfied = 0
    for tick in range(units * TICKS):
        for _, topic in workload.uploads(tick):
            uploads.setdefault(topic, [0] * units)[tick // TICKS] += 1
    for tick in range(units * TICKS):
        unit = tick // TICKS
        over = ends.pop(tick, ())
        for request, began in over:
            chain = had.setdefault(request.chain, [0] * units)
            oldest = max(0, int(began + request.lifetime - setting.freshness) + 1)
            ended += 1
            satisfied += _given(request.max, uploads.get(request.topic, []), chain, oldest, unit)
            following = workload.after(request)
            if following is not None:
                ends.setdefault(tick + following.lifetime * TICKS, []).append((following, unit))
        for request in workload.new_requests(tick, len(over)):
            ends.setdefault(tick + max(request.lifetime, 1) * TICKS, []).append((request, unit))
    return 100.0 * satisfied / ended if ended else 0.0


def _given(wanted: int, there: list[int], had: list[int], oldest: int, newest: int) -> bool:
    """Give the oldest first; whether it was enough."""
    for unit in range(oldest, min(newest + 1, len(there))):
        some = min(wanted, there[unit] - had[unit])
        had[unit] += some
        wanted -= some
        if not wanted:
            return True
    return False
