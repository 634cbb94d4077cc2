"""The transport's declaration: order, recovery and congestion control, end to end; brokers only tell who uses what."""

from __future__ import annotations

from penstock.kernel.packet import Lane
from penstock.kernel.service import Service
from penstock.transport.broker_service import Unused, UnusedRequest, UnusedResponder
from penstock.transport.client_service import TransportClient
from penstock.transport.config import TransportConfig, TransportOptions
from penstock.transport.records import RECORDS
from penstock.transport.timers import TransportTimer

TRANSPORT = Service(
    name="transport",
    packets=(UnusedRequest, Unused),
    records=RECORDS,
    timers=TransportTimer,
    lane=Lane.TRANSPORT,
    broker=UnusedResponder,
    client=TransportClient,
    client_config=TransportConfig,
    subscription_options=TransportOptions,
)
