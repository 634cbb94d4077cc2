"""003 scenarios 4 and 5: a chain that one flow crosses whole, and others one link each (Figures 14 to 16).

Whoever crosses more dear links pays more, and gets less: so the chain carries nearly twice as much as if all flows got
the same. End-to-end TCP has the same bias. There each flow is one TCP over the same wires, without brokers between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from penstock.lab.engine.experiment import Criterion, Experiment, Figure, Plan, Scale, Views
from penstock.lab.engine.view import Floats
from penstock.lab.papers.spread.setting import PAPER, PARAMETERS, buffers_figure, counted, curves, smoothed
from penstock.lab.papers.spread.tree import adapted
from penstock.lab.setups.spread import CHAIN, PAPER_PRICING, SENDING_STARTS, TCP_WINDOW, WIRE_BYTES, spread_network
from penstock.pricing.config import PricingConfig
from penstock.scenario.spec import Scenario, TcpSpec

LONG = "A-F"
SHORT = tuple(f"{a}-{b}" for a, b in CHAIN)
FLOWS = (LONG, *SHORT)
PHASE = {"paper": 150.0, "smoke": 2.0}
BEGIN = {"paper": 0.0, "smoke": 2.0}  # of the first phase
ADAPTING = {"paper": 30.0, "smoke": 1.0}
SENDERS = {"paper": 20, "smoke": 1}
LINK_RATE = 2.0  # Mbit/s


def starts(scale: Scale) -> dict[str, float]:
    """When each flow begins."""
    return {flow: max(SENDING_STARTS, BEGIN[scale] + number * PHASE[scale]) for number, flow in enumerate(FLOWS)}


def duration(scale: Scale) -> float:
    """A phase for each flow."""
    return BEGIN[scale] + len(FLOWS) * PHASE[scale]


def chain(scale: Scale, name: str, pricing: PricingConfig = PAPER_PRICING, senders: int | None = None) -> Scenario:
    """One flow from end to end, and one for each link."""
    ends = {LONG: ("A", ("F",)), **{f"{a}-{b}": (a, (b,)) for a, b in CHAIN}}
    return spread_network(
        f"{name}-{scale}",
        CHAIN,
        ends,
        duration=duration(scale),
        senders=SENDERS[scale] if senders is None else senders,
        starts=starts(scale),
        pricing=adapted(pricing, scale),
    )


def tcp_chain(scale: Scale) -> Scenario:
    """The same with a TCP for each flow."""
    whole = ("A", *(b for _, b in CHAIN))
    paths = {LONG: whole, **{f"{a}-{b}": (a, b) for a, b in CHAIN}}
    tcp = [
        TcpSpec(name=flow, path=paths[flow], start=start, segment_bytes=WIRE_BYTES, receive_window=TCP_WINDOW)
        for flow, start in starts(scale).items()
    ]
    return spread_network(f"cb-scenario-5-{scale}", CHAIN, {}, duration=duration(scale), tcp=tcp, priced=False)


def plans(scale: Scale) -> Mapping[str, Plan]:
    """Scenario 4."""
    return {"run": Plan(scenario=chain(scale, "cb-scenario-4"))}


def tcp_plans(scale: Scale) -> Mapping[str, Plan]:
    """Scenario 5, and scenario 4 to compare it with."""
    return {"TCP": Plan(scenario=tcp_chain(scale)), **plans(scale)}


def measure(views: Views) -> Mapping[str, float]:
    """What each flow gets in each phase."""
    counts = counted(views["run"])
    rates = {flow: counts.rate(flow) for flow in FLOWS}
    found = phases(rates, views.scale)
    start = ADAPTING[views.scale] if views.scale == "paper" else BEGIN[views.scale] + ADAPTING[views.scale]
    return {**found, "largest buffer": max(counts.largest(link, start) for link in CHAIN)}


def phases(rates: Mapping[str, Floats], scale: Scale) -> dict[str, float]:
    """The rates of each phase, without its beginning."""
    phase, begin, wait = PHASE[scale], BEGIN[scale], ADAPTING[scale]
    parts = [
        slice(int(begin + number * phase + wait), int(begin + (number + 1) * phase)) for number in range(len(FLOWS))
    ]
    long = [float(rates[LONG][part].mean()) for part in parts]
    everything = [float(sum(rates[flow][part].mean() for flow in FLOWS)) for part in parts]
    first = float(rates[SHORT[0]][parts[1]].mean())
    return {
        **{f"A-F with {number} short flows (Mbit/s)": value for number, value in enumerate(long)},
        "A-B in the first shared phase (Mbit/s)": first,
        "A-F's share of A-B in the first shared phase (%)": 100.0 * long[1] / LINK_RATE,
        "A-F over A-B in the first shared phase": long[1] / max(first, 1e-9),
        "A-F, largest rise from phase to phase (Mbit/s)": max(later - earlier for earlier, later in pairwise(long)),
        "A-F, largest rise after the first shared phase (Mbit/s)": max(b - a for a, b in pairwise(long[1:])),
        "all flows together (Mbit/s)": everything[-1],
    }


def measure_tcp(views: Views) -> Mapping[str, float]:
    """The same for TCP, and how the two compare."""
    beside = counted(views["TCP"])
    found = phases({flow: beside.tcp(flow) for flow in FLOWS}, views.scale)
    priced = measure(views)["all flows together (Mbit/s)"]
    return {**found, "all flows together, over priced sending": found["all flows together (Mbit/s)"] / priced}


def _draw(views: Views) -> Sequence[Figure]:
    counts = counted(views["run"])
    return (_figure("Rates (Figure 15).", {flow: counts.rate(flow) for flow in FLOWS}), _buffers(views))


def _buffers(views: Views) -> Figure:
    return buffers_figure("The largest buffers so far.", counted(views["run"]), tuple(CHAIN))


def _draw_tcp(views: Views) -> Sequence[Figure]:
    counts = counted(views["TCP"])
    return (_figure("Rates of end-to-end TCP (Figure 16).", {flow: counts.tcp(flow) for flow in FLOWS}),)


def _figure(caption: str, rates: Mapping[str, Floats]) -> Figure:
    return curves(caption, {flow: smoothed(values) for flow, values in rates.items()}, "Mbit/s")


CHAIN_PARAMETERS = {"chain": "A-B-C-D-E-F, 2 Mbit/s each; A-F from 0 s, then a flow on each link, 150 s apart"}
EXPERIMENTS = (
    Experiment(
        name="cb-s4-chain",
        title="A flow that crosses many links, and flows that cross one",
        source="003 section 6, scenario 4, Figures 14 and 15",
        about="The flow that crosses the whole chain gives way as more of its links become dear, and the chain carries"
        " nearly all it can.",
        plans=plans,
        measure=measure,
        draw=_draw,
        parameters={**PARAMETERS, **CHAIN_PARAMETERS, "phases": "their first 30 s are not counted"},
        criteria=(
            Criterion(
                name="A-F's share of A-B in the first shared phase (%)",
                paper="about equal",
                low=40.0,
                high=60.0,
                scales=PAPER,
            ),
            Criterion(name="all flows together (Mbit/s)", paper="9.61", low=9.0, scales=PAPER),
            Criterion(name="A-F with 5 short flows (Mbit/s)", paper="almost zero", high=0.3, scales=PAPER),
            Criterion(
                name="A-F, largest rise from phase to phase (Mbit/s)",
                judged="every seed",
                paper="goes down",
                high=0.0,
                scales=PAPER,
            ),
        ),
    ),
    Experiment(
        name="cb-s5-chain-tcp",
        title="The same chain with end-to-end TCP",
        source="003 section 6, scenario 5, Figure 16",
        about="One TCP for each flow, without brokers between. The long flow is at a disadvantage here, too.",
        plans=tcp_plans,
        measure=measure_tcp,
        draw=_draw_tcp,
        parameters={
            **CHAIN_PARAMETERS,
            "TCP": f"NewReno, packets of {WIRE_BYTES} bytes, {TCP_WINDOW} may be under way",
        },
        criteria=(
            Criterion(name="A-F over A-B in the first shared phase", paper="less", high=0.999, scales=PAPER),
            Criterion(
                name="A-F, largest rise after the first shared phase (Mbit/s)",
                judged="every seed",
                paper="goes down",
                high=0.0,
                scales=PAPER,
            ),
            Criterion(
                name="all flows together, over priced sending", paper="the same behaviour", high=1.05, scales=PAPER
            ),
        ),
    ),
)
