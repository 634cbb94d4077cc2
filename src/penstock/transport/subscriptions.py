"""The subscriptions that asked for more than best effort, and what the transport counts for each of them.

That is order, recovery or congestion control. All such subscriptions of a client share one session per publisher: a
message is relevant here if its encoding may match any of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from penstock.content import bloom
from penstock.content.message import Attributes, Message
from penstock.content.predicate import Predicate
from penstock.kernel.machine import Deliver
from penstock.transport.bearer import TransportEffect

MEMO_MAX = 1_000  # sets of subscriptions


@dataclass(slots=True)
class TransportSubscription:
    """A subscription with order, recovery or congestion control."""

    predicate: Predicate
    encodings: tuple[int, ...]
    ordered: bool
    recover: bool
    priority: float = 1.0  # of its flows, when a publisher must send less: a weight
    requests: int | None = None  # number of our subscription to requests for what it matches
    delivered: int = 0
    late: int = 0
    recovered: int = 0
    known_lost: int = 0  # for good
    withheld: int = 0  # for good, by links that were full or because we read slowly
    without_header: int = 0
    assigned: float = 0.0
    held: float = 0.0


class HeldDelivery(Struct, gc=False):
    """A message on its way to the application, and the numbers of the subscriptions that still have to get it."""

    message: Message
    numbers: tuple[int, ...]
    repaired: bool = False


class TransportSubscriptions:
    """All of a client's transport subscriptions, by number."""

    def __init__(self) -> None:
        self._subscriptions: dict[int, TransportSubscription] = {}
        self._relevant: tuple[int, ...] = ()
        self._recoverable: tuple[int, ...] = ()
        self._served: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._splits: dict[tuple[int, ...], tuple[tuple[int, ...], tuple[int, ...]]] = {}

    def __contains__(self, number: int) -> bool:
        return number in self._subscriptions

    def get(self, number: int) -> TransportSubscription | None:
        """The subscription of this number, if there is one."""
        return self._subscriptions.get(number)

    def add(self, number: int, subscription: TransportSubscription) -> None:
        """From now on."""
        self._subscriptions[number] = subscription
        self._sum_up()

    def remove(self, number: int) -> TransportSubscription | None:
        """No longer."""
        subscription = self._subscriptions.pop(number, None)
        self._sum_up()
        return subscription

    def numbers(self) -> list[int]:
        """Of all."""
        return list(self._subscriptions)

    @property
    def ordered_any(self) -> bool:
        """Whether any wants order."""
        return any(subscription.ordered for subscription in self._subscriptions.values())

    @property
    def recover_any(self) -> bool:
        """Whether anything is to be recovered at all."""
        return bool(self._recoverable)

    def relevant(self, encoding: int) -> bool:
        """Whether a message with this encoding may be wanted here."""
        return any(bloom.matches(wanted, encoding) for wanted in self._relevant)

    def recoverable(self, encoding: int) -> bool:
        """Whether it may be wanted by somebody who wants lost messages back."""
        return any(bloom.matches(wanted, encoding) for wanted in self._recoverable)

    def served(self, numbers: tuple[int, ...]) -> tuple[int, ...]:
        """Those of these numbers that are ours."""
        found = self._served.get(numbers)
        if found is None:
            found = tuple([number for number in numbers if number in self._subscriptions])
            _remember(self._served, numbers, found)
        return found

    def split(self, numbers: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Those of these subscriptions that want order, and those that do not."""
        found = self._splits.get(numbers)
        if found is None:
            ordered = tuple([number for number in numbers if self._subscriptions[number].ordered])
            found = (ordered, tuple([number for number in numbers if not self._subscriptions[number].ordered]))
            _remember(self._splits, numbers, found)
        return found

    def wanting(self, attributes: Attributes) -> list[int]:
        """The subscriptions that a message with these attributes belongs to, whether they asked for it back or not."""
        return [
            number for number, subscription in self._subscriptions.items() if subscription.predicate.matches(attributes)
        ]

    def hand_over(
        self, message: Message, numbers: tuple[int, ...], late: bool, repaired: bool = False
    ) -> list[TransportEffect]:
        """To the application as soon as it came, counted."""
        effects: list[TransportEffect] = []
        for number in numbers:
            subscription = self._subscriptions[number]
            subscription.delivered += 1
            if late or repaired:
                subscription.late += late
                subscription.recovered += repaired
            effects.append(Deliver(number, message))
        return effects

    def let_go(self, delivery: HeldDelivery, late: bool, assigned: float, held: float) -> list[TransportEffect]:
        """To the application what waited for others, perhaps for no time at all."""
        effects: list[TransportEffect] = []
        for number in delivery.numbers:
            subscription = self._subscriptions.get(number)
            # The application may have unsubscribed while it was held, and may even have used the number again.
            if subscription is not None and (not held or subscription.predicate.matches(delivery.message.attributes)):
                subscription.assigned += assigned
                subscription.held += held
                effects += self.hand_over(delivery.message, (number,), late, delivery.repaired)
        return effects

    def _sum_up(self) -> None:
        subscriptions = self._subscriptions.values()
        self._served.clear()
        self._splits.clear()
        self._relevant = _all_different(subscription.encodings for subscription in subscriptions)
        self._recoverable = _all_different(
            subscription.encodings for subscription in subscriptions if subscription.recover
        )


def _all_different(groups: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(encoding for group in groups for encoding in group))


def _remember(memo: dict[tuple[int, ...], Any], numbers: tuple[int, ...], found: Any) -> None:
    """Which subscriptions a message belongs to is seldom new."""
    if len(memo) >= MEMO_MAX:
        memo.clear()
    memo[numbers] = found
