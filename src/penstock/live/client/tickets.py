"""Who waits for what: the tickets under which a client's verbs are answered.

A verb that has to wait takes a ticket and a future (`take`). A message that is published while flows are limited is
nearly always answered while its effects are applied, so it gets a future only if it was not (`left`): `begin`, apply
the effects, `left`. Ticket 0 is for verbs that nobody waits for.

State: a future for everybody who waits. Bound: nobody waits without a coroutine that does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from penstock.errors import InvalidPredicate, NotConnected, PenstockError
from penstock.kernel.machine import Outcome, Refused, Reported

ErrorOf = Callable[[Refused], PenstockError]  # what to raise for a refusal


def predicate_error(refused: Refused) -> PenstockError:
    """Most questions that can be refused are about a text."""
    return InvalidPredicate(refused.problem)


class Tickets:
    """The open questions of one client."""

    def __init__(self) -> None:
        self._last = 0
        self._waiting: dict[int, tuple[asyncio.Future[Any], ErrorOf]] = {}
        self._leaving: dict[int, asyncio.Future[None]] = {}
        self._asking = 0  # the ticket of a message that is being published in this very moment
        self._answer: Outcome | None = None  # and what came of it, if that was known at once

    def take(self, error_of: ErrorOf = predicate_error) -> tuple[int, asyncio.Future[Any]]:
        """A ticket, and what it will be answered with; a refusal becomes an error."""
        self._last += 1
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[self._last] = (future, error_of)
        return self._last, future

    def drop(self, ticket: int) -> None:
        """Nobody waits any more."""
        self._waiting.pop(ticket, None)

    def begin(self) -> int:
        """A ticket for a message whose effects are about to be applied."""
        self._last += 1
        self._asking, self._answer = self._last, None
        return self._last

    async def left(self, ticket: int) -> None:
        """Return when the message has left; raises NotConnected if the connection is gone before."""
        outcome, self._asking, self._answer = self._answer, 0, None
        if outcome is not None:
            if isinstance(outcome, Refused):
                raise PenstockError(outcome.problem)
            return
        leaving = self._leaving[ticket] = asyncio.get_running_loop().create_future()
        try:
            await leaving
        finally:
            self._leaving.pop(ticket, None)

    def done(self, ticket: int, outcome: Outcome, *, connected: bool) -> None:
        """The machine's answer."""
        if ticket and ticket == self._asking:
            self._answer = outcome
        elif ticket in self._leaving:
            error = PenstockError if connected else NotConnected
            _set(self._leaving[ticket], lambda refused: error(refused.problem), outcome)
        elif ticket in self._waiting:
            _set(*self._waiting[ticket], outcome)

    def fail(self, problem: str) -> None:
        """Nobody will be answered any more."""
        for future in (*(waiting for waiting, _ in self._waiting.values()), *self._leaving.values()):
            if not future.done():
                future.set_exception(NotConnected(problem))
        self._waiting.clear()


def _set(future: asyncio.Future[Any], error_of: ErrorOf, outcome: Outcome) -> None:
    if future.done():
        return
    if isinstance(outcome, Refused):
        future.set_exception(error_of(outcome))
    else:
        future.set_result(outcome.report if isinstance(outcome, Reported) else None)
