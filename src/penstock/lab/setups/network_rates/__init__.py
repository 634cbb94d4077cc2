"""Networks for fair rates of links, each drawn from a seed, with the control of rates and without it.

`drawing` has the parts, `rows` one network for each row of the table that `lab run network-rates` makes. The network,
its content and its load depend on the seed and on the row alone, so both runs of a pair differ in control and in
nothing else.
"""

from __future__ import annotations

from penstock.kernel.randomness import generator
from penstock.lab.setups.network_rates.drawing import SIZES, STARTS, Draft, brokers_of
from penstock.lab.setups.network_rates.rows import ROWS
from penstock.rates.config import RatesConfig
from penstock.rates.service import RATES
from penstock.scenario.spec import Scenario

DRAIN = 5.0


def rates_network(row: str, seed: int, *, seconds: float, controlled: bool) -> Scenario:
    """The network of this row and seed, in which messages are published for so many seconds."""
    random = generator(seed, "network rates", row)
    draft = Draft(random, seconds, message_bytes=280 if row == "large" else random.choice(SIZES))
    ROWS[row](draft)
    words = f"rates-{row}-{seed}-{seconds:g}-{'controlled' if controlled else 'free'}"
    return Scenario(
        name=words.replace(" ", "-").lower(),
        duration=draft.duration,
        drain=DRAIN,
        settle=STARTS - 0.5,
        services={RATES.name: RatesConfig(enabled=controlled)},
        broker=brokers_of(draft),
        link=tuple(draft.links),
        client=tuple(draft.clients),
        tcp=tuple(draft.tcp),
        fault=tuple(draft.faults),
        check=("at-most-once", "only-wanted"),
    )
