"""Random scenarios for order and recovery: small trees that lose messages in every way, and then heal.

`transport_storm(seed)` draws a tree of datagram links that lose single messages or bursts, publishers that stop,
restart and begin anew, and subscribers of any content, most of which ask for recovery. In the *trouble* links are down
for a moment, and in some storms brokers crash, or publishers, or subscriptions come and go. At its end most networks
heal; some go on losing. Nothing is published any more after END, and the run goes on until all has been asked for: the
publishers' heartbeats grow rarer, so the drain is long, and quiet.

In half of the storms links do not repair themselves; in some publishers keep so few messages that losses are final; one
in LARGE_ONE_IN is a tree of 12 to 20 brokers with up to 30 publishers and 100 subscribers. All this is drawn apart, so
that the rest of a storm stays as it was. On a large tree without repair links lose at most 5 %: at 14 % and eight
hops a tail is told of after a minute, and the drain is shorter.

A publisher restarts in one of two ways. It ends its flow, is quiet until everybody has been told, dies and begins
anew: nothing of its first life may be lost in silence. Or it dies in the middle of its flow, and what it had not told
yet is gone (`transport_checkers`); its second life is judged in full, the first message too.

The seed decides both the scenario and the run, so one number replays it: `penstock storm --transport --seed 17`.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from msgspec.structs import replace

from penstock.kernel.randomness import generator
from penstock.scenario.spec import BrokerSpec, ClientSpec, FaultSpec, LinkSpec, Scenario, SubscriptionSpec
from penstock.scenario.storm import ATTRIBUTES, random_filter
from penstock.scenario.workload import PublisherSpec
from penstock.transport.config import TransportConfig

EVENTS_MAX = 400_000
CALM = 2.5  # seconds in which everybody gets to know what everybody wants
END = 14.0  # of trouble and of publishing
DRAIN = 26.0
QUIET = 6.0  # from a publisher's last message to its death, in which it tells everybody
LARGE_ONE_IN = 25
FEW_LOST = 0.02  # of the messages on a link, where somebody must be told before it is too late and no link repairs
CHECKS = ("transport-once", "only-wanted", "transport-accounted", "transport-ordered")


def transport_storm(seed: int) -> Scenario:
    """The scenario of this seed."""
    random, more = generator(seed, "transport storm"), generator(seed, "transport storm, more")
    repair, large = more.random() < 0.5, more.randrange(LARGE_ONE_IN) == 0
    names = [f"b{number}" for number in range(random.randint(2, 6))]
    if large:
        names = [f"b{number}" for number in range(more.randint(12, 20))]
    crashes = random.random() < 0.3
    churn = not crashes and random.random() < 0.3
    restarts = random.choice(("none", "none", "quiet", "sudden"))
    heals = crashes or random.random() < 0.7
    hurried = restarts == "quiet" or (not repair and (churn or restarts == "sudden"))
    loss_max = FEW_LOST if hurried else 0.05 if large and not repair else 0.15
    links = tuple(replace(link, repair=repair) for link in _links(random, names, loss_max))
    kept = more.choice((*4 * (TransportConfig().published_kept,), more.randint(4, 20)))
    counts = random.randint(2, 4), random.randint(3, 7)
    if large:
        counts = more.randint(10, 30), more.randint(40, 100)
    rate_max = 1.0 if large else 8.0
    publishers = [_publisher(random, number, names, restarts, kept, rate_max) for number in range(counts[0])]
    late = more.choice(("deliver", "deliver", "hold"))
    subscribers = [_subscriber(random, number, names, churn, late) for number in range(counts[1])]
    faults = [*_outages(random, links), *_restarts(random, publishers, restarts)]
    if crashes:
        faults += _crashes(random, names)
    if heals:
        faults.append(FaultSpec(at=END, kind="heal"))
    return Scenario(
        name=f"transport-storm-{seed}",
        duration=END,
        drain=DRAIN,
        settle=2.0,
        broker=tuple(_broker(random, name) for name in names),
        link=links,
        client=(*publishers, *subscribers),
        fault=tuple(sorted(faults, key=lambda fault: fault.at)),
        check=CHECKS,
    )


def _broker(random: Random, name: str) -> BrokerSpec:
    return BrokerSpec(name=name, workers=random.choice((1, 4)), service_mean=random.choice((0.0, 0.001)))


def _links(random: Random, names: list[str], loss_max: float) -> Iterator[LinkSpec]:
    for number in range(1, len(names)):
        yield LinkSpec(
            between=(random.choice(names[:number]), names[number]),
            delay=random.uniform(0.001, 0.02),
            loss=random.choice((0.0, random.uniform(0.0, loss_max))),
            loss_burst=random.choice((1.0, 1.0, 6.0)),
            duplicate=random.choice((0.0, 0.0, 0.02)),
            reorder=random.choice((0.0, 0.0, 0.02)),
        )


def _publisher(random: Random, number: int, names: list[str], restarts: str, kept: int, rate_max: float) -> ClientSpec:
    start, stop = random.uniform(CALM, CALM + 1.0), random.uniform(CALM + 3.0, END)
    flow: dict[str, Any] = {
        "rate_messages_per_s": random.uniform(rate_max / 4.0, rate_max),
        "arrivals": random.choice(("constant", "poisson")),
        "attributes": dict(ATTRIBUTES),
        "body_bytes": random.randint(0, 100),
    }
    flows = [PublisherSpec(start=start, stop=stop, **flow)]
    if number == 0 and restarts == "quiet":
        flows = [
            PublisherSpec(start=start, stop=CALM + 2.5, **flow),
            PublisherSpec(start=CALM + 2.5 + QUIET + 1.0, stop=END, **flow),
        ]
    services = {"transport": TransportConfig(published_kept=kept)}
    return ClientSpec(name=f"p{number}", broker=random.choice(names), publish=tuple(flows), services=services)


def _subscriber(random: Random, number: int, names: list[str], churn: bool, late: Any) -> ClientSpec:
    rare = f"{random_filter(random)} AND volume BETWEEN 10 AND 15"
    where = random.choice((random_filter(random), random_filter(random), rare))
    options = {"recover": random.random() < 0.9, "ordered": random.random() < 0.4}
    start, stop = 0.2, None
    if churn and random.random() < 0.5:
        start = random.uniform(0.2, END - 6.0)
        stop = random.choice((None, random.uniform(start + 5.0, END)))
    wanted = [SubscriptionSpec(where=where, start=start, stop=stop, options=options)]
    if random.random() < 0.2:
        wanted.append(SubscriptionSpec(where=random_filter(random), start=0.3, options={"recover": True}))
    services = {"transport": TransportConfig(late=late)}
    return ClientSpec(name=f"c{number}", broker=random.choice(names), subscribe=tuple(wanted), services=services)


def _outages(random: Random, links: tuple[LinkSpec, ...]) -> Iterator[FaultSpec]:
    for _ in range(random.randint(0, 4)):
        link, at = random.choice(links).between, random.uniform(CALM, END - 1.0)
        yield FaultSpec(at=at, kind="link_down", link=link)
        yield FaultSpec(at=at + random.uniform(0.2, 0.5), kind="link_up", link=link)


def _restarts(random: Random, publishers: list[ClientSpec], restarts: str) -> list[FaultSpec]:
    """The first publisher dies and comes back."""
    if restarts == "none":
        return []
    at = CALM + 2.5 + QUIET if restarts == "quiet" else random.uniform(CALM + 2.0, END - 4.0)
    name, back = publishers[0].name, at + random.uniform(0.1, 0.9)
    return [FaultSpec(at=at, kind="client_crash", client=name), FaultSpec(at=back, kind="client_restart", client=name)]


def _crashes(random: Random, names: list[str]) -> list[FaultSpec]:
    faults = []
    for _ in range(random.randint(1, 2)):
        broker, at = random.choice(names), random.uniform(CALM + 0.5, END - 3.0)
        faults.append(FaultSpec(at=at, kind="crash", broker=broker))
        faults.append(FaultSpec(at=at + random.uniform(0.2, 2.0), kind="restart", broker=broker))
    return faults
