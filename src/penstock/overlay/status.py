"""What a broker reports of itself, and how a client asks for it.

`StatusResponder` lives in a broker: it answers a StatusRequest with what the node and its host see, as JSON, and once a
second it tells each client how many deliveries to it had to be dropped because the client was too slow (`Losses`), so
that the client's own report can say so. `StatusRequester` lives in a client and takes the answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import msgspec

from penstock.kernel.link import Link
from penstock.kernel.machine import Done, Effect, Outcome, Refused, Reported, Send
from penstock.kernel.packet import BROKER, CLIENT, Lane, Packet
from penstock.kernel.service import Context, Service
from penstock.kernel.storage import Ticket
from penstock.kernel.timers import Key
from penstock.kernel.trace import LimitReached

LOSSES_EVERY = 1.0  # seconds
ANSWERS_MAX = 16  # to one batch of requests; a report may be long
ASKED_MAX = 1_000  # of a client, unanswered


class StatusRequest(Packet, frozen=True):
    """What do you see?"""

    sent_by = (CLIENT,)

    ticket: int


class Status(Packet, frozen=True):
    """What a broker sees: its links, queues, drops and clients, and what its services report, as a JSON object."""

    sent_by = (BROKER,)

    ticket: int
    report: bytes


class Losses(Packet, frozen=True):
    """So many deliveries to this client were dropped on their last link since the last report."""

    sent_by = (BROKER,)

    deliveries: int


class StatusTimer(IntEnum):
    """The timers of status."""

    LOSSES = 0  # tell clients what was dropped on the way to them


class StatusResponder:
    """A broker's side."""

    packet_kinds: tuple[type[Packet], ...] = (StatusRequest,)

    def __init__(self, context: Context) -> None:
        self._node = context.node
        self._timers = context.timers
        self._links_up: dict[Link, None] = {}

    def receive(self, packets: Sequence[Packet], *, sender: Link, now: float) -> list[Effect]:
        report = msgspec.json.encode(self._node.status())
        answers: list[Effect] = [
            Send((sender,), Status(packet.ticket, report), Lane.CONTROL)
            for packet in packets[:ANSWERS_MAX]
            if isinstance(packet, StatusRequest)
        ]
        if len(packets) > ANSWERS_MAX:
            answers.append(LimitReached("status requests at once", ANSWERS_MAX))
        return answers

    def link_changed(self, link: Link, *, up: bool, now: float) -> list[Effect]:
        if not up:
            self._links_up.pop(link, None)
        else:
            if not self._links_up:
                self._timers.set(StatusTimer.LOSSES, now + LOSSES_EVERY)
            self._links_up[link] = None
        return []

    def expired(self, timer: int, key: Key, *, now: float) -> list[Effect]:
        if self._links_up:
            self._timers.set(StatusTimer.LOSSES, now + LOSSES_EVERY)
        lost = self._node.take_lost_deliveries()
        return [Send((link,), Losses(count), Lane.CONTROL) for link, count in lost.items()]


class StatusRequester:
    """A client's side."""

    packet_kinds: tuple[type[Packet], ...] = (Status, Losses)

    def __init__(self, context: Context) -> None:
        self.losses = 0  # deliveries that our brokers dropped on the way to us
        self._asked: dict[int, None] = {}  # tickets that no broker has answered yet

    def ask(self, link: Link, ticket: Ticket) -> list[Effect]:
        """Ask the broker at the other end of this link; the ticket is answered with its report."""
        if len(self._asked) >= ASKED_MAX:
            return [Done(ticket, Refused(f"{ASKED_MAX} requests for a report are unanswered already"))]
        self._asked[ticket] = None
        return [Send((link,), StatusRequest(ticket), Lane.CONTROL)]

    def forget(self, ticket: Ticket) -> None:
        """Nobody waits for this answer any more."""
        self._asked.pop(ticket, None)

    def receive(self, packets: Sequence[Packet], *, sender: Link, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for packet in packets:
            if isinstance(packet, Losses):
                self.losses += packet.deliveries
            elif isinstance(packet, Status) and packet.ticket in self._asked:  # others nobody asked for
                del self._asked[packet.ticket]
                effects.append(Done(packet.ticket, _read(packet.report)))
        return effects


def _read(data: bytes) -> Outcome:
    try:
        return Reported(msgspec.json.decode(data, type=dict[str, Any]))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return Refused(f"the broker's report cannot be read: {error}")


STATUS = Service(
    name="status",
    packets=(StatusRequest, Status, Losses),
    timers=StatusTimer,
    broker=StatusResponder,
    client=StatusRequester,
)
