"""The declaration of fair rates."""

from __future__ import annotations

from penstock.kernel.service import Service
from penstock.rates.broker_service import RatesBroker
from penstock.rates.client_service import RatesClient
from penstock.rates.config import RatesClientConfig, RatesConfig
from penstock.rates.packets import (
    ClientTerms,
    LinkRate,
    RateHeard,
    ReaderRate,
    ReadersWithheld,
    WithheldFrom,
    WithheldNotice,
)
from penstock.rates.records import RECORDS
from penstock.rates.timers import RatesTimer

RATES = Service(
    name="rates",
    packets=(LinkRate, RateHeard, ReaderRate, ClientTerms, WithheldNotice, WithheldFrom, ReadersWithheld),
    records=RECORDS,
    timers=RatesTimer,
    broker=RatesBroker,
    client=RatesClient,
    config=RatesConfig,
    client_config=RatesClientConfig,
)
