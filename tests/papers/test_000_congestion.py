"""What 000 (and 002 chapter 5) say about congestion control, one claim per test: the parts without a network."""

from __future__ import annotations

from collections import deque
from functools import cache
from math import inf, isclose, sqrt
from random import Random
from typing import NamedTuple

import pytest

from penstock.content.bloom import EncodingScheme
from penstock.content.language.parser import parse_predicate
from penstock.transport.receiver.loss_intervals import GapRule, LossIntervals, tfrc_weights
from penstock.transport.receiver.quota_allocation import Reception, allocate_quotas
from penstock.transport.receiver.tcp_equation import allowed_rate
from penstock.transport.sender.flow_table import FlowTable, FlowVerdict, WantedFlow, flow_of

ROUND_TRIP = 0.1
SCHEME = EncodingScheme(bits=256)


def a_flow(where: str, *, exact: bool = True) -> WantedFlow:
    return flow_of(parse_predicate(where), SCHEME, exact=exact)


# --- The response function.


@pytest.mark.parametrize(
    ("loss", "per_round_trip"),
    [(0.001, 38.384), (0.01, 11.233), (0.02, 7.325), (0.05, 3.686), (0.1, 1.770), (0.2, 0.537), (1.0, 0.0041)],
)
def test_equation_1_is_a_product_and_not_a_power(loss: float, per_round_trip: float) -> None:
    """000 equation (1), 002 equation (5.1), erratum C1: exact values of experiment tcp-response-curves."""
    assert isclose(allowed_rate(loss, 1.0), per_round_trip, rel_tol=1e-3 if loss < 1.0 else 1e-2, abs_tol=1e-4)


def test_the_power_of_line_36_would_be_twelve_times_too_low() -> None:
    """000 Algorithm 1, line 36, erratum C1."""
    p = 0.01
    printed = 1.0 / (sqrt(2 * p / 3) + (12 * sqrt(3 * p / 8)) ** p * (1 + 32 * p * p))
    assert isclose(printed, 0.924, rel_tol=1e-3)
    assert isclose(allowed_rate(p, 1.0) / printed, 12.15, rel_tol=1e-2)


def test_the_rate_is_in_messages_and_falls_with_one_by_the_round_trip() -> None:
    """002 section 5.1.2, errata C5 and C12: no packet size enters, and the elasticity to the round trip is -1."""
    assert isclose(allowed_rate(0.01, 0.1), 112.33, rel_tol=1e-4)
    assert isclose(allowed_rate(0.01, 0.1) * 1000 * 8, 898.7e3, rel_tol=1e-3)  # bit/s, for messages of 1000 bytes
    for loss in (0.001, 0.01, 0.1):
        assert isclose(allowed_rate(loss, 0.2), allowed_rate(loss, 0.1) / 2.0)


def test_without_loss_there_is_no_limit() -> None:
    """000 Algorithm 1, erratum C3: p = 0 is no division by zero, and nothing is sent."""
    assert allowed_rate(0.0, ROUND_TRIP) == inf
    assert allocate_quotas([Reception(1000.0, False)], inf, 0.5, 10.0) == [None]


# --- The subscriber's decision.


def test_the_decision_needs_the_whole_sum() -> None:
    """000 Algorithm 1, lines 4-10, erratum C2: in the loop the first entry alone would ask for an increase."""
    entries = [Reception(100.0, True), Reception(100.0, False)]
    assert allocate_quotas(entries, 150.0, 0.5, 10.0) == [75.0, 75.0]
    assert allocate_quotas(entries[:1], 150.0, 0.5, 10.0) == [150.0]


def test_a_decrease_favours_filters_with_low_rates() -> None:
    """000 section III-B5: max-min."""
    assert allocate_quotas([Reception(10.0, True), Reception(300.0, True), Reception(90.0, True)], 150.0, 0.5, 1.0) == [
        10.0,
        70.0,
        70.0,
    ]


def test_an_application_can_put_some_filters_first() -> None:
    """000 sections II-C and III-B5: the subscriber distributes by its priorities."""
    assert allocate_quotas([Reception(90.0, False, 2.0), Reception(90.0, False, 1.0)], 90.0, 0.5, 1.0) == [60.0, 30.0]


def test_only_filters_that_the_subscriber_limits_grow_and_by_alpha_at_most() -> None:
    """000 Algorithm 1, lines 15-28."""
    entries = [Reception(100.0, True), Reception(10.0, True), Reception(50.0, False)]
    assert allocate_quotas(entries, 200.0, 0.5, 1.0) == [120.0, 15.0, None]


def test_feedback_goes_out_only_if_there_is_something_to_say() -> None:
    """000 Algorithm 1, lines 29-34, erratum C3."""
    assert allocate_quotas([Reception(100.0, False), Reception(5.0, False)], 1000.0, 0.5, 10.0) == [None, None]
    assert allocate_quotas([Reception(100.0, False), Reception(5.0, False)], 55.0, 0.5, 1.0) == [50.0, None]


def test_a_flow_that_is_not_received_at_all_comes_back() -> None:
    """000 Algorithm 1, line 28, erratum C14: alpha times nothing is nothing, so there is a floor."""
    floor = 1.0 / ROUND_TRIP
    (quota,) = allocate_quotas([Reception(0.0, True)], inf, 0.5, floor)
    assert quota == floor
    assert allocate_quotas([Reception(40.0, False), Reception(40.0, False)], 0.1, 0.5, floor) == [floor, floor]
    table = FlowTable(quota_min=0.1)
    flow = table.request(a_flow("symbol = 'IBM'"), 0.0, "s1", 0.0).flow
    assert flow is not None
    assert flow.quota == flow.bucket.rate == 0.1


# --- Loss events.


def test_for_isolated_losses_the_event_rate_is_the_loss_rate_and_otherwise_it_is_lower() -> None:
    """000 section II-A, erratum C4: the interval begins with the lost message; "always less" means at most."""

    def measured(lost_together: int, period: int) -> float:
        events = LossIntervals()
        for number in range(40 * period):
            place, now = number % period, number * 0.01
            if place >= lost_together:
                gap = lost_together if place == lost_together else 0
                events.delivered(
                    gap, 10, gap > 0, match_probability=1.0, round_trip=ROUND_TRIP, reception_rate=100.0, now=now
                )
        return events.rate

    assert isclose(measured(1, 50), 1 / 50)
    assert isclose(measured(1, 20), 1 / 20)
    assert measured(3, 50) < 3 / 50


def test_eight_intervals_with_the_weights_of_tfrc_and_a_seeded_beginning() -> None:
    """000 section II-A, erratum C4: the papers leave number, weights and the first interval open."""
    assert tfrc_weights(8) == (1.0, 1.0, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2)
    events = LossIntervals()
    events.dropped_here(round_trip=ROUND_TRIP, reception_rate=80.0, now=0.0)
    assert isclose(allowed_rate(events.rate, ROUND_TRIP), 40.0)


# --- Imprecise detection (000 section III-C, Figure 5; 002 section 5.2.3, Figure 5.7).

PUBLISHED = 1000.0  # messages/s
MATCH = 0.2
LINK = 0.97  # of the matching rate
QUEUE = 30
SECONDS = 100
EVERYTHING = 1_000_000


class Fate(NamedTuple):
    """A message that matched: its number, and when it arrived, or that it was lost."""

    number: int
    arrived: float | None


@cache
def one_flow(seed: int) -> tuple[Fate, ...]:
    """Poisson publications; the matching ones go through a link that cannot carry them all."""
    random, now, free_at = Random(seed), 0.0, 0.0
    leaving: deque[float] = deque()
    fates = []
    for number in range(int(SECONDS * PUBLISHED)):
        now += random.expovariate(PUBLISHED)
        if random.random() < MATCH:
            while leaving and leaving[0] <= now:
                leaving.popleft()
            if len(leaving) >= QUEUE:
                fates.append(Fate(number, None))
                continue
            free_at = max(free_at, now) + 1.0 / (LINK * MATCH * PUBLISHED)
            leaving.append(free_at)
            fates.append(Fate(number, free_at))
    return tuple(fates)


@cache
def estimated(record: int, rule: GapRule = "probable", match: float | None = None) -> tuple[float, float]:
    """Mean loss event rate and mean allowed rate, every 0.1 s of three runs, after 5 s each.

    How many match is estimated from what arrived, unless it is given.
    """
    losses, allowed = [], []
    for seed in (1, 2, 3):
        events, previous, missing, received, next_look = LossIntervals(rule=rule), -1, -1, 0, 5.0
        for number, arrived in one_flow(seed):
            if arrived is None:
                missing = number
                continue
            received += 1
            rate = received / arrived
            events.delivered(
                number - previous - 1,
                record,
                missing > previous and missing >= number - record,
                match_probability=rate / PUBLISHED if match is None else match,
                round_trip=ROUND_TRIP,
                reception_rate=rate,
                now=arrived,
            )
            previous = number
            while arrived >= next_look:
                losses.append(events.rate)
                allowed.append(min(PUBLISHED, allowed_rate(events.rate, ROUND_TRIP)))
                next_look += 0.1
    return sum(losses) / len(losses), sum(allowed) / len(allowed)


def test_a_shorter_record_finds_fewer_loss_events() -> None:
    """000 Figure 5, experiment loss-estimator-record-size: p(inf) >= p(5) >= p(2)."""
    ideal, five, two = (estimated(record)[0] for record in (EVERYTHING, 5, 2))
    assert ideal >= five >= two > 0.0
    assert 0.006 < ideal < 0.013


def test_a_record_of_five_is_close_to_the_ideal_and_one_of_two_allows_too_much() -> None:
    """000 section III-C, erratum C13: bounds of experiment loss-estimator-record-size at match 0.2."""
    ideal, five, two = (estimated(record)[1] for record in (EVERYTHING, 5, 2))
    assert 1.0 <= five / ideal <= 1.25
    assert 1.2 <= two / ideal <= 1.7


@pytest.mark.parametrize("record", [5, 2])
def test_the_probable_rule_is_nearer_to_the_ideal_than_both_others(record: int) -> None:
    """002 section 5.2.3: optimism allows too much, and to take every gap for a loss allows far too little."""
    ideal = estimated(EVERYTHING)[1]
    conservative, probable, optimistic = (
        estimated(record, rule)[1] / ideal for rule in ("conservative", "probable", "optimistic")
    )
    assert conservative < 0.5
    assert conservative < probable < optimistic
    assert abs(probable - 1.0) < abs(optimistic - 1.0)
    assert abs(probable - 1.0) < abs(conservative - 1.0)


@pytest.mark.parametrize(("record", "at_most", "otherwise"), [(5, 1.1, 1.12), (2, 1.35, 1.45)])
def test_the_chance_that_nothing_mattered_takes_back_half_of_the_excess(
    record: int, at_most: float, otherwise: float
) -> None:
    """000 section III-C, erratum C13: of the ideal, a record of two allows 1.27 with the correction, 1.52 without.

    It is still too much, for one thing because the match probability itself is estimated from what arrived.
    """
    ideal = estimated(EVERYTHING)[1]
    corrected, uncorrected = (estimated(record, rule)[1] / ideal for rule in ("probable", "optimistic"))
    assert 1.0 < corrected < at_most
    assert uncorrected > otherwise
    assert 1.0 < estimated(record, "probable", MATCH)[1] / ideal < corrected


# --- The publisher's table.


def test_only_the_congested_flow_is_slowed_down() -> None:
    """000 section II-B, Figure 1: what the congested subscriber did not ask for is not touched."""
    table = FlowTable()
    table.request(a_flow("symbol = 'IBM'"), 10.0, "B", 0.0)
    for attributes, controlled in (({"symbol": "IBM"}, 1), ({"symbol": "AMD"}, 0)):
        assert len(table.matching(SCHEME.encode_message(attributes), attributes)) == controlled


def test_who_is_covered_need_not_take_part() -> None:
    """002 Figure 5.3, Algorithm 5.4: B's flow covers C's and is the slower, so C's request changes nothing."""
    table = FlowTable()
    table.request(a_flow("symbol = 'IBM'"), 10.0, "B", 0.0)
    assert table.request(a_flow("symbol = 'IBM' AND price < 9"), 12.0, "C", 0.0).verdict is FlowVerdict.COVERED
    assert len(table) == 1


@pytest.mark.parametrize("exact", [True, False])
def test_equal_requests_of_five_subscribers_make_one_entry(exact: bool) -> None:
    """000 Algorithm 2, line 10, erratum C8: as printed there would be five."""
    table = FlowTable()
    for number in range(5):
        table.request(a_flow("symbol = 'IBM'", exact=exact), 10.0, f"s{number}", 0.0)
    assert [(flow.limiting_receiver, flow.quota) for flow in table] == [("s0", 10.0)]


def test_a_lowered_quota_makes_narrower_flows_unnecessary() -> None:
    """000 Algorithm 2, line 7, erratum C8: the clean-up that is printed for new flows only."""
    table = FlowTable()
    table.request(a_flow("symbol = 'IBM'"), 50.0, "B", 0.0)
    table.request(a_flow("symbol = 'IBM' AND price < 9"), 20.0, "C", 0.0)
    assert len(table) == 2
    table.request(a_flow("symbol = 'IBM'"), 20.0, "B", 1.0)
    assert [(flow.limiting_receiver, flow.quota) for flow in table] == [("B", 20.0)]


def test_bits_alone_cannot_tell_ranges_apart_but_exact_filters_can() -> None:
    """000 section III-B2, errata B1 and C8: `price < 10` and `price > 20` have the same bits."""
    scheme = EncodingScheme(bits=256, wide_tags=False)
    low, high = parse_predicate("price < 10"), parse_predicate("price > 20")
    by_bits, by_filter = FlowTable(), FlowTable()
    for table, exact in ((by_bits, False), (by_filter, True)):
        table.request(flow_of(low, scheme, exact=exact), 5.0, "s1", 0.0)
        table.request(flow_of(high, scheme, exact=exact), 9.0, "s2", 0.0)
    dear = {"price": 30}
    assert [flow.quota for flow in by_bits.matching(scheme.encode_message(dear), dear)] == [5.0]
    assert [flow.quota for flow in by_filter.matching(scheme.encode_message(dear), dear)] == [9.0]


def test_in_any_window_a_flow_sends_at_most_its_depth_and_its_quota() -> None:
    """000 section III-B8: a token per message and flow."""
    table = FlowTable()
    flow = table.request(a_flow("symbol = 'IBM'"), 40.0, "B", 0.0).flow
    assert flow is not None
    sent = [step / 1000.0 for step in range(10_000) if flow.bucket.take(step / 1000.0)]
    assert len(sent) == pytest.approx(40.0 * 10.0 + flow.bucket.depth, abs=1.0)
    for first, begin in enumerate(sent):
        for count, end in enumerate(sent[first:], start=1):
            assert count <= flow.bucket.depth + 40.0 * (end - begin) + 1e-6
