"""One table of what order and recovery promise for any content, and how near they come.

Truth is in `fates`. Traffic is what brokers send each other: messages of applications, and messages between services
(requests, repairs, heartbeats and the like). The bytes of recovery are the latter, and what links send again by
themselves (`repair bytes`), over the bytes of the former. The header is the difference of the mean size of an
application's message between the same network with the transport and without.

Order is judged on twins (`setups.any_content`): a plain subscription beside the ordered one, in the same client.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from penstock.lab.engine.experiment import Criterion, Experiment, Figure, Views
from penstock.lab.engine.view import Floats, View
from penstock.lab.pages.style import named_bars
from penstock.lab.papers.any_content.fates import MessageFates, fates
from penstock.lab.papers.any_content.setting import (
    BURST,
    LOSSLESS,
    ORDER,
    PLAIN,
    RECOVERED,
    REPAIRED,
    both,
    drawn,
)
from penstock.pipeline import metrics

NAN = float("nan")
LINK_REPAIR = "repair bytes"  # what a link has sent again by itself
DOUBT = "not recovered, and reported in doubt only"


# What is measured in one run.


def traffic(view: View) -> dict[str, float]:
    """What brokers have sent each other, by the names of the counters."""
    rows = view.tables.counted.groupBy("name").sum("value").toArrow()
    return dict(zip(rows["name"].to_pylist(), map(float, rows["sum(value)"].to_pylist()), strict=True))


def _lossy(view: View) -> dict[str, float]:
    """A run in which messages are lost."""
    found, sent = fates(view), traffic(view)
    return {
        "lost": float(found.lost.sum()),
        "recovered (%)": _percent(found.recovered, found.lost),
        "time to recover, p50 (s)": _quantile(found.recovery_times(), 0.5),
        "time to recover, p99 (s)": _quantile(found.recovery_times(), 0.99),
        "neither recovered nor reported": float(found.silent.sum()),
        "neither recovered nor reported (% of the lost)": _percent(found.silent, found.lost),
        DOUBT: float((found.undeclared & ~found.silent).sum()),
        "last message noticed after, p50 (s)": _quantile(found.notice_times(), 0.5),
        "last message noticed after, p90 (s)": _quantile(found.notice_times(), 0.9),
        "bytes for recovery (% of data)": 100.0
        * (sent.get("service bytes", 0.0) + sent.get(LINK_REPAIR, 0.0))
        / sent["data bytes"],
        "false losses per delivery": _false_losses(view, found),
    }


def _lossless(view: View) -> dict[str, float]:
    """A run in which nothing is lost: whatever is declared is wrong."""
    sent, found = traffic(view), fates(view)
    delivered = float((~np.isnan(found.delivered_at)).sum())
    return {
        "control packets per data packet": sent.get("service packets", 0.0) / sent["data packets"],
        "losses declared per delivery": view.tables.loss_detected.count() / delivered,
        "bytes of a message on a link": sent["data bytes"] / sent["data packets"],
        "lost": float(found.lost.sum()),
    }


def _plain(view: View) -> dict[str, float]:
    sent = traffic(view)
    return {"bytes of a message on a link": sent["data bytes"] / sent["data packets"]}


def _order(view: View) -> dict[str, float]:
    """Late messages of the plain and of the ordered subscription, and how much later the ordered one got them."""
    late = {number: _late(view, number) for number in (0, 1)}
    extra: Floats = metrics.twin_delays(view.tables.delivered).toArrow()["extra"].to_numpy()
    return {
        "violations without order": late[0],
        "violations with order": late[1],
        "violations removed (%)": 100.0 * (1.0 - late[1] / late[0]) if late[0] else NAN,
        "extra delay, p99 (s)": _quantile(extra, 0.99),
        "extra delay, mean (s)": float(extra.mean()) if len(extra) else NAN,
    }


def _late(view: View, subscription: int) -> float:
    of_one = view.tables.delivered.where(view.tables.delivered.subscription == subscription)
    total = metrics.fifo_violations(of_one).agg({"violations": "sum"}).first()
    return float(total[0] or 0) if total is not None else 0.0


def _false_losses(view: View, found: MessageFates) -> float:
    """Losses that were declared and were none, per delivery: all that was declared but is not among the lost."""
    true = float((found.lost & ~np.isnan(found.declared_at)).sum())
    return (view.tables.loss_detected.count() - true) / max(1.0, float((~np.isnan(found.delivered_at)).sum()))


def _percent(some: NDArray[np.bool_], of: NDArray[np.bool_]) -> float:
    return 100.0 * float(some.sum()) / float(of.sum()) if of.any() else NAN


def _quantile(values: Floats, share: float) -> float:
    return float(np.quantile(values, share)) if len(values) else NAN


# All runs.

_KINDS: Mapping[str, Callable[[View], dict[str, float]]] = {
    **dict.fromkeys(both(RECOVERED), _lossy),
    **dict.fromkeys(both(LOSSLESS), _lossless),
    PLAIN: _plain,
    ORDER: _order,
}


def measure(views: Views) -> Mapping[str, float]:
    """Every run. What a scale leaves out is not a number."""
    found: dict[str, float] = {}
    for kind, measured in _KINDS.items():
        if kind in views:
            found |= {f"{kind}: {what}": value for what, value in _measured(views[kind], measured).items()}
    mixed, plain = found.get(f"{MIXED}: {SIZE}", NAN), found.get(f"{PLAIN}: {SIZE}", NAN)
    found["header for six attributes (B)"] = mixed - plain
    for what in ("neither recovered nor reported", DOUBT):
        lossy = [found.get(f"{kind}: {what}", NAN) for kind in both(RECOVERED)]
        found[f"{what}, in all runs"] = float(np.nansum(lossy))
    return {**{criterion.name: NAN for criterion in CRITERIA}, **found}


@cache
def _measured(view: View, measured: Callable[[View], dict[str, float]]) -> dict[str, float]:
    """Once for the numbers and once for the figures would be twice the work."""
    return measured(view)


MIXED, SIZE = "lossless, mixed", "bytes of a message on a link"


def _draw(views: Views) -> Sequence[Figure]:
    found = measure(views)
    rows = [
        {"run": kind, "share": found[f"{kind}: recovered (%)"]}
        for kind in both(RECOVERED)
        if f"{kind}: recovered (%)" in found
    ]
    bytes_ = [
        {"run": kind, "share": found[f"{kind}: bytes for recovery (% of data)"]}
        for kind in both(RECOVERED)
        if f"{kind}: bytes for recovery (% of data)" in found
    ]
    return (
        Figure(
            caption="Which share of the lost messages came back.",
            spec=named_bars(rows, x="run", y="share", y_title="per cent of the lost"),
        ),
        Figure(
            caption="Bytes of requests, repairs and heartbeats over those of the messages.",
            spec=named_bars(bytes_, x="run", y="share", y_title="per cent of data"),
        ),
    )


def _goal(name: str, today: str, *, low: float | None = None, high: float | None = None, note: str = "") -> Criterion:
    return Criterion(name=name, paper=today, low=low, high=high, kind="goal", note=note or "002's scheme on the left")


def _recovered(kind: str, today: str, least: float) -> tuple[Criterion, ...]:
    return tuple(_goal(f"{run}: recovered (%)", today, low=least) for run in both([kind]))


def _cost(kind: str, today: str, most: float, most_repaired: float) -> tuple[Criterion, ...]:
    what = "bytes for recovery (% of data)"
    return (
        _goal(f"{kind}: {what}", today, high=most),
        _goal(f"{kind}{REPAIRED}: {what}", today, high=most_repaired),
    )


CRITERIA = (
    *(
        _goal(f"{run}: {what}", today, high=most)
        for run in both(LOSSLESS)
        for what, today, most in (
            ("control packets per data packet", "4 to 6", 0.07),
            ("losses declared per delivery", "3", 0.001),
        )
    ),
    *_recovered("equality, 1 %", "51", 99.0),
    *_recovered("equality, 5 %", "44", 99.0),
    *_recovered("equality, 15 %", "29", 97.0),
    *_recovered("rare, 5 %", "3 to 17", 98.0),
    *_recovered("ranges, 5 %", "64", 99.0),
    *_recovered("mixed, 5 %", "-", 98.0),
    *_recovered("bursts", "38", 98.0),
    *_recovered("outages", "28", 98.0),
    *_cost("equality, 1 %", "8", 15.0, 5.0),
    *_cost("equality, 5 %", "16", 50.0, 10.0),
    *_cost("equality, 15 %", "36", 130.0, 25.0),
    _goal("equality, 5 %: time to recover, p50 (s)", "0.8", high=0.9),
    _goal(f"equality, 5 %{REPAIRED}: time to recover, p50 (s)", "0.8", high=0.1),
    _goal("neither recovered nor reported, in all runs", "most of a burst, every tail", high=0.0),
    Criterion(name=f"{DOUBT}, in all runs", paper="-", kind="illustration", note="of all that was lost in 16 runs"),
    *(
        _goal(f"{run}: last message noticed after, p50 (s)", "never", high=1.0, note="to the end of the run if never")
        for run in both(["equality, 5 %"])
    ),
    _goal("order: violations removed (%)", "62 to 71", low=95.0),
    _goal("order: extra delay, p99 (s)", "0.015 to 0.023", high=0.020),
    _goal("header for six attributes (B)", "386", high=175.0),
)

EXPERIMENTS = (
    Experiment(
        name="transport-any-content",
        title="Order and recovery for any content",
        source="beyond 002 chapters 3 and 4; networks of our own",
        about="Random trees with nothing tuned, filters as people write them, and losses of all kinds. What users get,"
        " judged by what was published and what came, not by what the transport says of itself.",
        plans=lambda scale: drawn(scale, 1),
        product="it has the product's settings already, its links with repair and without",
        drawn=drawn,
        measure=measure,
        draw=_draw,
        parameters={
            "transport": "the product's defaults",
            "links": f"as they are (end to end), and with link repair, the product's default (`{REPAIRED[2:]}`)",
            "network": "20 brokers in a random tree, 4 workers of 1 ms each; links of 2 to 30 ms",
            "clients": "30 publishers of 10 messages/s (Poisson), which stop one after the other; 100 subscribers",
            "filters": "equality 1 of 15; rare 1 of 300; ranges 1 of 50 to 1 of 5; mixed: all of these, LIKE, IN, OR",
            "trouble": f"loss on each link; bursts of {BURST:g} packets at 5 %; outages of 200 to 500 ms, on each link"
            " one in 10 s on average",
            "order": "spikes of 200 messages/s; a plain subscription beside the ordered one",
            "bound": "what we aim for; the paper's column is 002's scheme, as it was measured before",
        },
        criteria=CRITERIA,
    ),
)
