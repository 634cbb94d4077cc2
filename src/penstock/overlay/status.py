"""What a broker reports of itself, and how a client asks for it.

`StatusResponder` lives in a broker: it answers a StatusRequest with what the node and its host see, as JSON. It tells
each client how many deliveries to it had to be dropped because the client was too slow (`Losses`), so that the client's
own reports can say so: as soon as the link has drained, once a second while it does not, and whenever the client asks,
which it does before it leaves. `StatusRequester` lives in a client and takes the answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Self

import msgspec

from penstock.content.message import MessageLimits
from penstock.kernel.link import Link
from penstock.kernel.machine import Accepted, Done, Effect, Outcome, Refused, Reported, Send
from penstock.kernel.packet import BROKER, CLIENT, Lane, Packet, check_integers, increasing, require
from penstock.kernel.service import Context, Service
from penstock.kernel.storage import Ticket
from penstock.kernel.timers import Key
from penstock.kernel.trace import LimitReached

LOSSES_EVERY = 1.0  # seconds
ANSWERS_MAX = 16  # to one batch of requests; a report may be long
ASKED_MAX = 1_000  # of a client, unanswered
LOSSES_MAX = 100_000  # subscriptions of a client, open and closed, whose losses are kept


class StatusRequest(Packet, frozen=True):
    """What do you see?"""

    sent_by = (CLIENT,)

    ticket: int


class Status(Packet, frozen=True):
    """What a broker sees: its links, queues, drops and clients, and what its services report, as a JSON object."""

    sent_by = (BROKER,)

    ticket: int
    report: bytes


class LossesRequest(Packet, frozen=True):
    """What was dropped on the way to me that I have not been told of?"""

    sent_by = (CLIENT,)

    ticket: int


class Losses(Packet, frozen=True):
    """So many deliveries were dropped on their last link since the last Losses: (subscription, count), increasing."""

    sent_by = (BROKER,)

    deliveries: tuple[tuple[int, int], ...]
    ticket: int = 0  # of the request that this answers; 0: nobody asked

    def checked(self, limits: MessageLimits) -> Self:
        check_integers(self)
        require(increasing(tuple(number for number, _ in self.deliveries)), "subscriptions must increase")
        require(all(number >= 0 and count > 0 for number, count in self.deliveries), "bad count of losses")
        return self


class StatusTimer(IntEnum):
    """The timers of status."""

    LOSSES = 0  # tell clients what was dropped on the way to them


class StatusResponder:
    """A broker's side."""

    packet_kinds: tuple[type[Packet], ...] = (StatusRequest, LossesRequest)

    def __init__(self, context: Context) -> None:
        self._node = context.node
        self._timers = context.timers
        self._links_up: dict[Link, None] = {}

    def receive(self, packets: Sequence[Packet], *, sender: Link, now: float) -> list[Effect]:
        report = b""
        answers: list[Effect] = []
        for packet in packets[:ANSWERS_MAX]:
            if isinstance(packet, StatusRequest):
                report = report or msgspec.json.encode(self._node.status())
                answers.append(Send((sender,), Status(packet.ticket, report), Lane.CONTROL))
            elif isinstance(packet, LossesRequest):
                answers += self._losses(sender, packet.ticket)
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
        return [_losses_packet(link, counts) for link, counts in lost.items()]

    def link_drained(self, link: Link, *, now: float) -> list[Effect]:
        """All that found room has left: say what found none."""
        return self._losses(link)

    def _losses(self, link: Link, ticket: int = 0) -> list[Effect]:
        return [_losses_packet(link, self._node.take_lost_deliveries(link).get(link, {}), ticket)]


class StatusRequester:
    """A client's side."""

    packet_kinds: tuple[type[Packet], ...] = (Status, Losses)

    def __init__(self, context: Context) -> None:
        self.losses: dict[int, int] = {}  # subscription -> deliveries that our brokers dropped on the way to us
        self._asked: dict[int, None] = {}  # tickets that no broker has answered yet

    def ask(self, link: Link, ticket: Ticket) -> list[Effect]:
        """Ask the broker at the other end of this link; the ticket is answered with its report."""
        if len(self._asked) >= ASKED_MAX:
            return [Done(ticket, Refused(f"{ASKED_MAX} requests for a report are unanswered already"))]
        self._asked[ticket] = None
        return [Send((link,), StatusRequest(ticket), Lane.CONTROL)]

    def ask_losses(self, link: Link, ticket: Ticket) -> list[Effect]:
        """Ask for what was dropped and not told yet; the ticket is answered when `losses` has it."""
        self._asked[ticket] = None
        return [Send((link,), LossesRequest(ticket), Lane.CONTROL)]

    def forget(self, ticket: Ticket) -> None:
        """Nobody waits for this answer any more."""
        self._asked.pop(ticket, None)

    def receive(self, packets: Sequence[Packet], *, sender: Link, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for packet in packets:
            if isinstance(packet, Losses):
                for number, count in packet.deliveries:
                    if number in self.losses or len(self.losses) < LOSSES_MAX:
                        self.losses[number] = self.losses.get(number, 0) + count
                if packet.ticket in self._asked:
                    del self._asked[packet.ticket]
                    effects.append(Done(packet.ticket, Accepted()))
            elif isinstance(packet, Status) and packet.ticket in self._asked:  # others nobody asked for
                del self._asked[packet.ticket]
                effects.append(Done(packet.ticket, _read(packet.report)))
        return effects


def _losses_packet(link: Link, counts: dict[int, int], ticket: int = 0) -> Effect:
    return Send((link,), Losses(tuple(sorted(counts.items())), ticket), Lane.CONTROL)


def _read(data: bytes) -> Outcome:
    try:
        return Reported(msgspec.json.decode(data, type=dict[str, Any]))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return Refused(f"the broker's report cannot be read: {error}")


STATUS = Service(
    name="status",
    packets=(StatusRequest, Status, LossesRequest, Losses),
    timers=StatusTimer,
    broker=StatusResponder,
    client=StatusRequester,
)
