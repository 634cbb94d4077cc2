"""The seam between the transport and its two schemes: what a scheme does, and nothing else.

`Transport` has what both need: subscriptions, the inbox, echoes, congestion control, the way of a published message.
A scheme has the header, order, the detection of losses and their recovery. There are two:

    ledgers   the product's: typed sketches, ledgers, requests to the publisher (`ledgers/`)
    papers    002's: bits, the latch, SRM and adaptive caches (`papers_scheme`); for its experiments, and who wants it
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from penstock.content.message import Message
from penstock.kernel.timers import Key as TimerKey
from penstock.transport.bearer import TransportEffect
from penstock.transport.receiver.controlled_session import ControlledSession
from penstock.transport.report import TransportReport
from penstock.transport.subscriptions import TransportSubscription
from penstock.transport.wire.flow_fields import Control


class Outgoing(Protocol):
    """A scheme's side of publishing."""

    name: str

    def admit_by(self, admit: Callable[[Message, float], bool]) -> None:
        """From now on this says whether a repair of a message may leave."""

    def encoding(self, message: Message) -> int:
        """The bits by which the message is compared with flows."""

    def leave(self, message: Message, *, now: float, control: Control | None, limited: bool) -> list[TransportEffect]:
        """The message leaves with its number and header, and what else is to be sent after it; raises InvalidMessage.

        `limited`: it belongs to a flow that somebody limits.
        """

    def attribute_names(self) -> tuple[str, ...]:
        """Attributes of which more is told than may be of use."""

    def unused(self, names: tuple[str, ...]) -> None:
        """No filter in the network names these, as far as it is known."""


class Scheme(Protocol):
    """Order, loss detection and recovery for one client."""

    @property
    def outgoing(self) -> Outgoing:
        """Its side of publishing."""

    def start(self) -> list[TransportEffect]:
        """What a publisher subscribes to, beside its inbox."""

    def leaving(self, *, now: float) -> list[TransportEffect]:
        """What a publisher tells last."""

    def subscribed(self, number: int, subscription: TransportSubscription, *, now: float) -> list[TransportEffect]:
        """A subscription of the application has been made."""

    def unsubscribed(self, subscription: TransportSubscription | None, *, now: float) -> list[TransportEffect]:
        """And one has been closed."""

    def data(self, wanted: tuple[int, ...], header: bytes, message: Message, *, now: float) -> list[TransportEffect]:
        """A message with a header has come for these subscriptions; raises InvalidHeader, ForeignScheme."""

    def control_message(self, kind: str, data: bytes, inside: Message, *, now: float) -> list[TransportEffect] | None:
        """A control message has come; None if it is none of this scheme. Raises InvalidHeader."""

    def withheld(
        self, publisher: str, incarnation: int, counts: Sequence[int], *, now: float, next_word: float = 0.0
    ) -> list[TransportEffect]:
        """These of a publisher's messages, by the counts of their identities, were withheld from us: no losses.

        The next word of such may come in `next_word` seconds.
        """

    def public(self, kind: str, inside: Message) -> bool:
        """Whether control messages of this kind take the way of an application's message."""

    def expired(self, timer: int, key: TimerKey, *, now: float) -> list[TransportEffect]:
        """A timer of this scheme has expired."""

    def tick(self, *, now: float) -> list[TransportEffect]:
        """Once per interval, while there are sessions."""

    def sessions(self) -> Sequence[ControlledSession]:
        """All publishers that something came from lately."""

    def session(self, publisher: str, incarnation: int) -> ControlledSession | None:
        """One of them."""

    def report(self, number: int) -> TransportReport:
        """How a subscription fares."""
