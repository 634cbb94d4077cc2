"""The transport's declaration: order, recovery and congestion control, end to end, by the clients alone."""

from __future__ import annotations

from penstock.kernel.packet import Lane
from penstock.kernel.service import Service
from penstock.transport.client_service import TransportClient
from penstock.transport.config import TransportConfig, TransportOptions
from penstock.transport.records import RECORDS
from penstock.transport.timers import TransportTimer

TRANSPORT = Service(
    name="transport",
    records=RECORDS,
    timers=TransportTimer,
    lane=Lane.TRANSPORT,
    client=TransportClient,
    client_config=TransportConfig,
    subscription_options=TransportOptions,
)
