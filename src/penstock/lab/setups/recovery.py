"""The networks of dissertation 002, section 4.4: links that lose messages, publishers with spikes, few receivers.

`recovery_network(12)` has 12 brokers, diameter 5 and 60 clients, 6 of which publish; `recovery_network(46)` has 46
brokers, diameter 11 and 230 clients, 10 of which publish. The graphs are random trees of degree at most 3. Experiments
section 0.3 says what the paper leaves open; where this file had to choose more, the choice stands at the constant.

Who wants what: every message is of one of 200 classes, all equally frequent: a pair of one of 20 topics and one of 10
places. A filter is a constraint on either, so it matches a message with probability 1/200, and a subscription that is a
disjunction of n such filters matches with n/200, whoever publishes. That makes the paper's figures a matter of
counting. Match probabilities: a table says how many subscribers want how many classes; fewer than one in five is above
0.08, none above 0.09. Receivers: a class's popularity falls as a power of its rank, so that more than half of the
messages have one or two receivers and those of the first classes many.

The mean number of receivers follows: it is the sum of all match probabilities. The experiments page proposes 5, which
46 brokers have. With 54 subscribers that cannot be: if 80 % of the probabilities lie below 0.08 and none above 0.1, the
sum lies below 54 * (0.8 * 0.08 + 0.2 * 0.1) = 4.54. We have 4.2 there; the rest is room for the scatter of measured
probabilities. Another table can be given, to see how much the mean decides.
"""

from __future__ import annotations

from random import Random
from typing import Literal, NamedTuple

from penstock.content.message import Value
from penstock.kernel.randomness import generator
from penstock.lab.engine.experiment import Scale
from penstock.lab.setups.paper_network import PAPER_SERVICES
from penstock.lab.setups.transported import with_transport
from penstock.lab.setups.trees import grown_tree
from penstock.scenario.spec import BrokerSpec, ClientSpec, LinkSpec, Scenario, SubscriptionSpec
from penstock.scenario.workload import PublisherSpec, Recipe
from penstock.transport.config import TransportConfig

Size = Literal[12, 46]

CLIENTS_PER_BROKER = 5
DURATION = {"paper": 300.0, "smoke": 15.0}
PUBLISHING_STARTS = 3.0  # by then all brokers know all interest, though some of it was lost and had to be sent again
BASE_RATE = 20.0  # messages per second

# Brokers and links. A broker's time is the page's 1 ms for chapter 3: in a spike a subscriber gets a message each 20 to
# 60 ms from one publisher, so that a few in a hundred overtake each other on six brokers.
SERVICE_MEAN = 0.001
WORKERS = 4
LINK_DELAY = (0.025, 0.075)
LINK_JITTER = 0.005
LINK_RATE_BITS_PER_S = 10e6

# Content.
TOPICS, PLACES = 20, 10
CLASSES = TOPICS * PLACES
POPULARITY_EXPONENT = 0.9  # so skewed that more than half of the classes have one or two receivers

ClassesWanted = dict[int, int]  # so many classes -> are wanted by so many subscribers


class _Network(NamedTuple):
    """What differs between the two networks."""

    diameter: int
    publishers: int
    spike_rate_messages_per_s: float
    wanted: ClassesWanted


NETWORKS: dict[Size, _Network] = {
    12: _Network(5, 6, 500.0, {18: 10, 15: 44}),
    46: _Network(11, 10, 250.0, {17: 40, 3: 40, 2: 60, 1: 80}),
}


def recovery_network(
    brokers: Size,
    *,
    scale: Scale,
    loss: float = 0.01,
    transport: TransportConfig | None = None,
    ordered: bool = False,
    wanted: ClassesWanted | None = None,
) -> Scenario:
    """SETUP-REC12 or SETUP-REC46. With a transport all clients use it, and all subscriptions ask for recovery.

    `wanted` replaces the network's own table of how many subscribers want how many classes.
    """
    random = generator(0, "recovery", brokers, "network")
    links = tuple(
        LinkSpec(
            between=(f"b{a}", f"b{b}"),
            rate_bits_per_s=LINK_RATE_BITS_PER_S,
            delay=random.uniform(*LINK_DELAY),
            jitter=LINK_JITTER,
            loss=loss,
            queue_packets=1_000,
            repair=False,
        )
        for a, b in grown_tree(brokers, NETWORKS[brokers].diameter, random)
    )
    scenario = Scenario(
        services=PAPER_SERVICES,
        name=f"recovery-{brokers}-{scale}" if loss == 0.01 else f"recovery-{brokers}-{scale}-loss-{loss:g}",
        duration=DURATION[scale],
        drain=10.0 if scale == "paper" else 5.0,
        broker=tuple(
            BrokerSpec(name=f"b{number}", workers=WORKERS, service_mean=SERVICE_MEAN) for number in range(brokers)
        ),
        link=links,
        client=_clients(brokers, wanted or NETWORKS[brokers].wanted),
        check=("at-most-once",),
    )
    return scenario if transport is None else with_transport(scenario, transport, ordered=ordered, recover=True)


def match_probabilities(brokers: Size) -> list[float]:
    """For each subscriber, how probably it wants a message; the same for every publisher."""
    return [len(classes) / CLASSES for classes in _subscriptions(brokers, NETWORKS[brokers].wanted)]


def receivers_of_classes(brokers: Size) -> list[int]:
    """For each class of messages, how many subscribers want it, the most popular first."""
    return _popularity(NETWORKS[brokers].wanted)


# Clients.


def _clients(brokers: Size, wanted: ClassesWanted) -> tuple[ClientSpec, ...]:
    """Five at each broker; where a publisher is, it is the last of the five."""
    network = NETWORKS[brokers]
    homes = {number * brokers // network.publishers: None for number in range(network.publishers)}
    flow = PublisherSpec(
        rate_messages_per_s=BASE_RATE,
        spike_rate_messages_per_s=network.spike_rate_messages_per_s,
        spike_every=10.0,
        spike_lasts=(0.5, 3.0),
        arrivals="poisson",
        start=PUBLISHING_STARTS,
        attributes=_attributes(),
        body_bytes=100,
    )
    subscriptions = iter(_subscriptions(brokers, wanted))
    clients = []
    for broker in range(brokers):
        for number in range(CLIENTS_PER_BROKER):
            publishes = broker in homes and number == CLIENTS_PER_BROKER - 1
            clients.append(
                ClientSpec(
                    name=f"b{broker}-c{number}",
                    broker=f"b{broker}",
                    subscribe=() if publishes else (SubscriptionSpec(where=_text(next(subscriptions))),),
                    publish=(flow,) if publishes else (),
                    queue_packets=100_000,
                )
            )
    return tuple(clients)


def _attributes() -> dict[str, Value | Recipe]:
    """Two that filters look at, and eight that nobody asks for."""
    values = tuple(f"v{rank}" for rank in range(24))
    others: dict[str, Value | Recipe] = {f"a{number}": Recipe(choose=values, zipf=1.0) for number in range(8)}
    topics = tuple(f"t{number}" for number in range(TOPICS))
    places = tuple(f"p{number}" for number in range(PLACES))
    return {"topic": Recipe(choose=topics), "place": Recipe(choose=places), **others}


def _text(classes: list[int]) -> str:
    """A disjunction of one filter for each class."""
    pairs = [divmod(number, PLACES) for number in sorted(classes)]
    return " OR ".join(f"(topic = 't{topic}' AND place = 'p{place}')" for topic, place in pairs)


# Popularity.


def _subscriptions(brokers: Size, wanted: ClassesWanted) -> list[list[int]]:
    """The classes that each subscriber wants."""
    random = generator(0, "recovery", brokers, "wishes")  # the label decides what is drawn: it stays
    left = [classes for classes, wanting in wanted.items() for _ in range(wanting)]
    assert len(left) == brokers * CLIENTS_PER_BROKER - NETWORKS[brokers].publishers, "who wants how many: not all given"
    random.shuffle(left)
    subscriptions: list[list[int]] = [[] for _ in left]
    numbers = random.sample(range(CLASSES), CLASSES)
    for number, receivers in zip(numbers, _popularity(wanted), strict=True):
        for subscriber in _draw_distinct(left, receivers, random):
            subscriptions[subscriber].append(number)
            left[subscriber] -= 1
    return subscriptions


def _draw_distinct(left: list[int], count: int, random: Random) -> list[int]:
    """So many subscribers, the more probably the more classes they still have to choose.

    The key is the usual one for drawing by weight without putting back: the largest of random ** (1 / weight).
    """
    keys = [(random.random() ** (1.0 / weight), place) for place, weight in enumerate(left) if weight]
    assert len(keys) >= count, "the popular classes were given to too few subscribers"
    return sorted(place for _, place in sorted(keys, reverse=True)[:count])


def _popularity(wanted: ClassesWanted) -> list[int]:
    """How many want each class: a power of its rank, scaled so that the sum is what all subscribers want together."""
    most = sum(wanted.values())
    together = sum(classes * wanting for classes, wanting in wanted.items())
    assert together >= CLASSES, "somebody wants each class"
    low, high = 0.0, 10.0 * most
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(_power_law(middle, most)) <= together else (low, middle)
    found = _power_law(low, most)
    for rank in range(together - sum(found)):  # what rounding has left over goes to the upper ranks
        found[10 + rank] += 1
    return found


def _power_law(scale: float, most: int) -> list[int]:
    return [max(1, min(most, round(scale * rank**-POPULARITY_EXPONENT))) for rank in range(1, CLASSES + 1)]
