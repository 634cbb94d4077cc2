"""Two that differ in one thing alone, side by side over time: one scale, the link's capacity and the quota drawn in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.lab.engine.experiment import Figure
from penstock.lab.pages import style
from penstock.lab.pages.run_numbers import PairNumbers

HEIGHT = 240


def comparison(pairs: Sequence[PairNumbers], what: str, *, offered: bool) -> list[Figure]:
    """A figure for each pair. `offered` adds what was published, capacities and quotas."""
    top = 1.08 * max(max(values) for pair in pairs for values in _curves(pair, offered=offered).values())
    top = max([top, *(1.08 * pair.narrowest[2] for pair in pairs if offered and pair.narrowest)])
    return [
        Figure(
            caption=f"{'With' if pair.careful else 'Without'} {what}: {pair.publisher} to {pair.client}",
            spec=_spec(pair, top, offered=offered),
            compared=what,
        )
        for pair in pairs
    ]


def _curves(pair: PairNumbers, *, offered: bool) -> dict[str, tuple[int, ...]]:
    sent = {"published": pair.published_per_second} if offered else {}
    if offered and pair.withheld:
        sent["withheld"] = pair.withheld_per_second
    return {**sent, "delivered": pair.delivered_per_second, "missed": pair.missed_per_second}


def _spec(pair: PairNumbers, top: float, *, offered: bool) -> dict[str, Any]:
    spec = style.over_time(_curves(pair, offered=offered), "messages per second", top=top)
    spec["height"] = HEIGHT
    if not offered:
        return spec
    levels = {"capacity of the link": pair.narrowest[2]} if pair.narrowest else {}
    steps = {"quota": _quota(pair)} if pair.quotas else {}
    return style.with_levels(spec, levels, steps, end=float(len(pair.published_per_second) - 1))


def _quota(pair: PairNumbers) -> list[tuple[str, float, float | None]]:
    """(flow, time, quota) at each change, None from where a flow is free again; the last holds to the end."""
    end = float(len(pair.published_per_second) - 1)
    changes = [(flow, time, quota or None) for flow, time, quota in pair.quotas]
    last = {flow: quota for flow, _, quota in changes}
    return changes + [(flow, end, quota) for flow, quota in last.items() if quota is not None]
