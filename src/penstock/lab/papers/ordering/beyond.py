"""How near the product's own ordering comes to an oracle that knows which messages are still to come, with 46 brokers.

Every client of Figure 3.13's network subscribes twice to the same: once plainly and once with order, with the product's
defaults and nothing set. The plain twin shows the arrivals, so that both the violations and the oracle's waits are
those of the same messages; what the other got later is what order costs. Headers occupy the links here, and their size
is reported: a record of hundreds of entries would come near to the oracle too, and cost more than the message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from penstock.lab.engine.experiment import Criterion, Experiment, Figure, Plan, Scale, Views
from penstock.lab.engine.trace_ordering import make_pair
from penstock.lab.engine.view import View
from penstock.lab.pages import style
from penstock.lab.papers.any_content.table import traffic
from penstock.lab.papers.ordering.instances import (
    FORTY_SIX,
    FORTY_SIX_PARAMETERS,
    appendix,
    forty_six_plan,
    ratio,
)
from penstock.lab.setups.product import with_product_defaults
from penstock.lab.setups.transported import with_transport
from penstock.pipeline.groups import grouped
from penstock.scenario.spec import Scenario, SubscriptionSpec
from penstock.transport.config import TransportConfig

PAPERS = appendix(0.05, 25)
BARE, PRODUCT = "best effort", "product"


def _plans(scale: Scale) -> Mapping[str, Plan]:
    bare = forty_six_plan(scale)[BARE]
    return {BARE: bare, PRODUCT: Plan(scenario=with_twins(bare.scenario))}


def with_twins(scenario: Scenario) -> Scenario:
    """The product's defaults, and each subscription beside an ordered one to the same."""
    served = with_product_defaults(with_transport(scenario, TransportConfig()))
    clients = tuple(
        replace(client, subscribe=tuple(twin for one in client.subscribe for twin in _twins(one)))
        for client in served.client
    )
    return replace(served, name=f"{scenario.name}-twins", client=clients)


def _twins(subscription: SubscriptionSpec) -> tuple[SubscriptionSpec, SubscriptionSpec]:
    return replace(subscription, options={}), replace(subscription, options={"ordered": True})


class Waits(NamedTuple):
    """Over all pairs of publisher and client."""

    violations: int  # of the plain subscription
    left: int  # of the ordered one
    held: float  # by the ordered one, in seconds
    oracle: float
    unnecessary: float  # what the ordered one held longer than the oracle


def waits(view: View) -> Waits:
    """What order removed, and what it cost, beside an oracle on the same arrivals."""
    rows = view.tables.delivered.select("publisher", "node", "time", "count", "subscription").toArrow()
    _, columns = grouped(rows, ["publisher", "node"], ["time", "count", "subscription"])
    found = np.zeros(len(Waits._fields))
    for begin, end in zip(columns.starts, columns.ends, strict=True):
        time, count, twin = (np.asarray(columns[name][begin:end]) for name in ("time", "count", "subscription"))
        plain, ordered = (make_pair([], count[twin == number], time[twin == number], {}) for number in (0, 1))
        _, later, sooner = np.intersect1d(ordered.sequences, plain.sequences, return_indices=True)
        held = float((ordered.arrivals[later] - plain.arrivals[sooner]).sum())
        oracle = float(plain.oracle.sum())
        found += (plain.late.sum(), ordered.late.sum(), held, oracle, max(0.0, held - oracle))
    return Waits(int(found[0]), int(found[1]), *found[2:].tolist())


def _message_bytes(view: View) -> float:
    sent = traffic(view)
    return sent["data bytes"] / sent["data packets"]


def _measure(views: Views) -> Mapping[str, float]:
    found = waits(views[PRODUCT])
    traces = views[BARE].ordered_traces(FORTY_SIX)
    papers = traces.total(PAPERS, "unnecessary") / traces.total(PAPERS, "messages")
    delivered = views[PRODUCT].tables.delivered
    messages = float(delivered.where(delivered.subscription == 0).count())
    return {
        "violations removed": 1.0 - ratio(found.left, found.violations),
        "held over the oracle's": ratio(found.held, found.oracle),
        "unnecessary per message over that of P-0.05-25": ratio(found.unnecessary / messages, papers),
        "violations of the plain subscriptions": float(found.violations),
        "header (bytes of a message on a link)": _message_bytes(views[PRODUCT]) - _message_bytes(views[BARE]),
        "held per message (ms)": 1000.0 * found.held / messages,
        "P-0.05-25: violations removed": traces.removed(PAPERS),
    }


def _draw(views: Views) -> Sequence[Figure]:
    found = waits(views[PRODUCT])
    rows = [
        {"ordering": "the oracle", "held": found.oracle},
        {"ordering": "the product", "held": found.held},
    ]
    spec = style.named_bars(rows, x="ordering", y="held", y_title="seconds held, all messages together", log=False)
    return (Figure(caption="How long messages were held in all, by the oracle and by the product.", spec=spec),)


def _reported(name: str, paper: str = "-") -> Criterion:
    return Criterion(name=name, paper=paper, kind="goal", note="reported")


EXPERIMENT = Experiment(
    name="order-beyond",
    title="How near to an oracle",
    source="beyond 002 section 3.5, on the network of Figure 3.13",
    about="An oracle waits exactly for those earlier messages that do arrive. The product orders with what it has by"
    " default: records and ledgers of its own scheme, which occupy the links like everything else.",
    plans=_plans,
    measure=_measure,
    draw=_draw,
    product="it has the product's settings already",
    parameters={
        **FORTY_SIX_PARAMETERS,
        "twins": "each client subscribes plainly and, to the same, with order; the product's defaults",
    },
    criteria=(
        Criterion(name="violations removed", paper="99.5 %", low=0.999, kind="goal", scales=("paper",)),
        Criterion(name="held over the oracle's", paper="-", high=1.15, kind="goal", scales=("paper",)),
        Criterion(
            name="unnecessary per message over that of P-0.05-25", paper="-", high=0.5, kind="goal", scales=("paper",)
        ),
        _reported("violations of the plain subscriptions", "more than 115,000"),
        _reported("header (bytes of a message on a link)", "400"),
        _reported("held per message (ms)"),
        _reported("P-0.05-25: violations removed", "99.5 %"),
    ),
)
