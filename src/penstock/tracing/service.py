"""The declaration of tracing."""

from __future__ import annotations

from penstock.kernel.service import Service
from penstock.tracing.broker_service import TracingBroker
from penstock.tracing.client_service import TracingClient
from penstock.tracing.packets import TraceOrder, TraceRequest, TraceState
from penstock.tracing.records import RECORDS
from penstock.tracing.timers import TracingTimer

TRACING = Service(
    name="tracing",
    packets=(TraceOrder, TraceRequest, TraceState),
    records=RECORDS,
    timers=TracingTimer,
    broker=TracingBroker,
    client=TracingClient,
)
