"""The settings of a mediation router that change what it does (004 sections 3.3.2 to 3.3.6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Dissemination = Literal["overload notification", "delayed push"]
Duplicates = Literal["none", "in network", "proactive", "both"]


@dataclass(frozen=True, kw_only=True)
class MediationRules:
    """One router's rules. Defaults are the paper's (Table 4), but for bounds, which it does not have."""

    cache_size: int = 500  # publications (CS)
    policy: str = "MF"  # selection.py
    dissemination: Dissemination = "overload notification"  # EON, or PDP
    push_margin: float = 1.0  # seconds a delayed push leaves before the nearest deadline (beta)
    en_route: bool = False  # cache what passes (NRT)
    flushing: bool = False  # an unsent publication that is evicted goes to a neighbour instead
    duplicates: Duplicates = "both"  # IDD, PDD
    cursors: bool = False  # ours: refreshed interests are served at home from what came after their last one
    probes: int = 0  # ours: neighbours that are asked one by one before an interest is flooded
    probe_wait: float = 0.2  # seconds that a probed neighbour has
    budgeted: bool = False  # ours: a home shares out what is missing over its interfaces
    addressed: bool = False  # ours: a multicast names the homes that each copy is for
    homes_max: int = 256  # that a copy names; with more it is for all
    remembers: bool = False  # ours: refreshed interests take what their home never used; needs left_max
    had_max: int = 1_000  # publications that a home names as used there; with more it asks as the paper does
    patience: float = 0.0  # ours: the part of a lifetime after which a home asks others; 0: at once
    together: bool = False  # ours: of those that look for the same one asks others
    flood_wait: float = 1.2  # seconds that answers to a flood have
    interests_max: int = 1_000_000  # pending interests
    linger: float = 2.0  # seconds an interest that is over is remembered
    nonces_max: int = 4_096  # multicasts that are remembered
    left_max: int = 0  # ours: used publications that are remembered after they left the cache
    age_slack: float = 0.0  # seconds by which two copies of a publication may differ in their age

    def __post_init__(self) -> None:
        if not 0.0 <= self.patience < 1.0:
            raise ValueError("patience is a part of a lifetime, from 0 to below 1")
        if self.remembers and not self.left_max:
            raise ValueError("remembers needs left_max: what was used and left the cache must be known")
        if self.cache_size < 0 or self.interests_max < 1 or self.nonces_max < 1:
            raise ValueError("cache_size must not be negative, interests_max and nonces_max must be at least 1")
        if min(self.push_margin, self.linger, self.probes, self.probe_wait) < 0:
            raise ValueError("push_margin, linger, probes and probe_wait must not be negative")
