"""Four rows for real: two brokers, and between them a bottleneck of the kernel (`live.emulation.namespace_run`).

    ten by ten, nested, flaps   as `rows` draws them, with one broker on each side
    fast and slow               the bottleneck is wide; one application takes READS messages/s, another all

The link is a TCP connection of the kernel, so how fast it drains is measured on a socket. Messages have the size that
such runs reckon with.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from penstock.kernel.randomness import generator
from penstock.lab.setups.network_rates.drawing import MBIT, STARTS, Draft, brokers_of
from penstock.lab.setups.network_rates.rows import FAR, NEAR, READS, flaps, nested, ten_by_ten
from penstock.rates.config import RatesConfig
from penstock.rates.service import RATES
from penstock.scenario.spec import Scenario
from penstock.scenario.workload import Recipe

SEED = 1
NAMES = {NEAR: "left", FAR: "right"}
MESSAGE_BYTES = 280
WIDE_BITS = 20 * MBIT
DRAIN = 5.0


def fast_and_slow(draft: Draft) -> None:
    near, far = draft.side(NEAR)[0], draft.side(FAR)[0]
    draft.bottleneck(NEAR, FAR, WIDE_BITS)
    draft.publisher("p", near, {"x": Recipe(uniform=(0.0, 1.0))}, 5.0 * READS)
    draft.reader("fast", far, "x >= 0")
    draft.reader("slow", far, "x >= 0", reads_messages_per_s=READS, queue_max=1_000)


ROWS: dict[str, Callable[[Draft], None]] = {
    "ten by ten": ten_by_ten,
    "nested": nested,
    "flaps": flaps,
    "fast and slow": fast_and_slow,
}


class _OneEach(Draft):
    """Draws sides of one broker."""

    def side(self, root: str, brokers: int | None = None) -> list[str]:
        return super().side(root, 1)


def live_network(row: str, *, seconds: float, controlled: bool) -> Scenario:
    """The network of this row, in which messages are published for so many seconds."""
    draft = _OneEach(generator(SEED, "live network rates", row), seconds, message_bytes=MESSAGE_BYTES)
    ROWS[row](draft)
    return Scenario(
        name=f"rates-{row}-live-{seconds:g}-{'controlled' if controlled else 'free'}".replace(" ", "-"),
        duration=draft.duration,
        drain=DRAIN,
        settle=STARTS - 0.5,
        services={RATES.name: RatesConfig(enabled=controlled)},
        broker=tuple(replace(broker, name=NAMES[broker.name]) for broker in brokers_of(draft)),
        link=tuple(replace(link, between=(NAMES[NEAR], NAMES[FAR]), kind="reliable") for link in draft.links),
        client=tuple(replace(client, broker=NAMES[client.broker]) for client in draft.clients),
        fault=tuple(replace(fault, link=(NAMES[NEAR], NAMES[FAR])) for fault in draft.faults),
        check=(),
    )
