"""The declaration of retrieval."""

from __future__ import annotations

from penstock.kernel.packet import BROKER, Lane
from penstock.kernel.service import Service
from penstock.retrieval.broker_service import RetrievalBroker
from penstock.retrieval.client_service import RetrievalClient
from penstock.retrieval.config import RetrievalClientConfig, RetrievalConfig, RetrievalOptions
from penstock.retrieval.packets import BROKER_PACKETS, FROM_CLIENT, TO_CLIENT
from penstock.retrieval.records import RECORDS
from penstock.retrieval.timers import RetrievalTimer

RETRIEVAL = Service(
    name="retrieval",
    packets=BROKER_PACKETS + FROM_CLIENT + TO_CLIENT,
    records=RECORDS,
    timers=RetrievalTimer,
    lane=Lane.BEST_EFFORT,
    broker=RetrievalBroker,
    client=RetrievalClient,
    stores=(BROKER,),
    storage_optional=True,
    config=RetrievalConfig,
    client_config=RetrievalClientConfig,
    subscription_options=RetrievalOptions,
)
