"""Who publishes and who asks, when and where (004 section 4.2).

In every time unit the publications of that unit are uploaded and then, INTERESTS_AT later, new interests come; or both
come evenly over the unit. A publication or an interest belongs to an event, any of those that have not yet had all
their volume, and comes from one of the routers of the event: all of them (random locality), or the ceil(p N) nearest
around a root (realistic). An interest whose lifetime ends is refreshed, or followed by a new one on the same event.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, exp
from random import Random

from penstock.kernel.randomness import generator
from penstock.lab.fast.setting import TICKS, NewsSetting
from penstock.lab.fast.topology import nearest, power_law_network
from penstock.retrieval.interest import EVERYTHING

INTERESTS_AT = 7  # ticks after the uploads, which have arrived by then
NOBODY = -1  # the event of publications that nobody asks for


@dataclass(slots=True)
class NewsRequest:
    """One lifetime of one receiver."""

    chain: int
    router: int
    event: int
    topic: int
    max: int
    lifetime: int
    refreshed: bool


class NewsWorkload:
    """The network, the events and the draws of one seed."""

    def __init__(self, setting: NewsSetting, seed: int) -> None:
        self.setting = setting
        self._random = generator(seed, "news", "requests")
        layout = generator(seed, "news", "layout")
        self.neighbours = power_law_network(setting.routers, setting.degree, layout)
        self.places = self._places(layout)
        volumes = generator(seed, "news", "volumes")
        shares, evenly = setting.shares(), setting.drawn == "evenly"
        self._asked = _in_order(_volumes(shares, setting.interests), evenly, volumes)
        self._said = _in_order(_volumes(shares, setting.publications), evenly, volumes)
        self._publications = generator(seed, "news", "publications")
        extra = round(setting.publications * setting.background / (1.0 - setting.background))
        self._extra = extra
        self._background = generator(seed, "news", "background")
        self._chains = 0

    def _places(self, random: Random) -> list[list[int]]:
        setting = self.setting
        if setting.locality == "random":
            return [list(range(setting.routers))] * setting.events
        return [
            nearest(self.neighbours, random.randrange(setting.routers), ceil(share * setting.routers), random)
            for share in setting.shares()
        ]

    def uploads(self, tick: int) -> list[tuple[int, int]]:
        """Router and topic of each publication of a tick; a negative topic is background."""
        draw, setting = self._publications, self.setting
        begin, end = self._span(tick, 0)
        said, extra = len(self._said), self._extra
        part = self._said[int(begin * said) : int(end * said)]
        found = [(draw.choice(self.places[event]), self.topic(event, draw)) for event in part]
        count = int(end * extra) - int(begin * extra)
        found += [(self._background.randrange(setting.routers), NOBODY) for _ in range(count)]
        self._background.shuffle(found)
        return found

    def _span(self, tick: int, at: int) -> tuple[float, float]:
        """The part of the whole that comes in a tick; in batches, the part of a unit comes at one of its ticks."""
        ticks = self.setting.units * TICKS
        if not self.setting.batched:
            return min(tick / ticks, 1.0), min((tick + 1) / ticks, 1.0)
        unit, part = divmod(tick, TICKS)
        if part != at or unit >= self.setting.units:
            return 0.0, 0.0
        return unit / self.setting.units, (unit + 1) / self.setting.units

    def topic(self, event: int, random: Random) -> int:
        """One of the topics of an event."""
        return event * self.setting.topics + random.randrange(self.setting.topics)

    def new_requests(self, tick: int, renewed: int) -> list[NewsRequest]:
        """The interests that come in a tick, in which so many others were refreshed or followed."""
        begin, end = self._span(tick, INTERESTS_AT)
        asked = len(self._asked)
        part = self._asked[int(begin * asked) : int(end * asked)]
        if self.setting.counts_refreshed:
            part = part[renewed:]
        return [self.request(event) for event in part]

    def request(self, event: int) -> NewsRequest:
        """A new interest on an event."""
        draw, setting = self._random, self.setting
        self._chains += 1
        return NewsRequest(
            chain=self._chains,
            router=draw.choice(self.places[event]),
            event=event,
            topic=self.topic(event, draw),
            max=_poisson(draw, setting.selectivity) if setting.selectivity else EVERYTHING,
            lifetime=_poisson(draw, setting.lifetime) if setting.lifetime else 0,
            refreshed=False,
        )

    def after(self, request: NewsRequest) -> NewsRequest | None:
        """What follows when a lifetime is over; nothing follows a one-shot request."""
        if not request.lifetime:
            return None
        if self._random.random() < self.setting.refresh_probability:
            return NewsRequest(
                request.chain, request.router, request.event, request.topic, request.max, request.lifetime, True
            )
        return self.request(request.event)


def _volumes(shares: list[float], total: int) -> list[int]:
    """How often each event comes."""
    counts = [int(share * total) for share in shares]
    rest = sorted(range(len(shares)), key=lambda event: counts[event] - shares[event] * total)
    for event in rest[: total - sum(counts)]:
        counts[event] += 1
    return counts


def _in_order(counts: list[int], evenly: bool, random: Random) -> list[int]:
    """Each event as often as its volume says: by equal chances until that is reached, or in any order."""
    if not evenly:
        found = [event for event, count in enumerate(counts) for _ in range(count)]
        random.shuffle(found)
        return found
    found, counts = [], counts.copy()
    left = [event for event, count in enumerate(counts) if count]
    while left:
        event = random.choice(left)
        found.append(event)
        counts[event] -= 1
        if not counts[event]:
            left.remove(event)
    return found


def _poisson(random: Random, mean: float) -> int:
    """By multiplication of uniform draws in parts of 500; 0 is drawn again."""
    while True:
        total, left = 0, mean
        while left > 0.0:
            part = min(left, 500.0)
            left -= part
            limit, product = exp(-part), random.random()
            while product > limit:
                total += 1
                product *= random.random()
        if total:
            return total
