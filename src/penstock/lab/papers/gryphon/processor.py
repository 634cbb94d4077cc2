"""001 section 2: congestion by processor time, at a relay, at an edge, and at the pubends' broker.

"Congestion at an IB or SHB, due to not having enough CPU capacity, can also appear to be network congestion to an
upstream broker [...] However, CPU congestion at a PHB due to the overhead of processing NACKs may not readily appear as
queue buildup [...] We want to control all three kinds of congestion." The paper shows no figure of it. The network is
that of Figure 1 with fast links. A slow broker needs 1/CAPACITY seconds for each message that it takes in; the pubends'
broker needs 1/SENDS seconds for each message that it sends, new or again, and so has too little time when SB2 asks for
a minute of messages. What waits for a processor is bounded as what waits for a link, by 5 MB; beyond that it is
dropped, and asked for again. Each run stands beside one without control, and one with room for 100 messages only, where
what is dropped must come back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from penstock.lab.engine.experiment import Criterion, Experiment, Figure, Plan, Scale, Views
from penstock.lab.papers.gryphon.collapse import NO_CONTROL
from penstock.lab.papers.gryphon.outcome import Outcome, outcome
from penstock.lab.papers.gryphon.setting import NAN, PAPER, PARAMETERS, between, curves, rates_figure, smoothed
from penstock.lab.setups.gryphon import (
    PAPER_CONTROL,
    QUEUE_BYTES,
    RATE,
    WIRE_BYTES,
    outage,
    simple_network,
)
from penstock.scenario.spec import FaultSpec, Scenario
from penstock.streams.config import StreamsConfig

WITH, WITHOUT, LITTLE_ROOM = "with control", "without control", "with control, little room"
ROOM = {WITH: QUEUE_BYTES // WIRE_BYTES, WITHOUT: QUEUE_BYTES // WIRE_BYTES, LITTLE_ROOM: 100}  # messages
DRAIN = 30.0
CAPACITY = 300.0  # messages/s that a slow relay or edge takes in
SENDS = 700.0  # messages/s that a slow pubend's broker sends
SECONDS = {"paper": 240.0, "smoke": 60.0}
FEWER = {"paper": 1, "smoke": 20}
PUBEND_FEWER = {"paper": 2, "smoke": 8}
CALM = {"paper": 30.0, "smoke": 8.0}
DOWN = {"paper": 60.0, "smoke": 15.0}
AFTER = {"paper": 180.0, "smoke": 40.0}
EDGES = ("SB1", "SB2")
WORDS = {WITH: "controlled", WITHOUT: "free", LITTLE_ROOM: "little-room"}


def slowed(
    name: str,
    fewer: int,
    broker: str,
    control: StreamsConfig,
    duration: float,
    faults: Sequence[FaultSpec] = (),
    room: int = ROOM[WITH],
    **costs: float,  # seconds of a message in the paper's size
) -> Scenario:
    """Figure 1 with one broker that has too little processor time."""
    scenario = simple_network(name, duration=duration, drain=DRAIN, control=control, faults=faults, fewer=fewer)
    spec: dict[str, Any] = {key: seconds * fewer for key, seconds in costs.items()}
    spec["ingress_packets"] = room // fewer
    brokers = tuple(replace(one, **spec) if one.name == broker else one for one in scenario.broker)
    return replace(scenario, broker=brokers)


def _slow_plans(name: str, broker: str) -> Callable[[Scale], Mapping[str, Plan]]:
    def plans(scale: Scale) -> Mapping[str, Plan]:
        def plan(control: StreamsConfig, run: str) -> Plan:
            cost, called = 1.0 / CAPACITY, f"{name}-{WORDS[run]}-{scale}"
            scenario = slowed(called, FEWER[scale], broker, control, SECONDS[scale], room=ROOM[run], service_mean=cost)
            return Plan(scenario=scenario)

        return {run: plan(NO_CONTROL if run == WITHOUT else PAPER_CONTROL, run) for run in ROOM}

    return plans


def pubend_plans(scale: Scale) -> Mapping[str, Plan]:
    """IB - SB2 fails for a minute, and the pubends' broker must send all of that again."""
    back = CALM[scale] + DOWN[scale]
    faults = outage(CALM[scale], back, ("IB", "SB2"))

    def plan(control: StreamsConfig, run: str) -> Plan:
        name, duration, cost = f"pdcc-slow-pubend-{WORDS[run]}-{scale}", back + AFTER[scale], 1.0 / SENDS
        scenario = slowed(name, PUBEND_FEWER[scale], "PB", control, duration, faults, send_cost=cost)
        return Plan(scenario=scenario)

    return {WITH: plan(PAPER_CONTROL, WITH), WITHOUT: plan(NO_CONTROL, WITHOUT)}


def _waiting_megabytes(counts: Outcome, broker: str) -> float:
    return float(counts.ingress_packets(broker).max()) * counts.fewer * WIRE_BYTES / 1e6


def _measure_slow(broker: str, others: Sequence[str]) -> Callable[[Views], Mapping[str, float]]:
    def measure(views: Views) -> Mapping[str, float]:
        values: dict[str, float] = {}
        for name, view in views.items():
            counts = outcome(view)
            start, stop = counts.seconds / 2, counts.seconds
            published = between(counts.published, start, stop)
            received = {edge: between(counts.received[edge], start, stop) for edge in EDGES}
            values |= {
                f"{name}: published, share of what the processor can do": published / CAPACITY,
                f"{name}: most that waited for it (MB)": _waiting_megabytes(counts, broker),
                f"{name}: dropped there (messages)": float(counts.drops("ingress")) * counts.fewer,
                f"{name}: largest queue of a link (MB)": counts.largest_queue / 1e6,
                f"{name}: missed, repeated or disordered": counts.wrong,
                f"{name}: not delivered at the end": float(counts.all_faults.waiting) * counts.fewer,
            }
            values |= {f"{name}: {edge}, share of what is published": received[edge] / published for edge in EDGES}
            values[f"{name}: worst edge, share of what the processor can do"] = min(received.values()) / CAPACITY
        if others:
            values[f"{WITH}: other edges, least share of what is published"] = min(
                values[f"{WITH}: {edge}, share of what is published"] for edge in others
            )
        return values

    return measure


def measure_pubend(views: Views) -> Mapping[str, float]:
    """From the return of the link on."""
    values: dict[str, float] = {}
    scale = views.scale
    back = CALM[scale] + DOWN[scale]
    for name, view in views.items():
        counts = outcome(view)
        done = counts.recovered_at("SB2", back) if name == WITH else NAN
        until = done if done == done else counts.seconds
        values |= {
            f"{name}: recovery (s)": done - back,
            f"{name}: published before (messages/s)": between(counts.published, CALM[scale] / 2, CALM[scale]),
            f"{name}: published meanwhile (messages/s)": between(counts.published, back, until),
            f"{name}: SB1 meanwhile, share of what is published": between(counts.received["SB1"], back, until)
            / max(between(counts.published, back, until), 1e-9),
            f"{name}: SB2 at the end (messages/s)": between(
                counts.received["SB2"], counts.seconds - 20.0, counts.seconds
            ),
            f"{name}: published at the end, share": between(counts.published, counts.seconds - 20.0, counts.seconds)
            / RATE,
            f"{name}: longest publish() (s)": float(counts.waits[-1]),
            f"{name}: most that waited for the processor (MB)": _waiting_megabytes(counts, "PB"),
            f"{name}: dropped there (messages)": float(counts.drops("ingress")) * counts.fewer,
            f"{name}: missed, repeated or disordered": counts.wrong,
            f"{name}: not delivered at the end": float(counts.all_faults.waiting) * counts.fewer,
        }
    return values


def _draw(broker: str) -> Callable[[Views], Sequence[Figure]]:
    def draw(views: Views) -> Sequence[Figure]:
        waiting = {
            name: smoothed(outcome(view).ingress_packets(broker) * outcome(view).fewer * WIRE_BYTES / 1e6)
            for name, view in views.items()
            if name != LITTLE_ROOM
        }
        return (
            *(rates_figure(f"Rates {name}.", outcome(view)) for name, view in views.items()),
            curves(f"What waits for the processor of {broker}.", waiting, "MB"),
        )

    return draw


def _once(name: str) -> Criterion:
    return Criterion(name=f"{name}: missed, repeated or disordered", paper="exactly once, in order", high=0.0)


SLOW_CRITERIA = (
    Criterion(
        name=f"{WITH}: published, share of what the processor can do",
        paper="controlled like a link",
        low=0.6,
        high=1.0,
        scales=PAPER,
        note="the bounds of E2",
    ),
    Criterion(name=f"{WITH}: most that waited for it (MB)", paper="never above 1", high=1.0, scales=PAPER),
    Criterion(name=f"{WITH}: dropped there (messages)", paper="queues do not overflow", high=0.0, scales=PAPER),
    Criterion(name=f"{WITH}: not delivered at the end", paper="every message", high=0.0, scales=PAPER),
    Criterion(
        name=f"{WITHOUT}: worst edge, share of what the processor can do",
        judged="every seed",
        paper="collapse",
        high=0.5,
        scales=PAPER,
        note="less than half of what it could do reaches an application in order",
    ),
    Criterion(name=f"{LITTLE_ROOM}: dropped there (messages)", paper="-", low=1.0, note="drops are counted"),
    Criterion(
        name=f"{LITTLE_ROOM}: not delivered at the end", paper="every message", high=0.0, note="and recovered by NACKs"
    ),
    *map(_once, ROOM),
)
SLOW_PARAMETERS = {
    **PARAMETERS,
    "processor": f"{CAPACITY:g} messages/s, exponential service; 5 MB may wait for it, or 100 messages",
    "link": "all links are fast",
}
OTHERS = Criterion(
    name=f"{WITH}: other edges, least share of what is published",
    judged="every seed",
    paper="other brokers keep up",
    low=0.98,
)
EXPERIMENTS = (
    Experiment(
        name="pdcc-slow-relay",
        title="A relay with too little processor time",
        source="001 section 2, kind (2) of congestion",
        about="IB can take in 300 messages/s of 500. With control the pubends take as many as it can; without, what"
        " waits for it overflows and what is asked for again fills it.",
        plans=_slow_plans("pdcc-slow-relay", "IB"),
        measure=_measure_slow("IB", ()),
        draw=_draw("IB"),
        parameters=SLOW_PARAMETERS,
        criteria=SLOW_CRITERIA,
    ),
    Experiment(
        name="pdcc-slow-edge",
        title="An edge with too little processor time",
        source="001 section 2, kind (2) of congestion",
        about="SB1 can take in 300 messages/s of 500. With control the pubends take as many as it can, and SB2 gets all"
        " of them; without, SB1 drops what it must ask for again.",
        plans=_slow_plans("pdcc-slow-edge", "SB1"),
        measure=_measure_slow("SB1", ("SB2",)),
        draw=_draw("SB1"),
        parameters=SLOW_PARAMETERS,
        criteria=(*SLOW_CRITERIA, OTHERS),
    ),
    Experiment(
        name="pdcc-slow-pubend",
        title="A pubend whose broker has too little time for NACKs",
        source="001 section 2, kind (3) of congestion",
        about="PB can send 700 messages/s, new or again, and SB2 asks for a minute of them. With control the pubends"
        " leave time for that, and SB1 goes on.",
        plans=pubend_plans,
        measure=measure_pubend,
        draw=_draw("PB"),
        parameters={
            **PARAMETERS,
            "processor": f"PB sends {SENDS:g} messages/s, new or again; 5 MB may wait for it",
            "link": "all links are fast; IB - SB2 down for 60 s",
        },
        criteria=(
            Criterion(name=f"{WITH}: recovery (s)", paper="eventually successful", low=0.0, scales=PAPER),
            Criterion(
                name=f"{WITH}: SB1 meanwhile, share of what is published", paper="other brokers keep up", low=0.98
            ),
            Criterion(name=f"{WITH}: published at the end, share", paper="raised afterwards", low=0.95, scales=PAPER),
            Criterion(
                name=f"{WITH}: most that waited for the processor (MB)", paper="never above 1", high=1.0, scales=PAPER
            ),
            Criterion(name=f"{WITH}: not delivered at the end", paper="every message", high=0.0, scales=PAPER),
            _once(WITH),
            _once(WITHOUT),
            Criterion(
                name=f"{WITHOUT}: longest publish() (s)",
                paper="-",
                kind="goal",
                scales=PAPER,
                note="reported beside that with control",
            ),
        ),
    ),
)
