"""A subscriber's own flows: which of its filters they are, and how they follow its subscriptions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.content.bloom import EncodingScheme
from penstock.content.language.parser import parse_predicate
from penstock.transport.config import TransportConfig
from penstock.transport.receiver import receiver_flows as own_flows
from penstock.transport.receiver.receiver_flows import ReceiverFilter, ReceiverFlows, filter_text
from penstock.transport.sender.flow_table import WantedFlow, flow_covers

SCHEME: EncodingScheme = TransportConfig().encoding
WHERES = ["a", "b", "a AND b", "n < 3", "n = 1", "n < 3 OR b", "TRUE", "a = 3", "c IN (1, 2)", "a AND n > 1"]


def made(*wheres: str, exact: bool = True) -> ReceiverFlows:
    own = ReceiverFlows(SCHEME, exact=exact)
    for number, where in enumerate(wheres, start=1):
        own.add(number, parse_predicate(where), 1.0)
    return own


def texts(flows: list[ReceiverFilter]) -> list[str]:
    return sorted(flow.where for flow in flows)


def test_a_flow_for_each_filter_that_no_other_of_ours_covers() -> None:
    """000 section III-A: who has such flows merges them itself."""
    assert texts(made("a", "b").kept) == ["a = TRUE", "b = TRUE"]
    assert texts(made("a AND b", "a").kept) == texts(made("a").kept)
    assert len(made("a", "a AND b", "a AND c").kept) == 1
    assert len(made("TRUE", "a", "n < 3").kept) == 1


def test_flows_go_by_their_text_unless_it_is_too_long() -> None:
    """Errata B1 and C8: a range has the bits of its name only, and other messages may have any bits by chance."""
    equal, present, low, either = made("a = 3", "b IS NOT NULL", "n < 3", "c IN (1, 2)").kept
    assert [flow.certain for flow in (equal, present, low, either)] == [True, True, False, False]
    assert [flow.where for flow in (equal, low, either)] == ["a = 3", "n < 3", "c IN (1, 2)"]
    assert all(flow.wanted.exact is not None for flow in (equal, present, low, either))
    (long,) = made(f"n < 3 AND name = '{'x' * 1000}'").kept
    assert (long.where, long.wanted.exact, long.certain) == ("", None, False)  # too long for every feedback
    assert filter_text(parse_predicate("TRUE").filters[0]) == "TRUE"


def test_by_bits_if_so_configured_but_for_ranges() -> None:
    equal, low = made("a = 3", "n < 3", exact=False).kept
    assert (equal.where, equal.wanted.exact) == ("", None)
    assert low.where == "n < 3"


def test_a_subscription_knows_its_own_flows_and_those_that_serve_it() -> None:
    own = made("a", "a AND b", "n < 3 OR c")
    assert texts(own.of(1)) == ["a = TRUE"]
    assert own.of(2) == []
    assert own.serving(1) == own.serving(2) == own.of(1)
    assert texts(own.of(3)) == texts(own.serving(3)) == ["c = TRUE", "n < 3"]
    assert own.of(9) == own.serving(9) == []
    assert (2 in own, 9 in own) == (True, False)


def test_a_flow_has_the_highest_priority_of_what_it_covers() -> None:
    own = ReceiverFlows(SCHEME, exact=True)
    own.add(1, parse_predicate("a"), 1.0)
    own.add(2, parse_predicate("a AND b"), 5.0)
    own.add(3, parse_predicate("c"), 2.0)
    assert [flow.priority for flow in own.kept] == [5.0, 2.0]
    own.remove(2)
    assert [flow.priority for flow in own.kept] == [1.0, 2.0]


@given(st.lists(st.tuples(st.integers(1, 4), st.sampled_from([*WHERES, ""])), max_size=25))
def test_whatever_came_and_went_only_the_subscriptions_that_there_are_count(steps: list[tuple[int, str]]) -> None:
    own, subscriptions = ReceiverFlows(SCHEME, exact=True), dict[int, str]()
    for number, where in steps:
        before = own.version
        if where:
            subscriptions[number] = where
            own.add(number, parse_predicate(where), 1.0)
        else:
            subscriptions.pop(number, None)
            own.remove(number)
        assert own.version != before
    afresh = ReceiverFlows(SCHEME, exact=True)
    for number, where in subscriptions.items():
        afresh.add(number, parse_predicate(where), 1.0)
    assert texts(own.kept) == texts(afresh.kept)
    assert all(own.serving(number) for number in subscriptions)
    assert sorted(flow.number for flow in own.kept) == sorted(flow.number for n in subscriptions for flow in own.of(n))


def test_flows_that_have_no_room_come_in_when_there_is_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_flows, "RECEIVER_FLOWS_MAX", 3)
    own = made("n = 1", "n = 2", "n = 3", "n = 4")
    assert texts(own.kept) == ["n = 1", "n = 2", "n = 3"]
    assert own.full
    own.remove(2)
    assert texts(own.kept) == ["n = 1", "n = 3", "n = 4"]
    own.remove(1)
    assert not own.full


def test_a_thousand_subscriptions_are_not_compared_all_with_all(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def counted(general: WantedFlow, specific: WantedFlow) -> bool:
        nonlocal calls
        calls += 1
        return flow_covers(general, specific)

    monkeypatch.setattr(own_flows, "flow_covers", counted)
    own = made(*(f"n = {number}" for number in range(300)))
    calls = 0
    own.add(1000, parse_predicate("n = 1000"), 1.0)
    assert calls <= 2 * 300
    calls = 0
    own.remove(5)
    assert calls <= 300
