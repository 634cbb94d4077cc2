"""What one client may send over one link: tokens are bytes, and the last message may overdraw them.

Tokens come at a rate and are saved up to a depth, which is DEPTH_SECONDS of the rate, and at least DEPTH_PACKETS of the
messages that are paid. A message may leave while there are any tokens, whatever its size: so none is too large. A new
purse holds one message.

A link that limits somebody has no room for surprises. So from a `SharePurse` a client that was quiet gets no more than
FIRST_MESSAGES per second, or twice what it used lately, until it gets the link's whole rate: what it used is the most
within STEP seconds, and halves every HALVED_IN.

State: a token bucket, the mean size of messages, what was used lately. No bound is needed.
"""

from __future__ import annotations

from math import inf, nextafter

from penstock.kernel.token_bucket import TokenBucket

DEPTH_SECONDS = 0.1
DEPTH_PACKETS = 4.0
FIRST_MESSAGES = 20.0  # per second
GROWTH = 2.0
STEP = 0.1
HALVED_IN = 1.0


class Purse(TokenBucket):
    """Pays at a rate."""

    __slots__ = ("_packet_bytes",)

    def __init__(self, rate: float, packet_bytes: int, now: float) -> None:
        self._packet_bytes = float(packet_bytes)
        super().__init__(rate, self._deep(rate), now)
        self._tokens = self._packet_bytes

    def set_pace(self, rate: float, now: float) -> None:
        """Tokens come at this rate from now on."""
        if rate != self._rate:
            self.set_rate(rate, now, self._deep(rate))

    def can_pay(self, now: float) -> bool:
        """Whether a message may leave."""
        return self.tokens(now) > 0.0

    def pay(self, size_bytes: int, now: float, one_bytes: int | None = None) -> None:
        """A message leaves; or several at once, of which one has so many bytes."""
        self._packet_bytes += 0.1 * ((one_bytes or size_bytes) - self._packet_bytes)
        self._tokens, self._at = self.tokens(now) - size_bytes, now

    def solvent_at(self) -> float:
        """When a message may leave, if none does before."""
        if self._tokens > 0.0:
            return self._at
        at = self._at + (1.0 - self._tokens) / self._rate
        # A timer that fires on time must find a token, also where one takes less time than a clock can tell.
        while self._tokens + self._rate * (at - self._at) <= 0.0:
            at = nextafter(at, inf)
        return at

    def _deep(self, rate: float) -> float:
        return max(DEPTH_PACKETS * self._packet_bytes, DEPTH_SECONDS * rate)


class SharePurse(Purse):
    """A client's share of a limited link.

    `used` is what it is taken to have used before. It begins with up to one message saved or owed, by `chance` from 0
    to 1: or else all who are limited at one moment would send at one moment, again and again.
    """

    __slots__ = ("_paid", "_share", "_step_at", "_used")

    def __init__(self, share: float, packet_bytes: int, now: float, *, used: float, chance: float = 1.0) -> None:
        self._used = used  # bytes per second, lately
        self._share = share
        self._paid = 0  # bytes, in this step
        self._step_at = now
        super().__init__(min(share, max(FIRST_MESSAGES * packet_bytes, GROWTH * used)), packet_bytes, now)
        self._tokens *= 2.0 * chance - 1.0

    def set_share(self, share: float, now: float) -> None:
        """The link's rate is this from now on."""
        self._share = share
        if not self._step_at <= now < self._step_at + STEP:
            seconds = max(STEP, now - self._step_at)
            self._used = max(self._paid / seconds, self._used * 0.5 ** (seconds / HALVED_IN))
            self._paid, self._step_at = 0, now
        self.set_pace(min(share, max(FIRST_MESSAGES * self._packet_bytes, GROWTH * self._used)), now)

    def pay(self, size_bytes: int, now: float, one_bytes: int | None = None) -> None:
        super().pay(size_bytes, now, one_bytes)
        self._paid += size_bytes

    def solvent_at(self) -> float:
        """When a message may leave, or more may leave than now."""
        solvent = super().solvent_at()
        return solvent if self._rate >= self._share else min(solvent, self._step_at + STEP)
