"""002 section 6.2: messages that take one of two ways of different constant delay, which the paper leaves open.

Nothing is simulated: departures at a constant rate, for each message one of the two ways at random, and on it a few
exponential stages. The arrivals go through the same replay as those of the runs. The law of the paper has one peak and
the differences have three, so its latch is too long or too short; the one that looks for two ways finds the gap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import get_args

import numpy as np

from penstock.kernel.randomness import derive
from penstock.lab.engine.experiment import Criterion, Experiment, Figure, Views
from penstock.lab.engine.trace_ordering import OrderingOutcome, RecordedPair, make_pair, order_trace, shape_of
from penstock.lab.pages import style
from penstock.transport.config import LatchName, TransportConfig, papers_config

LATCHES: tuple[LatchName, ...] = ("two-laplace", "normal", "chebyshev", "two-paths")
WAYS = (0.100, 0.160)  # seconds
STAGES = 3
STAGE_MEAN = 0.001
RATE = 200.0  # messages per second: a message on the longer way is overtaken by about six
MATCH = 0.8
MESSAGES = {"paper": 40_000, "smoke": 4_000}
CONFIG = papers_config(record_entries=25, hops=STAGES)


def _arrivals(seed: int, messages: int) -> RecordedPair:
    """A client that wants some of the messages, and gets all of those."""
    random = np.random.default_rng(derive(seed, "fifo-multipath"))
    departures = np.arange(1, messages + 1) / RATE
    wanted = random.random(messages) < MATCH
    ways = np.asarray(WAYS)[random.integers(0, 2, messages)]
    arrivals = departures + ways + random.exponential(STAGE_MEAN, (STAGES, messages)).sum(axis=0)
    relevant = {shape_of(CONFIG): wanted.astype(np.uint8).tobytes()}
    return make_pair(departures.tolist(), np.flatnonzero(wanted) + 1, arrivals[wanted], relevant)


def _outcomes(pair: RecordedPair) -> dict[str, OrderingOutcome]:
    return {name: order_trace(pair, _with_latch(name)) for name in LATCHES}


def _with_latch(name: LatchName) -> TransportConfig:
    assert name in get_args(LatchName)
    return papers_config(record_entries=CONFIG.record_entries, hops=STAGES, latch=name)


def _measure(views: Views) -> Mapping[str, float]:
    pair = _arrivals(views.seed, MESSAGES[views.scale])
    violations = int(pair.late.sum())
    found: dict[str, float] = {"violations without ordering per message": violations / len(pair.arrivals)}
    for name, outcome in _outcomes(pair).items():
        found[f"{name}: violations removed"] = 1.0 - outcome.violations / violations
        found[f"{name}: held over the oracle's"] = outcome.held / float(pair.oracle.sum())
        found[f"{name}: mean latch (ms)"] = 1000 * outcome.assigned / outcome.messages
    return found


def _draw(views: Views) -> Sequence[Figure]:
    pair = _arrivals(views.seed, MESSAGES["smoke"])
    left = {"none": float(pair.late.sum())} | {n: float(o.violations) for n, o in _outcomes(pair).items()}
    rows = [{"latch": name, "violations": count} for name, count in left.items()]
    spec = style.named_bars(rows, x="latch", y="violations", y_title="FIFO violations left", log=True)
    return (Figure(caption=f"Two ways, {len(pair.arrivals)} messages: violations left by each latch.", spec=spec),)


def _reported(name: str) -> Criterion:
    return Criterion(name=name, paper="-", kind="goal", note="reported")


EXPERIMENT = Experiment(
    name="fifo-multipath",
    title="Two ways of different delay",
    source="002 section 6.2",
    about="Each message takes one of two ways at random. The paper names the case and leaves it open; here is what its"
    " latch leaves, what those that know only a variance leave, and what one leaves that looks for two ways.",
    plans=lambda scale: {},
    measure=_measure,
    draw=_draw,
    parameters={
        "ways": " and ".join(f"{1000 * way:g} ms" for way in WAYS) + ", chosen at random for each message",
        "stages": f"{STAGES}, exponential with mean {1000 * STAGE_MEAN:g} ms",
        "messages": f"{RATE:g}/s, of which the client wants {MATCH:.0%}",
        "ordering": f"P_t {CONFIG.violation_probability:g}, record of {CONFIG.record_entries} entries",
    },
    criteria=(
        Criterion(name="two-paths: violations removed", paper="-", low=0.95, kind="goal"),
        *(_reported(f"{name}: violations removed") for name in LATCHES[:-1]),
        *(_reported(f"{name}: held over the oracle's") for name in LATCHES),
        *(_reported(f"{name}: mean latch (ms)") for name in LATCHES),
    ),
)
