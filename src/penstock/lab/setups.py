"""The set-ups of dissertation 002, chapter 3, as scenarios.

`eight_brokers` is the network of sections 3.1 and 3.5: 8 brokers, 400 clients of which 50 publish, 48 slowly climbing
publishers and two fast ones that join at 90 s and 190 s. The paper leaves much open; most choices here are those of
experiments section 0.1, the broker's times are tuned (docs/papers.md), and the workload is calibrated to what the paper
reports: 11.5 receivers per message of a slow publisher and 8.6 per message of a fast one, four of whose receivers are
heavy subscribers that want 85 %.

`chain` is a publisher and a subscriber with k brokers between them, wide enough that nothing queues: each broker adds
an exponential delay and each link a constant one, which is the model of section 3.2.

How the calibration works: messages carry ten attributes with Zipf(1.0) values, so the probability that a message
matches a filter of equalities is a product that we know. Subscriptions of one or two such constraints (and one on the
kind of publisher) are drawn, and values are made rarer or more popular until each broker's clients want as much as they
should.
"""

from __future__ import annotations

from msgspec.structs import replace

from penstock.content.message import Value
from penstock.kernel.randomness import stream
from penstock.lab.experiment import Scale
from penstock.scenario.network import BrokerSpec, ClientSpec, LinkSpec, Scenario, SubscriptionSpec
from penstock.scenario.workload import PublisherSpec, Recipe

BROKERS = 8
CLIENTS_PER_BROKER = 50
SLOW_PUBLISHERS = 48
FAST_RATE = 1200.0  # messages per second
TIMES = {"paper": (300.0, (90.0, 190.0)), "smoke": (12.0, (4.0, 8.0))}  # duration, and when the fast ones join
SLOW_RATES = (1.5, 25.0)
RECEIVERS_SLOW, RECEIVERS_FAST = 11.5, 8.6
HEAVY_MATCH = 0.85
HEAVY_BROKERS = (1, 3, 5, 7)
FAST_BROKERS = (0, 4)
LINKS = ((0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 7), (7, 0), (0, 4), (2, 6))

VALUES = 24  # per attribute
ATTRIBUTES = tuple(f"a{number}" for number in range(8))  # with `kind` and `grade` a message has ten
GRADE_ZIPF = 2.5025  # two values with weights 1 and 2**-2.5025: the first comes with probability 0.85

# Broker model, tuned: see the figures in docs/papers.md.
SERVICE_MEAN = 0.0005
WORKERS = 4
DELIVERY_COST = 0.00068
INGRESS_PACKETS = 8_000


def eight_brokers(scale: Scale) -> Scenario:
    """SETUP-BDRP8; at smoke scale the same rates in a shorter time."""
    duration, fast_starts = TIMES[scale]
    publishers = _publishers(fast_starts)
    wishes = _wishes()
    clients = []
    for broker in range(BROKERS):
        for number in range(CLIENTS_PER_BROKER):
            name = f"b{broker}-c{number}"
            clients.append(
                ClientSpec(
                    name=name,
                    broker=f"b{broker}",
                    subscribe=(SubscriptionSpec(where=wishes[broker][number]),),
                    publish=publishers.get(name, ()),
                    queue_packets=100_000,
                )
            )
    return Scenario(
        name=f"eight-brokers-{scale}",
        duration=duration,
        drain=10.0 if scale == "paper" else 3.0,
        broker=tuple(
            BrokerSpec(
                name=f"b{number}",
                workers=WORKERS,
                service_mean=SERVICE_MEAN,
                delivery_cost=DELIVERY_COST,
                ingress_packets=INGRESS_PACKETS,
            )
            for number in range(BROKERS)
        ),
        link=tuple(
            LinkSpec(between=(f"b{a}", f"b{b}"), rate_bits_per_s=10e6, delay=0.050, jitter=0.005, queue_packets=1_000)
            for a, b in LINKS
        ),
        client=tuple(clients),
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
        attributes=_attributes("slow"),
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


def chain(stages: int, *, messages: int, scales: tuple[float, ...] = (), rate: float = 200.0) -> Scenario:
    """One publisher, `stages` brokers with 50 ms between them, one subscriber. `scales` are the brokers' mean times."""
    means = scales or (0.001,) * stages
    return Scenario(
        name=f"chain-{stages}-{messages}" if len(set(means)) == 1 else f"chain-{stages}-{messages}-unequal",
        duration=messages / rate + 2.0,
        drain=5.0,
        broker=tuple(
            BrokerSpec(name=f"b{number}", workers=1_000, service_mean=mean) for number, mean in enumerate(means)
        ),
        link=tuple(LinkSpec(between=(f"b{a}", f"b{a + 1}"), delay=0.050) for a in range(stages - 1)),
        client=(
            ClientSpec(
                name="publisher",
                broker="b0",
                publish=(
                    PublisherSpec(
                        rate_messages_per_s=rate,
                        start=2.0,
                        attributes={"kind": "probe", "value": Recipe(integer=(0, 9))},
                    ),
                ),
            ),
            ClientSpec(
                name="subscriber", broker=f"b{stages - 1}", subscribe=(SubscriptionSpec(where="kind = 'probe'"),)
            ),
        ),
        check=("at-most-once", "only-wanted"),
    )


def fast_starts(scenario: Scenario) -> list[int]:
    """The seconds at which the fast publishers of such a scenario join."""
    flows = [flow for client in scenario.client for flow in client.publish]
    return sorted(int(flow.start) for flow in flows if flow.rate_messages_per_s == FAST_RATE)


def _publishers(fast_starts: tuple[float, ...]) -> dict[str, tuple[PublisherSpec, ...]]:
    """Which clients publish: six at every broker, and a fast one at two of them."""
    slow = PublisherSpec(
        rate_messages_per_s=SLOW_RATES[0],
        rate_end_messages_per_s=SLOW_RATES[1],
        arrivals="poisson",
        attributes=_attributes("slow"),
        body_bytes=100,
    )
    found: dict[str, tuple[PublisherSpec, ...]] = {
        f"b{number % BROKERS}-c{number // BROKERS}": (slow,) for number in range(SLOW_PUBLISHERS)
    }
    for broker, start in zip(FAST_BROKERS, fast_starts, strict=True):
        fast = PublisherSpec(rate_messages_per_s=FAST_RATE, start=start, attributes=_attributes("fast"), body_bytes=100)
        found[f"b{broker}-c{CLIENTS_PER_BROKER - 1}"] = (fast,)
    return found


def _attributes(kind: str) -> dict[str, Value | Recipe]:
    values = tuple(f"v{rank}" for rank in range(VALUES))
    recipes: dict[str, Value | Recipe] = {name: Recipe(choose=values, zipf=1.0) for name in ATTRIBUTES}
    return {"kind": kind, "grade": Recipe(choose=("regular", "odd"), zipf=GRADE_ZIPF), **recipes}


# Subscriptions.


def _wishes() -> list[list[str]]:
    """A text per client, so that the expected number of receivers is as reported, and the brokers' loads are even."""
    heavy_rate = HEAVY_MATCH * 2 * FAST_RATE
    slow_rate = SLOW_PUBLISHERS * (SLOW_RATES[0] + 0.8 * (SLOW_RATES[1] - SLOW_RATES[0]))  # at 240 s
    thin_fast = RECEIVERS_FAST - HEAVY_MATCH * len(HEAVY_BROKERS)
    thin_rate = slow_rate * RECEIVERS_SLOW + 2 * FAST_RATE * thin_fast
    even = (thin_rate + len(HEAVY_BROKERS) * heavy_rate) / BROKERS
    wishes = []
    for broker in range(BROKERS):
        heavy = broker in HEAVY_BROKERS
        share = (even - (heavy_rate if heavy else 0.0)) / thin_rate
        wishes.append(_wishes_of(broker, heavy, RECEIVERS_SLOW * share, thin_fast * share))
    return wishes


def _wishes_of(broker: int, heavy: bool, slow: float, fast: float) -> list[str]:
    """Half of the thin clients want messages of either kind, half only those of slow publishers."""
    random = stream(0, "eight-brokers", broker)
    clients = CLIENTS_PER_BROKER - heavy
    either = clients // 2
    drawn = [
        {name: _zipf_rank(random.random()) for name in random.sample(ATTRIBUTES, random.randint(1, 2))}
        for _ in range(clients)
    ]
    _calibrate(drawn[:either], fast)
    _calibrate(drawn[either:], slow - fast)
    texts = [_text(chosen, number >= either) for number, chosen in enumerate(drawn)]
    return [*texts, "kind = 'fast' AND grade = 'regular'"] if heavy else texts


def _calibrate(drawn: list[dict[str, int]], target: float) -> None:
    """Make values rarer or more popular, one step at a time, until the expected number of receivers is right."""
    for _ in range(2_000):
        total = sum(map(_match_probability, drawn))
        if abs(total - target) <= 0.01 * target:
            return
        if total > target:
            chosen = max(drawn, key=_match_probability)
            name = min(chosen, key=lambda n: chosen[n])
            chosen[name] = min(VALUES - 1, chosen[name] + 1)
        else:
            chosen = min(drawn, key=_match_probability)
            name = max(chosen, key=lambda n: chosen[n])
            chosen[name] = max(0, chosen[name] - 1)
    raise AssertionError(f"no calibration to {target} receivers was found")


_HARMONIC = sum(1.0 / (rank + 1) for rank in range(VALUES))


def _match_probability(chosen: dict[str, int]) -> float:
    probability = 1.0
    for rank in chosen.values():
        probability /= (rank + 1) * _HARMONIC
    return probability


def _zipf_rank(draw: float) -> int:
    for rank in range(VALUES):
        draw -= 1.0 / ((rank + 1) * _HARMONIC)
        if draw < 0.0:
            return rank
    return VALUES - 1


def _text(chosen: dict[str, int], slow_only: bool) -> str:
    parts = ["kind = 'slow'"] if slow_only else []
    return " AND ".join(parts + [f"{name} = 'v{rank}'" for name, rank in chosen.items()])
