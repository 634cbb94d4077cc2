"""Fair rates at brokers."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.kernel.link import Link
from penstock.kernel.machine import Effect
from penstock.kernel.packet import Packet
from penstock.kernel.service import Context
from penstock.kernel.timers import Key
from penstock.rates.config import RatesConfig
from penstock.rates.packets import LinkRate, RateHeard


class RatesBroker:
    """The machine of brokers."""

    packet_kinds: tuple[type[Packet], ...] = (LinkRate, RateHeard)

    def __init__(self, context: Context) -> None:
        self._config = context.settings(RatesConfig)

    def receive(self, packets: Sequence[Packet], *, sender: Link, now: float) -> list[Effect]:
        return []

    def expired(self, timer: int, key: Key, *, now: float) -> list[Effect]:
        return []
