"""Five ways to control, none among them: the same bottleneck and the same workloads under each.

*Throughput* is what readers at right got, in Mbit/s of 1000 bytes a message; messages are a little smaller than that,
so a full link shows a little more than its rate. *Lost* is what had left its publisher, was due, and never came; but
for what a broker *withheld* because a link had no room, of which no copy ended on the way. The *delay* counts from
publish(), which may wait. *Fairness* is Jain's index of what each of ten flows got over its max-min fair share. The
*buffer* is the most that waited at left for right. In the queue of a datagram link nobody can look, but if it dropped
something it was full. A reliable link is a TCP connection: what waits before it is seen once a second, and whenever
something does, its send buffer is full and counts too; what waits for the wire is in it. *Control* is what travels in
the lanes of control, over all that links carry. The *reaction* is how long it takes after each change of a flapping
link until the throughput of a second is at least REACHED of what the link carries, on average.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from penstock.lab.engine.experiment import Criterion, Experiment, Figure, Plan, Scale, Views
from penstock.lab.engine.view import Columns, Floats, View
from penstock.lab.pages.style import lines, named_bars
from penstock.lab.setups.compared import (
    AT_ONCE,
    BOTTLENECK,
    CONTROLLERS,
    FLOWS,
    MBIT,
    MESSAGE_BYTES,
    OFFERED,
    QUEUE,
    SEND_BUFFER,
    SLOWER,
    STARTS,
    WORKLOADS,
    Controller,
    Workload,
    compared,
    flow_rate,
)

NAN = float("nan")
Messages = set[tuple[str, int]]  # publisher and count
DURATION = {"paper": 60.0, "smoke": 8.0}
PERIOD = {"paper": 10.0, "smoke": 2.0}
START = {"paper": 10.0, "smoke": 5.0}
REACHED = 0.8
PAPER: tuple[Scale, ...] = ("paper",)
OVERALL = ("throughput (Mbit/s)", "lost (%)", "median delay (s)", "99 % delay (s)", "buffer (messages)", "control (%)")
OF_ONE: Mapping[Workload, tuple[str, ...]] = {
    "ten unequal flows": ("fairness",),
    "overlapping": ("near (messages/s)",),
    "beside TCP": ("TCP (Mbit/s)",),
    "flapping": ("reaction (s)",),
}


def plans(scale: Scale) -> Mapping[str, Plan]:
    """Every workload under every controller."""
    return {
        f"{workload}, {controller}": Plan(
            scenario=compared(controller, workload, duration=DURATION[scale], period=PERIOD[scale])
        )
        for workload in WORKLOADS
        for controller in CONTROLLERS
    }


def measure(views: Views) -> Mapping[str, float]:
    """One row of the table for each run."""
    values: dict[str, float] = {}
    for workload in WORKLOADS:
        for controller in CONTROLLERS:
            name = f"{workload}, {controller}"
            found = measure_run(views[name], workload, controller, views.scale)
            values |= {f"{name}: {what}": value for what, value in found.items()}
    return values


def measures(workload: Workload, controller: Controller) -> tuple[str, ...]:
    """What the table says of such a run."""
    withheld = ("withheld (%)",) if controller == "network rates" else ()
    return (*OVERALL, *withheld, *OF_ONE.get(workload, ()))


def measure_run(view: View, workload: Workload, controller: Controller, scale: Scale) -> dict[str, float]:
    """What the table says of one run."""
    start, stop = START[scale], DURATION[scale]
    published, delivered = _messages(view, controller)
    rates = _per_second(delivered["time"][_at(delivered, "right")], int(stop)) * MESSAGE_BYTES * 8 / MBIT
    delays = _delays(published, delivered)
    due = _due(published, workload)
    missing = due - _came(delivered)
    withheld: Messages = missing - _ended(view) if controller == "network rates" else set()
    found = {
        "throughput (Mbit/s)": float(rates[int(start) :].mean()),
        "lost (%)": 100.0 * len(missing - withheld) / max(1, len(due)),
        "median delay (s)": float(np.median(delays)) if len(delays) else NAN,
        "99 % delay (s)": float(np.quantile(delays, 0.99)) if len(delays) else NAN,
        "buffer (messages)": _buffer(view, controller),
        "control (%)": 100.0 * _counted(view, "control bytes") / max(_counted(view, "link bytes"), 1.0),
    }
    if controller == "network rates":
        found["withheld (%)"] = 100.0 * len(withheld) / max(1, len(due))
    if workload == "ten unequal flows":
        found["fairness"] = _fairness(delivered, start, stop)
    if workload == "overlapping":
        near = _per_second(delivered["time"][_at(delivered, "near")], int(stop))
        found["near (messages/s)"] = float(near[int(start) :].mean())
    if workload == "beside TCP":
        table = view.tables.counted
        rows = _columns(table.where(table.name == "tcp delivered bytes").select("time", "value"))
        late = rows["time"] > start
        found["TCP (Mbit/s)"] = float(rows["value"][late].sum()) * 8 / MBIT / (stop - start)
    if workload == "flapping":
        found["reaction (s)"] = _reaction(delivered, scale)
    return found


def _messages(view: View, controller: Controller) -> tuple[Columns, Columns]:
    """When the application called publish(), and what was delivered."""
    tables = view.tables
    if controller == "streams":
        asked = _columns(tables.stream_requested.select("time", "publisher", "count", "attributes"))
        return asked, _columns(tables.stream_delivered.select("time", "node", "publisher", "count"))
    left = _columns(tables.published.select("time", "publisher", "count", "attributes", "waited"))
    asked = {**left, "time": left["time"] - left["waited"]}
    return asked, _columns(tables.delivered.select("time", "node", "publisher", "count"))


def _at(delivered: Columns, broker: str) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.array([node.startswith(f"{broker}-") for node in delivered["node"]], dtype=bool)


def _delays(published: Columns, delivered: Columns) -> Floats:
    """Of deliveries at right."""
    asked = dict(zip(zip(published["publisher"], published["count"], strict=True), published["time"], strict=True))
    right = _at(delivered, "right")
    rows = zip(delivered["publisher"][right], delivered["count"][right], delivered["time"][right], strict=True)
    return np.array([time - asked[publisher, count] for publisher, count, time in rows if (publisher, count) in asked])


def _due(published: Columns, workload: Workload) -> Messages:
    """What is wanted at right; what is under way at the end has five seconds to come."""
    rows = zip(published["publisher"], published["count"], published["attributes"], strict=True)
    shared = workload == "overlapping"
    return {(publisher, count) for publisher, count, text in rows if not shared or '"shared":true' in text}


def _came(delivered: Columns) -> Messages:
    right = _at(delivered, "right")
    return set(zip(delivered["publisher"][right], delivered["count"][right], strict=True))


def _ended(view: View) -> Messages:
    """Of what a copy ended on the way."""
    rows = _columns(view.tables.dropped.select("publisher", "count"))
    return set(zip(rows["publisher"], rows["count"], strict=True))


def _fairness(delivered: Columns, start: float, stop: float) -> float:
    """Jain's index of what flows got over their max-min fair shares."""
    window = (delivered["time"] >= start) & (delivered["time"] < stop) & _at(delivered, "right")
    got = np.array([(delivered["publisher"][window] == f"p{number}").sum() for number in range(FLOWS)]) / (stop - start)
    shares = got / max_min([flow_rate(number, FLOWS) for number in range(FLOWS)], BOTTLENECK * MBIT / 8 / MESSAGE_BYTES)
    return float(shares.sum() ** 2 / (FLOWS * (shares**2).sum())) if shares.any() else NAN


def max_min(offered: Sequence[float], capacity: float) -> Floats:
    """The fair share of each: nobody gets more than it offers, and nobody who could use more gets less than another."""
    shares = np.zeros(len(offered))
    left, open_flows = capacity, list(range(len(offered)))
    while open_flows:
        level = left / len(open_flows)
        content = [flow for flow in open_flows if offered[flow] <= level]
        if not content:
            shares[open_flows] = level
            break
        for flow in content:
            shares[flow] = offered[flow]
            left -= offered[flow]
        open_flows = [flow for flow in open_flows if flow not in content]
    return shares


def _reaction(delivered: Columns, scale: Scale) -> float:
    """Seconds after a change until a second is as good as the link."""
    period, stop = PERIOD[scale], DURATION[scale]
    tenths = _per_second(delivered["time"][_at(delivered, "right")] * 10.0, int(10 * stop))
    found = []
    for number in range(1, int(stop / period)):
        begin, end = int(10 * number * period), int(10 * min((number + 1) * period, stop))
        rate = BOTTLENECK * (SLOWER if number % 2 else 1.0) * MBIT / 8 / MESSAGE_BYTES
        good = [at for at in range(begin, end - 10) if tenths[at : at + 10].sum() >= REACHED * rate]
        found.append((good[0] - begin) / 10.0 if good else period)
    return float(np.mean(found)) if found else NAN


def _buffer(view: View, controller: Controller) -> float:
    if controller in ("no control", "transport", "network rates"):
        dropped = view.tables.dropped
        return float(QUEUE) if dropped.where(dropped.place == "pipe").count() else NAN
    table = view.tables.counted
    chosen = table.where((table.name == "queue packets") & (table.node == "left") & (table.peer == "right"))
    values = _columns(chosen.select("value"))["value"]
    waited = float(values.max()) if len(values) else 0.0
    return waited + SEND_BUFFER if waited else 0.0


def _counted(view: View, name: str) -> float:
    table = view.tables.counted
    rows = _columns(table.where(table.name == name).select("node", "peer", "value"))
    brokers = [broker.name for broker in view.scenario.broker]
    ours = np.isin(rows["node"], brokers) & np.isin(rows["peer"], brokers)
    return float(rows["value"][ours].sum())


def _per_second(times: Floats, seconds: int) -> Floats:
    return np.bincount(times.astype(int), minlength=seconds)[:seconds].astype(np.float64)


def _columns(frame: object) -> Columns:
    table = frame.toArrow()  # type: ignore[attr-defined]
    return {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}


# Figures.


def _draw(views: Views) -> Sequence[Figure]:
    """The throughput of each run as a bar, and the flapping link over time."""
    rows = []
    curves = []
    for workload in WORKLOADS:
        for controller in CONTROLLERS:
            view = views[f"{workload}, {controller}"]
            _, delivered = _messages(view, controller)
            times = delivered["time"][_at(delivered, "right")]
            rates = _per_second(times, int(DURATION[views.scale])) * MESSAGE_BYTES * 8 / MBIT
            mean = float(rates[int(START[views.scale]) :].mean())
            rows.append({"run": f"{workload}, {controller}", "rate": mean})
            if workload == "flapping":
                curves += [{"second": at, "value": float(rate), "series": controller} for at, rate in enumerate(rates)]
    flapping = lines(
        curves, x="second", y="value", series=list(CONTROLLERS), x_title="time (s)", y_title="Mbit/s at right"
    )
    return (
        Figure(caption="Throughput.", spec=named_bars(rows, x="run", y="rate", y_title="Mbit/s at right")),
        Figure(caption="A link that flaps.", spec=flapping),
    )


EXPERIMENTS = (
    Experiment(
        name="controllers-compared",
        title="Which controller for what?",
        source="000, 001, 003; the comparison is ours",
        about="Five workloads at one bottleneck without control, with the transport's congestion control, as a"
        " guaranteed stream, priced, and with fair rates of links. docs/controllers.md says when to choose which.",
        product="each has the product's settings already, but the transport, which has 000's and is off by default",
        plans=plans,
        measure=measure,
        draw=_draw,
        parameters={
            "bottleneck": f"{BOTTLENECK:g} Mbit/s, 20 ms, {QUEUE} packets may wait for the wire",
            "offered": f"{OFFERED:g} messages/s of {MESSAGE_BYTES} bytes on the wire, twice what it carries, from"
            f" {STARTS:g} s on; {AT_ONCE} under way at once",
            "flapping": f"a quarter of the rate in every second period of {PERIOD['paper']:g} s",
            "settings": "what Penstock does by default",
        },
        criteria=tuple(
            Criterion(name=f"{workload}, {controller}: {what}", paper="-", kind="goal", scales=PAPER, note="reported")
            for workload in WORKLOADS
            for controller in CONTROLLERS
            for what in measures(workload, controller)
        ),
    ),
)
