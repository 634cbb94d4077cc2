"""One bottleneck, five workloads, five ways to control them: what `controllers-compared` runs.

Brokers left - right are joined by BOTTLENECK Mbit/s and 20 ms, left - near by ten times as much. Publishers stand at
left, readers at right, and one at near where content overlaps. A message has 1000 bytes on the wire, with the header
of TCP where there is one; that of the transport, and of packets of a stream, comes to it. What is offered is twice what
the bottleneck carries.

    one flow            one publisher
    ten unequal flows   the n-th offers n times as much as the first, each to a reader of its own
    overlapping         one publisher; all is wanted at near, every second message also at right
    beside TCP          one publisher, and a TCP on the bottleneck
    flapping            one publisher; the bottleneck has a quarter of its rate in every second period

Without control, with the transport's and with fair rates of links, it is a datagram link whose queue holds QUEUE
packets and drops the rest. Streams and priced messages need links that lose nothing: there it is a TCP connection over
the same wire and queue. An application that awaits publish() has AT_ONCE messages under way; without control nothing
makes it wait, and fair rates withhold what has no room instead.
"""

from __future__ import annotations

from typing import Any, Literal

from penstock.overlay.link_reports import ReportsConfig
from penstock.pricing.config import PricedClass, PricingConfig
from penstock.rates.config import RatesConfig
from penstock.rates.service import RATES
from penstock.scenario.spec import (
    BrokerSpec,
    ClientSpec,
    FaultSpec,
    LinkSpec,
    Scenario,
    StreamSpec,
    SubscriptionSpec,
    TcpSpec,
)
from penstock.scenario.workload import PublisherSpec, Recipe
from penstock.sim.tcp.config import HEADER_BYTES
from penstock.streams.config import StreamsConfig
from penstock.transport.config import papers_config
from penstock.transport.service import TRANSPORT

Controller = Literal["no control", "transport", "streams", "pricing", "network rates"]
Workload = Literal["one flow", "ten unequal flows", "overlapping", "beside TCP", "flapping"]
CONTROLLERS: tuple[Controller, ...] = ("no control", "transport", "streams", "pricing", "network rates")
WORKLOADS: tuple[Workload, ...] = ("one flow", "ten unequal flows", "overlapping", "beside TCP", "flapping")
LOSSLESS = ("streams", "pricing")  # they need links that lose nothing
MBIT = 1e6
BOTTLENECK = 2.0  # Mbit/s
SLOWER = 0.25  # of it, while it is slow
FAST = 20.0
DELAY = 0.020
QUEUE = 50  # packets
SEND_BUFFER = 64  # packets of a connection: more than fits the wire and its queue
BODY_BYTES = 925  # on datagram links
MESSAGE_BYTES = 1_000  # on the wire
OFFERED = 500.0  # messages/s, all flows together
AT_ONCE = 16
FLOWS = 10
STARTS = 3.0
STREAM = "compared"
WIRE = ("left", "right")


def compared(controller: Controller, workload: Workload, *, duration: float, period: float) -> Scenario:
    """One workload under one controller; `period` is how long a flapping link has one rate."""
    words = f"compared-{workload}-{controller}-{duration:g}".replace(" ", "-")
    flows = FLOWS if workload == "ten unequal flows" else 1
    clients = [_publisher(controller, workload, number, flows) for number in range(flows)]
    clients += [_reader(controller, "right", number, _wanted(workload, number)) for number in range(flows)]
    if workload == "overlapping":
        clients.append(_reader(controller, "near", 0, "source = 0"))
    services: dict[str, Any] = {RATES.name: RatesConfig(enabled=controller == "network rates")}
    if controller == "streams":
        services["streams"] = StreamsConfig()
    if controller == "pricing":
        services |= {"pricing": PricingConfig(), "reports": ReportsConfig()}
    return Scenario(
        name=words,
        duration=duration,
        drain=5.0,
        services=services,
        broker=tuple(BrokerSpec(name=name) for name in ("left", "right", "near")),
        link=(_link(controller, WIRE, BOTTLENECK), _link(controller, ("left", "near"), FAST)),
        stream=(StreamSpec(name=STREAM, at=("left",)),) if controller == "streams" else (),
        classes=(PricedClass(where="source IS NOT NULL"),) if controller == "pricing" else (),
        client=tuple(clients),
        tcp=(_tcp(),) if workload == "beside TCP" else (),
        fault=_flaps(duration, period) if workload == "flapping" else (),
        check=(),
    )


def flow_rate(number: int, flows: int) -> float:
    """What a flow offers, in messages/s."""
    return OFFERED * (number + 1) / sum(range(1, flows + 1))


def _wanted(workload: Workload, number: int) -> str:
    return f"source = {number} AND shared" if workload == "overlapping" else f"source = {number}"


def _link(controller: Controller, pair: tuple[str, str], rate: float) -> LinkSpec:
    lossless = controller in LOSSLESS
    return LinkSpec(
        between=pair,
        kind="tcp" if lossless else "datagram",
        rate_bits_per_s=rate * MBIT,
        delay=DELAY,
        queue_packets=100_000 if lossless else QUEUE,
        repair=False,
        segment_bytes=MESSAGE_BYTES,
        wire_packets=QUEUE,
        send_buffer_bytes=SEND_BUFFER * MESSAGE_BYTES,
    )


def _tcp() -> TcpSpec:
    return TcpSpec(name="TCP", path=WIRE, start=STARTS, segment_bytes=MESSAGE_BYTES)


def _flaps(duration: float, period: float) -> tuple[FaultSpec, ...]:
    times = [period * number for number in range(1, int(duration / period))]
    rates = [BOTTLENECK * (SLOWER if number % 2 == 0 else 1.0) for number in range(len(times))]
    return tuple(
        FaultSpec(at=at, kind="link_rate", link=WIRE, rate_bits_per_s=rate * MBIT)
        for at, rate in zip(times, rates, strict=True)
    )


def _publisher(controller: Controller, workload: Workload, number: int, flows: int) -> ClientSpec:
    shared = Recipe(chance=0.5) if workload == "overlapping" else True
    streams = controller == "streams"
    flow = PublisherSpec(
        rate_messages_per_s=flow_rate(number, flows),
        start=STARTS,
        attributes={"source": number, "shared": shared},
        body_bytes=BODY_BYTES - (HEADER_BYTES if controller in LOSSLESS else 0),
        options={"stream": STREAM} if streams else {},
        unanswered_max=AT_ONCE if streams else None,
        waits=0 if streams else AT_ONCE,
    )
    return ClientSpec(name=f"p{number}", broker="left", publish=(flow,), services=_client_services(controller))


def _reader(controller: Controller, broker: str, number: int, where: str) -> ClientSpec:
    name = f"{broker}-{number}"
    options = {"stream": STREAM, "durable": name, "ack": "manual"} if controller == "streams" else {}
    subscription = SubscriptionSpec(where=where, start=1.0, options=options, acknowledge_every=20)
    return ClientSpec(name=name, broker=broker, subscribe=(subscription,), services=_client_services(controller))


def _client_services(controller: Controller) -> dict[str, Any]:
    return {TRANSPORT.name: papers_config(congestion=True)} if controller == "transport" else {}
