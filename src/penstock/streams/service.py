"""The declaration of streams: guaranteed delivery, by brokers that store and clients that ask again."""

from __future__ import annotations

from penstock.kernel.packet import BROKER, Lane
from penstock.kernel.service import Service
from penstock.streams.broker_service import StreamBroker
from penstock.streams.client_service import StreamClient
from penstock.streams.config import (
    StreamPublicationOptions,
    StreamsClientConfig,
    StreamsConfig,
    StreamSubscriptionOptions,
)
from penstock.streams.packets import BROKER_PACKETS, FROM_CLIENT, TO_CLIENT
from penstock.streams.records import RECORDS
from penstock.streams.timers import StreamTimer

STREAMS = Service(
    name="streams",
    packets=BROKER_PACKETS + FROM_CLIENT + TO_CLIENT,
    records=RECORDS,
    timers=StreamTimer,
    lane=Lane.STREAM,
    broker=StreamBroker,
    client=StreamClient,
    stores=(BROKER,),
    storage_optional=True,
    config=StreamsConfig,
    client_config=StreamsClientConfig,
    subscription_options=StreamSubscriptionOptions,
    publication_options=StreamPublicationOptions,
)
