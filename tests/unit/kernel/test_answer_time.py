"""How long answers take (RFC 6298): it converges, follows what changes, and leaves room for what varies."""

from __future__ import annotations

from penstock.kernel.answer_time import AnswerTime


def test_nothing_is_known_before_the_first_answer() -> None:
    assert (AnswerTime().mean, AnswerTime().within(0.7)) == (None, 0.7)


def test_the_first_answer_counts_threefold_as_rfc_6298_says() -> None:
    times = AnswerTime()
    times.measured(0.2)
    assert times.within(9.0) == 0.2 + 4 * 0.1


def test_equal_answers_leave_no_deviation_and_a_change_is_followed() -> None:
    times = AnswerTime()
    for _ in range(100):
        times.measured(0.2)
    assert times.mean is not None
    assert abs(times.within(9.0) - 0.2) < 1e-9
    times.measured(1.0)
    assert times.within(9.0) > 1.0
    times.stretch(2.0)
    assert abs(times.mean - 0.6) < 1e-9
