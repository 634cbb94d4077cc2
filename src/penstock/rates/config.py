"""Settings of fair rates: [services.rates] of brokers, [client.rates] of a client. Times are seconds."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from penstock.kernel.choices import check_choices


class RatesConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a broker shares its links, and holds its own clients to the shares of all links."""

    enabled: bool = True
    interval: float = 0.05  # between two looks at a link, and as long as three packets take on it
    response: float = 0.2  # the least time that a change of rate is given to show
    announce_every: float = 0.1  # a link's rate is told so often at most, unless it falls
    refresh: float = 1.0  # and so often at least, while the link is busy
    expire_after: float = 3.0  # what was not told again for so long counts no longer
    busy_from: float = 0.7  # a link with this part of its load, or a backlog, tells its rate
    wait: float = 0.5  # how long a message may wait at its home for its share
    slow_start: bool = True
    share_by: Literal["connection", "group"] = (
        "connection"  # group: names that begin alike, up to a "/", share one share
    )

    def __post_init__(self) -> None:
        for name in ("interval", "response", "announce_every", "refresh", "expire_after", "busy_from"):
            if not 0.0 < getattr(self, name) <= 1_000.0:
                raise ValueError(f"{name} must be above 0, and at most 1000")
        check_choices(self)
        if not 0.0 <= self.wait <= 10.0:
            raise ValueError("wait must be from 0 to 10")
        if not self.announce_every <= self.refresh < self.expire_after:
            raise ValueError("times must grow: announce_every <= refresh < expire_after")


WhenFull = Literal[
    "thin",  # it is withheld from those behind the link, after a moment; all others have it already
    "wait",  # it waits at home, whole, and publish() waits with it
    "drop",  # as thin, but nothing waits: what cannot leave at once is withheld
]


Keep = Literal["oldest", "newest"]


class RatesClientConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a client says of its readers, and what its home does with messages for which a link has no room."""

    when_full: WhenFull = "thin"
    enabled: bool = True  # say so when an application reads slowly
    keep: Keep = "oldest"  # which messages a slow reader gets, or one behind a slow link of its own

    def __post_init__(self) -> None:
        check_choices(self)
