"""What one client may send over one link: tokens are bytes, and the last message may overdraw them.

Tokens come at the link's rate and are saved up to a depth, which is DEPTH_SECONDS of the rate, and at least
DEPTH_PACKETS of the messages that are paid. A message may leave while there are any tokens, whatever its size: so none
is too large.

State: a token bucket, and the mean size of messages. No bound is needed.
"""

from __future__ import annotations

from penstock.kernel.token_bucket import TokenBucket

DEPTH_SECONDS = 0.1
DEPTH_PACKETS = 4.0


class Purse(TokenBucket):
    """Of one client, for one link."""

    __slots__ = ("_packet_bytes",)

    def __init__(self, rate: float, packet_bytes: int, now: float) -> None:
        self._packet_bytes = float(packet_bytes)
        super().__init__(rate, self._deep(rate), now)
        self._tokens = self._packet_bytes  # a link that limits somebody is full: nothing was saved up for it

    def set_share(self, rate: float, now: float) -> None:
        """The link's rate is this from now on."""
        if rate != self._rate:
            self.set_rate(rate, now, self._deep(rate))

    def can_pay(self, now: float) -> bool:
        """Whether a message may leave."""
        return self.tokens(now) > 0.0

    def pay(self, size_bytes: int, now: float) -> None:
        """A message leaves."""
        self._packet_bytes += 0.1 * (size_bytes - self._packet_bytes)
        self._tokens, self._at = self.tokens(now) - size_bytes, now

    def solvent_at(self) -> float:
        """When a message may leave, if none does before."""
        return self._at if self._tokens > 0.0 else self._at + (1.0 - self._tokens) / self._rate

    def _deep(self, rate: float) -> float:
        return max(DEPTH_PACKETS * self._packet_bytes, DEPTH_SECONDS * rate)
