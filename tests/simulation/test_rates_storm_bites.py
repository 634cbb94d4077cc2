"""A storm that finds nothing proves nothing: with one mistake put into fair rates, some seed must complain.

The seeds are tried from the one that found it when this was written; whoever changes the storms has SEEDS_MAX tries.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import pytest

from penstock.rates.edge import SlowReaders
from penstock.rates.sharing import Sharing, _Funds
from penstock.rates.slow_links import SlowLink
from penstock.rates.withheld import WithheldBooks
from penstock.scenario.rates_storm import EVENTS_MAX, rates_storm
from penstock.sim.run import simulate

SEEDS_MAX = 20

Patch = Callable[[pytest.MonkeyPatch], None]
Add = Callable[..., None]


def _books(patch: pytest.MonkeyPatch, wrong: Callable[[Add, Any, tuple[int, int], tuple[Any, ...]], None]) -> None:
    """Let this be done in the place of `add`."""
    original = WithheldBooks.add

    def add(self: Any, publisher: str, hop: tuple[int, int], *more: Any) -> None:
        wrong(lambda hop, *more: original(self, publisher, hop, *more), self, hop, more)

    patch.setattr(WithheldBooks, "add", add)


def what_is_withheld_counts_twice(patch: pytest.MonkeyPatch) -> None:
    _books(patch, lambda add, books, hop, more: (add(hop, *more), add(hop, *more))[0])


def a_part_is_not_counted(patch: pytest.MonkeyPatch) -> None:
    def wrong(add: Add, books: Any, hop: tuple[int, int], more: tuple[Any, ...]) -> None:
        books.tries = getattr(books, "tries", 0) + 1
        if books.tries % 4:
            add(hop, *more)

    _books(patch, wrong)


def the_link_is_named_the_wrong_way_round(patch: pytest.MonkeyPatch) -> None:
    _books(patch, lambda add, books, hop, more: add((hop[1], hop[0]), *more))


def every_other_client_can_never_pay(patch: pytest.MonkeyPatch) -> None:
    """While the others keep the links busy."""
    can_pay, solvent_at = Sharing._funds, Sharing._solvent_at

    def funds(self: Any, client: int, *more: Any) -> Any:
        return _Funds(lambda hop: False) if client % 2 else can_pay(self, client, *more)

    patch.setattr(Sharing, "_funds", funds)
    patch.setattr(
        Sharing, "_solvent_at", lambda self, client, hop: inf if client % 2 else solvent_at(self, client, hop)
    )


def slow_readers_get_nothing_of_some_publishers(patch: pytest.MonkeyPatch) -> None:
    """And it is counted, so that only their hunger shows."""
    admits = SlowReaders.admits

    def wrong(self: Any, reader: Any, message: Any, *more: Any) -> Any:
        if self.rate(reader) > 0.0 and message.identity.publisher.endswith("1"):
            return False, message
        return admits(self, reader, message, *more)

    patch.setattr(SlowReaders, "admits", wrong)


def slow_links_carry_nothing_of_some_publishers(patch: pytest.MonkeyPatch) -> None:
    """And it is counted, so that only their hunger shows."""
    admits = SlowLink.admits

    def wrong(self: Any, getting: Any, *more: Any, **how: Any) -> Any:
        if getting.message.identity.publisher.endswith("1"):
            return False, getting
        return admits(self, getting, *more, **how)

    patch.setattr(SlowLink, "admits", wrong)


def what_slow_readers_do_not_get_is_not_counted(patch: pytest.MonkeyPatch) -> None:
    admits = SlowReaders.admits
    patch.setattr(SlowReaders, "admits", lambda self, *what: (admits(self, *what)[0], None))


def what_slow_links_do_not_carry_is_not_counted(patch: pytest.MonkeyPatch) -> None:
    admits = SlowLink.admits
    patch.setattr(SlowLink, "admits", lambda self, *what, **how: (admits(self, *what, **how)[0], None))


FIRST_SEED: dict[Patch, int] = {
    what_is_withheld_counts_twice: 0,
    a_part_is_not_counted: 0,
    the_link_is_named_the_wrong_way_round: 0,
    every_other_client_can_never_pay: 2,
    what_slow_readers_do_not_get_is_not_counted: 0,
    slow_readers_get_nothing_of_some_publishers: 0,
    slow_links_carry_nothing_of_some_publishers: 12,
    what_slow_links_do_not_carry_is_not_counted: 0,
}


@pytest.mark.parametrize("mistake", FIRST_SEED, ids=lambda mistake: mistake.__name__)
def test_some_storm_finds_the_mistake(mistake: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake(monkeypatch)
    first = FIRST_SEED[mistake]
    tries = (simulate(rates_storm(seed), seed, events_max=EVENTS_MAX) for seed in range(first, first + SEEDS_MAX))
    assert any(result.problems or not result.complete for result in tries)
