"""How much may leave: a bucket that fills at a rate up to a depth, and from which every item takes what it costs.

In any window of w seconds at most depth + rate * w leaves. What a token stands for is the user's choice: a message of
a flow (000 section III-B8), a repair, a price.

`TokenBucket` never goes below zero but by `overdraw`: an item leaves when its tokens are there. `Pacer` is the bucket
of a link, whose tokens are bytes: a packet leaves while there are any, and its size may overdraw the bucket.

State: tokens at one moment, and that moment. Both move only when something was taken or the rate was changed; to look
moves nothing. So `ready_at` stays true until the next take: whoever sets a timer to it finds the tokens there.

An item that costs more than the depth can never leave, and `ready_at` says so with infinity. A clock that steps back
lets no time pass and takes nothing away; one that leaps forward fills the bucket at most. No bound is needed: the
state is four numbers.
"""

from __future__ import annotations

from math import inf, isfinite, nextafter

# What an idle link has saved up at most: long enough for an event loop that wakes a millisecond late, short enough that
# a bottleneck of 500 kbit/s behaves like one packet at a time.
PACER_BURST_SECONDS = 0.005
PACER_BURST_BYTES_MIN = 1500


class TokenBucket:
    """Tokens at `rate` per second, at most `depth` of them; full at the beginning."""

    __slots__ = ("_at", "_depth", "_rate", "_tokens")

    def __init__(self, rate: float, depth: float, now: float) -> None:
        self._rate = _checked(rate, "a rate")
        self._depth = _checked(depth, "a depth")
        self._tokens = self._depth
        self._at = now

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self._rate

    @property
    def depth(self) -> float:
        """The most that an idle bucket saves up."""
        return self._depth

    def tokens(self, now: float) -> float:
        """What is in it."""
        if now < self._at:
            self._at = now  # the clock was set back: count on from there, or the bucket would stand still for so long
        return min(self._depth, self._tokens + self._rate * (now - self._at))

    def has(self, now: float, cost: float = 1.0) -> bool:
        """Whether `take` would succeed; for items that must find tokens in several buckets at once."""
        return self.tokens(now) >= cost

    def take(self, now: float, cost: float = 1.0) -> bool:
        """Take the tokens of one item, or say False and take nothing."""
        tokens = self.tokens(now)
        if tokens < cost:
            return False
        self._tokens, self._at = tokens - cost, now
        return True

    def overdraw(self, now: float, cost: float = 1.0) -> bool:
        """Take what an item costs before it is there, unless something is owed already; says whether that was so."""
        tokens = self.tokens(now)
        if tokens < 0.0:
            return False
        self._tokens, self._at = tokens - cost, now
        return True

    def ready_at(self, cost: float = 1.0) -> float:
        """When an item of this cost can leave if nothing is taken before; perhaps in the past, perhaps never."""
        missing = cost - self._tokens
        if missing <= 0.0:
            return self._at
        if cost > self._depth or self._rate == 0.0:
            return inf
        ready = self._at + missing / self._rate
        # A timer that fires on time must not find a rounding error in its way.
        while self._tokens + self._rate * (ready - self._at) < cost:
            ready = nextafter(ready, inf)
        return ready

    def set_rate(self, rate: float, now: float, depth: float | None = None) -> None:
        """From now on fill at this rate, and up to this depth; what is in it stays, as far as there is room."""
        tokens = self.tokens(now)
        self._rate = _checked(rate, "a rate")
        self._depth = self._depth if depth is None else _checked(depth, "a depth")
        self._tokens, self._at = min(self._depth, tokens), now


class Pacer(TokenBucket):
    """How fast a link may send: bytes at the link's rate, overdrawn by at most one write."""

    __slots__ = ()

    def __init__(self, rate_bytes_per_s: float, now: float) -> None:
        super().__init__(rate_bytes_per_s, _burst(rate_bytes_per_s), now)

    def set_pace(self, rate_bytes_per_s: float, now: float) -> None:
        """From now on send at this rate."""
        self.set_rate(rate_bytes_per_s, now, _burst(rate_bytes_per_s))

    def spend(self, size_bytes: int, now: float) -> None:
        """So much has been sent; the tokens may go below zero."""
        self._tokens, self._at = self.tokens(now) - size_bytes, now

    def busy_seconds(self, spent_bytes: int, now: float) -> float:
        """How long the link was busy with so much, all that was spent so far; what is overdrawn is yet to come."""
        return (spent_bytes + min(0.0, self.tokens(now))) / self._rate

    def room_bytes(self, now: float) -> int:
        """How much may be sent now, the last packet perhaps more than that."""
        return max(0, int(self.tokens(now)))

    def wait(self, now: float) -> float:
        """Seconds until something may be sent; 0 if it may be now."""
        tokens = self.tokens(now)
        # A timer that fires on time must not find a rounding error in its way.
        return 0.0 if tokens >= 1.0 - 1e-6 else (1.0 - tokens) / self._rate


def _burst(rate_bytes_per_s: float) -> float:
    return max(PACER_BURST_BYTES_MIN, rate_bytes_per_s * PACER_BURST_SECONDS)


def _checked(value: float, what: str) -> float:
    if not (isfinite(value) and value >= 0.0):
        raise ValueError(f"{what} of {value}; it must be finite and not negative")
    return float(value)
