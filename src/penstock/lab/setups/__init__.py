"""The set-ups of dissertation 002, chapters 3 and 4, as scenarios.

`ordering` holds the networks with two fast publishers (sections 3.1 and 3.5), `recovery` those that lose messages
(section 4.4), `chains` the model of section 3.2. `subscriptions` calibrates what the clients of the first want, `trees`
grows graphs of a given diameter, and `transported` puts a transport on all clients of any of them.
"""

from penstock.lab.setups.chains import chain
from penstock.lab.setups.ordering import (
    DELIVERY_COST,
    FAST_RATE,
    INGRESS_PACKETS,
    RECEIVERS_FAST,
    RECEIVERS_SLOW,
    SERVICE_MEAN,
    SERVICE_MEAN_FORTY_SIX,
    WORKERS,
    eight_brokers,
    eight_brokers_live,
    fast_starts,
    forty_six_brokers,
)
from penstock.lab.setups.recovery import recovery_network
from penstock.lab.setups.transported import with_transport

__all__ = [
    "DELIVERY_COST",
    "FAST_RATE",
    "INGRESS_PACKETS",
    "RECEIVERS_FAST",
    "RECEIVERS_SLOW",
    "SERVICE_MEAN",
    "SERVICE_MEAN_FORTY_SIX",
    "WORKERS",
    "chain",
    "eight_brokers",
    "eight_brokers_live",
    "fast_starts",
    "forty_six_brokers",
    "recovery_network",
    "with_transport",
]
