"""SETUP-CB-SIM (003 section 6): brokers joined by TCP links, and groups of senders that publish as fast as they may.

The tree of scenarios 1 to 3 is A - B; B - C, B - D; D - E, D - F. Senders at A publish to the groups G_ace (wanted at C
and E) and G_aef (wanted at E and F). The chain of scenarios 4 and 5 is A - B - C - D - E - F. A message has 1000 bytes
on the wire of its last link, with all headers; on those before it 3 more for each further broker that it goes to. A
sender awaits publish(): it says the next message when the last one has left.

Amounts as in the paper; what it leaves open: threshold 15, first period 5 s with nothing to begin with, so that first
salaries are spread over it, and then periods from 5 ms to 1 s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from penstock.content.message import Identity, make_message
from penstock.lab.setups.paper_network import NO_RATES
from penstock.overlay.link_reports import ReportsConfig
from penstock.pricing.config import PricedClass, PricingConfig
from penstock.scenario.spec import BrokerSpec, ClientSpec, FaultSpec, LinkSpec, Scenario, SubscriptionSpec, TcpSpec
from penstock.scenario.workload import PublisherSpec
from penstock.sim.tcp.config import HEADER_BYTES

MBIT = 1e6
WIRE_BYTES = 1_000
PACKET_BYTES = 23 + HEADER_BYTES  # of a PricedPublication to one broker besides the message, and of its segment
DELAY = 0.010
TCP_WINDOW = 20  # segments of any TCP that may be under way: what ns2, which the paper used, gives its TCPs
SEND_BUFFER = (
    2 * TCP_WINDOW * WIRE_BYTES
)  # of a link's connection: room comes back in halves, so a window is always full
WIRE_PACKETS = 50  # that may wait for a wire: the queue of a link in ns2
SMALL_BUFFER = 16 * WIRE_BYTES
ACCESS = 10 * MBIT
READING_STARTS = 0.5
SENDING_STARTS = 2.0
TREE = (("A", "B"), ("B", "C"), ("B", "D"), ("D", "E"), ("D", "F"))
SCENARIO_1 = dict(zip(TREE, (3.0, 2.0, 3.0, 3.0, 1.0), strict=True))  # Mbit/s
SCENARIO_2 = dict(zip(TREE, (3.0, 3.0, 2.0, 3.0, 1.5), strict=True))
CAIRN = {  # 003 Figure 17, names repaired (F8): Mbit/s there and back, round trip in ms
    ("isiepc3", "isipc"): (2.0285, 2.0156, 61.529),
    ("isiepc3", "tisepc"): (1.4522, 1.4565, 5.742),
    ("isiepc3", "isiepc"): (27.5601, 28.1297, 0.158),
    ("isiepc2", "isiepc"): (28.4132, 28.1811, 0.164),
    ("isiepc", "mitpc2"): (10.9173, 11.2697, 9.461),
    ("isiepc2", "saicpc"): (1.4707, 1.4729, 2.311),
    ("isiepc2", "udelpc"): (1.39821, 1.4497, 7.214),
}
USER_SHARE = 0.85  # of the bytes that Spread sends are the user's (003 section 7)
CAIRN_REPORTS = ReportsConfig(interval=0.1)
CHAIN = dict.fromkeys(zip("ABCDE", "BCDEF", strict=True), 2.0)
PAPER_PRICING = PricingConfig(
    first_balance=0.0, first_period=5.0, even_chance=False, patient=False, own_links_now=False
)
PAPER_REPORTS = ReportsConfig(interval=0.05)
GROUPS = {"G_ace": ("A", ("C", "E")), "G_aef": ("A", ("E", "F"))}  # of the tree


def spread_network(
    name: str,
    links: Mapping[tuple[str, str], float],  # Mbit/s
    groups: Mapping[str, tuple[str, Sequence[str]]],  # group -> the broker of its senders, those of its receivers
    *,
    duration: float,
    senders: Mapping[str, int] | int = 20,
    starts: Mapping[str, float] | None = None,
    pricing: PricingConfig = PAPER_PRICING,
    reports: ReportsConfig = PAPER_REPORTS,
    tcp: Sequence[TcpSpec] = (),
    faults: Sequence[FaultSpec] = (),
    priced: bool = True,
    delay: float = DELAY,
    send_buffer: int = SEND_BUFFER,
) -> Scenario:
    """Brokers, links, receivers and senders."""
    starts = starts or {}
    brokers = dict.fromkeys(broker for pair in links for broker in pair)
    clients = [
        ClientSpec(
            name=f"at-{broker}",
            broker=broker,
            subscribe=tuple(
                SubscriptionSpec(where=f"group = '{group}'", start=READING_STARTS)
                for group, (_, receivers) in groups.items()
                if broker in receivers
            ),
        )
        for broker in brokers
    ]
    for group, (home, _) in groups.items():
        count = senders if isinstance(senders, int) else senders[group]
        clients += [_sender(group, number, home, starts.get(group, SENDING_STARTS)) for number in range(count)]
    return Scenario(
        name=name,
        duration=duration,
        drain=2.0,
        services={**NO_RATES, "pricing": pricing, "reports": reports},
        broker=tuple(BrokerSpec(name=broker) for broker in brokers),
        link=tuple(_link(pair, rate, delay, send_buffer) for pair, rate in links.items()),
        classes=(PricedClass(where="group IS NOT NULL"),) if priced else (),
        client=tuple(clients),
        tcp=tuple(tcp),
        fault=tuple(sorted(faults, key=lambda fault: fault.at)),
        check=(),
    )


def cairn_network(name: str, groups: Mapping[str, tuple[str, Sequence[str]]], *, duration: float) -> Scenario:
    """The part of CAIRN in 003 section 7, with one sender for each group."""
    plain = dict.fromkeys(CAIRN, 1.0)
    scenario = spread_network(name, plain, groups, duration=duration, senders=1, reports=CAIRN_REPORTS)
    clients = tuple(_near_its_broker(client) if client.publish else client for client in scenario.client)
    return replace(scenario, link=tuple(cairn_link(pair) for pair in CAIRN), client=clients)


def _near_its_broker(client: ClientSpec) -> ClientSpec:
    """A sender in the same room as its broker."""
    return replace(client, access_delay=0.0001)


def cairn_link(pair: tuple[str, str]) -> LinkSpec:
    """A link that carries what a TCP was measured to carry."""
    there, back, round_trip = CAIRN[pair]
    link = _link(pair, there, round_trip / 2_000)
    return replace(link, rate_back_bits_per_s=back * MBIT, receive_window=1_000, send_buffer_bytes=64 * WIRE_BYTES)


def _link(pair: tuple[str, str], rate: float, delay: float, send_buffer: int = SEND_BUFFER) -> LinkSpec:
    return LinkSpec(
        between=pair,
        kind="tcp",
        rate_bits_per_s=rate * MBIT,
        delay=delay,
        segment_bytes=WIRE_BYTES,
        receive_window=TCP_WINDOW,
        wire_packets=WIRE_PACKETS,
        send_buffer_bytes=send_buffer,
        queue_packets=100_000,
    )


def _sender(group: str, number: int, home: str, start: float) -> ClientSpec:
    name = f"{group}-{number}"
    sample = make_message(Identity(name, 1, 1), {"group": group}, b"")
    flow = PublisherSpec(
        rate_messages_per_s=ACCESS / 8 / WIRE_BYTES,
        start=start,
        attributes={"group": group},
        body_bytes=WIRE_BYTES - PACKET_BYTES - sample.size_bytes,
        waits=1,
    )
    return ClientSpec(name=name, broker=home, publish=(flow,), access_rate_bits_per_s=ACCESS, access_delay=0.0005)
