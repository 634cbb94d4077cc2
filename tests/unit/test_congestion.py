"""The subscriber's side: which flows it has, what it measures, what it makes of losses, and what it asks for."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.content.language import parse_predicate
from penstock.content.message import Identity, Message, make_message
from penstock.transport.config import TransportConfig
from penstock.transport.congestion import Congestion, OwnFlow, filter_text, own_flows, word_of
from penstock.transport.flow_counts import MISSING_MAX, FlowCounts
from penstock.transport.header import TRAVEL_WRAPS, Control, Followed, Header
from penstock.transport.talk import FLOWS_MAX, Feedback

CONFIG = TransportConfig(congestion=True, record_entries=2)
TRIP = 0.1


def flows_of(*wheres: str, exact: bool = False) -> list[OwnFlow]:
    filters = [(selected, 1.0) for where in wheres for selected in parse_predicate(where).filters]
    return own_flows(filters, CONFIG.scheme, exact=exact, window=0.5)


class Session:
    """A subscriber `s`, and a publisher that sends it whatever a test says."""

    def __init__(self, *wheres: str, apart: float = 0.0, round_trip: float = TRIP) -> None:
        self.congestion = Congestion(CONFIG, "s", flows_of(*wheres), round_trip)
        self.apart = apart  # by which the subscriber's clock is ahead
        self.sequence = 0
        self.now = 0.0  # by the publisher's clock

    def get(
        self,
        *,
        after: float = 0.01,
        skipped: int = 0,
        limiting: int = 0,
        travel: float = 0.0,
        flow: int = 0,
        place: int = 0,
        further: tuple[Followed, ...] = (),
        revealed: bool = False,
        way: float = 0.03,
        **attributes: int | bool,
    ) -> None:
        """A message that left `after` the last one; `skipped` numbers lie between them."""
        self.now += after
        self.sequence += 1 + skipped
        message: Message = make_message(Identity("p", 1, self.sequence), attributes or {"a": True})
        control = Control(100.0, limiting, travel, flow, place, further)
        header = Header(self.sequence, self.now, (), entries=(1, 1), entry_bits=256, control=control)
        encoding = CONFIG.scheme.encode_message(message.attributes)
        self.congestion.delivered(header, message, encoding, revealed, now=self.now + way + self.apart)

    def ask(self) -> Feedback | None:
        return self.congestion.feedback(now=self.now + 0.03 + self.apart)

    def quotas(self) -> list[float]:
        said = self.ask()
        return [] if said is None else [asked.quota for asked in said.flows]


# --- Own flows.


def test_a_flow_for_each_filter_that_no_other_of_ours_covers() -> None:
    """000 section III-A: who has such flows merges them itself."""
    assert len(flows_of("a", "b")) == 2
    assert [flow.wanted.encoding for flow in flows_of("a AND b", "a")] == [
        flow.wanted.encoding for flow in flows_of("a")
    ]
    assert len(flows_of("a", "a AND b", "a AND c")) == 1
    assert len(flows_of("TRUE", "a", "n < 3")) == 1


def test_equalities_go_by_their_bits_and_everything_else_by_its_text() -> None:
    """Errata B1 and C8: a range has the bits of its name only."""
    equal, present, low, either = flows_of("a = 3", "b IS NOT NULL", "n < 3", "c IN (1, 2)")
    assert (equal.where, present.where) == ("", "")
    assert equal.wanted.exact is None
    for flow, text in ((low, "n < 3"), (either, "c IN (1, 2)")):
        assert parse_predicate(flow.where).matches({"n": 2, "c": 1})
        assert flow.where == text
        assert flow.wanted.exact is not None
    assert all(flow.where for flow in flows_of("a = 3", exact=True))
    assert filter_text(parse_predicate("TRUE").filters[0]) == "TRUE"
    (long,) = flows_of(f"n < 3 AND name = '{'x' * 1000}'")
    assert (long.where, long.wanted.exact) == ("", None)  # too long to be sent with every feedback


def test_there_are_no_more_flows_than_a_feedback_may_name() -> None:
    assert len(flows_of(*(f"n = {number}" for number in range(200)))) == FLOWS_MAX


def test_a_word_is_never_zero_and_differs_between_names() -> None:
    words = {word_of(f"client-{number}") for number in range(2000)}
    assert len(words) == 2000
    assert 0 not in words


# --- The round trip.


@pytest.mark.parametrize("apart", [0.0, 3.0, -1e4, 1e7, -1.7e9])
def test_for_the_limiting_receiver_the_clocks_cancel(apart: float) -> None:
    """Erratum C6: its message's travel and its feedback's are by the same two clocks."""
    session = Session("a", apart=apart, round_trip=0.5)
    travel = (0.05 - apart) % TRAVEL_WRAPS  # its feedback took 50 ms, the message 30
    for _ in range(600):
        session.get(limiting=word_of("s"), flow=1, travel=travel)
    assert session.congestion.round_trip == pytest.approx(0.08, rel=0.05)


@pytest.mark.parametrize("apart", [0.0, 1e4, -1e7])
def test_for_all_others_only_the_change_since_the_echo_counts(apart: float) -> None:
    """Erratum C6: somebody else's feedback was timed by a clock that is not theirs."""
    session = Session("a", apart=apart, round_trip=0.5)
    travel = (0.05 + 777.0) % TRAVEL_WRAPS  # of another's feedback
    session.get(limiting=word_of("other"), flow=1, travel=travel)
    assert session.congestion.round_trip == 0.5
    session.congestion.echoed(0.06)
    assert session.congestion.round_trip == 0.06
    for _ in range(600):
        session.get(limiting=word_of("other"), flow=1, travel=travel, way=0.07)  # a queue of 40 ms has built up
    assert session.congestion.round_trip == pytest.approx(0.10, rel=0.05)


def test_an_absurd_round_trip_is_not_taken() -> None:
    session = Session("a")
    for travel in (1000.0, TRAVEL_WRAPS - 1.0):
        session.get(limiting=word_of("s"), flow=1, travel=travel)
        assert session.congestion.round_trip == pytest.approx(TRIP)


# --- Losses.


def test_nothing_is_said_while_nothing_was_lost() -> None:
    """Erratum C3."""
    session = Session("a")
    for _ in range(100):
        session.get()
    assert not session.congestion.active
    assert session.congestion.allowed == inf
    assert session.ask() is None


def test_a_first_loss_asks_for_half_of_what_comes() -> None:
    """Outside: TFRC."""
    session = Session("a")
    for _ in range(300):
        session.get()
    session.get(revealed=True, skipped=1)
    (quota,) = session.quotas()
    assert quota == pytest.approx(50.0, rel=0.05)


def test_a_drop_in_our_own_queue_is_a_loss() -> None:
    session = Session("a")
    for _ in range(300):
        session.get()
    session.congestion.lost(now=session.now + 0.03)
    assert session.congestion.active
    assert len(session.quotas()) == 1


def test_the_limiting_receiver_counts_and_needs_no_record() -> None:
    session = Session("a")
    for place in (1, 2, 3, 5, 6):
        session.get(limiting=word_of("s"), flow=1, place=place, skipped=50)
    assert not session.congestion.active  # the fourth may be late
    session.get(limiting=word_of("s"), flow=1, place=7, skipped=50)
    assert session.congestion.active


def test_each_flow_is_counted_by_itself() -> None:
    """A client that limits two flows gets their messages mixed."""
    session = Session("a", "b")
    for place in (1, 2, 3):
        session.get(limiting=word_of("s"), flow=1, place=place, a=True)
        session.get(limiting=word_of("s"), flow=2, place=place, b=True)
    assert not session.congestion.active
    for place in (5, 6, 7):
        session.get(limiting=word_of("s"), flow=1, place=place, a=True)
        session.get(limiting=word_of("s"), flow=2, place=place - 1, b=True)
    assert session.congestion.events.events == 1


def test_the_count_goes_on_while_another_is_the_limiting_receiver() -> None:
    """Equal subscribers take turns; whoever comes back has lost nothing."""
    session = Session("a")
    for place in range(1, 60):
        limiting = word_of("s") if place % 20 < 10 else word_of("other")
        session.get(limiting=limiting, flow=1, place=place)
    assert not session.congestion.active
    session.get(limiting=word_of("other"), flow=1, place=61)
    session.get(limiting=word_of("other"), flow=1, place=62)
    session.get(limiting=word_of("other"), flow=1, place=63)
    assert session.congestion.active


def test_a_count_of_a_flow_that_was_never_ours_says_nothing() -> None:
    session = Session("a")
    for place in range(1, 100, 7):
        session.get(limiting=word_of("other"), flow=1, place=place)
    assert not session.congestion.active


def test_counts_are_bounded_and_absurd_steps_begin_anew() -> None:
    counts = FlowCounts()
    assert counts.arrived(1, 1, named=True) is False
    assert counts.arrived(1, 10**9, named=True) is False
    assert counts.arrived(1, 10**9 + 1, named=True) is False
    for place in range(2, 50):
        assert counts.arrived(1, 10**9 + place * MISSING_MAX, named=True) in (True, False)
        assert len(counts._flows[1]._missing) <= MISSING_MAX
    for flow in range(2, 500):
        counts.arrived(flow, 1, named=True)
    assert len(counts._flows) == FLOWS_MAX


@given(order=st.permutations(range(1, 15)), lost=st.sets(st.integers(2, 9)))
def test_late_ones_are_lost_only_if_overtaken_by_three(order: list[int], lost: set[int]) -> None:
    """Those that never come are found as soon as three later ones have."""
    counts = FlowCounts()
    counts.arrived(1, 0, named=True)
    arrived = [
        place for place in sorted(order, key=lambda place: place + (order.index(place) % 2)) if place not in lost
    ]
    reported = [counts.arrived(1, place, named=False) for place in arrived]
    assert any(reported) == bool(lost)


# --- Who limits, and what is asked for.


def test_the_flag_follows_what_messages_say() -> None:
    """Erratum C7: it is set, and also taken back."""
    session = Session("a", "b")
    session.get(limiting=word_of("s"), flow=1, place=1, a=True)
    assert [flow.limiting for flow in session.congestion.flows] == [True, False]
    session.get(limiting=word_of("other"), flow=2, place=1, a=True, b=True)
    assert [flow.limiting for flow in session.congestion.flows] == [False, False]
    session.get(limiting=word_of("s"), flow=1, place=2, a=True)
    session.get(a=True)  # not controlled any more
    assert not session.congestion.limiting


def test_who_is_named_among_others_limits_its_flow_and_counts_by_it() -> None:
    """Erratum C7: with one field a flow that shares its messages with slower ones would be set free."""
    session = Session("a")
    slower = word_of("other")
    for place in (1, 2, 3, 5, 6):
        ours = Followed(word_of("s"), 0.02, 7, place)
        session.get(limiting=slower, flow=1, place=10 * place, further=(ours,), travel=5.0)
    assert session.congestion.limiting
    assert session.congestion.round_trip < 0.1  # by its own travel, not the other's
    assert session.congestion.events.events == 0
    session.get(limiting=slower, flow=1, place=70, further=(Followed(word_of("s"), 0.02, 7, 7),))
    assert session.congestion.events.events == 1  # place 4; that the other's counts jump is no loss of ours
    crowd = tuple(Followed(word_of(name), 0.0, number, 1) for number, name in enumerate("xyz", start=20))
    session.get(limiting=slower, flow=1, place=80, further=crowd)
    assert session.congestion.limiting  # there was no room for us: that says nothing
    session.get(limiting=slower, flow=1, place=90, further=crowd[:2])
    assert not session.congestion.limiting


def test_the_limiting_receiver_asks_for_more_when_there_is_room() -> None:
    session = Session("a")
    for place in range(1, 1000):
        session.get(limiting=word_of("s"), flow=1, place=place, travel=0.05)
    session.congestion.lost(now=session.now)
    for place in range(1000, 9000):
        session.get(limiting=word_of("s"), flow=1, place=place, travel=0.05)
    (quota,) = session.quotas()
    assert 100.0 < quota <= 150.0 * 1.05  # alpha is a half
    assert session.congestion.share == 1.0


def test_a_slow_application_asks_before_anything_is_lost() -> None:
    session = Session("a")
    for _ in range(300):
        session.get()
    session.congestion.reader_rate = 30.0
    assert session.congestion.active
    assert session.quotas() == [pytest.approx(30.0)]
    assert session.congestion.share == pytest.approx(0.3, rel=0.05)


def test_of_the_way_and_the_application_the_slower_one_counts() -> None:
    session = Session("a")
    for _ in range(300):
        session.get()
    session.congestion.lost(now=session.now)
    by_loss = session.congestion.allowed
    assert 20.0 < by_loss < 100.0
    for pace, allowed in ((1000.0, by_loss), (20.0, 20.0), (inf, by_loss)):
        session.congestion.reader_rate = pace
        assert session.congestion.active
        assert session.quotas() == [pytest.approx(allowed)]


@settings(max_examples=30)
@given(rates=st.lists(st.integers(1, 20), min_size=1, max_size=4), allowed=st.floats(1.0, 400.0))
def test_after_a_decrease_the_quotas_sum_up_to_what_is_allowed(rates: list[int], allowed: float) -> None:
    """Protocols section 5: the sum is min(R, t), but for the floor of one message per round trip."""
    session = Session(*[f"k = {place}" for place in range(len(rates))])
    session.congestion.round_trip = 10.0  # so that the floor is out of the way
    for _ in range(60):
        for place, rate in enumerate(rates):
            for _ in range(rate):
                session.get(after=0.001, k=place)
        session.now += 0.001 * (100 - sum(rates))
    session.congestion.reader_rate = allowed
    received = [flow.rate.rate(session.now + 0.03) for flow in session.congestion.flows]
    said = session.ask()
    if allowed >= sum(received):
        assert said is None
    else:
        assert said is not None
        told = {asked.encoding: asked.quota for asked in said.flows}
        quotas = [
            told.get(CONFIG.scheme.to_bytes(flow.wanted.encoding), rate)
            for flow, rate in zip(session.congestion.flows, received, strict=True)
        ]
        assert sum(quotas) == pytest.approx(allowed)
        assert all(quota <= rate + 1e-9 for quota, rate in zip(quotas, received, strict=True))
