"""For tests: of applications on Penstock, and of Penstock's own parts.

Applications: `embedded_network` has real brokers in the test's process; `received`, `all_received`, `nothing_received`,
`ready` and `until` wait without sleeping. Those that need a client have a form without `async`.
`penstock.testing.plugin` has fixtures for pytest. docs/testing.md shows them.

Protocol parts: a `Pump` drives machines by hand in virtual time, with `a_broker`, `a_client` and so on to fill it.
"""

from penstock.testing.background import BlockingEmbeddedNetwork, embedded_network_blocking
from penstock.testing.embedded import EmbeddedNetwork, embedded_network
from penstock.testing.pump import (
    AMPLE_BYTES,
    STEPS_MAX,
    ClientMachine,
    Flight,
    Pump,
    a_broker,
    a_client,
    a_message,
    attach,
    broker_name,
    broker_network,
    publish,
)
from penstock.testing.waiting import (
    all_received,
    all_received_blocking,
    nothing_received,
    nothing_received_blocking,
    ready,
    ready_blocking,
    received,
    received_blocking,
    until,
)

__all__ = [
    "AMPLE_BYTES",
    "STEPS_MAX",
    "BlockingEmbeddedNetwork",
    "ClientMachine",
    "EmbeddedNetwork",
    "Flight",
    "Pump",
    "a_broker",
    "a_client",
    "a_message",
    "all_received",
    "all_received_blocking",
    "attach",
    "broker_name",
    "broker_network",
    "embedded_network",
    "embedded_network_blocking",
    "nothing_received",
    "nothing_received_blocking",
    "publish",
    "ready",
    "ready_blocking",
    "received",
    "received_blocking",
    "until",
]
