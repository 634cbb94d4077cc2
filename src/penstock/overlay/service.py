"""The broker network as services: routing (who is there, who wants what), forwarding (best effort), reports of links.

All other services stand on these.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.kernel.link import Link
from penstock.kernel.machine import Effect
from penstock.kernel.packet import Lane, Packet
from penstock.kernel.service import Context, Service
from penstock.overlay.broker import Broker
from penstock.overlay.client import Client
from penstock.overlay.config import BrokerConfig, ClientConfig, RoutingConfig
from penstock.overlay.credit import Credit, CreditRequest
from penstock.overlay.link_reports import LinkReport, LinkReports, ReportsConfig, ReportsTimer
from penstock.overlay.packets import (
    Answer,
    Attach,
    Confirmation,
    ConfirmRequest,
    Delivery,
    Hello,
    Interest,
    LinkState,
    Publication,
    Publish,
    Ready,
    ReadyRequest,
    Subscribe,
    Summary,
    Unsubscribe,
)
from penstock.overlay.records import LostOnLink, NeighbourChanged, ServiceSubscriptionRefused
from penstock.overlay.routing import Routing
from penstock.overlay.timers import ForwardingTimer, RoutingTimer


class HelloListener:
    """A client's part in routing: a broker sends Hello on a new link before it knows who is there, and that is all."""

    packet_kinds: tuple[type[Packet], ...] = (Hello,)

    def __init__(self, context: Context) -> None:
        pass

    def receive(self, packets: Sequence[Packet], *, sender: Link, now: float) -> list[Effect]:
        return []


ROUTING = Service(
    name="routing",
    packets=(Hello, LinkState, Interest, Summary, ConfirmRequest, Confirmation),
    records=(NeighbourChanged,),
    timers=RoutingTimer,
    broker=Routing,
    client=HelloListener,
    config=RoutingConfig,
)

FORWARDING = Service(
    name="forwarding",
    packets=(
        *(Publication, Attach, Subscribe, Unsubscribe, Answer, ReadyRequest, Ready, Publish, Delivery),
        *(Credit, CreditRequest),
    ),
    records=(ServiceSubscriptionRefused, LostOnLink),
    timers=ForwardingTimer,
    lane=Lane.BEST_EFFORT,
    broker=Broker,
    client=Client,
    config=BrokerConfig,
    client_config=ClientConfig,
)

REPORTS = Service(
    name="reports",
    packets=(LinkReport,),
    timers=ReportsTimer,
    broker=LinkReports,
    config=ReportsConfig,
)
