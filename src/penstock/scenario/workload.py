"""What a client publishes: when, and with which attributes.

Times: constant intervals or a Poisson process, at a rate that may climb steadily from `rate_messages_per_s` to
`rate_end_messages_per_s`. With `spike_rate_messages_per_s` the rate jumps to that now and then: a flow begins quietly,
an exponential time of mean `spike_every` passes from the end of each spike to the next, and a spike lasts a uniform
time between the two ends of `spike_lasts`. In the long run a flow with a constant rate thus has the mean rate
(every*rate + lasts*spike_rate) / (every + lasts), where `lasts` is the middle of the two ends.

Attributes: each has a recipe.

    symbol = "IBM"                                     always this value
    symbol = { choose = ["IBM", "AMD"], zipf = 1.0 }   the n-th with weight 1/n^zipf; 0, the default, is uniform
    price  = { uniform = [90.0, 110.0] }               a float between the two
    volume = { integer = [1, 500] }                    a whole number between the two, both included
    urgent = { chance = 0.05 }                         true with this probability
    note   = { choose = ["hot"], missing = 0.9 }       absent with probability `missing`
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterator
from itertools import accumulate
from math import isfinite, sqrt
from random import Random
from typing import Any, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from penstock.content.message import DEFAULT_LIMITS, Identity, Value, make_message
from penstock.errors import InvalidMessage, InvalidScenario

SPIKE_SECONDS = (0.001, 86_400.0)  # the least and the most for any time of the spike process


class Recipe(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to draw one attribute; exactly one of choose, uniform, integer and chance is given."""

    choose: tuple[Value, ...] | None = None
    uniform: tuple[float, float] | None = None
    integer: tuple[int, int] | None = None
    chance: float | None = None
    zipf: float = 0.0
    missing: float = 0.0


class PublisherSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One flow of publications."""

    rate_messages_per_s: float
    rate_end_messages_per_s: float | None = None
    arrivals: Literal["constant", "poisson"] = "constant"
    start: float = 0.0
    stop: float | None = None
    attributes: dict[str, Value | Recipe] = {}
    options: dict[str, Any] = {}  # what it asks of services; in a file these stand beside `attributes`
    body_bytes: int = 0
    repeats: float = 0.0  # share of messages for a stream that are published again under the same publication_id
    unanswered_max: int | None = None  # of messages for a stream: with so many the application waits, and says nothing
    waits: int = (
        0  # with so many messages that have not left, the application waits, and says the next one later; 0: never
    )
    spike_rate_messages_per_s: float | None = None  # none: no spikes
    spike_every: float = 10.0  # mean seconds from the end of a spike to the next one
    spike_lasts: tuple[float, float] = (0.5, 3.0)


def validate_publisher(where: str, publisher: PublisherSpec) -> None:
    """Raise InvalidScenario if nothing sensible can be published by this recipe."""
    for key in ("rate_messages_per_s", "rate_end_messages_per_s", "spike_rate_messages_per_s"):
        rate = getattr(publisher, key)
        if rate is not None and (not isfinite(rate) or not 0.0 < rate <= 1e6):
            raise InvalidScenario(f"{where}.{key}", f"is {rate:g}; it must be more than 0 and at most 1e6")
    _validate_spikes(where, publisher)
    if not 0 <= publisher.body_bytes <= DEFAULT_LIMITS.body_bytes_max:
        raise InvalidScenario(f"{where}.body_bytes", f"must be between 0 and {DEFAULT_LIMITS.body_bytes_max}")
    if not 0 <= publisher.waits <= 100_000:
        raise InvalidScenario(f"{where}.waits", "is between 0 and 100000")
    if publisher.waits and publisher.options.get("stream"):
        raise InvalidScenario(f"{where}.waits", "is for messages of no stream; a stream has unanswered_max")
    if not 0.0 <= publisher.repeats <= 1.0:
        raise InvalidScenario(f"{where}.repeats", f"is {publisher.repeats:g}; it must be between 0 and 1")
    for name, recipe in publisher.attributes.items():
        place = f"{where}.attributes.{name}"
        samples = _validated_samples(place, recipe) if isinstance(recipe, Recipe) else (recipe,)
        for value in samples:
            try:
                make_message(Identity("check", 0, 0), {name: value})
            except InvalidMessage as error:
                raise InvalidScenario(place, str(error)) from None
    if len(publisher.attributes) > DEFAULT_LIMITS.attributes_max:
        raise InvalidScenario(f"{where}.attributes", f"the limit attributes_max is {DEFAULT_LIMITS.attributes_max}")


def _validate_spikes(where: str, publisher: PublisherSpec) -> None:
    """A phase has a least length, so that a run has a bounded number of them."""
    least, most = SPIKE_SECONDS
    for key, seconds in (
        ("spike_every", publisher.spike_every),
        *(("spike_lasts", end) for end in publisher.spike_lasts),
    ):
        if not least <= seconds <= most:  # which is also false for what is no number
            raise InvalidScenario(
                f"{where}.{key}", f"is {seconds:g}; it must be at least {least:g} and at most {most:g}"
            )
    if publisher.spike_lasts[0] > publisher.spike_lasts[1]:
        raise InvalidScenario(f"{where}.spike_lasts", "the two ends stand in the wrong order: the smaller one first")


def _validated_samples(where: str, recipe: Recipe) -> tuple[Value, ...]:
    given = [key for key in ("choose", "uniform", "integer", "chance") if getattr(recipe, key) is not None]
    if len(given) != 1:
        raise InvalidScenario(where, "give exactly one of choose, uniform, integer and chance")
    if not 0.0 <= recipe.missing <= 1.0 or not 0.0 <= recipe.zipf <= 10.0:
        raise InvalidScenario(where, "missing is a probability, and zipf lies between 0 and 10")
    if recipe.choose is not None and not 1 <= len(recipe.choose) <= 100_000:
        raise InvalidScenario(f"{where}.choose", "give between 1 and 100000 values")
    if recipe.chance is not None and not 0.0 <= recipe.chance <= 1.0:
        raise InvalidScenario(f"{where}.chance", "is a probability, between 0 and 1")
    if recipe.uniform is not None and not isfinite(recipe.uniform[1] - recipe.uniform[0]):
        raise InvalidScenario(where, "the two ends, and the distance between them, must be finite")
    for pair in (recipe.uniform, recipe.integer):
        if pair is not None and pair[0] > pair[1]:
            raise InvalidScenario(where, "the two ends stand in the wrong order: the smaller one first")
    return recipe.choose or recipe.uniform or recipe.integer or (True,)


def publication_times(publisher: PublisherSpec, end: float, random: Random) -> Iterator[float]:
    """When to publish, in increasing order, up to `end` at the latest.

    Messages are due at counts of 1, 2, 3 and so on behind a random first one, or behind exponential steps. A phase maps
    counts to times by its rate; what is left of a step when a phase ends is made in the next one.
    """
    constant = publisher.arrivals == "constant"
    due = random.random() if constant else random.expovariate(1.0)
    counted = 0.0  # in all phases before this one
    for phase in _phases(publisher, end, random):
        while True:
            elapsed = _time_of(max(0.0, due - counted), phase.rate, phase.slope)
            if elapsed is None or phase.start + elapsed >= phase.stop:
                break
            yield phase.start + elapsed
            due += 1.0 if constant else random.expovariate(1.0)
        counted += phase.messages()


class _Phase(NamedTuple):
    """A time in which the rate is steady, or changes steadily by `slope` each second."""

    start: float
    stop: float
    rate: float
    slope: float

    def messages(self) -> float:
        seconds = self.stop - self.start
        return seconds * (self.rate + self.slope * seconds / 2.0)


def _phases(publisher: PublisherSpec, end: float, random: Random) -> Iterator[_Phase]:
    """The quiet times and the spikes in turn, or one phase for all if there are no spikes."""
    planned = end if publisher.stop is None else publisher.stop  # a run that ends earlier is the beginning of this one
    start, stop = publisher.start, min(end, planned)
    first = publisher.rate_messages_per_s
    last = first if publisher.rate_end_messages_per_s is None else publisher.rate_end_messages_per_s
    slope = (last - first) / (planned - start) if planned > start else 0.0
    if publisher.spike_rate_messages_per_s is None:
        yield _Phase(start, stop, first, slope)
        return
    own = Random(random.getrandbits(64))  # so that the spikes come at the same times whatever the attributes are
    now = start
    while now < stop:
        quiet_until = min(stop, now + own.expovariate(1.0) * publisher.spike_every)
        yield _Phase(now, quiet_until, first + slope * (now - start), slope)
        now = min(stop, quiet_until + own.uniform(*publisher.spike_lasts))
        yield _Phase(quiet_until, now, publisher.spike_rate_messages_per_s, 0.0)


def _time_of(count: float, rate: float, slope: float) -> float | None:
    """When `count` messages are due at rate + slope*t per second: solves rate*t + slope*t^2/2 = count."""
    if slope == 0.0:
        return count / rate
    square = rate * rate + 2.0 * slope * count
    return None if square < 0.0 else 2.0 * count / (rate + sqrt(square))


def attribute_source(publisher: PublisherSpec, random: Random) -> Callable[[], dict[str, Value]]:
    """A function that draws the attributes of the next message."""
    drawers = [(name, _drawer(recipe, random)) for name, recipe in publisher.attributes.items()]

    def draw() -> dict[str, Value]:
        return {name: value for name, drawer in drawers if (value := drawer()) is not None}

    return draw


def _drawer(recipe: Value | Recipe, random: Random) -> Callable[[], Value | None]:
    if not isinstance(recipe, Recipe):
        return lambda: recipe
    if recipe.missing > 0.0:
        always = _drawer(replace(recipe, missing=0.0), random)
        return lambda: None if random.random() < recipe.missing else always()
    if recipe.uniform is not None:
        low, high = recipe.uniform
        return lambda: random.uniform(low, high)
    if recipe.integer is not None:
        first, last = recipe.integer
        return lambda: random.randint(first, last)
    if recipe.chance is not None:
        chance = recipe.chance
        return lambda: random.random() < chance
    assert recipe.choose is not None
    values = recipe.choose
    steps = list(accumulate((rank + 1) ** -recipe.zipf for rank in range(len(values))))
    return lambda: values[min(bisect(steps, random.random() * steps[-1]), len(values) - 1)]
