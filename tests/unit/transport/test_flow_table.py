"""The publisher's flow table: who may change a quota, which flows merge, and what a message must pay."""

from __future__ import annotations

from functools import cache
from math import inf, log, nan
from random import Random

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.content.bloom import EncodingScheme
from penstock.content.language.parser import parse_predicate
from penstock.content.message import Attributes
from penstock.content.predicate import Equals, Filter
from penstock.content.relations import covers
from penstock.kernel.trace import InputRefused, LimitReached
from penstock.transport.sender import flow_table
from penstock.transport.sender.flow_table import FlowTable, FlowVerdict, WantedFlow, flow_covers, flow_of

SCHEME = EncodingScheme(bits=256)


@cache
def a_flow(where: str, *, exact: bool = True) -> WantedFlow:
    return flow_of(parse_predicate(where), SCHEME, exact=exact)


def limits(table: FlowTable) -> dict[str, float]:
    return {flow.limiting_receiver: flow.quota for flow in table}


def hit(table: FlowTable, attributes: Attributes) -> list[str]:
    return [flow.limiting_receiver for flow in table.matching(SCHEME.encode_message(attributes), attributes)]


IBM, CHEAP, CHEAP_IBM = a_flow("symbol = 'IBM'"), a_flow("price < 100"), a_flow("symbol = 'IBM' AND price < 50")


def test_a_first_request_makes_a_flow_with_a_full_bucket() -> None:
    table = FlowTable()
    answer = table.request(IBM, 30.0, "s1", 5.0, travel=0.04)
    assert answer.verdict is FlowVerdict.ADDED
    (flow,) = table
    assert answer.flow is flow
    assert (flow.limiting_receiver, flow.quota, flow.feedback_at, flow.travel) == ("s1", 30.0, 5.0, 0.04)
    assert (flow.bucket.rate, flow.bucket.depth, flow.bucket.tokens(5.0)) == (30.0, 2.0, 2.0)


def test_the_limiting_receiver_raises_and_lowers() -> None:
    table = FlowTable()
    table.request(IBM, 30.0, "s1", 0.0)
    assert table.request(IBM, 45.0, "s1", 1.0).verdict is FlowVerdict.UPDATED
    assert limits(table) == {"s1": 45.0}
    assert table.request(IBM, 5.0, "s1", 2.0).verdict is FlowVerdict.UPDATED
    assert limits(table) == {"s1": 5.0}
    assert [flow.feedback_at for flow in table] == [2.0]


def test_nobody_else_raises_or_refreshes() -> None:
    table = FlowTable()
    table.request(IBM, 30.0, "s1", 0.0)
    answer = table.request(IBM, 45.0, "s2", 1.0)
    assert (answer.verdict, answer.flow) == (FlowVerdict.COVERED, next(iter(table)))
    assert limits(table) == {"s1": 30.0}
    assert [flow.feedback_at for flow in table] == [0.0]


def test_anybody_lowers_and_is_the_limiting_receiver_then() -> None:
    table = FlowTable()
    table.request(IBM, 30.0, "s1", 0.0)
    assert table.request(IBM, 20.0, "s2", 1.0).verdict is FlowVerdict.UPDATED
    assert limits(table) == {"s2": 20.0}
    assert table.request(IBM, 25.0, "s1", 2.0).verdict is FlowVerdict.COVERED


def test_a_change_of_the_quota_gives_no_new_burst() -> None:
    table = FlowTable()
    flow = table.request(IBM, 30.0, "s1", 0.0).flow
    assert flow is not None
    while flow.bucket.take(0.0):
        pass
    table.request(IBM, 29.0, "s2", 0.0)
    table.request(IBM, 60.0, "s2", 0.0)
    assert [one.bucket.has(0.0) for one in table] == [False]


def test_the_same_messages_in_other_words_are_the_same_flow() -> None:
    table = FlowTable()
    table.request(a_flow("price < 100 AND symbol = 'IBM'"), 30.0, "s1", 0.0)
    answer = table.request(a_flow("symbol IN ('IBM') AND NOT price >= 100"), 40.0, "s1", 0.0)
    assert answer.verdict is FlowVerdict.UPDATED
    assert limits(table) == {"s1": 40.0}


def test_a_wider_flow_with_a_lower_quota_is_enough() -> None:
    table = FlowTable()
    table.request(IBM, 30.0, "s1", 0.0)
    assert table.request(CHEAP_IBM, 31.0, "s2", 0.0).verdict is FlowVerdict.COVERED
    assert table.request(CHEAP_IBM, 29.0, "s2", 0.0).verdict is FlowVerdict.ADDED
    assert limits(table) == {"s1": 30.0, "s2": 29.0}


def test_a_wider_flow_with_a_lower_quota_takes_the_place_of_narrower_ones() -> None:
    table = FlowTable()
    narrow = table.request(CHEAP_IBM, 40.0, "s1", 0.0).flow
    table.request(a_flow("symbol = 'AMD'"), 40.0, "s2", 0.0)
    answer = table.request(IBM, 30.0, "s3", 0.0)
    assert (answer.verdict, answer.removed) == (FlowVerdict.ADDED, (narrow,))
    assert limits(table) == {"s2": 40.0, "s3": 30.0}


def test_a_narrower_flow_with_a_lower_quota_stays_beside_a_wider_one() -> None:
    table = FlowTable()
    table.request(CHEAP_IBM, 10.0, "s1", 0.0)
    table.request(IBM, 30.0, "s2", 0.0)
    assert hit(table, {"symbol": "IBM", "price": 40}) == ["s1", "s2"]
    assert hit(table, {"symbol": "IBM", "price": 60}) == ["s2"]


def test_a_raised_flow_goes_if_a_wider_one_is_as_low() -> None:
    table = FlowTable()
    table.request(IBM, 30.0, "s1", 0.0)
    narrow = table.request(CHEAP_IBM, 20.0, "s2", 0.0).flow
    answer = table.request(CHEAP_IBM, 30.0, "s2", 0.0)
    assert (answer.verdict, answer.removed) == (FlowVerdict.COVERED, (narrow,))
    assert limits(table) == {"s1": 30.0}


def test_flows_that_only_overlap_stand_side_by_side_and_a_message_pays_both() -> None:
    table = FlowTable()
    table.request(IBM, 30.0, "s1", 0.0)
    table.request(CHEAP, 10.0, "s2", 0.0)
    assert hit(table, {"symbol": "IBM", "price": 40}) == ["s1", "s2"]
    assert hit(table, {"symbol": "AMD", "price": 40}) == ["s2"]
    assert hit(table, {"symbol": "AMD", "price": 400}) == []


def test_a_predicate_of_several_filters_is_one_flow() -> None:
    table = FlowTable()
    table.request(a_flow("symbol = 'IBM' OR (symbol = 'AMD' AND price < 10)"), 10.0, "s1", 0.0)
    assert hit(table, {"symbol": "IBM", "price": 40}) == ["s1"]
    assert hit(table, {"symbol": "AMD", "price": 40}) == []
    assert table.request(a_flow("symbol = 'AMD' AND price < 5"), 20.0, "s2", 0.0).verdict is FlowVerdict.COVERED


def test_a_flow_of_a_single_filter_can_be_given_as_that() -> None:
    (selected,) = parse_predicate("symbol = 'IBM'").filters
    table = FlowTable()
    table.request(flow_of(selected, SCHEME, exact=True), 10.0, "s1", 0.0)
    assert hit(table, {"symbol": "IBM"}) == ["s1"]
    assert hit(table, {"symbol": "AMD"}) == []


def test_bits_alone_cover_whatever_has_them_and_exact_filters_never_cover_bits_alone() -> None:
    by_bits, by_bits_narrow = (
        a_flow("symbol = 'IBM'", exact=False),
        a_flow("symbol = 'IBM' AND price < 50", exact=False),
    )
    assert flow_covers(by_bits, by_bits_narrow)
    assert not flow_covers(by_bits_narrow, by_bits)
    assert flow_covers(by_bits, CHEAP_IBM)
    assert not flow_covers(IBM, by_bits_narrow)


def test_flows_whose_limiting_receiver_is_silent_are_forgotten() -> None:
    table = FlowTable()
    old = table.request(IBM, 30.0, "s1", 0.0).flow
    table.request(CHEAP, 10.0, "s2", 0.0)
    table.request(CHEAP, 10.0, "s2", 3.0)
    assert table.expire(2.0, 2.0) == ()
    assert table.expire(4.0, 2.0) == (old,)
    assert limits(table) == {"s2": 10.0}


def test_a_clock_that_steps_back_does_not_keep_a_flow_for_ever() -> None:
    table = FlowTable()
    table.request(IBM, 30.0, "s1", 1e6)
    assert table.expire(10.0, 2.0) == ()
    assert len(table.expire(13.0, 2.0)) == 1


def test_a_full_table_leaves_new_flows_out_and_says_so_once() -> None:
    table = FlowTable(flows_max=2)
    for number in range(2):
        table.request(a_flow(f"n = {number}"), 10.0, "s", 0.0)
    first, second = (table.request(a_flow("n = 7"), 10.0, "s", 0.0) for _ in range(2))
    assert (first.verdict, first.records) == (FlowVerdict.REFUSED, (LimitReached("flows", 2),))
    assert (second.verdict, second.records) == (FlowVerdict.REFUSED, ())
    assert table.request(a_flow("n = 1"), 5.0, "other", 0.0).verdict is FlowVerdict.UPDATED
    table.expire(9.0, 2.0)
    assert table.request(a_flow("n = 7"), 10.0, "s", 9.0).verdict is FlowVerdict.ADDED


def test_a_full_table_takes_a_flow_that_makes_room() -> None:
    table = FlowTable(flows_max=2)
    for number in range(2):
        table.request(a_flow(f"n = {number}"), 10.0, "s", 0.0)
    assert table.request(a_flow("EXISTS n"), 5.0, "s", 0.0).verdict is FlowVerdict.ADDED
    assert len(table) == 1


@pytest.mark.parametrize("quota", [nan, inf, -1.0])
def test_a_quota_that_cannot_be_is_refused_and_changes_nothing(quota: float) -> None:
    table = FlowTable()
    table.request(IBM, 30.0, "s1", 0.0)
    answer = table.request(IBM, quota, "s1", 1.0)
    assert answer.verdict is FlowVerdict.REFUSED
    assert isinstance(answer.records[0], InputRefused)
    assert limits(table) == {"s1": 30.0}


# --- Invariants, over random requests. The model is the plain meaning of the rules, without a table.

TEXTS = [
    "EXISTS a",
    "a = 1",
    "a = 2",
    "a < 5",
    "a < 2",
    "a = 1 AND b = 1",
    "a = 1 AND b < 3",
    "b = 1",
    "b < 3",
    "a = 1 AND b = 1 AND c = 1",
]
requests = st.lists(
    st.tuples(st.sampled_from(TEXTS), st.integers(1, 12), st.sampled_from(["s1", "s2", "s3"]), st.booleans()),
    max_size=40,
)


@given(requests, st.booleans())
def test_no_flow_is_ever_covered_by_another_with_a_lower_or_equal_quota(
    story: list[tuple[str, int, str, bool]], mixed: bool
) -> None:
    table = FlowTable()
    for text, quota, subscriber, exact in story:
        table.request(a_flow(text, exact=exact or not mixed), float(quota), subscriber, 0.0)
        flows = list(table)
        for one in flows:
            for other in flows:
                if one is not other and flow_covers(one.wanted, other.wanted):
                    assert other.quota < one.quota
                    assert not flow_covers(other.wanted, one.wanted)


@given(requests)
def test_only_the_limiting_receiver_raises_and_who_lowers_becomes_it(story: list[tuple[str, int, str, bool]]) -> None:
    table = FlowTable()
    for text, quota, subscriber, _ in story:
        before = {id(flow): (flow.quota, flow.limiting_receiver) for flow in table}
        table.request(a_flow(text), float(quota), subscriber, 0.0)
        for flow in table:
            old_quota, old_receiver = before.get(id(flow), (inf, ""))
            if flow.quota > old_quota:
                assert subscriber == old_receiver == flow.limiting_receiver
            if flow.quota < old_quota:
                assert subscriber == flow.limiting_receiver
            if flow.quota == old_quota:
                assert flow.limiting_receiver == old_receiver


@given(requests, st.booleans())
def test_after_a_request_its_messages_come_no_faster_than_it_says(
    story: list[tuple[str, int, str, bool]], exact: bool
) -> None:
    """Whatever the table made of a request: each message that matches it belongs to a flow with such a quota."""
    messages: list[Attributes] = [{"a": a, "b": b, "c": c} for a in (1, 2, 4) for b in (1, 2) for c in (1, 2)]
    table = FlowTable()
    for text, quota, subscriber, _ in story:
        predicate = parse_predicate(text)
        answer = table.request(a_flow(text, exact=exact), float(quota), subscriber, 0.0)
        assert answer.flow in list(table)
        for message in messages:
            if predicate.matches(message):
                flows = table.matching(SCHEME.encode_message(message), message)
                assert min(flow.quota for flow in flows) <= quota


def _nested(random: Random) -> Filter:
    """A place in a tree of topics, eight branches each, two to five levels deep; deeper ones are inside."""
    return Filter(tuple(Equals(f"level{level}", random.randrange(8)) for level in range(random.randint(2, 5))))


@pytest.mark.parametrize("exact", [True, False])
def test_the_table_grows_much_slower_than_the_number_of_subscribers_with_nested_filters(exact: bool) -> None:
    """000 section IV-E, experiment cacc-state-sublinear: in a log-log fit the exponent is below 0.7."""
    counts, sizes = [100, 400, 1600], []
    for count in counts:
        random, table = Random(count), FlowTable(flows_max=count)
        for number in range(count):
            flow = flow_of(_nested(random), SCHEME, exact=exact)
            table.request(flow, random.uniform(20.0, 60.0), f"s{number}", 0.0)
        sizes.append(len(table))
    exponent = float(numpy.polyfit([log(count) for count in counts], [log(size) for size in sizes], 1)[0])
    assert exponent < 0.7, f"{sizes} flows, exponent {exponent:.2f}"


@given(st.lists(st.sampled_from(TEXTS), min_size=2, max_size=2))
def test_what_bits_leave_out_is_never_covered(pair: list[str]) -> None:
    """The short cut for filters of equalities gives the same answers as the proof."""
    one, other = (parse_predicate(text) for text in pair)
    assert flow_covers(a_flow(pair[0]), a_flow(pair[1])) == covers(one, other)


# --- Narrower flows within a flow (beyond the papers).


def test_while_a_flow_has_just_been_limited_no_narrower_one_is_taken_up() -> None:
    """In the flood before that, who wants little of it sees a loss in each round trip and asks for far too little."""
    table = FlowTable(settles_in=3.0)
    wide = table.request(IBM, 30.0, "s1", 0.0).flow
    early = table.request(CHEAP_IBM, 5.0, "s2", 2.9)
    assert (early.verdict, early.flow) == (FlowVerdict.COVERED, wide)
    assert table.request(CHEAP_IBM, 5.0, "s2", 3.0).verdict is FlowVerdict.ADDED
    assert table.request(a_flow("symbol = 'AMD'"), 5.0, "s2", 3.0).verdict is FlowVerdict.ADDED  # not within it


def test_a_narrower_flow_that_is_never_short_of_tokens_is_forgotten() -> None:
    table = FlowTable()
    table.request(IBM, 30.0, "s1", 0.0)
    narrow = table.request(CHEAP_IBM, 5.0, "s2", 0.0).flow
    alone = table.request(a_flow("symbol = 'AMD'"), 5.0, "s2", 0.0).flow
    assert narrow is not None
    narrow.short_at = 4.0
    assert table.needless(6.9) == ()
    assert table.needless(7.1) == (narrow,)
    assert alone in list(table)  # nothing else would limit it


def test_a_request_that_takes_too_many_steps_to_compare_is_a_flow_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_table, "RELATED_STEPS", 3)
    table = FlowTable()
    scheme = EncodingScheme()
    for number, text in enumerate(("a < 10 AND b < 10", "a < 5 AND b < 5", "a < 3 AND b < 3")):
        wanted = flow_of(parse_predicate(text), scheme, exact=True)
        answer = table.request(wanted, 10.0 + number, "s", 0.0)
        assert answer.verdict is FlowVerdict.ADDED, "no relation is proven, so none is used"
    assert len(table) == 3
