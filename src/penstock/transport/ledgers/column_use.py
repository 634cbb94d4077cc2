"""Which attributes somebody's filters name. Of the others neither records nor ledgers need to tell.

The network may say which of our attributes are used (`penstock.transport.broker_service`); where it says nothing, all
are. It may be wrong: a filter may have come since, or stand behind another that covers it. Who then finds a column left
out asks for what it cannot tell, and names its filters; what these name is used from then on, for ASKED_FOR seconds.

State: names of attributes: of our messages, used by others, and asked for. Bounds: NAMES_MAX of each; of a publisher
with more, those beyond are used. No messages, no timers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

ASKED_FOR = 600.0  # seconds
NAMES_MAX = 64


class ColumnUse:
    """What a publisher knows of the use of its columns."""

    def __init__(self) -> None:
        self.version = 0  # changes whenever an answer may
        self._own: dict[str, None] = {}  # the names that we publish under
        self._unused: frozenset[str] = frozenset()
        self._asked: dict[str, float] = {}  # when somebody asked

    def used(self, name: str) -> bool:
        """Whether somebody's filter may name it."""
        return name not in self._unused or name in self._asked

    def publishes(self, names: Iterable[str]) -> None:
        """We publish under these names."""
        for name in names:
            if len(self._own) < NAMES_MAX:
                self._own[name] = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names that we publish under."""
        return tuple(self._own)

    def told(self, unused: Sequence[str]) -> None:
        """The network says that no filter names these."""
        if self._unused != frozenset(unused):
            self._unused = frozenset(unused[:NAMES_MAX])
            self.version += 1

    def asked(self, names: Iterable[str], now: float) -> None:
        """Somebody has filters that name these."""
        for name in names:
            if name in self._own:
                self.version += not self.used(name)
                self._asked[name] = now

    def forget(self, now: float) -> None:
        """Names that were asked for long ago, or by a clock that was set."""
        kept = {name: at for name, at in self._asked.items() if 0.0 <= now - at < ASKED_FOR}
        self.version += len(kept) < len(self._asked)
        self._asked = kept
