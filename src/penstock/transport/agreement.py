"""Settings that both ends must have alike: what differs is counted and named, once for each peer and setting.

Who uses another scheme, version or size of entries cannot be read, and is named where that is found. The others could
be read and would be wrong in silence: with other hashes records show nothing that we want, a publisher whose record has
no entries shows no losses, requests of another domain reach nobody, and congestion control takes two.

    congestion   a header says whether its publisher has it, and a request whether its subscriber has
    the others   the papers' scheme tells them with each echo and its answer, so both ends learn of it: `told`

State: whom we have named. Bound: NAMED_MAX, the oldest is named again.
"""

from __future__ import annotations

from struct import Struct
from zlib import crc32

from penstock.kernel.trace import Counted
from penstock.transport.config import TransportConfig

NAMED_MAX = 4_096
UNKNOWN, OFF, ON = 0, 1, 2  # whether a subscriber has congestion control, as it stands in a request
_TOLD = Struct("<BHBI")  # hashes, entries, congestion, domain


class Agreement:
    """What one client knows of others' settings."""

    def __init__(self, config: TransportConfig) -> None:
        self._config = config
        self._named: dict[tuple[str, str], None] = {}

    def congestion(self, peer: str, theirs: bool) -> list[Counted]:
        """Whether the peer has congestion control."""
        return [] if theirs == self._config.congestion else self._differs(peer, "congestion")

    def told(self, peer: str, settings: bytes) -> list[Counted]:
        """The peer's settings have come."""
        if len(settings) != _TOLD.size or self._config.scheme != "papers":
            return []
        theirs, ours = _TOLD.unpack(settings), _TOLD.unpack(settings_told(self._config))
        effects: list[Counted] = []
        for name, their, our in zip(
            ("record_hashes", "record_entries", "congestion", "domain"), theirs, ours, strict=True
        ):
            if their != our and (name != "record_entries" or not their or not our):
                effects += self._differs(peer, name)
        return effects

    def _differs(self, peer: str, setting: str) -> list[Counted]:
        if (peer, setting) in self._named:
            return []
        self._named[peer, setting] = None
        if len(self._named) > NAMED_MAX:
            del self._named[next(iter(self._named))]
        return [Counted(f"settings differ: {setting}", peer, 1)]


def settings_told(config: TransportConfig) -> bytes:
    """What an echo says of our settings; nothing in the product's scheme, where nothing else must agree."""
    if config.scheme != "papers":
        return b""
    domain = crc32(config.domain.encode())
    return _TOLD.pack(config.record_hashes, config.record_entries, config.congestion, domain)
