"""The order of one publisher's messages: every rule by itself, and many random histories against a plain model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.transport.config import papers_config
from penstock.transport.ordering.latch import make_latch
from penstock.transport.ordering.reorder_buffer import OrderingStep, ReorderBuffer, Verdict
from penstock.transport.wire.header import Header

WANTED, OTHER = 1, 0  # encodings in these tests; `bool` tells which are wanted


class FixedLatch:
    """Waits until a missing message is `reach` older than the one that came; remembers what it was shown."""

    def __init__(self, reach: float) -> None:
        self.reach = reach
        self.seen: list[float] = []

    def observe(self, difference: float) -> None:
        self.seen.append(difference)

    def wait(self, interval: float) -> float:
        return max(0.0, self.reach - interval)

    def chance(self, interval: float) -> float:
        return 0.25


def ordering(reach: float = 1.0, **settings: Any) -> ReorderBuffer[str]:
    return ReorderBuffer(papers_config(**settings), FixedLatch(reach))


def header(sequence: int, record: Iterable[int] = (), *, departure: float | None = None, gap: float = 0.01) -> Header:
    """Message n leaves at n * gap; the record names encodings newest first."""
    entries = tuple(record)
    at = sequence * gap if departure is None else departure
    ages = tuple(gap * (back + 1) for back in range(max(1, len(entries)) if sequence > 1 else 0))
    return Header(sequence, at, ages, entry_bits=256, entries=entries)


def come(order: ReorderBuffer[str], sequence: int, record: Iterable[int] = (), **how: Any) -> OrderingStep[str]:
    hold, now = how.pop("hold", True), how.pop("now", sequence * 0.01 + 0.1)
    return order.arrived(header(sequence, record, **how), bool, f"m{sequence}", hold=hold, now=now)


def numbers(step: OrderingStep[str]) -> list[int]:
    assert all(one.item == f"m{one.sequence}" for one in step.released)
    return [one.sequence for one in step.released]


def lost(step: OrderingStep[str]) -> list[int]:
    return [one.sequence for one in step.lost]


# --- The common case


def test_messages_in_order_pass_at_once() -> None:
    order = ordering()
    for sequence in range(7, 20):
        step = come(order, sequence, [WANTED] * 5)
        assert (step.verdict, numbers(step), step.lost, order.deadline()) == (Verdict.NEW, [sequence], [], None)
        assert not step.released[0].late
    assert order.base == 19
    assert (order.delivered, order.received, order.published_seen) == (13, 13, 13)
    assert order.gaps == order.latched == order.losses == 0


def test_a_record_is_not_decoded_while_nothing_is_missing() -> None:
    order = ordering()
    broken = header(2, [WANTED])
    broken._entries, broken._raw = None, (None,)  # type: ignore[assignment]
    come(order, 1)
    assert order.arrived(broken, bool, "m2", hold=True, now=0.2).verdict is Verdict.NEW


def test_a_duplicate_is_ignored() -> None:
    order = ordering()
    come(order, 1)
    assert come(order, 1).verdict is Verdict.DUPLICATE
    come(order, 3, [WANTED])  # waits for 2
    assert come(order, 3, [WANTED]).verdict is Verdict.DUPLICATE
    assert (order.duplicates, order.delivered) == (2, 1)


def test_delay_differences_are_taken_against_base_and_late_ones_count() -> None:
    latch = FixedLatch(10.0)
    order: ReorderBuffer[str] = ReorderBuffer(papers_config(), latch)
    for sequence, now in ((1, 5.0), (3, 5.03), (2, 5.05), (4, 5.06)):
        come(order, sequence, now=now)
    order.repaired(9, "m9", hold=True, now=6.0)
    assert latch.seen == pytest.approx([0.01, 0.03, 0.02])


# --- Gaps


def test_basic_mode_waits_for_all_of_the_gap_and_finds_nothing_lost() -> None:
    order = ordering()
    come(order, 1, now=0.0)
    assert numbers(come(order, 4, now=1.0)) == []
    assert order.deadline() == pytest.approx(1.0 + 1.0 - 0.01)
    assert numbers(come(order, 2, now=1.1)) == [2]
    assert numbers(come(order, 3, now=1.2)) == [3, 4]
    assert order.deadline() is None
    come(order, 6, now=2.0)
    step = order.expired(now=order.deadline() or 0.0)
    assert (numbers(step), step.lost) == ([6], [])
    assert order.unnecessary_seconds == pytest.approx(0.99)


def test_enhanced_mode_waits_for_the_latest_wanted_one() -> None:
    """The paper's example: m6 after m2, m5 not wanted, m4 wanted: the interval is that from m4 to m6."""
    order = ordering()
    come(order, 2, now=0.0)
    come(order, 6, [OTHER, WANTED, WANTED, OTHER], now=0.1)
    assert order.deadline() == pytest.approx(0.1 + 1.0 - 0.02)
    assert numbers(come(order, 3, now=0.2)) == [3]  # below it nothing is waited for
    assert numbers(come(order, 4, now=0.3)) == [4, 6]


def test_no_delay_when_the_record_covers_the_gap_and_nothing_in_it_is_wanted() -> None:
    order = ordering()
    come(order, 1, now=0.0)
    step = come(order, 5, [OTHER, OTHER, OTHER], now=0.1)  # reaches exactly the first of the gap (O6)
    assert numbers(step) == [5]
    assert (step.released[0].assigned, order.latched, order.gaps) == (0.0, 0, 0)


def test_a_gap_that_the_record_does_not_cover_is_met_with_caution() -> None:
    """m10 after m4 with a record of three, none wanted: as if m6 were wanted and had left with m7."""
    order = ordering()
    come(order, 4, now=0.0)
    assert numbers(come(order, 10, [OTHER] * 3, now=0.1)) == []
    assert order.deadline() == pytest.approx(0.1 + 1.0 - 0.03)
    step = order.expired(now=2.0)
    assert (numbers(step), lost(step)) == ([10], [])  # nobody knows whether m5 and m6 were meant for us


def test_what_the_record_does_not_cover_is_waited_for_beside_what_it_names() -> None:
    """Departs from step 5 of the spec: with m9 here, m10 would go out although m5 to m7 may be on their way."""
    order = ordering()
    come(order, 4, now=0.0)
    come(order, 10, [WANTED, OTHER], now=0.1)
    assert numbers(come(order, 9, [OTHER], now=0.2)) == []
    assert numbers(come(order, 6, [OTHER], now=0.3)) == []  # and so is 5
    step = order.expired(now=1.1)
    assert (numbers(step), lost(step)) == ([6, 9, 10], [])


def test_a_zero_latch_releases_and_declares_at_once() -> None:
    order = ordering(reach=0.0)
    come(order, 1, now=0.0)
    step = come(order, 4, [WANTED, OTHER], now=0.1)
    assert (numbers(step), lost(step)) == ([4], [3])
    assert (step.lost[0].encoding, step.lost[0].revealed_by) == (WANTED, 4)
    assert step.lost[0].departure == pytest.approx(0.03)
    assert order.deadline() is None


def test_nothing_before_the_first_message_is_lost() -> None:
    order = ordering(reach=0.0)
    come(order, 50, [WANTED] * 8)
    assert lost(come(order, 53, [WANTED] * 8)) == [52, 51]
    assert numbers(come(order, 49, now=0.7)) == [49]  # late, but welcome
    assert order.late == 1


# --- Losses


def test_a_loss_is_declared_once_when_the_latch_expires() -> None:
    order = ordering()
    come(order, 1, now=0.0)
    come(order, 3, [WANTED], now=0.1)
    come(order, 4, [OTHER, WANTED], now=0.2)
    assert lost(order.expired(now=0.5)) == []
    step = order.expired(now=1.1)
    assert (lost(step), numbers(step)) == ([2], [3, 4])
    for sequence in range(5, 9):
        assert lost(come(order, sequence, [OTHER] * (sequence - 3) + [WANTED, OTHER], now=1.2)) == []
    assert order.losses == 1


def test_a_loss_is_declared_in_its_own_time_while_an_earlier_head_still_waits() -> None:
    order = ordering()
    come(order, 1, now=0.0, departure=0.0)
    come(order, 3, [WANTED], now=0.1, departure=0.1)  # until 1.09
    late = Header(5, 0.9, (0.7,), entries=(WANTED,))  # 4 left 0.7 before: until 0.3 + 0.3
    assert numbers(order.arrived(late, bool, "m5", hold=True, now=0.3)) == []
    step = order.expired(now=0.61)
    assert (lost(step), numbers(step)) == ([4], [])
    step = order.expired(now=1.2)
    assert (lost(step), numbers(step)) == ([2], [3, 5])


def test_a_message_that_came_is_not_lost() -> None:
    order = ordering()
    come(order, 1, now=0.0)
    come(order, 4, [WANTED, WANTED], now=0.1)
    come(order, 3, now=0.2)
    step = order.expired(now=5.0)
    assert (lost(step), numbers(step)) == ([2], [3, 4])


def test_a_longer_record_reveals_what_no_record_covered_before() -> None:
    """Completes the paper: m5 and m6 lie below base when a record first tells of them; they are not forgotten."""
    order = ordering(reach=0.05)
    come(order, 4, now=0.0)
    come(order, 10, [OTHER] * 3, now=0.1)
    order.expired(now=0.3)
    step = come(order, 11, [OTHER] * 4 + [WANTED, OTHER, OTHER], now=0.4)
    assert (numbers(step), lost(step)) == ([11], [6])  # its interval is 0.05: no wait is left
    assert lost(come(order, 12, [OTHER] * 5 + [WANTED, OTHER], now=0.5)) == []


def test_a_late_message_s_record_counts_too_and_its_loss_waits_its_time() -> None:
    order = ordering(reach=0.05)
    come(order, 4, now=0.0)
    come(order, 10, [OTHER] * 3, now=0.1)
    order.expired(now=0.3)
    step = come(order, 9, [OTHER, OTHER, WANTED], now=0.4)
    assert (numbers(step), lost(step), step.released[0].late) == ([9], [], True)
    assert order.deadline() == pytest.approx(0.4 + 0.05 - 0.03)
    assert lost(order.expired(now=0.5)) == [6]


# --- Late messages


def test_a_late_message_waits_for_those_below_it_that_others_wait_for() -> None:
    """Step 4 of the spec: with no wait of its own, m3 would overtake m2."""
    order = ordering()
    come(order, 1, now=0.0)
    come(order, 5, [WANTED] * 3, now=0.1)
    step = come(order, 3, [WANTED], now=0.2)
    assert numbers(step) == []
    assert numbers(come(order, 2, now=0.3)) == [2, 3]
    assert numbers(come(order, 4, now=0.4)) == [4, 5]
    assert order.late == 0


def test_a_late_message_waits_no_longer_than_those_after_it() -> None:
    order = ordering()
    come(order, 1, now=0.0)
    come(order, 5, [WANTED] * 3, now=0.1)
    come(order, 3, [WANTED], now=0.9)
    step = order.expired(now=order.deadline() or 0.0)
    assert (numbers(step), lost(step)) == ([3, 5], [4, 2])
    assert step.released[0].assigned == pytest.approx(0.1 + 0.99 - 0.9)


def test_a_message_that_is_too_late_is_delivered_late_or_dropped() -> None:
    for late, expected in (("deliver", [2]), ("hold", [2]), ("drop", [])):
        order = ordering(reach=0.0, late=late)
        come(order, 1, now=0.0)
        come(order, 3, [OTHER], now=0.1)
        step = come(order, 2, now=0.2)
        assert (step.verdict, numbers(step)) == (Verdict.NEW, expected)
        assert (order.late, order.late_dropped, step.late_dropped) == ((0, 1, 1) if late == "drop" else (1, 0, 0))
        assert order.has(2)
        assert come(order, 2, now=0.3).verdict is Verdict.DUPLICATE


def test_a_later_message_without_latch_does_not_push_out_one_that_waits() -> None:
    """Erratum O7."""
    order = ordering()
    come(order, 1, now=0.0)
    come(order, 3, [WANTED], now=0.1)
    assert numbers(come(order, 4, [OTHER], now=0.11)) == []
    assert numbers(come(order, 2, now=0.2)) == [2, 3, 4]


# --- Repairs


def test_a_repair_fills_a_wait_and_touches_neither_base_nor_samples() -> None:
    order = ordering()
    come(order, 1, now=0.0)
    come(order, 3, [WANTED], now=0.1)
    step = order.repaired(2, "m2", hold=True, now=0.2)
    assert (step.verdict, numbers(step)) == (Verdict.NEW, [2, 3])
    assert (order.base, order.received, order.repairs) == (3, 2, 1)
    assert order.repaired(2, "m2", hold=True, now=0.3).verdict is Verdict.DUPLICATE
    assert come(order, 2, now=0.3).verdict is Verdict.DUPLICATE
    assert order.has(2)
    assert not order.has(4)


def test_a_late_repair_is_never_dropped() -> None:
    order = ordering(reach=0.0, late="drop")
    come(order, 1, now=0.0)
    assert lost(come(order, 3, [WANTED], now=0.1)) == [2]
    step = order.repaired(2, "m2", hold=True, now=0.2)
    assert [(one.sequence, one.late) for one in step.released] == [(2, True)]


def test_a_repair_above_base_leaves_base_alone_and_is_not_delivered_twice() -> None:
    order = ordering()
    come(order, 1, now=0.0)
    assert numbers(order.repaired(3, "m3", hold=True, now=0.1)) == [3]
    assert order.base == 1
    assert come(order, 3, now=0.2).verdict is Verdict.DUPLICATE
    assert numbers(come(order, 4, [OTHER, OTHER], now=0.2)) == [4]


def test_repairs_before_the_first_original_and_absurd_ones() -> None:
    order = ordering()
    assert numbers(order.repaired(5, "m5", hold=True, now=0.0)) == [5]
    assert order.repaired(5, "m5", hold=True, now=0.0).verdict is Verdict.DUPLICATE
    assert order.repaired(70, "m70", hold=True, now=0.0).verdict is Verdict.REFUSED  # who knows of it but not we?
    assert order.repaired(0, "m0", hold=True, now=0.0).verdict is Verdict.REFUSED
    assert come(order, 5).verdict is Verdict.DUPLICATE
    assert numbers(come(order, 6)) == [6]
    assert order.base == 6


# --- Heartbeats


def test_a_heartbeat_reveals_the_end_of_a_burst() -> None:
    order = ordering()
    come(order, 1, now=0.0)
    step = order.noticed(header(4, [WANTED, OTHER]), bool, now=0.5)
    assert (step.verdict, lost(step)) == (Verdict.NEW, [])
    assert order.deadline() == pytest.approx(0.5 + 0.99)
    again = order.noticed(header(4, [WANTED, OTHER]), bool, now=0.6)
    assert lost(again) == []
    assert order.deadline() == pytest.approx(0.5 + 0.99)
    step = order.expired(now=1.5)
    assert (lost(step), numbers(step)) == ([3], [])
    assert (order.base, order.published_seen, order.deadline()) == (1, 3, None)


def test_after_a_heartbeat_the_messages_still_come_in_order() -> None:
    order = ordering()
    come(order, 1, now=0.0)
    order.noticed(header(4, [WANTED, WANTED]), bool, now=0.1)
    assert numbers(come(order, 3, [WANTED], now=0.2)) == []
    assert numbers(come(order, 2, now=0.3)) == [2, 3]
    assert numbers(come(order, 4, [WANTED] * 3, now=0.4)) == [4]
    assert (order.losses, order.deadline()) == (0, None)


def test_after_a_heartbeat_declared_a_loss_nobody_waits_for_it() -> None:
    order = ordering(reach=0.05)
    come(order, 1, now=0.0)
    order.noticed(header(3, [WANTED]), bool, now=0.1)
    assert lost(order.expired(now=0.2)) == [2]
    assert numbers(come(order, 3, [WANTED], now=0.3)) == [3]


def test_a_message_whose_record_is_short_waits_behind_the_heartbeat_that_knew_more() -> None:
    order = ordering()
    come(order, 1, now=0.0)
    order.noticed(header(4, [OTHER, WANTED]), bool, now=0.1)  # 2 is missing
    assert numbers(come(order, 5, [OTHER], now=0.15)) == []
    assert order.latched == 0
    step = order.expired(now=1.1)
    assert (lost(step), numbers(step)) == ([2], [5])


def test_a_message_in_between_waits_for_what_a_heartbeat_waits_for_below_it() -> None:
    order = ordering()
    come(order, 1, now=0.0)
    order.noticed(header(6, [OTHER, WANTED, WANTED, WANTED]), bool, now=0.1)  # until 1.08
    m4 = Header(4, 0.04, (0.5,), entries=(WANTED,))  # by itself it would wait for 3 until 0.7
    assert numbers(order.arrived(m4, bool, "m4", hold=True, now=0.2)) == []
    assert numbers(come(order, 3, now=0.3)) == []
    assert numbers(order.expired(now=0.8)) == []
    assert numbers(come(order, 2, now=0.9)) == [2, 3, 4]


def test_what_was_repaired_above_base_is_not_waited_for() -> None:
    order = ordering()
    come(order, 1, now=0.0)
    order.noticed(header(4, [WANTED, WANTED]), bool, now=0.1)
    assert numbers(order.repaired(3, "m3", hold=True, now=0.2)) == []  # behind the 2 that the heartbeat waits for
    come(order, 5, [OTHER, WANTED, WANTED], now=0.3)
    step = order.expired(now=5.0)
    assert [(one.sequence, round(one.assigned, 6)) for one in step.released] == [(3, 0.89), (5, 0.97)]


def test_heartbeats_before_the_first_message_and_absurd_ones_change_nothing() -> None:
    order = ordering(jump_max=100)
    assert order.noticed(header(9, [WANTED] * 3), bool, now=0.0).lost == []
    assert order.base is None
    come(order, 1, now=0.1)
    step = order.noticed(header(10**9, departure=10.0), bool, now=10.1)
    assert (step.verdict, "jump_max" in step.problem) == (Verdict.REFUSED, True)
    assert (order.refused, order.published_seen) == (1, 1)


# --- Items that need no order


def test_an_unordered_item_goes_at_once_and_still_watches_for_losses() -> None:
    order = ordering()
    come(order, 1, now=0.0)
    step = come(order, 3, [WANTED], now=0.1, hold=False)
    assert (numbers(step), lost(step)) == ([3], [])
    assert (order.latched, order.assigned_seconds) == (0, 0.0)
    assert lost(order.expired(now=2.0)) == [2]
    assert [one.late for one in come(order, 2, now=2.1, hold=False).released] == [True]


def test_an_ordered_message_waits_behind_the_place_of_an_unordered_one() -> None:
    order = ordering()
    come(order, 1, now=0.0)
    come(order, 3, [WANTED], now=0.1, hold=False)
    assert numbers(come(order, 4, [WANTED, WANTED], now=0.2)) == []
    step = come(order, 2, now=0.3)
    assert [(one.sequence, one.late) for one in step.released] == [(2, False), (4, False)]


def test_an_unordered_late_message_is_not_dropped() -> None:
    order = ordering(reach=0.0, late="drop")
    come(order, 1, now=0.0)
    come(order, 3, [OTHER], now=0.1)
    assert numbers(come(order, 2, now=0.2, hold=False)) == [2]


# --- Holding for repairs


def held_for_repair() -> ReorderBuffer[str]:
    order = ordering(late="hold", hold_max=2.0)
    come(order, 1, now=0.0)
    come(order, 3, [WANTED], now=0.1)
    step = order.expired(now=1.1)
    assert (lost(step), numbers(step)) == ([2], [])
    assert numbers(come(order, 4, now=1.2)) == []
    assert order.deadline() == pytest.approx(3.1)
    return order


def test_with_hold_a_head_waits_for_the_repair() -> None:
    order = held_for_repair()
    assert numbers(order.repaired(2, "m2", hold=True, now=2.0)) == [2, 3, 4]
    assert (order.late, order.deadline()) == (0, None)


def test_with_hold_it_waits_no_longer_than_hold_max() -> None:
    order = held_for_repair()
    step = order.expired(now=3.1)
    assert (lost(step), numbers(step)) == ([], [3, 4])
    assert [one.late for one in order.repaired(2, "m2", hold=True, now=4.0).released] == [True]


def test_with_hold_a_late_message_waits_for_the_repair_as_well() -> None:
    order = ordering(late="hold")
    come(order, 1, now=0.0)
    come(order, 5, [WANTED] * 3, now=0.1)
    come(order, 3, [WANTED], now=0.2)
    assert sorted(lost(order.expired(now=1.2))) == [2, 4]
    assert numbers(order.repaired(2, "m2", hold=True, now=1.3)) == [2, 3]
    assert numbers(order.repaired(4, "m4", hold=True, now=1.4)) == [4, 5]


def test_with_hold_and_no_latch_the_wait_for_the_repair_begins_at_once() -> None:
    order = ordering(reach=0.0, late="hold")
    come(order, 1, now=0.0)
    step = come(order, 3, [WANTED], now=0.1)
    assert (lost(step), numbers(step)) == ([2], [])
    assert numbers(order.repaired(2, "m2", hold=True, now=0.2)) == [2, 3]


def test_a_hold_of_no_time_ends() -> None:
    order = ordering(reach=0.0, late="hold", hold_max=0.0)
    come(order, 1, now=0.0)
    assert numbers(come(order, 3, [WANTED], now=0.1)) == [3]


# --- Bounds


def test_when_too_many_wait_the_head_goes_out_early() -> None:
    order = ordering(reach=100.0, queue_max=3)
    come(order, 1, now=0.0)
    come(order, 3, [WANTED], now=0.1)
    assert numbers(come(order, 4, now=0.1)) == []
    assert numbers(come(order, 5, now=0.1)) == []
    assert numbers(come(order, 6, now=0.1)) == [3, 4, 5, 6]
    assert order.early == 1
    assert order.deadline() is not None  # its loss is still watched for
    assert lost(order.expired(now=200.0)) == [2]


def test_when_too_many_watch_the_first_ends_early() -> None:
    order = ordering(reach=100.0, queue_max=3)
    come(order, 1, now=0.0)
    found = [number for n in range(3, 13, 2) for number in lost(come(order, n, [WANTED], hold=False))]
    assert found == [2, 4]
    assert order.queued <= 3


def test_numbers_behind_the_window_are_too_old_to_know() -> None:
    order = ordering(reach=0.0, window=64)
    come(order, 1, now=0.0)
    come(order, 2, now=0.02)
    come(order, 66, now=0.7)
    assert order.has(2)
    assert not order.has(3)
    assert order.has(1)
    assert come(order, 2, now=0.7).verdict is Verdict.DUPLICATE
    assert come(order, 3, now=0.7).verdict is Verdict.NEW


def test_a_huge_gap_costs_little() -> None:
    order = ordering(window=64, jump_max=1 << 61)
    come(order, 1, now=0.0, departure=0.0)
    step = come(order, 1 << 60, now=0.1, departure=0.1)
    assert numbers(step) == []
    assert numbers(order.expired(now=2.0)) == [1 << 60]


def test_close_releases_everything_in_order() -> None:
    order = ordering()
    come(order, 1, now=0.0)
    come(order, 4, [WANTED, WANTED], now=0.1)
    come(order, 6, [WANTED], now=0.2)
    step = order.close(now=0.3)
    assert (numbers(step), step.lost, order.deadline()) == ([4, 6], [], None)


# --- Input that cannot be


@pytest.mark.parametrize(
    ("sequence", "departure", "problem"),
    [
        (3_000_000, 1.0, "jump_max"),
        (2, 100.0, "skew_max"),
        (2, -100.0, "skew_max"),
        (2, -0.2, "disagree"),
        (1, 0.5, ""),
    ],
)
def test_absurd_headers_are_refused_and_change_nothing(sequence: int, departure: float, problem: str) -> None:
    order = ordering(jump_max=100)
    come(order, 1, now=0.0, departure=0.0)
    step = come(order, sequence, now=0.1, departure=departure)
    assert step.verdict is (Verdict.REFUSED if problem else Verdict.DUPLICATE)
    assert problem in step.problem
    assert (order.base, step.released, order.delivered) == (1, [], 1)
    assert numbers(come(order, 2, now=0.2, departure=0.01)) == [2]


def test_an_older_message_cannot_have_left_later() -> None:
    order = ordering()
    come(order, 10, now=0.0, departure=0.0)
    assert come(order, 9, now=0.6, departure=0.5).verdict is Verdict.REFUSED


@pytest.mark.parametrize("first", [1, 10_000_000, 3_000])
def test_after_a_clock_was_set_or_a_first_header_was_forged_the_order_begins_anew(first: int) -> None:
    order = ordering()
    come(order, first, now=0.0, departure=5_000.0)
    seen = [come(order, 2_000 + n, now=1.0 + n, departure=n) for n in range(12)]
    assert [step.verdict for step in seen] == [Verdict.REFUSED] * 8 + [Verdict.NEW] * 4
    assert [number for step in seen for number in numbers(step)] == [2008, 2009, 2010, 2011]
    assert (order.base, order.refused, order.restarts) == (2011, 8, 1)


def test_a_forged_first_header_far_ahead_is_forgotten_even_if_its_times_fit() -> None:
    order = ordering()
    come(order, 10_000_000, now=0.0, departure=30.0)
    verdicts = [come(order, n, now=n * 0.01).verdict for n in range(1, 12)]
    assert verdicts[8:] == [Verdict.NEW] * 3
    assert order.restarts == 1


def test_before_the_order_begins_anew_what_waits_is_released() -> None:
    order = ordering(reach=1000.0)
    come(order, 1, now=0.0)
    come(order, 3, [WANTED], now=0.1)
    steps = [come(order, 4 + n, now=1.0 + n, departure=900.0 + n) for n in range(9)]
    assert numbers(steps[-1]) == [3]  # 12 waits for those that were refused: their repairs may come
    assert order.published_seen == 12


def test_refusals_that_disagree_or_are_not_in_a_row_begin_nothing() -> None:
    order = ordering()
    come(order, 1, now=0.0)
    for n in range(40):
        assert come(order, 2 + n, now=1.0, departure=1000.0 * (n + 1)).verdict is Verdict.REFUSED
    for n in range(40):
        come(order, 100 + n, now=2.0 + n, departure=900.0 + n)
        come(order, 2 + n, now=2.0 + n, departure=2.0 + n)
    assert order.restarts == 0


# --- Many histories, against a model of sets that is slow and plain


@dataclass
class Place:
    sequence: int
    deadline: float
    waits: set[int]


@dataclass
class Model:
    """The corrected Algorithm 3.1 (protocols.md section 2) with late messages delivered."""

    reach: float
    first: int = 0
    base: int = 0
    highest: int = 0
    received: set[int] = field(default_factory=set)
    covered: set[int] = field(default_factory=set)
    wanted: set[int] = field(default_factory=set)
    queue: list[Place] = field(default_factory=list)
    watches: list[tuple[float, list[int]]] = field(default_factory=list)
    out: list[tuple[float, int]] = field(default_factory=list)
    lost: list[tuple[float, int]] = field(default_factory=list)

    def arrive(self, head: Header, now: float) -> None:
        n, age = head.sequence, {head.sequence - 1 - i: head.ages[i] for i in range(len(head.ages))}
        if n in self.received:
            return
        self.received.add(n)
        self.wanted.discard(n)
        if not self.base:
            self.first = self.base = n
            self.queue.append(Place(n, now, set()))
            self.advance(now)
            return
        record = {n - 1 - i: head.entries()[i] for i in range(head.record_size)}
        fresh = [j for j in record if j > self.first and j not in self.received and j not in self.covered]
        self.covered |= set(fresh)
        revealed = [j for j in fresh if record[j] == WANTED]
        self.wanted |= set(revealed)
        place = Place(n, now, set())
        if n > self.base:
            missing = [j for j in range(self.base + 1, n) if j not in self.received]
            named = [j for j in missing if j in record and j in self.wanted]
            unrevealed = [j for j in missing if j not in self.covered]
            if named:
                place.waits, place.deadline = set(named + unrevealed), now + max(0.0, self.reach - age[max(named)])
                self.watches.append((place.deadline, revealed))
            elif unrevealed:
                interval = age[n - max(1, head.record_size)]
                place.waits, place.deadline = set(unrevealed), now + max(0.0, self.reach - interval)
            if revealed and not named:
                self.watches.append((now + max(0.0, self.reach - age[max(revealed)]), revealed))
            self.base = n
        elif revealed:
            self.watches.append((now + max(0.0, self.reach - age[max(revealed)]), revealed))
        if n < self.highest:
            self.out.append((now, n))
        else:
            following = [one for one in self.queue if one.sequence > n]
            if following:
                place.waits |= {j for j in following[0].waits - self.received if j < n}
                place.deadline = max(place.deadline, following[0].deadline) if place.waits else now
            self.queue = sorted([*self.queue, place], key=lambda one: one.sequence)
        self.advance(now)

    def advance(self, now: float) -> None:
        over = [one for one in self.watches if one[0] <= now]
        self.watches = [one for one in self.watches if one[0] > now]
        for _, revealed in over:
            for j in revealed:
                if j not in self.received:
                    self.lost.append((now, j))
                    self.wanted.discard(j)
        while self.queue and (self.queue[0].deadline <= now or not self.queue[0].waits - self.received):
            self.highest = self.queue.pop(0).sequence
            self.out.append((now, self.highest))

    def deadline(self) -> float | None:
        """Nobody leaves before the first in the queue."""
        return min([one[0] for one in self.watches] + [one.deadline for one in self.queue[:1]], default=None)


@dataclass(frozen=True)
class Sent:
    """One message's fate, in milliseconds."""

    after: int  # the one before
    delay: int
    wanted: bool
    lost: bool
    again: int  # a duplicate so much later; 0: none
    record: int


@st.composite
def histories(draw: st.DrawFn, records: st.SearchStrategy[int] | None = None) -> list[Sent]:
    constant = st.just(draw(st.integers(0, 8)))
    one = records if records is not None else draw(st.sampled_from([constant, st.integers(0, 8)]))
    return draw(
        st.lists(
            st.builds(
                Sent,
                after=st.integers(1, 20),
                delay=st.integers(0, 60),
                wanted=st.booleans(),
                lost=st.sampled_from([False, False, False, True]),
                again=st.sampled_from([0, 0, 0, 15]),
                record=one,
            ),
            min_size=1,
            max_size=25,
        )
    )


def arrivals(history: list[Sent]) -> list[tuple[float, Header]]:
    """Everything that arrives, in time."""
    at, departures, found = 0.0, [], []
    for index, sent in enumerate(history):
        at += sent.after / 1000
        departures.append(at)
        size = min(sent.record, index)
        ages = tuple(at - departures[index - 1 - i] for i in range(max(1, size) if index else 0))
        entries = tuple(int(history[index - 1 - i].wanted) for i in range(size))
        if sent.wanted and not sent.lost:
            head = Header(index + 1, at, ages, entries=entries)
            times = [sent.delay] + ([sent.delay + sent.again] if sent.again else [])
            found += [(at + time / 1000 + 0.5, head) for time in times]
    return sorted(found, key=lambda one: (one[0], one[1].sequence))


@dataclass
class Story:
    """What an ordering did with a history."""

    order: ReorderBuffer[int]
    released: list[tuple[float, Any]] = field(default_factory=list)
    lost: list[tuple[float, int]] = field(default_factory=list)
    received: dict[int, float] = field(default_factory=dict)

    def take(self, step: OrderingStep[int], now: float) -> None:
        self.released += [(now, one) for one in step.released]
        for one in step.lost:
            assert one.sequence not in self.received
            self.lost.append((now, one.sequence))


def run(history: list[Sent], order: ReorderBuffer[int]) -> Story:
    story = Story(order)
    for now, head in arrivals(history):
        while (deadline := order.deadline()) is not None and deadline <= now:
            story.take(order.expired(now=deadline), deadline)
        story.received.setdefault(head.sequence, now)
        story.take(order.arrived(head, bool, head.sequence, hold=True, now=now), now)
    while (deadline := order.deadline()) is not None:
        story.take(order.expired(now=deadline), deadline)
    assert order.queued == 0
    return story


def run_model(history: list[Sent], reach: float) -> Model:
    model = Model(reach)
    for now, head in arrivals(history):
        while (deadline := model.deadline()) is not None and deadline <= now:
            model.advance(deadline)
            model.queue = [Place(p.sequence, p.deadline, p.waits - model.received) for p in model.queue]
        model.arrive(head, now)
    while (deadline := model.deadline()) is not None:
        model.advance(deadline)
    return model


reaches = st.integers(0, 80).map(lambda milliseconds: milliseconds / 1000)


@settings(max_examples=200, deadline=None)
@given(histories(), reaches)
def test_the_ordering_does_what_the_plain_model_does(history: list[Sent], reach: float) -> None:
    story = run(history, ReorderBuffer(papers_config(), FixedLatch(reach)))
    model = run_model(history, reach)
    assert [(now, one.sequence) for now, one in story.released] == model.out
    assert sorted(story.lost) == sorted(model.lost)


@settings(max_examples=100, deadline=None)
@given(histories(), reaches, st.sampled_from(["deliver", "drop", "hold"]))
def test_invariants(history: list[Sent], reach: float, late: Any) -> None:
    story = run(history, ReorderBuffer(papers_config(late=late, hold_max=0.05), FixedLatch(reach)))
    released = [one for _, one in story.released]
    in_order = [one.sequence for one in released if not one.late]
    assert in_order == sorted(set(in_order))  # increasing, but for explicit late ones
    assert len({one.sequence for one in released}) == len(released)  # nothing twice
    if late == "drop":
        assert len(released) + story.order.late_dropped == len(story.received)
        assert story.order.late == 0
    else:
        assert sorted(one.sequence for one in released) == sorted(story.received)  # everything, exactly once
    losses = [number for _, number in story.lost]
    assert len(set(losses)) == len(losses) == story.order.losses
    assert all(history[number - 1].wanted for number in losses)  # that it was missing `take` has checked
    assert story.order.held_seconds == pytest.approx(sum(one.held for one in released))
    assert story.order.assigned_seconds == pytest.approx(sum(one.assigned for one in released))


@settings(max_examples=100, deadline=None)
@given(histories(), reaches)
def test_nobody_waits_longer_than_the_largest_latch_ahead_and_its_own(history: list[Sent], reach: float) -> None:
    story = run(history, ReorderBuffer(papers_config(), FixedLatch(reach)))
    left = {one.sequence: now for now, one in story.released}
    for now, one in story.released:
        came = story.received[one.sequence]
        ahead = [
            other.assigned
            for _, other in story.released
            if other.sequence < one.sequence and story.received[other.sequence] <= now and left[other.sequence] >= came
        ]
        assert one.held <= one.assigned + max(ahead, default=0.0) + 1e-9


@settings(max_examples=100, deadline=None)
@given(histories(), reaches, st.floats(-1e4, 1e4))
def test_an_offset_of_the_clocks_changes_nothing(history: list[Sent], reach: float, offset: float) -> None:
    config = papers_config()
    orders: list[ReorderBuffer[int]] = [ReorderBuffer(config, make_latch(config, 2)) for _ in range(2)]
    for shift, order in zip((0.0, offset), orders, strict=True):
        for now, head in arrivals(history):
            moved = Header(head.sequence, head.departure + shift, head.ages, entries=head.entries())
            order.arrived(moved, bool, head.sequence, hold=True, now=now)
    waits = [order._latch.wait(0.0) for order in orders]
    assert waits[0] == pytest.approx(waits[1], rel=1e-6, abs=1e-9)


@settings(max_examples=100, deadline=None)
@given(histories(st.just(24)))
def test_a_record_that_covers_all_and_a_latch_without_end_leave_no_violation(history: list[Sent]) -> None:
    config = papers_config(latch="static", static_latch=1e9, latch_max=1e9)
    story = run(history, ReorderBuffer(config, make_latch(config, 2)))
    first = story.released[0][1].sequence if story.released else 0
    # Those that left before the first one that came are late whatever we do.
    assert [one.sequence for _, one in story.released if one.late and one.sequence > first] == []


@settings(max_examples=100, deadline=None)
@given(histories(st.just(24)), reaches)
def test_a_record_that_covers_all_with_nothing_missing_adds_no_delay(history: list[Sent], reach: float) -> None:
    in_order = [Sent(sent.after, 0, sent.wanted, False, sent.again, sent.record) for sent in history]
    story = run(in_order, ReorderBuffer(papers_config(), FixedLatch(reach)))
    assert [one.held for _, one in story.released] == [0.0] * len(story.released)
    assert (story.order.latched, story.lost) == (0, [])


@settings(max_examples=100, deadline=None)
@given(histories(), st.lists(st.tuples(st.integers(0, 30), st.integers(0, 200)), max_size=10), st.data())
def test_repairs_heartbeats_and_unordered_items_keep_the_promises(
    history: list[Sent], repairs: list[tuple[int, int]], data: st.DataObject
) -> None:
    """Nothing twice, everything once, no loss that is not one, and it all comes to an end."""
    late: Any = data.draw(st.sampled_from(["deliver", "drop", "hold"]))
    order: ReorderBuffer[int] = ReorderBuffer(papers_config(late=late, hold_max=0.05, queue_max=8), FixedLatch(0.03))
    events: list[tuple[float, int, Header | int]] = [(now, 1, head) for now, head in arrivals(history)]
    events += [(0.5 + time / 1000, 2, number) for number, time in repairs]
    heads = [head for _, head in arrivals(history)]
    if heads:
        heartbeats = data.draw(st.lists(st.sampled_from(heads), max_size=4))
        events += [(head.departure + 0.52, 3, head) for head in heartbeats]
    story = Story(order)
    taken: set[int] = set()
    for now, kind, what in sorted(events, key=lambda one: one[:2]):
        while (deadline := order.deadline()) is not None and deadline <= now:
            story.take(order.expired(now=deadline), deadline)
        hold = data.draw(st.booleans())
        number = what if isinstance(what, int) else what.sequence
        had = order.has(number)
        if kind != 3 and number > 0:
            story.received.setdefault(number, now)
        if isinstance(what, int):
            step = order.repaired(what, what, hold=hold, now=now)
        elif kind == 1:
            step = order.arrived(what, bool, what.sequence, hold=hold, now=now)
        else:
            step = order.noticed(what, bool, now=now)
        assert kind == 3 or (step.verdict is Verdict.NEW) == (not had and number > 0)
        taken |= {number} if step.verdict is Verdict.NEW and kind != 3 else set()
        story.take(step, now)
    while (deadline := order.deadline()) is not None:
        story.take(order.expired(now=deadline), deadline)
    assert order.queued == 0
    released = [one.sequence for _, one in story.released]
    assert len(set(released)) == len(released)
    assert set(released) <= taken
    assert len(released) == len(taken) - order.late_dropped
    losses = [number for _, number in story.lost]
    assert len(set(losses)) == len(losses)
    assert all(history[number - 1].wanted for number in losses)
