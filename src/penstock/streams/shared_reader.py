"""A member of a shared name, in its client: messages one by one, and what becomes of each.

It is a durable subscription that does not walk: it has no position. It is asked for, kept and ended like any other
(`durable_reader`); what is different is what comes and what is said of it (`share_place`). A handout that comes twice
is handed over once. What the application says is sent again until the pubend has it on disk, also over a new
connection. Every HELD_EVERY seconds all is said again, even if it is nothing: a pubend hands out nothing to a member
that it has not heard of since it registered, because its client may still wait for other pubends.

Credit is what the client may hold, over all pubends: whatever is settled makes room.

Timers: those of a durable subscription; CLIENT_ACKNOWLEDGE sends what is to be said.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from penstock.kernel.machine import Deliver, Done, Effect, Refused
from penstock.kernel.storage import Ticket
from penstock.kernel.trace import InputRefused, TraceSwitch
from penstock.streams.durable_reader import DurableReader
from penstock.streams.message import placed
from penstock.streams.packets import (
    SHARED_ITEMS_MAX,
    DurableAnswer,
    Handout,
    Position,
    ShareDelivery,
    ShareSettle,
    ShareSettled,
    ShareVerdict,
    Tick,
)
from penstock.streams.records import GapNoticed, SharedDelivered
from penstock.streams.share_place import SharePlace

GATHER = 0.002  # seconds
HELD_EVERY = 2.0  # seconds


class SharedReader(DurableReader):
    """One member."""

    def __init__(self, *asked: Any, traced: TraceSwitch | bool) -> None:
        super().__init__(*asked, traced=traced)
        self._shares: dict[str, SharePlace] = {}
        self._waiting: deque[tuple[SharePlace, Handout]] = deque()  # for the application to take them
        self._all_said_at = 0.0

    # Being in force.

    def answered(self, packet: DurableAnswer, *, now: float) -> list[Effect]:
        """In force, perhaps at another broker: say all that is known."""
        effects = super().answered(packet, now=now)
        if self.in_force:
            self._all_said_at = now - HELD_EVERY
            self._acknowledge_soon(now + GATHER)
        return effects

    def leave(self) -> list[Effect]:
        """Give back what the application has not seen."""
        effects: list[Effect] = []
        for pubend, share in self._shares.items():
            share.give_back()
            share.say_all()
            effects += [] if self.ended else self._say(pubend, share, 0.0)
            effects += share.abandon("unsubscribed before it was confirmed")
        return effects + super().leave()

    def end(self, problem: str) -> list[Effect]:
        effects = super().end(problem)
        for share in self._shares.values():
            effects += share.abandon(f"not confirmed: {problem}")
        return effects

    # What comes.

    def handed_out(self, packet: ShareDelivery, *, now: float) -> list[Effect]:
        """Messages for us and nobody else, or a gap."""
        place = self.places.get(packet.pubend)
        if place is None or place.epoch != packet.epoch:
            return []  # our subscription has not been answered yet; it comes again
        self._heard_at = now
        share = self._share(packet.pubend)
        number, effects = self.request.number, list[Effect]()
        if packet.gap is not None and share.gap_comes(packet.gap[1]):
            self._gaps += 1
            effects.append(GapNoticed(number, self.request.stream, packet.pubend, *packet.gap))
        for tick, attempt, message in packet.items:
            if not share.comes((tick, attempt)):
                self._duplicates += 1
                continue
            self._received += 1
            self._waiting.append((share, (tick, attempt)))
            if self._traced:
                who = message.identity
                at = (number, place.pubend, place.epoch, tick, attempt)
                effects.append(SharedDelivered(*at, who.publisher, who.incarnation, who.count))
            effects.append(Deliver(number, placed(message, place.pubend, place.epoch, tick, attempt)))
        self._acknowledge_soon(now + GATHER)
        return effects

    # What the application does.

    def taken(self, count: int, *, now: float) -> list[Effect]:
        """The application has taken so many, in the order in which they came."""
        for _ in range(min(count, len(self._waiting))):
            share, handout = self._waiting.popleft()
            share.taken(handout)
        self._acknowledge_soon(now + GATHER)
        return []

    def settle(
        self, pubend: str, handout: Handout, verdict: ShareVerdict, *, ticket: Ticket, now: float
    ) -> list[Effect]:
        """The application is done with one message, or rejects it."""
        share = self._shares.get(pubend)
        if share is None or self.ended:
            problem = self.problem if self.ended else f"nothing of '{pubend}' was handed to this subscription"
            return [Done(ticket, Refused(problem))] if ticket else []
        effects = share.settle(handout, verdict, ticket)
        self._acknowledge_soon(now + GATHER)
        return effects

    def acknowledge(self, pubend: str, tick: Tick, *, ticket: Ticket, now: float) -> list[Effect]:
        """Everything up to a tick is nothing that a member could know."""
        told = f"'{self.request.durable}' is shared: messages are acknowledged one by one"
        return [Done(ticket, Refused(told)) if ticket else InputRefused(self.request.client, told)]

    def settled(self, packet: ShareSettled, *, now: float) -> list[Effect]:
        """The pubend has it on disk."""
        share, place = self._shares.get(packet.pubend), self.places.get(packet.pubend)
        if share is None or place is None or place.epoch != packet.epoch:
            return []
        return [effect for handout in packet.handouts for effect in share.stored(handout)]

    # What is said.

    def acknowledge_due(self, *, now: float) -> list[Effect]:
        """Say what is new, and again what was not confirmed."""
        self._acknowledge_at = None
        if not self.in_force:  # the answer lets it out
            return []
        all_of_it = now >= self._all_said_at + HELD_EVERY
        if all_of_it:
            self._all_said_at = now
        effects: list[Effect] = []
        for pubend in self.places:
            share = self._share(pubend)
            if all_of_it:
                share.say_all()
            effects += self._say(pubend, share, now, or_nothing=all_of_it)
        unconfirmed = any(share.settled for share in self._shares.values())
        self._acknowledge_soon(now + (self._config.retry_min if unconfirmed else HELD_EVERY))
        return effects

    def _share(self, pubend: str) -> SharePlace:
        share = self._shares.get(pubend)
        if share is None:
            share = self._shares[pubend] = SharePlace(self._window)
        return share

    def _say(self, pubend: str, share: SharePlace, now: float, *, or_nothing: bool = False) -> list[Effect]:
        verdicts, place = share.say(now, self._config.retry_min), self.places[pubend]
        effects: list[Effect] = []
        for at in range(0, len(verdicts) or or_nothing, SHARED_ITEMS_MAX):
            some = verdicts[at : at + SHARED_ITEMS_MAX]
            effects += self._send(ShareSettle(self.request.number, pubend, place.epoch, some))
        return effects

    def positions(self) -> tuple[Position, ...]:
        """How far the name was, at least, when it began: a member has no position of its own."""
        return tuple(place.presented for _, place in sorted(self.places.items()))
