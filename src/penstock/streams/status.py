"""What a broker reports of its streams."""

from __future__ import annotations

from msgspec import Struct

from penstock.streams.packets import Tick
from penstock.streams.pubend import PubendStatus
from penstock.streams.relay import Relay


class RelayStatus(Struct, frozen=True):
    """A relay's part of a report."""

    pubend: str
    newest: Tick
    horizon: Tick
    downstream: int
    cached: int
    cached_bytes: int
    runs: int
    ignored: int
    round_trip: float | None


class StreamsStatus(Struct, frozen=True):
    """A broker's part of a report."""

    pubends: tuple[PubendStatus, ...]
    relays: tuple[RelayStatus, ...]
    readers: int


def relay_status(relay: Relay) -> RelayStatus:
    """How one relay is."""
    known = relay.known
    return RelayStatus(
        pubend=relay.pubend,
        newest=relay.newest,
        horizon=relay.horizon,
        downstream=len(relay.downstream),
        cached=known.messages,
        cached_bytes=known.size_bytes,
        runs=known.runs,
        ignored=relay.ignored,
        round_trip=relay.nacks.round_trip,
    )
