"""Prices by content: what one publisher says for near readers goes on while its messages for far ones wait.

No paper has this. A publisher at A says two kinds of messages, in turn: *near*, wanted at C, and *far*, wanted at C and
at E, over D-E which other senders fill. With prices by content each kind has an account and a queue of its own, and
near messages cost what A-B and B-C cost. With groups only, as in 003, publisher and receivers form one group: every
message is priced as if it went to everybody in it, and the dear link slows down both kinds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from penstock.content.message import Identity, make_message
from penstock.lab.engine.experiment import Criterion, Experiment, Figure, Plan, Scale, Views
from penstock.lab.engine.view import Floats, View
from penstock.lab.papers.spread.setting import PAPER, PARAMETERS, between, columns, counted, curves, smoothed
from penstock.lab.setups.spread import (
    ACCESS,
    MBIT,
    PACKET_BYTES,
    READING_STARTS,
    SENDING_STARTS,
    WIRE_BYTES,
    spread_network,
)
from penstock.pricing.config import PricingConfig
from penstock.scenario.spec import ClientSpec, Scenario, SubscriptionSpec
from penstock.scenario.workload import PublisherSpec

LINKS = {("A", "B"): 10.0, ("B", "C"): 10.0, ("B", "D"): 10.0, ("D", "E"): 2.0}
OTHERS = {"others": ("B", ("E",))}
RATE = 60.0  # messages/s of each kind: 0.48 Mbit/s
CONTENT, GROUPS_ONLY, ALONE = "by content", "by group", "nobody else"
SECONDS = {"paper": 200.0, "smoke": 10.0}
START = {"paper": 30.0, "smoke": 4.0}
COUNT = {"paper": 20, "smoke": 6}
PUBLISHER = "publisher-0"


def plans(scale: Scale) -> Mapping[str, Plan]:
    """By content, by group, and without anybody else."""
    return {name: Plan(scenario=scenario(scale, name)) for name in (CONTENT, GROUPS_ONLY, ALONE)}


def scenario(scale: Scale, name: str) -> Scenario:
    """One publisher of two kinds, and senders that fill the far link."""
    word = name.replace(" ", "-")
    network = spread_network(
        f"content-aware-{word}-{scale}",
        LINKS,
        OTHERS if name != ALONE else {},
        duration=SECONDS[scale],
        senders=COUNT[scale],
        pricing=PricingConfig(),
    )
    wants = {"near": ("C", "E") if name == GROUPS_ONLY else ("C",), "far": ("C", "E")}
    readers = [
        ClientSpec(
            name=f"{kind}-at-{broker}",
            broker=broker,
            subscribe=(SubscriptionSpec(where=f"group = 'both' AND kind = '{kind}'", start=READING_STARTS),),
        )
        for kind, brokers in wants.items()
        for broker in brokers
    ]
    flows = tuple(_flow(kind) for kind in wants)
    publisher = ClientSpec(name=PUBLISHER, broker="A", publish=flows, access_rate_bits_per_s=ACCESS)
    return replace(network, client=(*network.client, *readers, publisher))


def _flow(kind: str) -> PublisherSpec:
    sample = make_message(Identity(PUBLISHER, 1, 1), {"group": "both", "kind": kind}, b"")
    return PublisherSpec(
        rate_messages_per_s=RATE,
        start=SENDING_STARTS,
        attributes={"group": "both", "kind": kind},
        body_bytes=WIRE_BYTES - PACKET_BYTES - sample.size_bytes,
        waits=8,
    )


def _delivered(view: View, kind: str) -> Floats:
    """Messages of a kind that came to C, in each second."""
    table = view.tables.delivered
    times = columns(table.where(table.node == f"{kind}-at-C").select("time"))["time"]
    seconds = int(view.scenario.duration)
    return np.bincount(times.astype(int), minlength=seconds)[:seconds].astype(np.float64)


def measure(views: Views) -> Mapping[str, float]:
    """What came of each kind, over what comes when nobody else sends."""
    start, stop = START[views.scale], SECONDS[views.scale]
    rates = {
        (name, kind): between(_delivered(view, kind), start, stop)
        for name, view in views.items()
        for kind in ("near", "far")
    }
    shares = {
        f"{name}: {kind}, share of its rate alone": rates[name, kind] / max(rates[ALONE, kind], 1e-9)
        for name in (CONTENT, GROUPS_ONLY)
        for kind in ("near", "far")
    }
    return {
        **shares,
        "nobody else: near (messages/s)": rates[ALONE, "near"],
        "by content: all on D-E (Mbit/s)": counted(views[CONTENT]).mean_rate("others", start)
        + rates[CONTENT, "far"] * WIRE_BYTES * 8 / MBIT,
    }


def _draw(views: Views) -> Sequence[Figure]:
    return tuple(
        curves(
            f"What came of each kind, priced {name}.",
            {kind: smoothed(_delivered(views[name], kind)) for kind in ("near", "far")},
            "messages per second",
            compared="kinds",
        )
        for name in (CONTENT, GROUPS_ONLY)
    )


EXPERIMENTS = (
    Experiment(
        name="content-aware-pricing",
        title="Cheap content flows while dear content waits",
        source="none of the papers: 003 section 4.2 knows groups only",
        about="One publisher says two kinds of messages, one of which must cross a link that others fill. Priced by"
        " content the other kind keeps its rate; priced by group it does not.",
        plans=plans,
        measure=measure,
        draw=_draw,
        parameters={
            **{name: PARAMETERS[name] for name in ("links",)},
            "rates": "A-B, B-C, B-D 10 Mbit/s, D-E 2; 20 senders at B fill D-E",
            "publisher": f"{RATE:g} messages/s of each kind, 8 of each may wait",
            "by group": "receivers at C and E want both kinds, so that every message goes to the whole group",
        },
        criteria=(
            Criterion(name="by content: near, share of its rate alone", paper="-", low=0.95, kind="goal", scales=PAPER),
            Criterion(
                name="by group: near, share of its rate alone", paper="-", kind="goal", scales=PAPER, note="reported"
            ),
            Criterion(
                name="by content: far, share of its rate alone", paper="-", kind="goal", scales=PAPER, note="reported"
            ),
        ),
    ),
)
