"""The declaration of fair rates."""

from __future__ import annotations

from penstock.kernel.service import Service
from penstock.rates.broker_service import RatesBroker
from penstock.rates.config import RatesConfig
from penstock.rates.packets import LinkRate, RateHeard
from penstock.rates.records import RECORDS
from penstock.rates.timers import RatesTimer

RATES = Service(
    name="rates",
    packets=(LinkRate, RateHeard),
    records=RECORDS,
    timers=RatesTimer,
    broker=RatesBroker,
    config=RatesConfig,
)
