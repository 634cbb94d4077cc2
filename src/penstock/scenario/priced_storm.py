"""Random scenarios for priced sending: small networks with narrow links and greedy senders, in which all goes wrong.

`priced_storm(seed)` draws a tree, a ring or a mesh of brokers joined by reliable and tcp links, with short buffers, and
senders that publish as fast as they may, some from the moment when they connect; some content is not priced, some
crosses nothing, some messages are larger than a lane. In the *safety phase* brokers crash, links are cut, the network
is parted, clients lose their connections or go for good, clocks are set. Then everything heals. CONVERGENCE seconds
later the *liveness phase* begins: from then on whatever is published arrives, although links are still too narrow for
all. So nothing waits for ever.

The seed decides both the scenario and the run, so one number replays it: `penstock storm --priced --seed 17`.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from penstock.kernel.randomness import generator
from penstock.overlay.link_reports import ReportsConfig
from penstock.pricing.config import PricedClass, PricingClientConfig, PricingConfig
from penstock.scenario.checkers import CHECKERS
from penstock.scenario.priced_checkers import PRICED_CHECKERS
from penstock.scenario.spec import BrokerSpec, ClientSpec, FaultSpec, LaneSpec, LinkSpec, Scenario, SubscriptionSpec
from penstock.scenario.workload import PublisherSpec

EVENTS_MAX = 60_000
SAFETY = 4.0  # seconds of trouble
CONVERGENCE = 4.0
LIVENESS = 2.0
DRAIN = 10.0  # within which all that was said before has arrived
GROUPS = ("north", "south", "east")
LARGE = 6_000  # bytes: more than the smallest lane


def priced_storm(seed: int) -> Scenario:
    """The scenario of this seed."""
    random = generator(seed, "priced storm")
    names = [f"b{number}" for number in range(random.choice((2, 3, 4, 4, 5, 6)))]
    body_bytes = random.choice((100, 400, 400, LARGE))
    links = list(_links(random, names, max(1.0, body_bytes / 500)))
    clients = (*_receivers(random, names), *_senders(random, names, body_bytes))
    held = LaneSpec(bytes_max=4_096 if body_bytes == LARGE else random.choice((4_096, 16_384)), overflow="hold")
    return Scenario(
        name=f"priced-storm-{seed}",
        duration=SAFETY + CONVERGENCE + LIVENESS,
        drain=DRAIN,
        settled_after=SAFETY + CONVERGENCE,
        settle=2.0,
        broker=tuple(_broker(random, name) for name in names),
        link=tuple(links),
        lanes={"priced": held} if random.random() < 0.5 else {},
        classes=tuple(_classes(random)),
        client=clients,
        fault=tuple(sorted(_faults(random, names, links, clients), key=lambda fault: fault.at)),
        check=(*CHECKERS, *PRICED_CHECKERS),
        services={
            "rates": {"enabled": False},  # or plain content is withheld, which storms of narrow links account for
            "pricing": _pricing(random),
            "reports": ReportsConfig(interval=0.2, keepalive=0.5, expire_after=1.5),
            "routing": {"interest": random.choice(("exact", "exact", "encoded"))},
        },
    )


def _classes(random: Random) -> Iterator[PricedClass]:
    """Groups are priced, and something that overlaps with them; `plain` content is not."""
    if random.random() < 0.3:
        yield PricedClass(where="urgent", benefit=random.choice(("received", "latency")))
    yield PricedClass(where="group IS NOT NULL", benefit=random.choice(("sent", "sent", "sent", "concave")))


def _pricing(random: Random) -> PricingConfig:
    """Buffers are short; what else is unusual is so only in some storms."""
    changed: dict[str, Any] = {"soft_limit": random.choice((5.0, 10.0, 20.0)), "samples": 2}
    if random.random() < 0.3:
        changed |= {"held_max": random.choice((1, 2)), "flows_max": random.choice((1, 2))}
    if random.random() < 0.2:
        changed |= {"cost": random.choice(("linear", "square", "exponential-20"))}
    if random.random() < 0.2:
        changed |= {"cap": "before", "first_balance": 0.0}
    if random.random() < 0.2:
        changed |= {"randomised": False, "link_fee": 1.0}
    return PricingConfig(**changed)


def _broker(random: Random, name: str) -> BrokerSpec:
    return BrokerSpec(
        name=name,
        clock_offset=random.uniform(-5.0, 5.0),
        clock_drift=random.uniform(-1e-3, 1e-3),
        joins_at=random.choice((0.0, 0.0, 0.0, random.uniform(0.0, SAFETY))),
    )


def _links(random: Random, names: list[str], width: float) -> Iterator[LinkSpec]:
    """A random tree, a ring, or a mesh; wider where messages are larger, so that it drains in time."""
    shape = random.choice(("tree", "ring", "mesh"))
    pairs = {(random.choice(names[:number]), names[number]): None for number in range(1, len(names))}
    if shape == "ring" and len(names) > 2:
        pairs = {(name, names[(number + 1) % len(names)]): None for number, name in enumerate(names)}
    elif shape == "mesh":
        for _ in range(len(names)):
            a, b = random.sample(names, 2)
            if (a, b) not in pairs and (b, a) not in pairs:
                pairs[a, b] = None
    for a, b in pairs:
        yield LinkSpec(
            between=(a, b),
            kind=random.choice(("reliable", "reliable", "tcp")),
            rate_bits_per_s=width * random.choice((1e5, 1e5, 3e5)),
            delay=random.uniform(0.0, 0.02),
            segment_bytes=1_000,
            send_buffer_bytes=8_000,
            cost=random.randint(1, 3),
        )


def _receivers(random: Random, names: list[str]) -> Iterator[ClientSpec]:
    for number, broker in enumerate(random.sample(names, min(len(names), random.randint(2, 4)))):
        start = random.choice((0.0, random.uniform(0.0, SAFETY)))
        stop = random.choice((None, None, random.uniform(start, SAFETY + CONVERGENCE)))
        where = random.choice(("TRUE", "TRUE", *(f"group <> '{group}'" for group in GROUPS), "urgent"))
        subscriptions = (SubscriptionSpec(where=where), SubscriptionSpec(where="urgent", start=start, stop=stop))
        yield ClientSpec(name=f"r{number}", broker=broker, subscribe=subscriptions)


def _senders(random: Random, names: list[str], body_bytes: int) -> Iterator[ClientSpec]:
    """Groups of equal senders: each has as many messages under way as it likes, and says more as soon as it may."""
    for kind in range(random.choice((1, 2, 2))):
        broker, group = random.choice(names), random.choice(GROUPS)
        attributes: dict[str, Any] = {"group": group, "urgent": random.choice((True, False))}
        flow = PublisherSpec(
            rate_messages_per_s=random.choice((15.0, 30.0)),
            arrivals=random.choice(("constant", "poisson")),
            start=random.choice((0.0, random.uniform(0.0, 1.0))),
            attributes=attributes,
            body_bytes=body_bytes,
            waits=random.choice((1, 1, 3)),
        )
        plain = PublisherSpec(rate_messages_per_s=2.0, attributes={"plain": True, "urgent": True}, body_bytes=100)
        publish = (flow, plain) if random.random() < 0.3 else (flow,)
        delay = random.choice((0.0, 0.0, 0.1))
        services = {"pricing": PricingClientConfig(waiting_max=random.choice((1, 1_000)))}
        for number in range(random.randint(1, 3)):
            yield ClientSpec(
                name=f"s{kind}-{number}", broker=broker, access_delay=delay, publish=publish, services=services
            )


def _faults(
    random: Random, names: list[str], links: list[LinkSpec], clients: tuple[ClientSpec, ...]
) -> Iterator[FaultSpec]:
    def moment() -> float:
        return random.uniform(0.3, SAFETY)

    def later(at: float) -> float:
        return min(SAFETY, at + random.expovariate(1.0))

    for _ in range(random.randint(0, 2)):
        broker, at = random.choice(names), moment()
        yield FaultSpec(at=at, kind="crash", broker=broker)
        yield FaultSpec(at=later(at), kind="restart", broker=broker)
    for _ in range(random.randint(0, 3)):
        link, at = random.choice(links), moment()
        yield FaultSpec(at=at, kind="link_down", link=link.between)
        yield FaultSpec(at=later(at), kind="link_up", link=link.between)
    if random.random() < 0.3:
        group = tuple(random.sample(names, random.randint(1, len(names) - 1)))
        yield FaultSpec(at=moment(), kind="partition", group=group)
    for client in clients:
        if random.random() < 0.2:
            at = moment()
            yield FaultSpec(at=at, kind="link_down", link=(client.name, client.broker))
            yield FaultSpec(at=later(at), kind="link_up", link=(client.name, client.broker))
        if client.publish and random.random() < 0.15:
            yield FaultSpec(at=moment(), kind="client_crash", client=client.name)
    for _ in range(random.randint(0, 2)):
        yield FaultSpec(at=moment(), kind="clock_step", broker=random.choice(names), seconds=random.uniform(-1.0, 1.0))
    yield FaultSpec(at=SAFETY, kind="heal")
