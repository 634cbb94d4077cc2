"""The declaration of priced sending."""

from __future__ import annotations

from penstock.kernel.packet import Lane
from penstock.kernel.service import Service
from penstock.pricing.broker_service import PricedBroker
from penstock.pricing.client_service import PricedClient
from penstock.pricing.config import PricingClientConfig, PricingConfig
from penstock.pricing.packets import (
    Bought,
    ClassesRequest,
    NotBought,
    PricedClasses,
    PricedPublication,
    PricedPublish,
    PriceRequest,
    Prices,
)
from penstock.pricing.records import RECORDS
from penstock.pricing.timers import PricingTimer

PRICING = Service(
    name="pricing",
    packets=(ClassesRequest, PricedClasses, PricedPublish, Bought, NotBought, PricedPublication, PriceRequest, Prices),
    records=RECORDS,
    timers=PricingTimer,
    lane=Lane.PRICED,  # held where there are classes: see scenario.node_config
    broker=PricedBroker,
    client=PricedClient,
    config=PricingConfig,
    client_config=PricingClientConfig,
)
