"""How fast a flow may be under a given loss: TCP's response function, and back (000 equation (1), 002 equation (5.1)).

    r = 1 / (t (sqrt(2p/3) + 12 sqrt(3p/8) p (1 + 32 p^2)))        p loss event rate, t round trip, r messages/s

This is what a long TCP connection reaches on the same way; a flow that keeps to it takes no more than its share.

Departures. The papers' T is in bytes/s, while quotas and tokens count messages: the packet size s is left out, so a
flow is on a par with TCP per packet and not per byte (erratum C5). Line 36 of 000's Algorithm 1 prints
(12 sqrt(3p/8))^p where equation (1) has a product; the product is right, it is TFRC's equation with a retransmission
time-out of four round trips (erratum C1). Without loss there is no limit: infinity, and no division by zero (C3).

No state, no timers. `loss_event_rate_for` is the inverse; a history of losses begins with it (see `loss_intervals`).
"""

from __future__ import annotations

from math import inf, sqrt

HALVINGS = 64  # of the bisection; each adds a bit, and a float has 53


def allowed_rate(loss_event_rate: float, round_trip: float) -> float:
    """Messages per second that TCP would reach; infinity without loss."""
    if not 0.0 <= loss_event_rate <= 1.0:
        raise ValueError(f"a loss event rate of {loss_event_rate}; it is from 0 to 1")
    _check_round_trip(round_trip)
    return 1.0 / (round_trip * _round_trips_per_message(loss_event_rate)) if loss_event_rate > 0.0 else inf


def loss_event_rate_for(rate: float, round_trip: float) -> float:
    """The loss event rate at which just this rate is allowed; 1 for any rate below the least allowed one."""
    _check_round_trip(round_trip)
    if not rate >= 0.0:
        raise ValueError(f"a rate of {rate} messages/s; it must not be negative")
    messages = rate * round_trip  # per round trip
    if messages * _round_trips_per_message(1.0) <= 1.0:
        return 1.0
    # sqrt(2p/3) alone is less than the whole, so p is at most what it alone would give, and not much less than that.
    low, high = 0.0, min(1.0, 1.5 / (messages * messages))
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        if messages * _round_trips_per_message(middle) < 1.0:
            low = middle
        else:
            high = middle
    return high


def _round_trips_per_message(p: float) -> float:
    """The bracket of the equation."""
    return sqrt(2.0 * p / 3.0) + 12.0 * sqrt(3.0 * p / 8.0) * p * (1.0 + 32.0 * p * p)


def _check_round_trip(round_trip: float) -> None:
    if not 0.0 < round_trip < inf:
        raise ValueError(f"a round trip of {round_trip} s; it must be above 0 and finite")
