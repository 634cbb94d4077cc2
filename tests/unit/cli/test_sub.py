"""`penstock sub`: what it says at its end, of losses and of rates."""

from __future__ import annotations

from penstock.cli.sub import Fastest, missed_text, report_rows
from penstock.live.client.subscription import Report


def a_report(*, dropped: int = 0, lost_at_broker: int = 0, allowed_rate: float | None = None) -> Report:
    return Report(
        where="TRUE",
        ordered=False,
        recover=False,
        received=100,
        dropped=dropped,
        lost_at_broker=lost_at_broker,
        queue=0,
        queue_max=10,
        reconnects=0,
        connected=True,
        round_trip=0.001,
        loss_event_rate=0.0001,
        allowed_rate=allowed_rate,
    )


def test_a_loss_is_said_once_with_its_place() -> None:
    words = "messages dropped because this subscriber was too slow: "
    assert missed_text(a_report()) == ""
    assert missed_text(a_report(dropped=3)) == words + "3 here"
    assert missed_text(a_report(lost_at_broker=17_846)) == words + "17,846 at the broker"
    assert missed_text(a_report(dropped=3, lost_at_broker=17_846)) == words + "3 here and 17,846 at the broker"


def test_a_rate_that_was_never_reached_is_not_shown() -> None:
    def shown(allowed: float | None) -> str | None:
        return dict(report_rows(a_report(allowed_rate=allowed), 20_000)).get("messages that it and we can take")

    assert shown(19_999.6) == "20,000/s"
    assert shown(71_133.0) is None
    assert shown(None) is None, "nothing was measured, so nothing is known"


def test_the_best_second_counts() -> None:
    fastest = Fastest()
    for count, now in ((10, 5.1), (20, 5.9), (25, 6.0), (4, 9.0)):
        fastest.add(count, now)
    assert fastest.count == 30
