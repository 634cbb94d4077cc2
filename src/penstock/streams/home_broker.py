"""What the parts of streams that serve a broker's own clients ask of their broker."""

from __future__ import annotations

from typing import Protocol

from penstock.kernel.machine import Effect
from penstock.overlay.packets import BrokerId
from penstock.streams.packets import Payload
from penstock.streams.relay import Relay


class HomeBroker(Protocol):
    """What the edge needs of its broker."""

    def send_to(self, broker: BrokerId, payload: Payload, *, now: float) -> list[Effect]: ...

    def pubends(self, stream: str) -> tuple[int, str, bool]:
        """How many it has; a problem if there is no such stream, and whether that may pass."""

    def host(self, pubend: str) -> BrokerId | None:
        """The broker of a pubend, if it is known."""

    def unreachable(self, pubend: str) -> str:
        """Why its broker gives no answer."""

    def relay(self, pubend: str) -> Relay | None:
        """This broker's part in a pubend, made if need be; None if nobody knows the pubend."""

    def interest_changed(self, relay: Relay, *, now: float) -> list[Effect]: ...

    def next_request(self) -> int: ...
