"""Random trees with the product's defaults, for a transport that must serve any content.

A network is drawn from its number: 20 brokers in a random tree, 30 publishers and 100 subscribers anywhere. Messages
have six attributes of all types. Filters are of one kind (`FILTERS`), or of all kinds. Nothing here is set for a
transport: what people would write, on links as they are.

Every broker has four workers and takes 1 ms for a message, so messages overtake each other; links take 2 to 30 ms and
wander by a tenth of that. Publishers send 10 messages/s as a Poisson process and stop one after the other, so that
every one of them has a last message, while others go on.

Losses: `loss` on every link; `burst` lets them come in bursts (Gilbert's model, `kernel.gilbert`); with `outages` each
link is down for 200 to 500 ms, once in OUTAGE_EVERY seconds on average. Access links lose nothing.

With `twins` every subscriber has its filter twice: as a plain subscription, and with the services asked for. Both get
the same copies at the same moment, so their difference is what the transport did, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from penstock.kernel.randomness import generator
from penstock.lab.engine.experiment import Scale
from penstock.lab.setups.transported import with_transport_settings
from penstock.scenario.spec import BrokerSpec, ClientSpec, FaultSpec, LinkSpec, Scenario, SubscriptionSpec
from penstock.scenario.workload import PublisherSpec, Recipe
from penstock.transport.config import TransportConfig

BROKERS, PUBLISHERS, SUBSCRIBERS = 20, 30, 100
WORKERS, SERVICE_MEAN = 4, 0.001
LINK_DELAY = (0.002, 0.030)
LINK_RATE_BITS_PER_S = 100e6
RATE = 10.0  # messages per second
SPIKE_RATE = 200.0  # for the runs on order, where messages must be close together to overtake each other
BODY_BYTES = 100
SUBSCRIBED_AT, PUBLISHING_STARTS = 0.5, (3.0, 4.0)
STOPS = 0.7  # the first publisher stops after this share of the run, at the earliest
DURATION = {"paper": 60.0, "smoke": 15.0}
DRAIN = {"paper": 30.0, "smoke": 15.0}
OUTAGE_EVERY, OUTAGE_LASTS = 10.0, (0.2, 0.5)

SYMBOLS = tuple(f"s{number}" for number in range(15))
PLACES = tuple(f"place-{number}" for number in range(20))
TITLES = tuple(
    f"{kind}: {what}"
    for kind in ("order", "offer", "alert", "note", "re: order")
    for what in ("steel north", "steel south", "grain north", "grain south", "oil", "gas", "power", "coal")
)
ATTRIBUTES: dict[str, Any] = {
    "symbol": Recipe(choose=SYMBOLS),
    "price": Recipe(uniform=(0.0, 1_000.0)),
    "volume": Recipe(integer=(0, 9_999)),
    "place": Recipe(choose=PLACES),
    "urgent": Recipe(chance=0.2),
    "title": Recipe(choose=TITLES),
}


def _equality(random: Random) -> str:
    return f"symbol = '{random.choice(SYMBOLS)}'"


def _rare(random: Random) -> str:
    return f"{_equality(random)} AND place = '{random.choice(PLACES)}'"


def _range(random: Random) -> str:
    low = random.randint(0, 900)
    volume = random.randint(5_000, 9_000)
    return random.choice(
        (
            f"price < {random.randint(20, 200)}",
            f"price BETWEEN {low} AND {low + random.randint(20, 100)}",
            f"price >= {random.randint(500, 900)} AND volume > {volume}",
        )
    )


def _like(random: Random) -> str:
    kind, what = random.choice(TITLES).split(": ", 1)[0], random.choice(("steel", "grain", "north", "oil"))
    return random.choice((f"title LIKE '{kind}: {what[0]}%'", f"title LIKE '%{what}%'", f"title LIKE '{kind}%'"))


def _range_or_like(random: Random) -> str:
    return random.choice((_range, _like))(random)


def _mixed(random: Random) -> str:
    symbol, price = random.choice(SYMBOLS), random.randint(50, 300)
    return random.choice(
        (
            _equality(random),
            _rare(random),
            _range(random),
            _like(random),
            f"symbol IN ('{symbol}', '{random.choice(SYMBOLS)}') AND price < {2 * price}",
            f"urgent AND symbol <> '{symbol}' AND price > {price}",
            f"{_like(random)} AND NOT urgent",
            f"symbol = '{symbol}' OR price < {price // 10}",
        )
    )


FILTERS: dict[str, Callable[[Random], str]] = {
    "equality": _equality,  # matches 1 of 15
    "rare": _rare,  # 1 of 300
    "ranges": _range,  # 1 of 50 to 1 of 5
    "ranges and LIKE": _range_or_like,
    "mixed": _mixed,
}


def any_content_network(
    number: int,
    filters: str,
    *,
    scale: Scale,
    loss: float = 0.0,
    burst: float = 1.0,
    outages: bool = False,
    spikes: bool = False,
    twins: bool = False,
    repair: bool = False,
    transport: TransportConfig | None = None,
    **services: bool,
) -> Scenario:
    """The network of this number. `services`: what subscriptions ask for, `recover` and `ordered`.

    Links do not repair themselves unless asked to, so that what the ends do can be seen.
    """
    random = generator(number, "any content", "tree")
    names = [f"b{place}" for place in range(BROKERS)]
    links = tuple(_links(random, names, loss, burst, repair))
    words = [filters.replace(" ", "-"), *(name for name, wanted in services.items() if wanted)]
    words += [f"loss-{loss:g}-{burst:g}" if loss else "", "outages" if outages else "", "spikes" if spikes else ""]
    words += ["repair" if repair else ""]
    return Scenario(
        name=f"any-content-{number}-{scale}-" + "-".join(filter(None, words)),
        duration=DURATION[scale],
        drain=DRAIN[scale],
        settle=2.0,
        broker=tuple(BrokerSpec(name=name, workers=WORKERS, service_mean=SERVICE_MEAN) for name in names),
        link=links,
        client=(
            *_publishers(generator(number, "any content", "publishers"), names, scale, spikes, transport),
            *_subscribers(generator(number, "any content", filters), names, filters, twins, transport, services),
        ),
        fault=tuple(_outages(generator(number, "any content", "outages"), links, scale)) if outages else (),
        check=("at-most-once", "only-wanted"),
    )


def _links(random: Random, names: list[str], loss: float, burst: float, repair: bool) -> Iterator[LinkSpec]:
    for place in range(1, len(names)):
        delay = random.uniform(*LINK_DELAY)
        yield LinkSpec(
            between=(names[random.randrange(place)], names[place]),
            rate_bits_per_s=LINK_RATE_BITS_PER_S,
            delay=delay,
            jitter=delay / 10.0,
            loss=loss,
            loss_burst=burst,
            repair=repair,
        )


def _publishers(
    random: Random, names: list[str], scale: Scale, spikes: bool, transport: TransportConfig | None
) -> Iterator[ClientSpec]:
    for place in range(PUBLISHERS):
        flow = PublisherSpec(
            rate_messages_per_s=RATE,
            spike_rate_messages_per_s=SPIKE_RATE if spikes else None,
            spike_every=5.0,
            spike_lasts=(0.2, 0.6),
            arrivals="poisson",
            start=random.uniform(*PUBLISHING_STARTS),
            stop=random.uniform(STOPS, 1.0) * DURATION[scale],
            attributes=ATTRIBUTES,
            body_bytes=BODY_BYTES,
        )
        settings = with_transport_settings(transport)
        yield ClientSpec(name=f"p{place}", broker=random.choice(names), publish=(flow,), services=settings)


def _subscribers(
    random: Random,
    names: list[str],
    filters: str,
    twins: bool,
    transport: TransportConfig | None,
    services: dict[str, bool],
) -> Iterator[ClientSpec]:
    for place in range(SUBSCRIBERS):
        where = FILTERS[filters](random)
        served = SubscriptionSpec(where=where, start=SUBSCRIBED_AT, options=services if transport is not None else {})
        plain = SubscriptionSpec(where=where, start=SUBSCRIBED_AT)
        yield ClientSpec(
            name=f"c{place}",
            broker=random.choice(names),
            subscribe=(plain, served) if twins else (served,),
            services=with_transport_settings(transport),
            queue_packets=100_000,
        )


def _outages(random: Random, links: tuple[LinkSpec, ...], scale: Scale) -> list[FaultSpec]:
    faults = []
    for link in links:
        at = PUBLISHING_STARTS[1] + random.expovariate(1.0 / OUTAGE_EVERY)
        while at < DURATION[scale]:
            back = at + random.uniform(*OUTAGE_LASTS)
            faults += [
                FaultSpec(at=at, kind="link_down", link=link.between),
                FaultSpec(at=back, kind="link_up", link=link.between),
            ]
            at = back + random.expovariate(1.0 / OUTAGE_EVERY)
    return sorted(faults, key=lambda fault: fault.at)
