"""What a live broker reports of itself, and how a client asks: two small services beside those of the protocol.

`StatusService` lives in a broker's node and answers `StatusRequest` with what its host sees, as JSON. `NoticeService`
lives in a client's node and takes the answers, and `Losses`: once a second a broker reports to a client how many
deliveries it had to drop because the client was too slow. `broker_status` is
the picture itself, plain data with the same names in JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from penstock.kernel.machine import Effect, Lane, Link, Packet, Send
from penstock.kernel.timers import TimerName
from penstock.live.broker.plan import BrokerPlan, Neighbour
from penstock.live.host import LiveHost
from penstock.live.wire.addresses import Address
from penstock.live.wire.connection import Connection
from penstock.live.wire.datagram_port import DatagramPort
from penstock.live.wire.frames import VERSION
from penstock.live.wire.tcp_port import TcpPort
from penstock.live.wire.udp import DatagramEndpoint
from penstock.overlay.egress import LinkInfo
from penstock.overlay.node import BrokerNode
from penstock.overlay.packets import Losses, Status, StatusRequest

CLIENTS_SHOWN = 200  # in a report; all are counted


class StatusService:
    """Answers the question what this broker sees."""

    name = "status"
    packet_kinds: tuple[type[Packet], ...] = (StatusRequest,)

    def __init__(self, look: Callable[[], dict[str, Any]]) -> None:
        self._look = look

    def receive(self, packets: Sequence[Packet], *, sender: Link, now: float) -> list[Effect]:
        report = msgspec.json.encode(self._look())
        return [
            Send((sender,), Status(packet.ticket, report), Lane.CONTROL)
            for packet in packets
            if isinstance(packet, StatusRequest)
        ]

    def link_changed(self, link: Link, *, up: bool, now: float) -> list[Effect]:
        return []

    def expired(self, timer: TimerName, *, now: float) -> list[Effect]:
        raise AssertionError(f"the status service sets no timer, yet {timer} expired")


class NoticeService:
    """Takes what a broker reports to a client."""

    name = "notice"
    packet_kinds: tuple[type[Packet], ...] = (Status, Losses)

    def __init__(self, answered: Callable[[int, dict[str, Any]], None]) -> None:
        self.losses = 0  # deliveries that our brokers dropped on the way to us
        self._answered = answered

    def receive(self, packets: Sequence[Packet], *, sender: Link, now: float) -> list[Effect]:
        for packet in packets:
            if isinstance(packet, Losses):
                self.losses += packet.deliveries
            elif isinstance(packet, Status):
                try:
                    report = msgspec.json.decode(packet.report, type=dict[str, Any])
                except (msgspec.DecodeError, UnicodeDecodeError) as error:
                    report = {"problem": f"the broker's report cannot be read: {error}"}
                self._answered(packet.ticket, report)
        return []

    def link_changed(self, link: Link, *, up: bool, now: float) -> list[Effect]:
        return []

    def expired(self, timer: TimerName, *, now: float) -> list[Effect]:
        raise AssertionError(f"the notice service sets no timer, yet {timer} expired")


class StatusSource(Protocol):
    """What a picture of a broker is made from: its server."""

    plan: BrokerPlan
    address: Address
    incarnation: int
    host: LiveHost
    node: BrokerNode
    endpoint: DatagramEndpoint
    connections: dict[Connection, Link | None]
    links: dict[Link, LinkInfo]
    neighbours: dict[int, Neighbour]


def broker_status(server: StatusSource) -> dict[str, Any]:
    """A picture of a broker, as plain data."""
    host, neighbours = server.host, server.neighbours
    alive, reachable, digest = server.node.routing.view()
    clients = [link for link in host.ports if link not in neighbours]
    return {
        "broker": server.plan.name,
        "id": server.plan.broker,
        "listen": str(server.address),
        "incarnation": server.incarnation,
        "protocol": VERSION,
        "uptime": round(host.now() - server.incarnation / 1000, 3),
        "brokers_reachable": reachable,
        "digest": f"{digest:016x}",
        "links": [
            {
                "peer": neighbour.name,
                "kind": neighbour.spec.kind,
                "up": link in alive,
                "rate_bits_per_s": neighbour.spec.rate_bits_per_s,
                "queue_max": neighbour.spec.queue_packets,
                **_port_status(server, link),
            }
            for link, neighbour in neighbours.items()
        ],
        "clients_connected": len(clients),
        "clients": [
            {
                "client": server.links[link].peer,
                "subscriptions": server.node.broker.subscriptions_of(link),
                "queue_max": server.links[link].queue_packets,
                **_port_status(server, link),
            }
            for link in clients[:CLIENTS_SHOWN]
        ],
        "connections": len(server.connections),
        "refused": host.refusals,
        "stray_datagrams": server.endpoint.strangers,
        "drops": [
            {"peer": peer, "place": place, "cause": cause, "packets": packets}
            for (peer, place, cause), packets in sorted(host.drops.items())
        ],
    }


def _port_status(server: StatusSource, link: Link) -> dict[str, Any]:
    port = server.host.ports.get(link)
    queued, received, missing = server.node.egress.waiting_packets(link), 0, None
    address = ""
    if isinstance(port, TcpPort | DatagramPort):
        received, address = port.connection.packets_in, port.connection.address
    if isinstance(port, DatagramPort):
        queued, missing = port.queued_packets(), port.missing
        received += port.packets_received
    return {
        "address": address,
        "queued": queued,
        "sent_packets": port.packets_sent if port is not None else 0,
        "sent_bytes": port.bytes_sent if port is not None else 0,
        "received_packets": received,
        "missing_datagrams": missing,
    }
