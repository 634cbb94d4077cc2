"""SETUP-GRYPHON (001 sections 2 and 5): one broker with four pubends, relays, and edges with durable readers.

`stream_network` makes any network of this kind. `simple_network` is Figure 1: PB - IB, and IB - SB1, IB - SB2.
`complex_network` is Figure 12, whose graph the paper does not print; ours is PB - IB1; IB1 - SB1, IB1 - IB2; IB2 - SB2,
SB3, IB3; IB3 - SB4, SB5. Links are connections, 5 ms long; what waits for one is bounded by 5 MB, and control overtakes
it. A link that fails loses what waited for it.

A message is 366 bytes on the wire (calibrated: see the page of experiments) and travels alone, also when it is resent.

With `fewer` there are so many times fewer messages, each so many times larger: the same bytes in the same links and
queues, for short runs.

Publishers wait for acknowledgements: one that has `UNANSWERED_MAX` messages under way says nothing until one of them is
stored. So a pubend that takes less than is offered slows them down, and they do not make up for it later.

The paper has 250 subscribers at each edge with 2 messages/s each. Here there are READERS durable readers at each edge,
each with a filter of its own, which together get every message once: 500 messages/s for each edge as in the paper. 250
of them take the simulator ten times as long and change nothing between brokers, where all filters together are "true".
In the complex network a reader wants one of five groups, and an edge has readers for two of them (2/5 of all messages);
all edges together want everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from zlib import crc32

from penstock.content.message import Identity, make_message
from penstock.lab.setups.paper_network import NO_RATES
from penstock.scenario.spec import (
    BrokerSpec,
    ClientSpec,
    FaultSpec,
    LaneSpec,
    LinkSpec,
    Scenario,
    StreamSpec,
    SubscriptionSpec,
)
from penstock.scenario.workload import PublisherSpec, Recipe
from penstock.streams.config import StreamsConfig

WIRE_BYTES = 366
PACKET_BYTES = 68  # of a Knowledge packet with one message, besides the message
KB = 1024 * 8.0  # bits
PUBENDS = 4
RATE = 500.0  # messages/s, of all pubends together
READERS = 5  # at each edge
UNANSWERED_MAX = 16  # of each publisher
DELAY = 0.005
QUEUE_BYTES = 5_000_000
FAST = 12_500 * KB  # 100 Mbit/s: never a bottleneck
READING_STARTS = 1.0  # by then every broker knows of the stream
PUBLISHING_STARTS = 3.0
STREAM = "orders"
DRAIN = 5.0  # seconds after the last publication

# Table 1, and what it leaves open.
PAPER_CONTROL = StreamsConfig(
    control_rule="paper",
    silence_first=1.0,
    silence_interval=1.0,
    receive_window=10.0,
    nack_window=10.0,
    cache_bytes=375_000,  # ten seconds of a pubend's messages
    packet_items=1,
    query_interval=1.0,
    quiet=2.0,
    rate_step=2.0,
    rate_floor=1.0,
    increase=0.05,
    decrease=0.5,
    keep_of_increase=0.25,
    smoothing=0.1,
    pace_interval=0.5,  # the paper does not say; then the pace falls to half as in Figure 11
    alert_below=0.05,
    recovery_gain=1.0,
    lag_max=4.0,
    nack_window_first=0.1,
    nack_window_step=0.1,
    nack_gain=0.1,
    nack_loss=0.3,
)


def simple_network(
    name: str,
    *,
    duration: float,
    drain: float = DRAIN,
    control: StreamsConfig = PAPER_CONTROL,
    rates: Sequence[tuple[str, str, float]] = (),  # links with fewer KB/s, from the beginning
    faults: Sequence[FaultSpec] = (),
    fewer: int = 1,
    delay: float = DELAY,
) -> Scenario:
    """Figure 1: PB, IB, SB1, SB2."""
    pairs = [("PB", "IB"), ("IB", "SB1"), ("IB", "SB2")]
    wants = {edge: [f"part = {part}" for part in parts_of(edge, False)] for edge in ("SB1", "SB2")}
    return stream_network(
        name,
        brokers=["PB", "IB", "SB1", "SB2"],
        pairs=pairs,
        wants=wants,
        duration=duration,
        drain=drain,
        control=control,
        rates=rates,
        faults=faults,
        fewer=fewer,
        delay=delay,
    )


def complex_network(
    name: str,
    *,
    duration: float,
    drain: float = DRAIN,
    control: StreamsConfig = PAPER_CONTROL,
    rates: Sequence[tuple[str, str, float]] = (),
    faults: Sequence[FaultSpec] = (),
    fewer: int = 1,
) -> Scenario:
    """Figure 12: PB, three relays, five edges of which each wants two fifths."""
    pairs = [("PB", "IB1"), ("IB1", "SB1"), ("IB1", "IB2"), ("IB2", "SB2"), ("IB2", "SB3"), ("IB2", "IB3")]
    pairs += [("IB3", "SB4"), ("IB3", "SB5")]
    edges = [f"SB{number}" for number in range(1, 6)]
    wants = {edge: [f"part = {part}" for part in parts_of(edge, True)] for edge in edges}
    return stream_network(
        name,
        brokers=["PB", "IB1", "IB2", "IB3", *edges],
        pairs=pairs,
        wants=wants,
        duration=duration,
        drain=drain,
        control=control,
        rates=rates,
        faults=faults,
        fewer=fewer,
    )


def parts_of(edge: str, complex_network: bool) -> list[int]:
    """What the readers of an edge want: all parts, or two of the five."""
    if not complex_network:
        return list(range(READERS))
    place = int(edge.removeprefix("SB")) - 1
    return [(2 * place + number) % READERS for number in range(2)]


def rate_fault(at: float, link: tuple[str, str], kilobytes_per_s: float) -> FaultSpec:
    """From then on the link carries so much."""
    return FaultSpec(at=at, kind="link_rate", link=link, rate_bits_per_s=kilobytes_per_s * KB)


def outage(start: float, stop: float, link: tuple[str, str]) -> list[FaultSpec]:
    """The link fails, and comes back."""
    return [FaultSpec(at=start, kind="link_down", link=link), FaultSpec(at=stop, kind="link_up", link=link)]


def link_messages_per_s(kilobytes_per_s: float) -> float:
    """How many messages a link carries, one by one."""
    return kilobytes_per_s * 1024.0 / WIRE_BYTES


def stream_network(
    name: str,
    *,
    brokers: Sequence[str],
    pairs: Sequence[tuple[str, str]],
    wants: Mapping[str, Sequence[str]],  # what the readers of each edge want
    duration: float,
    drain: float = DRAIN,
    control: StreamsConfig = PAPER_CONTROL,
    rates: Sequence[tuple[str, str, float]] = (),
    faults: Sequence[FaultSpec] = (),
    fewer: int = 1,
    delay: float = DELAY,  # of each link
    parts: int = READERS,  # into which messages fall, all alike
    homes: Sequence[str] = ("PB",) * PUBENDS,  # of pubends, and of the publisher that each has
) -> Scenario:
    """Any network with one publisher for each pubend, and durable readers."""
    slow = {(a, b): kilobytes for a, b, kilobytes in rates}
    links = tuple(
        LinkSpec(
            between=pair,
            kind="reliable",
            delay=delay,
            rate_bits_per_s=slow[pair] * KB if pair in slow else FAST,
            queue_packets=10_000_000,
        )
        for pair in pairs
    )
    clients = [_publisher(number, home, parts, fewer, len(homes)) for number, home in enumerate(homes)]
    clients += [_reader(edge, number, where) for edge, those in wants.items() for number, where in enumerate(those)]
    return Scenario(
        name=name,
        duration=duration,
        drain=drain,
        lanes={"stream": LaneSpec(bytes_max=QUEUE_BYTES, overflow="drop")},
        services={**NO_RATES, "streams": control},
        broker=tuple(BrokerSpec(name=broker) for broker in brokers),
        link=links,
        stream=(StreamSpec(name=STREAM, at=tuple(homes)),),
        client=tuple(clients),
        fault=tuple(sorted(faults, key=lambda fault: fault.at)),
        check=(),
    )


def _publisher(number: int, home: str, parts: int, fewer: int, pubends: int) -> ClientSpec:
    name = f"p{number}"
    sample = make_message(Identity(name, 1, 1), {"part": 0}, b"")
    flow = PublisherSpec(
        rate_messages_per_s=RATE / pubends / fewer,
        start=PUBLISHING_STARTS,
        attributes={"part": Recipe(integer=(0, parts - 1))},
        body_bytes=fewer * WIRE_BYTES - PACKET_BYTES - sample.size_bytes,
        options={"stream": STREAM, "key": key_of(number, pubends)},
        unanswered_max=UNANSWERED_MAX,
    )
    return ClientSpec(name=name, broker=home, publish=(flow,))


def _reader(edge: str, number: int, where: str) -> ClientSpec:
    options = {"stream": STREAM, "durable": f"{edge}-{number}", "ack": "manual"}
    subscription = SubscriptionSpec(where=where, start=READING_STARTS, options=options, acknowledge_every=20)
    return ClientSpec(name=f"{edge}-r{number}", broker=edge, subscribe=(subscription,))


def key_of(pubend: int, pubends: int = PUBENDS) -> str:
    """A key that the pubend of this number gets."""
    return next(key for key in map(str, range(10_000)) if crc32(key.encode()) % pubends == pubend)
