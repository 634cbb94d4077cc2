"""What a client was told of what was withheld: of its own messages, and from its broker or itself.

The same link, publishers and receiver are one entry, which sums up what notices said. Times are the client's own: a
notice says how long ago something began.

State: entries. Bound: FLOWS_MAX; the one that was told of longest ago goes, and the sums over all stay right.
"""

from __future__ import annotations

from msgspec import Struct

from penstock.kernel.rate_estimator import rate_text
from penstock.rates.packets import NO_SUBSCRIPTION, Note

FLOWS_MAX = 1_000
SHOWN_FOR = 60.0  # seconds


class WithheldFlow(Struct, frozen=True, kw_only=True):
    """Messages that a full link, or a slow reader, withheld."""

    link: tuple[str, str]  # the broker before it, and the broker or client behind it
    rate: float  # bytes per second that the link gave each publisher, 0: any; of a slow reader, messages per second
    to: str  # who did not get them: a broker, or a client that reads slowly
    messages: int
    size_bytes: int
    since: float  # by the client's clock
    last: float  # when it was told last
    slow_reader: bool = False  # whether it was no link between brokers, but a client that reads slowly

    @property
    def reason(self) -> str:
        """Why, in words."""
        count = f"{self.messages:,} message{'' if self.messages == 1 else 's'} withheld"
        if self.slow_reader:
            return f"{self.to} takes {rate_text(self.rate)} messages/s: {count}"
        rate = f"gives each publisher {self.rate / 1e3:,.1f} kB/s" if self.rate else "has room again"
        return f"the link {' - '.join(self.link)} {rate}: {count} from {self.to}"


_Key = tuple[tuple[str, str], str, int]


class WithheldFlows:
    """All entries of one client, in one role."""

    def __init__(self) -> None:
        self.messages = 0  # in all
        self._flows: dict[_Key, WithheldFlow] = {}  # the latest stands at the end

    def add(self, note: Note, now: float) -> WithheldFlow:
        """One more notice."""
        self.messages += note.messages
        key = (note.link, note.to, note.subscription)
        known = self._flows.pop(key, None)
        if known is not None and now - known.last > SHOWN_FOR:
            known = None
        flow = self._flows[key] = WithheldFlow(
            link=note.link,
            rate=note.rate,
            to=note.to,
            messages=note.messages + (known.messages if known is not None else 0),
            size_bytes=note.size_bytes + (known.size_bytes if known is not None else 0),
            since=known.since if known is not None else now - note.seconds,
            last=now,
            slow_reader=note.slow_reader,
        )
        if len(self._flows) > FLOWS_MAX:
            del self._flows[next(iter(self._flows))]
        return flow

    def lately(self, now: float) -> list[WithheldFlow]:
        """What was withheld in the last minute, most first."""
        return _most_first([flow for flow in self._flows.values() if now - flow.last <= SHOWN_FOR])

    def of(self, subscription: int) -> list[WithheldFlow]:
        """What may have been for one subscription: what its broker did not get, and what itself did not."""
        kept = (NO_SUBSCRIPTION, subscription)
        return _most_first([flow for key, flow in self._flows.items() if key[2] in kept])


def _most_first(flows: list[WithheldFlow]) -> list[WithheldFlow]:
    return sorted(flows, key=lambda flow: (-flow.messages, flow.link, flow.to))
