"""The papers by name: the documents' numbers stand for these titles, which a reader of a page wants to see."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple


class Paper(NamedTuple):
    """A document: who wrote it, when, what it is called, and what it is."""

    short: str
    title: str
    authors: str
    what: str


PAPERS = {
    "000": Paper(
        "Malekpour et al.",
        "End-to-End Congestion Control for Content-Based Networks",
        "Amirhossein Malekpour, Antonio Carzaniga, Fernando Pedone",
        "University of Lugano",
    ),
    "001": Paper(
        "Pietzuch and Bhola",
        "Congestion Control in a Reliable Scalable Message-Oriented Middleware",
        "Peter R. Pietzuch, Sumeer Bhola",
        "University of Cambridge and IBM Research",
    ),
    "002": Paper(
        "Malekpour 2012",
        "A Transport Protocol for Best-Effort Content-Based Networks",
        "Amirhossein Malekpour",
        "doctoral dissertation, Università della Svizzera italiana, 2012",
    ),
    "003": Paper(
        "Amir et al. 2001",
        "Flow Control for Many-to-Many Multicast: A Cost-Benefit Approach",
        "Yair Amir, Baruch Awerbuch, Claudiu Danilov, Jonathan Stanton",
        "technical report CNDS-2001-1, Johns Hopkins University",
    ),
    "004": Paper(
        "Diallo et al. 2012",
        "A content-based publish/subscribe framework for large-scale content delivery",
        "Mohamed Diallo, Vasilis Sourlas, Paris Flegkas, Serge Fdida, Leandros Tassiulas",
        "Computer Networks, 2012",
    ),
}

_NUMBER = re.compile(r"(?<![\d.])(00[0-4])(?![\d.])( sections?)?")


def with_titles(text: str) -> str:
    """A source with the papers' titles, as HTML: "002 section 3.1" -> "A Transport Protocol ..., section 3.1"."""
    return _named(text, lambda paper: f"<cite>{paper.title}</cite>")


def with_names(text: str) -> str:
    """The same with the authors' names, which are shorter."""
    return _named(text, lambda paper: paper.short)


def _named(text: str, name: Callable[[Paper], str]) -> str:
    return _NUMBER.sub(lambda found: name(PAPERS[found[1]]) + (f",{found[2]}" if found[2] else ""), text)


def cited(sources: list[str]) -> list[Paper]:
    """The papers that these sources name, in their order."""
    numbers = {number for source in sources for number, _ in _NUMBER.findall(source)}
    return [paper for number, paper in PAPERS.items() if number in numbers]
