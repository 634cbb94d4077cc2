"""What the transport reports to an application about one of its subscriptions, in numbers.

The detection probability is equation (4.1) of 002 with what was measured: a loss goes unnoticed if none of the next R
publications reaches this client, so P = 1 - (1 - p_match + p_match p_loss)^R. It is worked out for each publisher and
averaged by how much each sends; heartbeats, which find nearly all, are not counted in. The probability of disorder is
the mean, over all gaps that were met, of the chance that the latch left to a violation.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.transport.session import Session
from penstock.transport.subscriptions import TransportSubscription


@dataclass(frozen=True, kw_only=True)
class TransportReport:
    """How a subscription fares with the transport. Losses and delays are those of all publishers together."""

    delivered: int = 0  # messages handed to the application
    late: int = 0  # of those, how many after a later one of the same publisher
    dropped_late: int = 0  # came too late and were left out, as configured
    recovered: int = 0  # of those delivered, how many came as a repair
    lost: int = 0  # losses that were detected
    known_lost: int = 0  # of those, how many have not come and are no longer asked for
    pending: int = 0  # messages that are being asked for now, also those that we may not want
    withheld: int = 0  # wanted, and withheld by full links or because we read slowly: asked for when there is room
    duplicates: int = 0  # copies that were recognised and left out
    refused: int = 0  # messages whose header made no sense
    without_header: int = 0  # messages of publishers that do not use the transport: neither ordered nor recovered
    publishers: int = 0  # with a session now
    detection_probability: float = 1.0
    disorder_probability: float = 0.0
    delay_assigned: float = 0.0  # seconds of latch per message, on average
    delay_held: float = 0.0  # seconds that a message really waited, on average
    heartbeats: int = 0  # received
    not_asked: int = 0  # losses that nobody asked for: not wanted, no room, or most such had proved to be none (ranges)
    unrevealed: int = 0  # publications, wanted or not, that no record ever covered: a loss among them went unnoticed
    broken_off: int = 0  # publishers' lives that ended without a last word: what they sent last may be lost unnoticed
    lost_numbers: tuple[tuple[str, int, int], ...] = ()  # publisher, life and number of what is lost for good: the last


def make_report(
    subscription: TransportSubscription | None,
    sessions: list[Session],
    *,
    known_lost: int,
    pending: int,
    refused: int,
    dropped_late: int,
    lost: int,
    duplicates_before: int,
    heartbeats: int,
    not_asked: int,
) -> TransportReport:
    """What is known of one subscription, and of all publishers together."""
    if subscription is None:
        return TransportReport()
    orders = [session.reorder_buffer for session in sessions]
    gaps = sum(order.gaps for order in orders)
    detected = [(s.reorder_buffer.published_seen, p) for s in sessions if (p := s.detection_probability()) is not None]
    seen = sum((weight for weight, _ in detected), 0.0)
    return TransportReport(
        delivered=subscription.delivered,
        late=subscription.late,
        dropped_late=dropped_late,
        recovered=subscription.recovered,
        lost=lost,
        known_lost=known_lost,
        pending=pending,
        duplicates=duplicates_before + sum(order.duplicates for order in orders),
        refused=refused,
        without_header=subscription.without_header,
        publishers=len(sessions),
        detection_probability=sum((weight * p for weight, p in detected), 0.0) / seen if seen else 1.0,
        disorder_probability=sum((order.chance_sum for order in orders), 0.0) / gaps if gaps else 0.0,
        delay_assigned=subscription.assigned / subscription.delivered if subscription.delivered else 0.0,
        delay_held=subscription.held / subscription.delivered if subscription.delivered else 0.0,
        heartbeats=heartbeats,
        not_asked=not_asked,
        unrevealed=sum(order.unrevealed for order in orders),
    )
