"""What order and congestion control need of a header, whatever the scheme: its number, its departure, its flows."""

from __future__ import annotations

from typing import Protocol

from penstock.transport.wire.flow_fields import Control


class NumberedHeader(Protocol):
    """A header of either scheme."""

    @property
    def sequence(self) -> int:
        """The message's number in its publisher's life."""

    @property
    def departure(self) -> float:
        """When it left, by the publisher's clock."""

    @property
    def control(self) -> Control | None:
        """Its congestion control fields, if it has any."""

    @property
    def record_size(self) -> int:
        """How many messages before it its record covers."""
