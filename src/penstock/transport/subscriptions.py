"""The subscriptions that asked for more than best effort, and what the transport counts for each of them.

A wish is a subscription with order, recovery or congestion control. All wishes of a client share one session per
publisher: a message is relevant here if its encoding may match any of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.content import bloom
from penstock.content.message import Attributes, Message
from penstock.content.predicate import Predicate
from penstock.kernel.machine import Deliver


@dataclass(slots=True)
class Wish:
    """One subscription."""

    predicate: Predicate
    encodings: tuple[int, ...]
    ordered: bool
    recover: bool
    priority: float = 1.0  # of its flows, when a publisher must send less: a weight
    requests: int | None = None  # number of our subscription to requests for what it matches
    delivered: int = 0
    late: int = 0
    recovered: int = 0
    without_header: int = 0
    assigned: float = 0.0
    held: float = 0.0


@dataclass(slots=True)
class Delivery:
    """A message on its way up, and the subscriptions that still have to get it."""

    message: Message
    subscriptions: tuple[int, ...]
    repaired: bool = False


class Wishes:
    """All of a client's wishes, by the number of their subscription."""

    def __init__(self) -> None:
        self._wishes: dict[int, Wish] = {}
        self._relevant: tuple[int, ...] = ()
        self._recoverable: tuple[int, ...] = ()

    def __contains__(self, number: int) -> bool:
        return number in self._wishes

    def get(self, number: int) -> Wish | None:
        """The wish of this number, if there is one."""
        return self._wishes.get(number)

    def add(self, number: int, wish: Wish) -> None:
        """From now on."""
        self._wishes[number] = wish
        self._sum_up()

    def remove(self, number: int) -> Wish | None:
        """No longer."""
        wish = self._wishes.pop(number, None)
        self._sum_up()
        return wish

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

    def split(self, numbers: Iterable[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Those of these subscriptions that want order, and those that do not."""
        ordered: list[int] = []
        unordered: list[int] = []
        for number in numbers:
            (ordered if self._wishes[number].ordered else unordered).append(number)
        return tuple(ordered), tuple(unordered)

    def wanting(self, attributes: Attributes) -> list[int]:
        """The subscriptions that a message with these attributes belongs to, whether they asked for it back or not."""
        return [number for number, wish in self._wishes.items() if wish.predicate.matches(attributes)]

    def hand_over(self, delivery: Delivery, late: bool, assigned: float = 0.0, held: float = 0.0) -> list[Deliver]:
        """To the application, counted."""
        effects = []
        for number in delivery.subscriptions:
            wish = self._wishes.get(number)
            # The application may have unsubscribed while it was held, and may even have used the number again.
            if wish is not None and (not held or wish.predicate.matches(delivery.message.attributes)):
                wish.delivered += 1
                wish.late += late
                wish.recovered += delivery.repaired
                wish.assigned += assigned
                wish.held += held
                effects.append(Deliver(number, delivery.message))
        return effects

    def _sum_up(self) -> None:
        wishes = self._wishes.values()
        self._relevant = _all_different(wish.encodings for wish in wishes)
        self._recoverable = _all_different(wish.encodings for wish in wishes if wish.recover)


def _all_different(groups: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(encoding for group in groups for encoding in group))
