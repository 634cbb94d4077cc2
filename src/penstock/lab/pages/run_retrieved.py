"""What late readers got, as the page and the terminal of a run show it.

An item may be a day old when it comes, so it is neither due nor delivered; it has a table of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from penstock.lab.pages.html import table
from penstock.lab.pages.numbers import count
from penstock.retrieval.config import RetrievalOptions
from penstock.scenario.spec import SubscriptionSpec

RETRIEVED_HEADINGS = ("client", "lifetimes", "items", "twice")
RETRIEVED_EXPLAINED = (
    "Items are messages from caches, published before somebody asked, and new ones, up to so many in each lifetime."
)


@dataclass(frozen=True, kw_only=True)
class RetrievedNumbers:
    """A client that retrieves: how often it asked, and what came."""

    client: str
    lifetimes: int
    items: int
    repeated: int  # items that had come before


def retrieved_numbers(row: Mapping[str, Any]) -> RetrievedNumbers:
    """Of a row of the result `retrieved`."""
    return RetrievedNumbers(**{name: row[name] for name in ("client", "lifetimes", "items", "repeated")})


def listens(subscription: SubscriptionSpec) -> bool:
    """Whether it gets messages as they are published: it neither reads a stream nor retrieves."""
    apart = {"stream", *RetrievalOptions.__struct_fields__}
    return not apart & set(subscription.options)


def retrieved_rows(retrieved: Sequence[RetrievedNumbers]) -> list[tuple[str, ...]]:
    """For the terminal and the page."""
    return [(one.client, *map(count, (one.lifetimes, one.items, one.repeated))) for one in retrieved]


def retrieved_part(retrieved: Sequence[RetrievedNumbers]) -> list[str]:
    """Nothing if nobody retrieved."""
    if not retrieved:
        return []
    rows = [(escape(row[0]), *row[1:]) for row in retrieved_rows(retrieved)]
    drawn = table(RETRIEVED_HEADINGS, rows, numbers=range(1, 4), styles="name")
    return ["<h2>What late readers got</h2>", f"<p>{RETRIEVED_EXPLAINED}</p>", drawn]
