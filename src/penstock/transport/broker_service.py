"""A broker's part in the transport: it tells a publisher which of its attributes no filter in the network names.

    UnusedRequest   from a publisher to its home broker: of these names, which does nobody use?
    Unused          the answer

Records and ledgers need not tell of those (`ledgers/column_use`). Where interest is exact a broker knows all filters,
but not those that another one covers. An answer that is old or wrong costs requests, no messages, so nothing is kept
here and nobody is told of changes: publishers ask again. Bounds: NAMES_MAX names in a request, ANSWERS_MAX answers at
once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from penstock.content.message import MessageLimits
from penstock.kernel.link import Link
from penstock.kernel.machine import Effect, Send
from penstock.kernel.packet import BROKER, CLIENT, Lane, Packet, require
from penstock.kernel.service import Context
from penstock.kernel.trace import LimitReached
from penstock.overlay.routing import Routing
from penstock.transport.ledgers.column_use import NAMES_MAX

ANSWERS_MAX = 4  # to the packets that came together


class UnusedRequest(Packet, frozen=True):
    """Which of these attributes does no filter name?"""

    sent_by = (CLIENT,)

    names: tuple[str, ...]

    def checked(self, limits: MessageLimits) -> Self:
        _check(self.names, limits)
        return self


class Unused(Packet, frozen=True):
    """No filter names these, of those that were asked about."""

    sent_by = (BROKER,)

    names: tuple[str, ...]

    def checked(self, limits: MessageLimits) -> Self:
        _check(self.names, limits)
        return self


class UnusedResponder:
    """Answers publishers."""

    packet_kinds: tuple[type[Packet], ...] = (UnusedRequest,)

    def __init__(self, context: Context) -> None:
        self._routing = context.below(Routing)

    def receive(self, packets: Sequence[Packet], *, sender: Link, now: float) -> list[Effect]:
        answers: list[Effect] = []
        for packet in packets[:ANSWERS_MAX]:
            assert isinstance(packet, UnusedRequest)
            answers.append(Send((sender,), Unused(self._routing.form.unused(packet.names)), Lane.CONTROL))
        if len(packets) > ANSWERS_MAX:
            answers.append(LimitReached("requests for unused attributes at once", ANSWERS_MAX))
        return answers


def _check(names: tuple[str, ...], limits: MessageLimits) -> None:
    require(len(names) <= NAMES_MAX, f"{len(names)} names of attributes; the limit is {NAMES_MAX}")
    require(max(map(len, names), default=0) <= limits.name_bytes_max, "a name that no attribute can have")
