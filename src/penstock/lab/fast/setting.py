"""SETUP-ECBN (004 section 4.2, Table 4): what a run of the news network is made from.

Which event the next publication or interest belongs to is drawn from those that are left, each by the same chance; one
that has its whole volume is left no more (4.2). So all events are equally busy at first, small ones end early, and at
last only the largest goes on. In every unit 1,000 *new* interests come (4.2), and refreshed ones on top of them. The
paper can be read otherwise: each lifetime has an identifier of its own (3.3.3) and interests arrive at a constant rate
S/T, so refreshed ones could be some of the 1,000 (`counts_refreshed`). `ecbn-readings` shows what follows from that;
nothing is gated on it.

What the paper leaves open: an event has 12 equal sub-topics, and an interest asks for one of them; the two largest
events have 30 % and 10 % and the others share the rest by 1/i (plain Zipf would give 22 % and 11 %, erratum E8); a hop
takes a tenth of a time unit; Poisson values of 0 are drawn again; routers have room and time for everything unless a
service rate is given. Then it is that of either queue; what a publisher hands in is matched at once.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

from penstock.retrieval.config import LEFT_MAX
from penstock.retrieval.forwarding import Forwarding
from penstock.retrieval.interest import FreshnessRule
from penstock.retrieval.rules import Dissemination, Duplicates, MediationRules

TICKS = 10  # hops in a time unit
FIXED_SHARES = (0.30, 0.10)  # of the two largest events, at exponent 1 (004 section 4.2)


@dataclass(frozen=True, kw_only=True)
class NewsSetting:
    """One run. The defaults are Table 4."""

    routers: int = 100
    degree: int = 4
    units: int = 100
    interests: int = 100_000
    publications: int = 50_000
    events: int = 50
    exponent: float = 1.0
    topics: int = 12  # of an event
    drawn: Literal["evenly", "by volume"] = "evenly"  # which event is next: any that is left, or by what is left of it
    batched: bool = True  # uploads at the beginning of a time unit and interests after them; else evenly over it
    counts_refreshed: bool = False  # refreshed interests are some of the number of interests
    locality: Literal["realistic", "random"] = "realistic"
    selectivity: float = 10.0  # mean; 0: everything
    lifetime: float = 20.0  # mean; 0: one-shot requests
    freshness: float = 50.0
    freshness_rule: FreshnessRule = "printed"
    refresh_probability: float = 1.0
    background: float = 0.0  # share of all publications that nobody asks for
    cache_size: int = 500
    policy: str = "MF"
    dissemination: Dissemination = "overload notification"
    push_margin: float = 1.0
    duplicates: Duplicates = "both"
    en_route: bool = False
    flushing: bool = False
    cursors: bool = False  # ours
    probes: int = 0  # ours
    budgeted: bool = False  # ours
    addressed: bool = False  # ours
    remembers: bool = False  # ours
    patience: float = 0.0  # ours
    together: bool = False  # ours
    service: float = 0.0  # publication messages that a router matches in a tick, and that it sends; 0: all
    two_queues: bool = True  # where time is short, before matching and before sending (3.3.1); else the first alone
    queue: Forwarding = "score"
    buffer: int = 50_000

    def rules(self) -> MediationRules:
        """Of every router."""
        return MediationRules(
            cache_size=self.cache_size,
            policy=self.policy,
            dissemination=self.dissemination,
            push_margin=self.push_margin,
            duplicates=self.duplicates,
            en_route=self.en_route,
            flushing=self.flushing,
            cursors=self.cursors,
            probes=self.probes,
            budgeted=self.budgeted,
            addressed=self.addressed,
            probe_wait=2 / TICKS,
            interests_max=1 << 40,
            remembers=self.remembers,
            patience=self.patience,
            together=self.together,
            left_max=LEFT_MAX if self.service or self.remembers else 0,  # where copies queue, some come late
        )

    def shares(self) -> list[float]:
        """The popularity of each event."""
        if self.exponent == 1.0 and self.events > 2:
            tail = [1.0 / rank for rank in range(3, self.events + 1)]
            rest = 1.0 - sum(FIXED_SHARES)
            return [*FIXED_SHARES, *(rest * one / sum(tail) for one in tail)]
        weights = [rank**-self.exponent for rank in range(1, self.events + 1)]
        return [one / sum(weights) for one in weights]

    def workload(self) -> tuple[object, ...]:
        """What exhaustive filtering depends on: runs that share it share its baseline."""
        names = ("routers", "degree", "units", "interests", "publications", "events", "exponent", "topics", "drawn")
        more = ("locality", "selectivity", "lifetime", "freshness", "freshness_rule", "refresh_probability")
        given = asdict(self)
        return tuple(given[name] for name in (*names, *more, "background", "batched", "counts_refreshed"))
