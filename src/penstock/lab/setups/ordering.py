"""The networks of dissertation 002, chapter 3: a climbing load, and two fast publishers that join.

`eight_brokers` is the network of sections 3.1 and 3.5.1: 8 brokers, 400 clients of which 50 publish, 48 slowly climbing
publishers and two fast ones that join at 90 s and 190 s. The paper leaves much open; most choices here are those of
experiments section 0.1, the broker's times are tuned (docs/papers.md), and the workload is calibrated to what the paper
reports: 11.5 receivers per message of a slow publisher and 8.6 per message of a fast one, four of whose receivers are
heavy subscribers that want 85 %.

`forty_six_brokers` is that of section 3.5.2: 46 brokers in a random tree of diameter 15, 10 clients each, the same
workload for 240 s. The fast publishers join at 90 s and 190 s there too: the violations that the paper reports for
the two networks, 115 000 and 173 000, stand to each other nearly as the seconds of fast publishing do, 200 and 320.
"""

from __future__ import annotations

from msgspec.structs import replace

from penstock.kernel.randomness import generator
from penstock.lab.engine.experiment import Scale
from penstock.lab.setups.paper_network import PAPER_SERVICES
from penstock.lab.setups.subscriptions import HEAVY_MATCH, HEAVY_SUBSCRIPTION, attributes, thin_subscriptions
from penstock.lab.setups.trees import grown_tree
from penstock.scenario.spec import BrokerSpec, ClientSpec, LinkSpec, Scenario, SubscriptionSpec
from penstock.scenario.workload import PublisherSpec

SLOW_PUBLISHERS = 48
FAST_RATE = 1200.0  # messages per second
SLOW_RATES = (1.5, 25.0)
RECEIVERS_SLOW, RECEIVERS_FAST = 11.5, 8.6

# Broker model, tuned: see the figures in docs/papers.md.
SERVICE_MEAN = 0.0005  # b: with it the variation of the delay does not depend on the delay; with 0.34 ms it does
WORKERS = 4
DELIVERY_COST = 0.00068
INGRESS_PACKETS = 8_000

# Eight brokers.
BROKERS = 8
CLIENTS_PER_BROKER = 50
TIMES = {"paper": (300.0, (90.0, 190.0)), "smoke": (12.0, (4.0, 8.0))}  # duration, and when the fast ones join
HEAVY_BROKERS = (1, 3, 5, 7)
FAST_BROKERS = (0, 4)
LINKS = ((0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 7), (7, 0), (0, 4), (2, 6))

# Forty-six brokers.
BROKERS_FORTY_SIX = 46
CLIENTS_PER_BROKER_FORTY_SIX = 10
DIAMETER_FORTY_SIX = 15
TIMES_FORTY_SIX = {"paper": (240.0, (90.0, 190.0)), "smoke": (12.0, (5.0, 9.0))}
SLOW_START_FORTY_SIX = 2.0  # by then all brokers know all interest: 15 links of 50 ms, and some of it sent again
SERVICE_MEAN_FORTY_SIX = 0.00025  # tuned like the other; these brokers have a fifth of the clients to match for
RARELY_SLOW = {"slow_share": 0.01, "slow_mean": 0.015}  # a variant: one message in a hundred takes 15 ms longer
FAST_BROKERS_FORTY_SIX = (4, 11)  # on the spine, on either side of its middle
HEAVY_BROKERS_FORTY_SIX = (23, 24, 25, 33)  # on the largest branch, five to seven links from the fast publishers


def eight_brokers(scale: Scale) -> Scenario:
    """SETUP-BDRP8; at smoke scale the same rates in a shorter time."""
    duration, fast_starts = TIMES[scale]
    return Scenario(
        services=PAPER_SERVICES,
        name=f"eight-brokers-{scale}",
        duration=duration,
        drain=10.0 if scale == "paper" else 3.0,
        broker=_brokers(BROKERS, SERVICE_MEAN),
        link=_links(LINKS),
        client=_clients(_subscriptions(), _publishers(fast_starts)),
        check=("at-most-once",),
    )


def eight_brokers_live() -> Scenario:
    """The quiet beginning of the same network for real sockets: no fast publishers, no service times, a few seconds.

    A publisher's rate is that of the first 90 seconds; the links keep their 50 ms, without the jitter.
    """
    scenario = eight_brokers("smoke")
    quiet = PublisherSpec(
        rate_messages_per_s=3.0,
        start=8.0,  # by then eight processes on two cores have compiled what they need for 400 subscriptions
        arrivals="poisson",
        attributes=attributes("slow"),
        body_bytes=100,
    )
    clients = tuple(
        replace(
            client, publish=(quiet,) if client.publish and client.publish[0].rate_messages_per_s < FAST_RATE else ()
        )
        for client in scenario.client
    )
    return replace(
        scenario,
        name="eight-brokers-quiet",
        duration=14.0,
        drain=1.0,
        broker=tuple(BrokerSpec(name=broker.name) for broker in scenario.broker),
        link=tuple(replace(link, jitter=0.0) for link in scenario.link),
        client=clients,
    )


def forty_six_brokers(scale: Scale, *, rarely_slow: bool = False) -> Scenario:
    """SETUP-BDRP46; at smoke scale the same rates in a shorter time. The paper does not say how brokers' times vary."""
    duration, fast_starts = TIMES_FORTY_SIX[scale]
    brokers = _brokers(BROKERS_FORTY_SIX, SERVICE_MEAN_FORTY_SIX)
    if rarely_slow:
        brokers = tuple(replace(broker, **RARELY_SLOW) for broker in brokers)
    return Scenario(
        services=PAPER_SERVICES,
        name=f"forty-six-brokers-{scale}{'-rarely-slow' if rarely_slow else ''}",
        duration=duration,
        drain=10.0 if scale == "paper" else 3.0,
        broker=brokers,
        link=_links(grown_tree(BROKERS_FORTY_SIX, DIAMETER_FORTY_SIX, generator(0, "forty-six-brokers", "tree"))),
        client=_clients(_subscriptions_forty_six(), _publishers_forty_six(fast_starts)),
        check=("at-most-once",),
    )


def fast_starts(scenario: Scenario) -> list[int]:
    """The seconds at which the fast publishers of such a scenario join."""
    flows = [flow for client in scenario.client for flow in client.publish]
    return sorted(int(flow.start) for flow in flows if flow.rate_messages_per_s == FAST_RATE)


# What the two networks share.


def _brokers(count: int, service_mean: float) -> tuple[BrokerSpec, ...]:
    return tuple(
        BrokerSpec(
            name=f"b{number}",
            workers=WORKERS,
            service_mean=service_mean,
            delivery_cost=DELIVERY_COST,
            ingress_packets=INGRESS_PACKETS,
        )
        for number in range(count)
    )


def _links(pairs: tuple[tuple[int, int], ...]) -> tuple[LinkSpec, ...]:
    return tuple(
        LinkSpec(
            between=(f"b{a}", f"b{b}"),
            rate_bits_per_s=10e6,
            delay=0.050,
            jitter=0.005,
            queue_packets=1_000,
            repair=False,
        )
        for a, b in pairs
    )


def _clients(subscriptions: list[list[str]], publishers: dict[str, Flows]) -> tuple[ClientSpec, ...]:
    """A client for each subscription of each broker."""
    return tuple(
        ClientSpec(
            name=f"b{broker}-c{number}",
            broker=f"b{broker}",
            subscribe=(SubscriptionSpec(where=subscription),),
            publish=publishers.get(f"b{broker}-c{number}", ()),
            queue_packets=100_000,
        )
        for broker, subscriptions_here in enumerate(subscriptions)
        for number, subscription in enumerate(subscriptions_here)
    )


Flows = tuple[PublisherSpec, ...]


def _slow(start: float) -> PublisherSpec:
    return PublisherSpec(
        rate_messages_per_s=SLOW_RATES[0],
        rate_end_messages_per_s=SLOW_RATES[1],
        arrivals="poisson",
        start=start,
        attributes=attributes("slow"),
        body_bytes=100,
    )


def _fast(start: float) -> PublisherSpec:
    return PublisherSpec(rate_messages_per_s=FAST_RATE, start=start, attributes=attributes("fast"), body_bytes=100)


# Eight brokers: who publishes and who wants what.


def _publishers(fast_starts: tuple[float, ...]) -> dict[str, Flows]:
    """Which clients publish: six at every broker, and a fast one at two of them."""
    slow: Flows = (_slow(0.0),)
    found = {f"b{number % BROKERS}-c{number // BROKERS}": slow for number in range(SLOW_PUBLISHERS)}
    for broker, start in zip(FAST_BROKERS, fast_starts, strict=True):
        found[f"b{broker}-c{CLIENTS_PER_BROKER - 1}"] = (_fast(start),)
    return found


def _subscriptions() -> list[list[str]]:
    """A text per client, so that the expected number of receivers is as reported, and the brokers' loads are even."""
    heavy_rate = HEAVY_MATCH * 2 * FAST_RATE
    slow_rate = SLOW_PUBLISHERS * (SLOW_RATES[0] + 0.8 * (SLOW_RATES[1] - SLOW_RATES[0]))  # at 240 s
    thin_fast = RECEIVERS_FAST - HEAVY_MATCH * len(HEAVY_BROKERS)
    thin_rate = slow_rate * RECEIVERS_SLOW + 2 * FAST_RATE * thin_fast
    even = (thin_rate + len(HEAVY_BROKERS) * heavy_rate) / BROKERS
    subscriptions = []
    for broker in range(BROKERS):
        heavy = broker in HEAVY_BROKERS
        share = (even - (heavy_rate if heavy else 0.0)) / thin_rate
        random = generator(0, "eight-brokers", broker)
        thin = thin_subscriptions(
            CLIENTS_PER_BROKER - heavy, random, slow=RECEIVERS_SLOW * share, fast=thin_fast * share
        )
        subscriptions.append([*thin, HEAVY_SUBSCRIPTION] if heavy else thin)
    return subscriptions


# Forty-six brokers: who publishes and who wants what.


def _publishers_forty_six(fast_starts: tuple[float, ...]) -> dict[str, Flows]:
    """One slow publisher at every broker, a second one at the first two, and a fast one at two of them."""
    slow: Flows = (_slow(SLOW_START_FORTY_SIX),)
    places = [divmod(number, BROKERS_FORTY_SIX) for number in range(SLOW_PUBLISHERS)]
    found = {f"b{broker}-c{client}": slow for client, broker in places}
    for broker, start in zip(FAST_BROKERS_FORTY_SIX, fast_starts, strict=True):
        found[f"b{broker}-c{CLIENTS_PER_BROKER_FORTY_SIX - 1}"] = (_fast(start),)
    return found


def _subscriptions_forty_six() -> list[list[str]]:
    """Two subscriptions per broker, one of them for slow publishers only, and each that of five clients.

    Neighbours want alike things, so a message crosses a dozen links. Without that it would cross more than twenty to
    reach as many clients, and a run would take twice the time.
    """
    sharing = CLIENTS_PER_BROKER_FORTY_SIX // 2
    thin_fast = RECEIVERS_FAST - HEAVY_MATCH * len(HEAVY_BROKERS_FORTY_SIX)
    random = generator(0, "forty-six-brokers", "wishes")  # the label decides what is drawn: it stays
    drawn = thin_subscriptions(2 * BROKERS_FORTY_SIX, random, slow=RECEIVERS_SLOW / sharing, fast=thin_fast / sharing)
    subscriptions = [
        [either] * sharing + [slow_only] * sharing
        for either, slow_only in zip(drawn[:BROKERS_FORTY_SIX], drawn[BROKERS_FORTY_SIX:], strict=True)
    ]
    for broker in HEAVY_BROKERS_FORTY_SIX:
        subscriptions[broker][-1] = HEAVY_SUBSCRIPTION
    return subscriptions
