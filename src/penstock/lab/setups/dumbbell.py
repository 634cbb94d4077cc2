"""SETUP-DUMBBELL (000 Figure 6, 002 Figure 5.8): pairs of publisher and subscriber, and one bottleneck between.

Publishers stand at the broker `left`, subscribers at `right`; a TCP connection may share the link. Each subscriber
wants part of what one publisher says, and the rest stays on the left. What the papers leave open is as the experiments
page proposes: 20 ms on the bottleneck and 0.5 ms on the access links, a drop-tail queue of 50 packets, 280 bytes for a
message on the wire.

A message has these 280 bytes with and without congestion control: our header (112 bytes with a record of two entries,
and 13 around it) takes the place of as many bytes of the body. The papers' header has 80 and their runs without control
carry 80 bytes more; the size on the wire is what counts for a bottleneck. TCP's packets have 280 bytes too and each is
acknowledged by itself (b = 1 in the response function), so a flow and a TCP are on a par per packet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.content.message import Identity, Value, make_message
from penstock.lab.setups.paper_network import PAPER_SERVICES
from penstock.lab.setups.transported import with_transport_settings
from penstock.scenario.spec import (
    BrokerSpec,
    ClientSpec,
    FaultSpec,
    LinkSpec,
    Scenario,
    SubscriptionSpec,
    TcpSpec,
)
from penstock.scenario.workload import PublisherSpec, Recipe
from penstock.transport.config import TransportConfig, papers_config

WIRE_BYTES = 280
HEADER_BYTES = 125  # of the transport, with its envelope: 22 + 18 + 2 * (4 + 32) bytes, and 13 around them
PACKET_BYTES = 20  # of a publication, and 3 for each broker that it is meant for
BROKER_BYTES = 3
DELAY = 0.020
ACCESS_DELAY = 0.0005
QUEUE_PACKETS = 50
PUBLISHING_STARTS = 1.0  # by then the left broker knows what the right one wants
CONTROL = papers_config(
    record_entries=2, congestion=True, when_full="drop", publisher_answers=False, flow_queue=50, increase_max=0.5
)


class Stretch(NamedTuple):
    """A time in which the publication rate is steady, or goes steadily to another."""

    start: float
    stop: float
    rate: float  # messages/s
    rate_end: float | None = None


class DumbbellPair(NamedTuple):
    """A publisher, and how much of it its subscriber wants."""

    match: float
    profile: tuple[Stretch, ...]


def dumbbell(
    name: str,
    pairs: Sequence[DumbbellPair],
    *,
    rate_bits_per_s: float,
    duration: float,
    controlled: bool,
    later_rates: Sequence[tuple[float, float]] = (),
    tcp_start: float | None = None,
    control: TransportConfig = CONTROL,
) -> Scenario:
    """The dumbbell with these pairs; `later_rates` are times and the bottleneck's bits per second from then on."""
    transport = control if controlled else None
    clients: list[ClientSpec] = []
    for number, pair in enumerate(pairs, start=1):
        clients += _pair(number, pair, transport)
    between = ("left", "right")
    link = LinkSpec(
        between=between, rate_bits_per_s=rate_bits_per_s, delay=DELAY, queue_packets=QUEUE_PACKETS, repair=False
    )
    tcp = TcpSpec(
        name="tcp",
        path=between,
        start=tcp_start or 0.0,
        segment_bytes=WIRE_BYTES,
        access_delay=ACCESS_DELAY,
        acknowledge_every=1,
    )
    return Scenario(
        services=PAPER_SERVICES,
        name=f"{name}-{'controlled' if controlled else 'free'}",
        duration=duration,
        drain=3.0,
        settle=PUBLISHING_STARTS,
        broker=(BrokerSpec(name="left"), BrokerSpec(name="right")),
        link=(link,),
        client=tuple(clients),
        tcp=() if tcp_start is None else (tcp,),
        fault=tuple(FaultSpec(at=at, kind="link_rate", link=between, rate_bits_per_s=rate) for at, rate in later_rates),
        check=("at-most-once",),
    )


def body_bytes(sample: dict[str, Value], publisher: str, *, brokers: int = 1, header: bool) -> int:
    """How long a body must be so that a message with such attributes has 280 bytes on the wire."""
    bare = make_message(Identity(publisher, 0, 0), sample).size_bytes
    left = WIRE_BYTES - PACKET_BYTES - BROKER_BYTES * brokers - bare - (HEADER_BYTES if header else 0)
    assert left >= 0, f"the attributes leave no room in {WIRE_BYTES} bytes"
    return left


def _pair(number: int, pair: DumbbellPair, transport: TransportConfig | None) -> tuple[ClientSpec, ClientSpec]:
    publisher, source = f"p{number}", f"s{number}"
    attributes: dict[str, Value | Recipe] = {"source": source, "wanted": Recipe(chance=pair.match)}
    body = body_bytes({"source": source, "wanted": True}, publisher, header=transport is not None)
    publish = tuple(
        PublisherSpec(
            rate_messages_per_s=stretch.rate,
            rate_end_messages_per_s=stretch.rate_end,
            arrivals="poisson",
            start=max(PUBLISHING_STARTS, stretch.start),
            stop=stretch.stop,
            attributes=attributes,
            body_bytes=body,
        )
        for stretch in pair.profile
    )
    subscription = SubscriptionSpec(where=f"source = '{source}' AND wanted")
    return (
        ClientSpec(
            name=publisher,
            broker="left",
            access_delay=ACCESS_DELAY,
            publish=publish,
            services=with_transport_settings(transport),
        ),
        ClientSpec(
            name=source,
            broker="right",
            access_delay=ACCESS_DELAY,
            subscribe=(subscription,),
            services=with_transport_settings(transport),
        ),
    )
