"""The subscriber's side: which flows it has, what it measures, what it makes of losses, and what it asks for."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.content.language.parser import parse_predicate
from penstock.content.message import Identity, Message, make_message
from penstock.transport.config import papers_config
from penstock.transport.receiver.flow_sequence import MISSING_MAX, FlowSequences
from penstock.transport.receiver.loss_intervals import LossIntervals
from penstock.transport.receiver.loss_probe import ANYTHING
from penstock.transport.receiver.rate_controller import LOOK_EVERY_MIN, RateController, receiver_hash
from penstock.transport.receiver.receiver_flows import ReceiverFlows
from penstock.transport.wire.control_messages import FLOWS_MAX, Feedback
from penstock.transport.wire.flow_fields import TRAVEL_WRAPS, Control, Followed
from penstock.transport.wire.header import Header

CONFIG = papers_config(congestion=True, record_entries=2)
TRIP = 0.1


def flows_of(*wheres: str, exact: bool = False) -> ReceiverFlows:
    own = ReceiverFlows(CONFIG.encoding, exact=exact)
    for number, where in enumerate(wheres, start=1):
        own.add(number, parse_predicate(where), 1.0)
    return own


class Allowed(LossIntervals):
    """A loss history by which so much is allowed."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.events = 1
        self._rate = rate

    def allowed(self, round_trip: float) -> float:
        return self._rate


class Session:
    """A subscriber `s`, and a publisher that sends it whatever a test says."""

    def __init__(self, *wheres: str, apart: float = 0.0, round_trip: float = TRIP) -> None:
        self.wheres = {number: parse_predicate(where) for number, where in enumerate(wheres, start=1)}
        self.own = flows_of(*wheres)
        self.controller = RateController(CONFIG, "s", self.own, round_trip)
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
        revealed: dict[str, int | bool] | None = None,
        way: float = 0.03,
        **attributes: int | bool,
    ) -> None:
        """A message that left `after` the last one; `skipped` numbers lie between them, `revealed` was one of them."""
        self.now += after
        self.sequence += 1 + skipped
        message: Message = make_message(Identity("p", 1, self.sequence), attributes or {"a": True})
        control = Control(100.0, limiting, travel, flow, place, further)
        header = Header(self.sequence, self.now, (), entries=(1, 1), entry_bits=256, control=control)
        numbers = [number for number, where in self.wheres.items() if where.matches(message.attributes)]
        lost = [] if revealed is None else [CONFIG.encoding.encode_message(revealed)]
        self.controller.delivered(header, message, numbers, lost, now=self.now + way + self.apart)

    def reader(self, rate: float, number: int = 1) -> None:
        """The application of this subscription takes so much."""
        now = self.now + 0.03 + self.apart
        self.controller.paced(number, rate / self.controller.reception_rate(number, now), now=now)

    def ask(self) -> Feedback | None:
        return self.controller.feedback(now=self.now + 0.03 + self.apart)

    def quotas(self) -> list[float]:
        sent = self.ask()
        return [] if sent is None else [asked.quota for asked in sent.flows]


def test_a_hash_is_never_zero_and_differs_between_names() -> None:
    hashes = {receiver_hash(f"client-{number}") for number in range(2000)}
    assert len(hashes) == 2000
    assert 0 not in hashes


# --- The round trip.


@pytest.mark.parametrize("apart", [0.0, 3.0, -1e4, 1e7, -1.7e9])
def test_for_the_limiting_receiver_the_clocks_cancel(apart: float) -> None:
    """Erratum C6: its message's travel and its feedback's are by the same two clocks."""
    session = Session("a", apart=apart, round_trip=0.5)
    travel = (0.05 - apart) % TRAVEL_WRAPS  # its feedback took 50 ms, the message 30
    for _ in range(600):
        session.get(limiting=receiver_hash("s"), flow=1, travel=travel)
    assert session.controller.round_trip == pytest.approx(0.08, rel=0.05)


@pytest.mark.parametrize("apart", [0.0, 1e4, -1e7])
def test_for_all_others_only_the_change_since_the_echo_counts(apart: float) -> None:
    """Erratum C6: somebody else's feedback was timed by a clock that is not theirs."""
    session = Session("a", apart=apart, round_trip=0.5)
    travel = (0.05 + 777.0) % TRAVEL_WRAPS  # of another's feedback
    session.get(limiting=receiver_hash("other"), flow=1, travel=travel)
    assert session.controller.round_trip == 0.5
    session.controller.echoed(0.06)
    assert session.controller.round_trip == 0.06
    for _ in range(600):
        session.get(limiting=receiver_hash("other"), flow=1, travel=travel, way=0.07)  # a queue of 40 ms has built up
    assert session.controller.round_trip == pytest.approx(0.10, rel=0.05)


def test_an_absurd_round_trip_is_not_taken() -> None:
    session = Session("a")
    for travel in (1000.0, TRAVEL_WRAPS - 1.0):
        session.get(limiting=receiver_hash("s"), flow=1, travel=travel)
        assert session.controller.round_trip == pytest.approx(TRIP)


# --- Losses.


def test_no_feedback_is_sent_while_nothing_was_lost() -> None:
    """Erratum C3."""
    session = Session("a")
    for _ in range(100):
        session.get()
    assert not session.controller.active
    assert session.controller.allowed == inf
    assert session.ask() is None


def test_a_first_loss_asks_for_half_of_what_comes() -> None:
    """Outside: TFRC."""
    session = Session("a")
    for _ in range(300):
        session.get()
    session.get(revealed={"a": True}, skipped=1)
    (quota,) = session.quotas()
    assert quota == pytest.approx(50.0, rel=0.05)


def test_a_drop_in_our_own_queue_is_a_loss() -> None:
    session = Session("a")
    for _ in range(300):
        session.get()
    session.controller.lost(now=session.now + 0.03)
    assert session.controller.active
    assert len(session.quotas()) == 1


def test_the_limiting_receiver_counts_and_needs_no_record() -> None:
    session = Session("a")
    for place in (1, 2, 3, 5, 6):
        session.get(limiting=receiver_hash("s"), flow=1, place=place, skipped=50)
    assert not session.controller.active  # the fourth may be late
    session.get(limiting=receiver_hash("s"), flow=1, place=7, skipped=50)
    assert session.controller.active


def test_each_flow_is_counted_by_itself() -> None:
    """A client that limits two flows gets their messages mixed."""
    session = Session("a", "b")
    for place in (1, 2, 3):
        session.get(limiting=receiver_hash("s"), flow=1, place=place, a=True)
        session.get(limiting=receiver_hash("s"), flow=2, place=place, b=True)
    assert not session.controller.active
    for place in (5, 6, 7):
        session.get(limiting=receiver_hash("s"), flow=1, place=place, a=True)
        session.get(limiting=receiver_hash("s"), flow=2, place=place - 1, b=True)
    assert session.controller.loss_intervals.events == 1


def test_the_count_goes_on_while_another_is_the_limiting_receiver() -> None:
    """Equal subscribers take turns; whoever comes back has lost nothing."""
    session = Session("a")
    for place in range(1, 60):
        limiting = receiver_hash("s") if place % 20 < 10 else receiver_hash("other")
        session.get(limiting=limiting, flow=1, place=place)
    assert not session.controller.active
    session.get(limiting=receiver_hash("other"), flow=1, place=61)
    session.get(limiting=receiver_hash("other"), flow=1, place=62)
    session.get(limiting=receiver_hash("other"), flow=1, place=63)
    assert session.controller.active


def test_a_count_of_a_flow_that_was_never_ours_says_nothing() -> None:
    session = Session("a")
    for place in range(1, 100, 7):
        session.get(limiting=receiver_hash("other"), flow=1, place=place)
    assert not session.controller.active


def test_counts_are_bounded_and_absurd_steps_begin_anew() -> None:
    counts = FlowSequences()
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
    counts = FlowSequences()
    counts.arrived(1, 0, named=True)
    arrived = [
        place for place in sorted(order, key=lambda place: place + (order.index(place) % 2)) if place not in lost
    ]
    reported = [counts.arrived(1, place, named=False) for place in arrived]
    assert any(reported) == bool(lost)


# --- Suspicions: what bits cannot tell.


def test_a_record_is_no_loss_event_for_a_range_but_a_probe_that_asks_for_what_does_not_bind() -> None:
    """Errata B1 and C8: every message with a price looks as if it were below 10."""
    session = Session("price < 10")
    for _ in range(300):
        session.get(price=5)
    assert not session.controller.active
    session.get(price=5, skipped=1, revealed={"price": 30})
    assert session.controller.loss_intervals.events == 0
    assert session.controller.active
    (quota,) = session.quotas()
    assert quota == ANYTHING


def test_who_only_probes_sends_at_most_once_per_half_of_the_timeout() -> None:
    session = Session("price < 10")
    sent = []
    for _ in range(1000):
        session.get(price=5, skipped=1, revealed={"price": 30}, limiting=receiver_hash("s"), flow=1)
        if session.ask() is not None:
            session.controller.feedback_sent(now=session.now + 0.03)
            sent.append(session.now)
    assert len([time for time in sent if time > 1.0]) <= 9  # in nine seconds; at first the rate is not known well
    assert sent[-1] - sent[-2] >= CONFIG.flow_timeout / 2.0


def test_only_counted_losses_of_a_range_are_loss_events() -> None:
    session = Session("price < 10")
    for place in range(1, 100):
        session.get(price=5, skipped=1, revealed={"price": 30}, limiting=receiver_hash("s"), flow=1, place=place)
    assert session.controller.loss_intervals.events == 0
    for place in range(101, 105):
        session.get(price=5, limiting=receiver_hash("s"), flow=1, place=place)
    assert session.controller.loss_intervals.events == 1


def test_who_is_counted_and_not_followed_has_nothing_to_ask() -> None:
    session = Session("price < 10")
    for place in range(1, 10):
        session.get(price=5, limiting=receiver_hash("s"), flow=1, place=place)
    for place in range(10, 300):
        limiting = receiver_hash("other")
        session.get(price=5, skipped=1, revealed={"price": 30}, limiting=limiting, flow=1, place=place)
        assert session.ask() is None


def test_a_probe_that_nothing_renews_ends() -> None:
    session = Session("price < 10")
    for _ in range(100):
        session.get(price=5)
    session.get(price=5, skipped=1, revealed={"price": 30})
    for _ in range(220):
        session.get(price=5)
    assert session.ask() is None
    assert not session.controller.active


@pytest.mark.parametrize("rule", ["conservative", "probable"])
def test_a_gap_is_no_loss_of_a_range_either(rule: str) -> None:
    session = Session("price < 10")
    session.controller.loss_intervals = LossIntervals(8, rule)  # type: ignore[arg-type]
    for _ in range(50):
        session.get(price=5, skipped=20)
    assert session.controller.loss_intervals.events == 0


def test_in_one_session_equalities_go_by_the_record_and_ranges_do_not() -> None:
    session = Session("price < 10", "kind = 3")
    for _ in range(100):
        session.get(price=5)
        session.get(kind=3)
    session.get(price=5, skipped=1, revealed={"price": 30})
    assert session.controller.loss_intervals.events == 0
    session.get(price=5, skipped=1, revealed={"kind": 3})
    assert session.controller.loss_intervals.events == 1


def test_bits_that_chance_may_have_set_are_probed_too() -> None:
    """With forty attributes more than half of 256 bits are set: one in twenty messages has those of any equality."""
    crowd: dict[str, int | bool] = {f"attribute{number}": number for number in range(40)}
    session = Session("kind = 3")
    for _ in range(100):
        session.get(kind=3)
    session.get(kind=3, skipped=1, revealed={**crowd, "kind": 3})
    assert session.controller.loss_intervals.events == 0
    assert session.controller.active
    session.get(kind=3, skipped=1, revealed={"kind": 3, "price": 5})
    assert session.controller.loss_intervals.events == 1


def test_what_no_message_tells_of_is_judged_alike() -> None:
    """A heartbeat, or a wait that is over."""
    for where, lost, events in (("price < 10", {"price": 30}, 0), ("price = 5", {"price": 5}, 1)):
        session = Session(where)
        for _ in range(100):
            session.get(price=5)
        session.controller.missed([CONFIG.encoding.encode_message(lost)], now=session.now)
        assert session.controller.loss_intervals.events == events
        assert session.controller.active


def test_the_limiting_receiver_of_one_flow_only_probes_the_losses_of_another() -> None:
    session = Session("a = 1", "b = 1")
    for place in range(1, 100):
        session.get(limiting=receiver_hash("s"), flow=1, place=place, a=1)
        session.get(b=1)
    session.get(limiting=receiver_hash("s"), flow=1, place=100, skipped=1, revealed={"b": 1}, a=1)
    assert session.controller.loss_intervals.events == 0
    (quota,) = session.quotas()  # so that the other is counted as well
    assert quota == ANYTHING


# --- Subscriptions that change.


def test_sequences_begin_anew_when_subscriptions_change() -> None:
    """While nobody here wanted the flow its count went on."""
    session = Session("a")
    for place in range(1, 20):
        session.get(limiting=receiver_hash("s"), flow=1, place=place)
    session.own.remove(1)
    session.own.add(1, parse_predicate("a"), 1.0)
    for place in range(300, 320):
        session.get(limiting=receiver_hash("s"), flow=1, place=place)
    assert session.controller.loss_intervals.events == 0
    assert session.controller.limiting


def test_of_more_flows_than_a_feedback_may_name_it_names_the_fastest() -> None:
    session = Session(*(f"n = {number}" for number in range(200)))
    for turn in range(40):
        for number in range(0, 200, 2):
            session.get(after=0.0001, n=number)
        if turn:
            session.get(after=0.0001, n=199)
            session.get(after=0.0001, n=199)
        session.now += 0.01
    session.controller.round_trip = 10.0
    session.controller.loss_intervals = Allowed(1.0)
    sent = session.ask()
    assert sent is not None
    assert len(sent.flows) == FLOWS_MAX
    fastest = CONFIG.encoding.to_bytes(CONFIG.encoding.encode_filter(parse_predicate("n = 199").filters[0]))
    assert fastest in [asked.encoding for asked in sent.flows]


# --- The application's pace.


def test_the_pace_of_one_subscription_leaves_the_flows_of_another() -> None:
    session = Session("a", "b")
    for _ in range(200):
        session.get(a=True, after=0.005)
        session.get(b=True, after=0.005)
    session.reader(20.0, number=2)
    sent = session.ask()
    assert sent is not None
    (asked,) = sent.flows
    assert asked.quota == pytest.approx(20.0)
    assert asked.encoding == CONFIG.encoding.to_bytes(CONFIG.encoding.encode_filter(parse_predicate("b").filters[0]))


def test_where_one_flow_serves_two_subscriptions_the_slower_application_counts() -> None:
    session = Session("a", "a AND b")
    for _ in range(200):
        session.get(a=True, after=0.005)
        session.get(a=True, b=True, after=0.005)
    session.reader(60.0, number=1)
    assert session.quotas() == [pytest.approx(60.0)]
    session.reader(15.0, number=2)  # of the 100 that come for it: so of all 200 it is 30
    assert session.quotas() == [pytest.approx(30.0, rel=0.05)]
    session.reader(inf, number=2)
    assert session.quotas() == [pytest.approx(60.0)]


def test_a_pace_ends_with_its_subscription() -> None:
    session = Session("a", "a AND b")
    for _ in range(200):
        session.get(a=True, b=True)
    session.reader(15.0, number=2)
    session.own.remove(2)
    assert session.ask() is None
    assert not session.controller.active


def test_a_slow_reader_next_door_gets_what_it_takes() -> None:
    """Erratum C14: a floor of one message per round trip would be a thousand per second."""
    session = Session("a", round_trip=0.001)
    for _ in range(2000):
        session.get(after=0.0005)
    session.reader(50.0)
    assert session.quotas() == [pytest.approx(50.0)]
    assert session.controller.look_every == LOOK_EVERY_MIN
    session.reader(0.0)
    assert session.quotas() == [CONFIG.quota_floor]


# --- Who limits, and what is asked for.


def test_the_flag_follows_what_messages_say() -> None:
    """Erratum C7: it is set, and also taken back."""
    session = Session("a", "b")
    session.get(b=True)
    session.get(limiting=receiver_hash("s"), flow=1, place=1, a=True)
    assert [flow.limiting for flow in session.controller.flows.values()] == [False, True]
    session.get(limiting=receiver_hash("other"), flow=2, place=1, a=True, b=True)
    assert [flow.limiting for flow in session.controller.flows.values()] == [False, False]
    session.get(limiting=receiver_hash("s"), flow=1, place=2, a=True)
    session.get(a=True)  # not controlled any more
    assert not session.controller.limiting


def test_who_is_named_among_others_limits_its_flow_and_counts_by_it() -> None:
    """Erratum C7: with one field a flow that shares its messages with slower ones would be set free."""
    session = Session("a")
    slower = receiver_hash("other")
    for place in (1, 2, 3, 5, 6):
        ours = Followed(receiver_hash("s"), 0.02, 7, place)
        session.get(limiting=slower, flow=1, place=10 * place, further=(ours,), travel=5.0)
    assert session.controller.limiting
    assert session.controller.round_trip < 0.1  # by its own travel, not the other's
    assert session.controller.loss_intervals.events == 0
    session.get(limiting=slower, flow=1, place=70, further=(Followed(receiver_hash("s"), 0.02, 7, 7),))
    assert session.controller.loss_intervals.events == 1  # place 4; that the other's counts jump is no loss of ours
    crowd = tuple(Followed(receiver_hash(name), 0.0, number, 1) for number, name in enumerate("xyz", start=20))
    session.get(limiting=slower, flow=1, place=80, further=crowd)
    assert session.controller.limiting  # there was no room for us: that says nothing
    session.get(limiting=slower, flow=1, place=90, further=crowd[:2])
    assert not session.controller.limiting


def test_the_limiting_receiver_asks_for_more_when_there_is_room() -> None:
    session = Session("a")
    for place in range(1, 1000):
        session.get(limiting=receiver_hash("s"), flow=1, place=place, travel=0.05)
    session.controller.lost(now=session.now)
    for place in range(1000, 9000):
        session.get(limiting=receiver_hash("s"), flow=1, place=place, travel=0.05)
    (quota,) = session.quotas()
    assert 100.0 < quota <= 150.0 * 1.05  # alpha is a half
    assert session.controller.share == 1.0


def test_a_slow_application_asks_before_anything_is_lost() -> None:
    session = Session("a")
    for _ in range(300):
        session.get()
    session.reader(30.0)
    assert session.controller.active
    assert session.quotas() == [pytest.approx(30.0)]
    assert session.controller.share == pytest.approx(0.3, rel=0.05)


def test_of_the_way_and_the_application_the_slower_one_counts() -> None:
    session = Session("a")
    for _ in range(300):
        session.get()
    session.controller.lost(now=session.now)
    by_loss = session.controller.allowed
    assert 20.0 < by_loss < 100.0
    for pace, allowed in ((1000.0, by_loss), (20.0, 20.0), (inf, by_loss)):
        session.reader(pace)
        assert session.controller.active
        assert session.quotas() == [pytest.approx(allowed)]


@settings(max_examples=30)
@given(rates=st.lists(st.integers(1, 20), min_size=1, max_size=4), allowed=st.floats(1.0, 400.0))
def test_after_a_decrease_the_quotas_sum_up_to_what_is_allowed(rates: list[int], allowed: float) -> None:
    """Protocols section 5: the sum is min(R, t), but for the floor of one message per round trip."""
    session = Session(*[f"k = {place}" for place in range(len(rates))])
    session.controller.round_trip = 10.0  # so that the floor is out of the way
    for _ in range(60):
        for place, rate in enumerate(rates):
            for _ in range(rate):
                session.get(after=0.001, k=place)
        session.now += 0.001 * (100 - sum(rates))
    session.controller.loss_intervals = Allowed(allowed)
    received = [flow.rate.rate(session.now + 0.03) for flow in session.controller.flows.values()]
    sent = session.ask()
    if allowed >= sum(received):
        assert sent is None
    else:
        assert sent is not None
        reported = {asked.encoding: asked.quota for asked in sent.flows}
        quotas = [
            reported.get(CONFIG.encoding.to_bytes(flow.filter.wanted.encoding), rate)
            for flow, rate in zip(session.controller.flows.values(), received, strict=True)
        ]
        assert sum(quotas) == pytest.approx(allowed)
        assert all(quota <= rate + 1e-9 for quota, rate in zip(quotas, received, strict=True))
