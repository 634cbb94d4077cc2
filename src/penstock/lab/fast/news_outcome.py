"""What is counted in a run of the news network, and the checks that no run may fail."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.lab.fast.news_workload import NewsRequest
from penstock.lab.fast.setting import NewsSetting
from penstock.retrieval.interest import EVERYTHING, InterestId, LooseInterest, PublishedItem
from penstock.retrieval.mediation import MediationRouter

if TYPE_CHECKING:
    from penstock.lab.fast.floods import FloodIndex

PUBLICATION_BITS = 20
SAMPLE_TICKS = 100


@dataclass
class NewsTally:
    """Counts of one run."""

    setting: NewsSetting
    answers: int = 0
    multicasts: int = 0
    flushes: int = 0
    in_vain: int = 0  # answers with what somebody had answered with
    twice_on_branch: int = 0  # of these, by a router on the way
    interest_messages: int = 0
    overload_messages: int = 0
    interests: int = 0
    lifetimes: int = 0  # that have ended
    satisfied: int = 0
    starved: int = 0
    deliveries: int = 0
    deliveries_ended: int = 0  # of them, to lifetimes that have ended
    refreshed: int = 0  # of those that have ended
    refreshed_satisfied: int = 0
    overflowed: int = 0  # copies that found a full queue
    evicted: int = 0
    too_old: int = 0
    too_many: int = 0
    twice: int = 0
    drops: dict[str, int] = field(default_factory=dict)
    table_mean: float = 0.0  # interests of others in a router's table
    table_max: int = 0
    fairness: float = 0.0

    def __post_init__(self) -> None:
        self._delivered = array("q")  # chain and publication, for Req 1
        self._uploads: dict[int, int] = {}
        self._since: dict[InterestId, int] = {}
        self._uses: list[int] = [0]  # deliveries of each publication
        self._topics: list[int] = [-1]
        self._sizes: list[float] = []

    def uploaded(self, topic: int, router: int) -> None:
        """One more publication."""
        self._uploads[topic] = self._uploads.get(topic, 0) + 1
        self._uses.append(0)
        self._topics.append(topic)

    def asked(self, request: NewsRequest, interest: InterestId) -> None:
        """A lifetime begins."""
        self.interests += 1
        self._since[interest] = self._uploads.get(request.topic, 0)

    def deliver(self, interest: LooseInterest, publication: PublishedItem) -> None:
        """A receiver gets a publication."""
        request: Any = interest.where
        number: Any = publication.id
        self.deliveries += 1
        self._uses[number] += 1
        self._delivered.append(request.chain << PUBLICATION_BITS | number)
        if publication.uploaded < interest.oldest:
            self.too_old += 1

    def expired(self, request: NewsRequest, got: int, interest: InterestId) -> None:
        """A lifetime ends."""
        there = self._uploads.get(request.topic, 0) - self._since.pop(interest)
        self.lifetimes += 1
        self.deliveries_ended += got
        self.refreshed += request.refreshed
        enough = got >= request.max if request.max != EVERYTHING else got >= there
        if enough:
            self.satisfied += 1
            self.refreshed_satisfied += request.refreshed
            self.too_many += got > request.max
        elif there >= request.max or request.max == EVERYTHING:
            self.starved += 1

    def sample(self, index: FloodIndex, routers: Sequence[MediationRouter], tick: int) -> None:
        """How large the tables of interests are, now and then."""
        if tick % SAMPLE_TICKS == SAMPLE_TICKS - 1:
            sizes = index.entries(len(routers))
            self._sizes.append(sum(sizes) / len(sizes))
            self.table_max = max(self.table_max, *sizes)

    def finish(self, routers: Sequence[MediationRouter]) -> None:
        """The run is over: check it."""
        delivered = np.frombuffer(self._delivered, dtype=np.int64) if self._delivered else np.zeros(0, np.int64)
        self.twice = len(delivered) - len(np.unique(delivered))
        self.evicted = sum(router.cache.evicted for router in routers)
        self.table_mean = sum(self._sizes) / len(self._sizes) if self._sizes else 0.0
        self.fairness = self._fairness()
        for router in routers:
            assert len(router.cache) <= router.cache.size

    def _fairness(self) -> float:
        """Jain's index of the deliveries of publications of one event, over all events by their size."""
        uses = np.array(self._uses, dtype=np.float64)
        events = np.array(self._topics) // self.setting.topics
        total = weight = 0.0
        for event in range(self.setting.events):
            those = uses[events == event]
            squares = float((those**2).sum())
            if squares:
                total += float(those.sum()) ** 2 / squares
                weight += len(those)
        return total / weight if weight else 0.0

    @property
    def publication_messages(self) -> int:
        """Copies of publications on links."""
        return self.answers + self.multicasts + self.flushes

    @property
    def control_messages(self) -> int:
        """Interests and overload notifications on links."""
        return self.interest_messages + self.overload_messages

    def numbers(self) -> dict[str, float]:
        """Everything, by name."""
        ended = self.lifetimes or 1
        refreshed, new = self.refreshed or 1, self.lifetimes - self.refreshed or 1
        return {
            "satisfaction": 100.0 * self.satisfied / ended,
            "starvation": 100.0 * self.starved / ended,
            "satisfaction of refreshed interests": 100.0 * self.refreshed_satisfied / refreshed,
            "satisfaction of new interests": 100.0 * (self.satisfied - self.refreshed_satisfied) / new,
            "publication messages": self.publication_messages,
            "answers": self.answers,
            "multicasts": self.multicasts,
            "flushes": self.flushes,
            "answers in vain": self.in_vain,
            "answered twice on a branch": self.twice_on_branch,
            "control messages": self.control_messages,
            "interest messages": self.interest_messages,
            "overload messages": self.overload_messages,
            "interests": self.interests,
            "lifetimes": self.lifetimes,
            "deliveries": self.deliveries,
            "deliveries to ended lifetimes": self.deliveries_ended,
            "evicted": self.evicted,
            "overflowed": self.overflowed,
            "interests in a table": self.table_mean,
            "largest table": self.table_max,
            "fairness": self.fairness,
            "given twice": self.twice,
            "too old": self.too_old,
            "too many": self.too_many,
            **{f"dropped: {reason}": count for reason, count in sorted(self.drops.items())},
        }
