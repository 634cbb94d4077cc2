"""Settings of the broker network: intervals, and bounds on everything that a peer can make us keep.

In a network file: `[services.routing]`, `[services.forwarding]`, and `forwarding = {...}` of a client. All defaults are
our own choice; the papers name none.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from penstock.kernel.choices import check_choices
from penstock.overlay.packets import HOPS_MAX

NEWS_BURST_MIN = 1_024


class RoutingConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How brokers keep their picture of the network."""

    interest: Literal["exact", "encoded"] = "exact"  # what brokers tell each other: filters, or Bloom encodings
    hello_interval: float = 0.5
    dead_after: float = 2.0  # silence on a link before its neighbour counts as lost
    announce_delay: float = 0.01  # how long changes are gathered before they are flooded
    forget_after: float = 60.0  # how long an unreachable broker is remembered
    brokers_max: int = 4096
    neighbours_max: int = 256
    interest_room_per_broker_max: int = 1 << 24  # bytes, as `interest_form` counts them: some 170,000 filters
    interest_room_max: int = 1 << 26  # of all other brokers; above it nobody may have more than an equal share
    strangers_max: int = 64  # brokers that the plan does not name
    work_rate: float = 5_000.0  # entries of others' interest per second that are taken in; a long one counts more
    work_burst: float = 500.0  # and so many at once; the others wait
    news_rate: float = 5_000.0  # neighbours and versions per second that one neighbour may tell us
    news_burst: float = 20_000.0  # and so many at once
    map_rate: float = 20_000.0  # lines per second that we go along to work out the map

    def __post_init__(self) -> None:
        if not 0 < self.announce_delay < self.hello_interval < self.dead_after < self.forget_after:
            raise ValueError("intervals must grow: 0 < announce_delay < hello_interval < dead_after < forget_after")
        check_choices(self)
        if min(self.brokers_max, self.neighbours_max, self.interest_room_per_broker_max) < 1:
            raise ValueError("brokers_max, neighbours_max and interest_room_per_broker_max must be at least 1")
        if min(self.news_rate, self.map_rate, self.interest_room_max, self.work_rate, self.work_burst) < 1:
            raise ValueError("news_rate, map_rate, interest_room_max, work_rate and work_burst must be at least 1")
        if self.strangers_max < 0:
            raise ValueError("strangers_max must be at least 0")
        if self.news_burst < NEWS_BURST_MIN:
            raise ValueError(f"news_burst must be at least {NEWS_BURST_MIN}: one packet may take some hundreds")


class BrokerConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds of one broker."""

    clients_max: int = 10_000
    subscriptions_per_client_max: int = 1_000
    client_share: int = 16  # one client may have this part of the broker's room for interest: a sixteenth
    verbs_rate: float = 200.0  # subscriptions per second that one client may make
    verbs_burst: float = 2_000.0  # and so many at once
    work_rate: float = 1_000.0  # verbs per second of all clients that are carried out; one with a long text counts more
    work_burst: float = 100.0  # and so many at once; the others wait
    hops_spare: int = 8  # how many detours a copy may make beyond the longest way known at its start
    hops_max: int = HOPS_MAX

    def __post_init__(self) -> None:
        if min(self.clients_max, self.subscriptions_per_client_max) < 1:
            raise ValueError("clients_max and subscriptions_per_client_max must be at least 1")
        if min(self.client_share, self.verbs_rate, self.verbs_burst, self.work_rate, self.work_burst) < 1:
            raise ValueError("client_share, verbs_rate, verbs_burst, work_rate and work_burst must be at least 1")
        if not 0 <= self.hops_spare <= HOPS_MAX or not 1 <= self.hops_max <= HOPS_MAX:
            raise ValueError(f"hops_spare and hops_max must not be above {HOPS_MAX}")


class ClientConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds of one client."""

    subscriptions_max: int = 1_000

    def __post_init__(self) -> None:
        if self.subscriptions_max < 1:
            raise ValueError("subscriptions_max must be at least 1")
