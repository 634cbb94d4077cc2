"""What a live broker sees of itself: links, queues, clients, drops. The host's part of a report.

`overlay.status` answers whoever asks, with this and with what each service reports of itself. Plain data, with the same
names in JSON.
"""

from __future__ import annotations

from typing import Any, Protocol

from penstock.kernel.link import Link, LinkInfo
from penstock.live.broker.plan import BrokerPlan, Neighbour
from penstock.live.host import LiveHost
from penstock.live.trace import LiveTrace
from penstock.live.wire.addresses import Address
from penstock.live.wire.connection import Connection
from penstock.live.wire.datagram_port import DatagramPort
from penstock.live.wire.frames import VERSION
from penstock.live.wire.tcp_port import TcpPort
from penstock.live.wire.udp import DatagramEndpoint
from penstock.overlay.broker import Broker
from penstock.overlay.node import Node
from penstock.overlay.routing import Routing

CLIENTS_SHOWN = 200  # in a report; all are counted


class StatusSource(Protocol):
    """What a picture of a broker is made from: its server."""

    plan: BrokerPlan
    address: Address
    incarnation: int
    host: LiveHost
    node: Node
    endpoint: DatagramEndpoint
    connections: dict[Connection, Link | None]
    links: dict[Link, LinkInfo]
    neighbours: dict[int, Neighbour]
    trace: LiveTrace | None


def broker_status(server: StatusSource) -> dict[str, Any]:
    """A picture of a broker, as plain data."""
    host, neighbours = server.host, server.neighbours
    broker, routing = server.node.machine(Broker), server.node.machine(Routing)
    alive, reachable, versions_hash = routing.view()
    clients = [link for link in host.ports if link not in neighbours]
    return {
        "broker": server.plan.name,
        "id": server.plan.broker,
        "listen": str(server.address),
        "incarnation": server.incarnation,
        "protocol": VERSION,
        "uptime": round(host.now() - server.incarnation / 1000, 3),
        "brokers_reachable": reachable,
        "versions_hash": f"{versions_hash:016x}",
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
                "subscriptions": broker.subscriptions_of(link),
                "queue_max": server.links[link].queue_packets,
                **_port_status(server, link),
            }
            for link in clients[:CLIENTS_SHOWN]
        ],
        "connections": len(server.connections),
        "refused": host.refusals,
        "trace": server.trace.status() if server.trace is not None else None,
        "stray_datagrams": server.endpoint.strangers,
        "drops": drops_status(host),
    }


def drops_status(host: LiveHost) -> list[dict[str, Any]]:
    """What ended at this node, as plain data."""
    return [
        {"peer": peer, "place": place, "cause": cause, "packets": packets}
        for (peer, place, cause), packets in sorted(host.drops.items())
    ]


def _port_status(server: StatusSource, link: Link) -> dict[str, Any]:
    port = server.host.ports.get(link)
    queued, received, missing = server.node.egress.waiting_packets(link), 0, None
    repair: dict[str, int] = {}
    address = ""
    if isinstance(port, TcpPort | DatagramPort):
        received, address = port.connection.packets_in, port.connection.address
    if isinstance(port, DatagramPort):
        queued, missing, repair = port.queued_packets(), port.missing, port.repair_counts()
        received += port.packets_received
    return {
        "address": address,
        "queued": queued,
        "sent_packets": port.packets_sent if port is not None else 0,
        "sent_bytes": port.bytes_sent if port is not None else 0,
        "received_packets": received,
        "missing_datagrams": missing,
        "repaired_datagrams": repair.get("datagrams repaired"),
        "given_up_datagrams": repair.get("datagrams given up"),
        "repair_bytes": repair.get("repair bytes"),
    }
