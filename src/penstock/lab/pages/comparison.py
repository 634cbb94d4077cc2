"""Two that differ in one thing alone, side by side over time and on one scale.

For the transport: what came out of order and what never came. For congestion control: what was published, delivered and
missed, with the capacity of the link; below it what the publisher was allowed, and what it withheld.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.lab.engine.experiment import Figure
from penstock.lab.pages import style
from penstock.lab.pages.run_numbers import PairNumbers

HEIGHT = 240
LOWER_HEIGHT = 150

Curves = Mapping[str, tuple[int, ...]]


def order_compared(pairs: Sequence[PairNumbers]) -> list[Figure]:
    """A figure for each pair: late and missed messages in each second."""
    curves = [{"late": pair.late_per_second, "missed": pair.missed_per_second} for pair in pairs]
    top = _top(curves)
    return [
        _figure(pair, "the transport", style.over_time(named, "messages per second", top=top))
        for pair, named in zip(pairs, curves, strict=True)
    ]


def losses_figures(pairs: Sequence[PairNumbers]) -> list[Figure]:
    """A figure for each pair: published, delivered and missed, and the capacity of the narrowest link."""
    curves = [
        {
            "published": pair.published_per_second,
            "delivered": pair.delivered_per_second,
            "missed": pair.missed_per_second,
        }
        for pair in pairs
    ]
    capacities = [pair.narrowest.messages_per_s for pair in pairs if pair.narrowest]
    top = max([_top(curves), *(1.08 * capacity for capacity in capacities)])
    found = []
    for pair, named in zip(pairs, curves, strict=True):
        spec = style.over_time(named, "messages per second", top=top)
        levels = {"capacity of the link": pair.narrowest.messages_per_s} if pair.narrowest else {}
        found.append(_figure(pair, "congestion control", style.with_levels(spec, levels, {})))
    return found


def quota_figures(pairs: Sequence[PairNumbers]) -> list[Figure]:
    """A figure for each pair with a quota: the quota up to where publishing ends, and what was withheld."""
    found = []
    for pair in pairs:
        if pair.quotas:
            spec = style.over_time({"not sent": pair.withheld_per_second}, "messages per second")
            spec["height"] = LOWER_HEIGHT
            caption = f"What {pair.publisher} was allowed to send to {pair.client}, and what it did not send"
            found.append(Figure(caption=caption, spec=style.with_levels(spec, {}, {"quota": _quota(pair)})))
    return found


def _figure(pair: PairNumbers, what: str, spec: dict[str, Any]) -> Figure:
    caption = f"{'With' if pair.careful else 'Without'} {what}: {pair.publisher} to {pair.client}"
    return Figure(caption=caption, spec={**spec, "height": HEIGHT}, compared=what)


def _top(curves: Sequence[Curves]) -> float:
    return 1.08 * max(1, *(max(values) for named in curves for values in named.values()))


def _quota(pair: PairNumbers) -> list[tuple[str, float, float | None]]:
    """(flow, time, quota) at each change, None from where a flow is free again; the last holds to the last message."""
    changes = [(flow, time, quota or None) for flow, time, quota in pair.quotas]
    last = {flow: quota for flow, _, quota in changes}
    return changes + [(flow, pair.publishing_ends, quota) for flow, quota in last.items() if quota is not None]
