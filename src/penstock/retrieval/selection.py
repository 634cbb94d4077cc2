"""Which publications to send first, and which to evict first (004 section 3.3.2, Table 2).

A *policy* orders cached publications by one property; a *discriminator* puts their tables before it. Configurations
are written as in the paper, `discriminator-policy/discriminator-policy`: the first half selects, the second replaces.
Ties go to what was cached earlier.

The paper's name LFU stands for LFU/MFU: serve what was used least, evict what was used most (erratum E6).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from penstock.retrieval.life_cycle import CachePlace, Table


class Ranked(Protocol):
    """What policies see of a cached publication."""

    place: CachePlace
    uploaded: float
    used_at: int  # in uses of this cache; it counts as used when it came
    uses: int
    number: int  # the order in which it was cached


Key = tuple[float, ...]
Policy = Callable[[Ranked], float]

POLICIES: dict[str, Policy] = {  # what comes first has the smallest key
    "MRU": lambda entry: -entry.used_at,
    "LRU": lambda entry: entry.used_at,
    "LFU": lambda entry: entry.uses,
    "MFU": lambda entry: -entry.uses,
    "MF": lambda entry: -entry.uploaded,
    "LF": lambda entry: entry.uploaded,
}
BY_USE = ("MRU", "LRU", "LFU", "MFU")  # whose order changes when something is used

DISCRIMINATORS: dict[str, dict[Table, int]] = {
    "DPF": {Table.DISSEMINATED: 0, Table.OVERFLOWING: 1, Table.PENDING: 2},
    "PPF": {Table.PENDING: 0, Table.OVERFLOWING: 1, Table.DISSEMINATED: 2},
}

CONFIGURATIONS: dict[str, str] = {  # Table 2
    "LFU": "LFU/MFU",
    "MRU": "MRU/LRU",
    "MF": "MF/LF",
    "LF": "LF/LF",
    "DPF": "DPF-MF/DPF-LF",
    "DPFu": "DPF-MF/DPF-LRU",
    "PPF": "PPF-MF/DPF-LF",
    "PPFu": "PPF-MF/DPF-LRU",
}


@dataclass(frozen=True)
class Order:
    """One half of a configuration."""

    key: Callable[[Ranked], Key]
    changes: bool  # the key of an entry may change while it is cached


@dataclass(frozen=True)
class Configuration:
    """How a cache selects and replaces."""

    name: str
    selection: Order
    replacement: Order


def configuration(name: str) -> Configuration:
    """A configuration by the paper's name, or written out."""
    written = CONFIGURATIONS.get(name, name)
    halves = written.split("/")
    if len(halves) != 2:
        raise ValueError(f"policy {name!r} is none of {', '.join(CONFIGURATIONS)}, nor selection/replacement")
    selection, replacement = (_order(half) for half in halves)
    return Configuration(name=name, selection=selection, replacement=replacement)


def _order(text: str) -> Order:
    discriminator, _, policy = text.rpartition("-")
    if policy not in POLICIES:
        raise ValueError(f"policy {policy!r} is none of {', '.join(POLICIES)}")
    if discriminator and discriminator not in DISCRIMINATORS:
        raise ValueError(f"discriminator {discriminator!r} is none of {', '.join(DISCRIMINATORS)}")
    value = POLICIES[policy]
    if not discriminator:
        return Order(lambda entry: (value(entry), entry.number), changes=policy in BY_USE)
    ranks = DISCRIMINATORS[discriminator]
    return Order(lambda entry: (ranks[entry.place.table], value(entry), entry.number), changes=True)
