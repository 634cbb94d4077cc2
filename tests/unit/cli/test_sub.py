"""`penstock sub`: what it says at its end, of losses and of rates."""

from __future__ import annotations

import json

from penstock.cli.sub import Fastest, missed_text, report_data, report_rows, withheld_notice
from penstock.live.client.subscription import Report
from penstock.rates.told import WithheldFlow


def a_report(
    *,
    dropped: int = 0,
    lost_at_broker: int = 0,
    allowed_rate: float | None = None,
    withheld_by: tuple[WithheldFlow, ...] = (),
) -> Report:
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
        withheld_by=withheld_by,
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


def test_what_was_withheld_has_a_line_for_each_link() -> None:
    full = WithheldFlow(
        link=("south", "harbour"), rate=1e4, to="harbour", messages=84_226, size_bytes=10**6, since=0.0, last=9.0
    )
    slow = WithheldFlow(
        link=("a", "me"), rate=5.0, to="me", messages=7, size_bytes=70, since=0.0, last=9.0, slow_reader=True
    )
    report = a_report(withheld_by=(full, slow))
    rows = dict(report_rows(report, 0))
    assert rows["withheld from harbour by the link south - harbour, told so far"] == "84,226"
    assert rows["of those withheld in time, told so far"] == "7"
    assert not [words for words in dict(report_rows(a_report(), 0)) if "withheld" in words]
    found = json.loads(json.dumps(report_data(report)))
    assert [(one["link"], one["messages"]) for one in found["withheld_by"]] == [
        (["south", "harbour"], 84_226),
        (["a", "me"], 7),
    ]
    assert "the link south - harbour is full" in withheld_notice(full)
    assert "we read slowly" in withheld_notice(slow)
