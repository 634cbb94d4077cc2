"""The publisher's rate limiter: who waits, who leaves when, and whose feedback counts."""

from __future__ import annotations

from math import inf, nan
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.content.bloom import EncodingScheme
from penstock.content.language.parser import parse_predicate
from penstock.content.message import Attributes, Identity, Message, make_message
from penstock.kernel.trace import InputRefused, LimitReached, Record
from penstock.transport.config import TransportConfig
from penstock.transport.records import FlowLimited
from penstock.transport.sender import rate_limiter as rate_limiter
from penstock.transport.sender.flow_table import Flow, FlowTable, flow_of
from penstock.transport.sender.pending_queues import PendingMessage
from penstock.transport.sender.rate_limiter import QUOTA_MAX, LimiterVerdict, RateLimiter, flow_name, slowest
from penstock.transport.wire.control_messages import FLOWS_MAX, Feedback, FlowQuota

DROP = TransportConfig(congestion=True, when_full="drop", flow_queue=5, quota_floor=0.1)
TAIL = TransportConfig(congestion=True, when_full="drop", flow_queue=5, quota_floor=0.1, prefer_shared=False)
WAIT = TransportConfig(congestion=True, when_full="wait", flow_queue=5, quota_floor=0.1)
SCHEME: EncodingScheme = DROP.encoding


def flow_quota(where: str, quota: float, *, exact: bool = True) -> FlowQuota:
    bits = flow_of(parse_predicate(where), SCHEME, exact=False).encoding
    return FlowQuota(quota, SCHEME.to_bytes(bits), where if exact else "")


def receive(limiter: RateLimiter, subscriber: str, now: float = 0.0, **quotas: float) -> list[Record]:
    """One attribute for each flow, as in a=10."""
    flows = tuple(flow_quota(name, quota, exact=False) for name, quota in quotas.items())
    return limiter.feedback_received(Feedback(subscriber, now - 0.02, flows), SCHEME, now=now)


class Publisher:
    """Messages with true attributes, numbered from 1."""

    def __init__(self, limiter: RateLimiter) -> None:
        self.limiter = limiter
        self.count = 0
        self.left: list[tuple[float, int]] = []
        self.answers: list[int] = []

    def offer(self, names: str, now: float) -> LimiterVerdict:
        self.count += 1
        attributes: Attributes = dict.fromkeys(names, True)
        message = make_message(Identity("p", 1, self.count), attributes)
        admission = self.limiter.offer(message, SCHEME.encode_message(attributes), self.count, now=now).admission
        if admission is LimiterVerdict.OPEN:
            self.left.append((now, self.count))
        return admission

    def release(self, now: float) -> list[int]:
        found = [waiting.message.identity.count for waiting in self.limiter.release(now=now)]
        self.left += [(now, count) for count in found]
        return found


def a_limiter(config: TransportConfig = DROP) -> tuple[RateLimiter, Publisher]:
    limiter = RateLimiter(config)
    return limiter, Publisher(limiter)


# --- Leaving and waiting.


def test_without_flows_everything_leaves() -> None:
    limiter, publisher = a_limiter()
    assert [publisher.offer("ab", 0.0) for _ in range(100)] == [LimiterVerdict.OPEN] * 100
    assert limiter.deadline() is None


def test_a_limited_flow_leaves_as_fast_as_its_quota_allows() -> None:
    limiter, publisher = a_limiter()
    receive(limiter, "s", a=10.0)
    assert [publisher.offer("a", 0.0) for _ in range(4)] == [
        LimiterVerdict.OPEN,
        LimiterVerdict.OPEN,
        LimiterVerdict.WAITS,
        LimiterVerdict.WAITS,
    ]
    assert limiter.deadline() == pytest.approx(0.1)
    assert publisher.release(0.05) == []
    assert publisher.release(limiter.deadline() or 0.0) == [3]
    assert limiter.deadline() == pytest.approx(0.2)
    assert publisher.release(1.0) == [4]
    assert limiter.deadline() is None


def test_a_message_takes_a_token_of_each_of_its_flows_or_of_none() -> None:
    limiter, publisher = a_limiter(WAIT)
    receive(limiter, "s", a=10.0, b=1000.0)
    publisher.offer("a", 0.0)
    publisher.offer("a", 0.0)
    assert publisher.offer("ab", 0.0) is LimiterVerdict.WAITS
    tokens = {flow_name(flow, SCHEME): flow.bucket.tokens(0.0) for flow in limiter._table}
    assert sorted(tokens.values()) == [0.0, 50.0]


def test_who_comes_later_does_not_overtake_in_a_common_flow() -> None:
    limiter, publisher = a_limiter()
    receive(limiter, "s", a=10.0, b=10.0)
    publisher.offer("a", 0.0)
    publisher.offer("a", 0.0)
    publisher.offer("ab", 0.0)
    assert publisher.offer("b", 0.0) is LimiterVerdict.WAITS  # b has tokens, but an older one waits there
    assert publisher.offer("c", 0.0) is LimiterVerdict.OPEN
    assert publisher.release(0.1) == [3, 4]


def test_a_wait_in_one_flow_does_not_hold_up_another() -> None:
    limiter, publisher = a_limiter()
    receive(limiter, "s", a=1.0, b=10.0)
    for names in ("a", "a", "b", "b", "a", "b"):
        publisher.offer(names, 0.0)
    assert publisher.release(0.1) == [6]
    assert limiter.waiting == 1


def test_a_full_queue_withholds_and_counts() -> None:
    limiter, publisher = a_limiter()
    receive(limiter, "s", a=10.0)
    admissions = [publisher.offer("a", 0.0) for _ in range(10)]
    assert admissions == [LimiterVerdict.OPEN] * 2 + [LimiterVerdict.WAITS] * 5 + [LimiterVerdict.WITHHELD] * 3
    assert limiter.withheld == 3
    assert limiter.waiting == 5
    assert [report.queue for report in limiter.report()] == [5]


def test_a_message_must_find_room_in_all_its_queues() -> None:
    limiter, publisher = a_limiter(TAIL)
    receive(limiter, "s", a=10.0, b=10.0)
    for _ in range(7):
        publisher.offer("a", 0.0)
    assert publisher.offer("ab", 0.0) is LimiterVerdict.WITHHELD
    assert publisher.offer("b", 0.0) is LimiterVerdict.OPEN


def test_a_message_of_more_flows_takes_the_place_of_the_last_one_of_fewer() -> None:
    """Beyond 000 section III-B8, which withholds whatever comes last: of what is too much, the shared leaves first."""
    limiter, publisher = a_limiter()
    receive(limiter, "s", a=10.0, b=10.0)
    for names in ("a", "a", "b", "b", "a", "ab", "a", "a", "b"):  # the first two of each have tokens
        publisher.offer(names, 0.0)
    assert limiter.waiting == 5
    for _ in range(2):
        publisher.offer("a", 0.0)
    assert limiter.withheld == 1  # a is full: 5, 6, 7, 8 and 10
    message = make_message(Identity("p", 1, 99), {"a": True, "b": True})
    offered = limiter.offer(message, SCHEME.encode_message(message.attributes), 99, now=0.0)
    assert offered.admission is LimiterVerdict.WAITS
    assert [waiting.ticket for waiting in offered.displaced] == [10]
    assert limiter.withheld == 2
    assert publisher.offer("a", 0.0) is LimiterVerdict.WITHHELD  # one of as many flows displaces nobody
    assert publisher.release(10.0) == [5, 6, 9]
    assert publisher.release(20.0) == [7, 8]
    assert publisher.release(30.0) == [99]


def test_a_slow_flow_does_not_fill_the_queue_of_a_faster_one_that_it_shares_messages_with() -> None:
    limiter, publisher = a_limiter()
    receive(limiter, "s", a=100.0, b=40.0)
    for _ in range(5):
        publisher.offer("a", 0.0)  # all of its tokens
    admissions = [publisher.offer("ab", 0.0) for _ in range(4)]
    assert admissions == [LimiterVerdict.WAITS] * 3 + [
        LimiterVerdict.WITHHELD
    ]  # two tokens of b, and one more by the time of the third
    assert [publisher.offer("a", 0.0) for _ in range(4)] == [LimiterVerdict.WAITS] * 2 + [LimiterVerdict.WITHHELD] * 2


@pytest.mark.parametrize("narrow", [1.0, 5.0, 10.0, 20.0, 40.0, 80.0])
def test_a_narrow_flow_within_a_wide_one_costs_the_wide_one_nothing(narrow: float) -> None:
    """000's promise, for publishers that do not wait: 300 messages/s offered, a quarter of them in both flows."""
    limiter, publisher = a_limiter(TransportConfig(congestion=True, when_full="drop"))
    limiter.feedback_received(Feedback("narrow", 0.0, (flow_quota("a AND b", narrow, exact=False),)), SCHEME, now=0.0)
    receive(limiter, "wide", a=100.0)
    random, now, names = Random(1), 0.0, {}
    while now < 30.0:
        step = random.expovariate(300.0)
        while (deadline := limiter.deadline()) is not None and deadline <= now + step:
            publisher.release(deadline)
        now += step
        kind = "ab" if random.random() < 0.25 else "a"
        publisher.offer(kind, now)
        names[publisher.count] = kind
    assert len(publisher.left) / 30.0 == pytest.approx(100.0, rel=0.05)
    both = sum(names[count] == "ab" for _, count in publisher.left if count in names)
    assert both / 30.0 == pytest.approx(min(narrow, 75.0), rel=0.35)


def test_who_may_wait_is_withheld_by_the_safeguard_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limiter, "PENDING_MAX", 20)
    limiter, publisher = a_limiter(WAIT)
    receive(limiter, "s", a=10.0, b=10.0)
    admissions = [publisher.offer("ab"[turn % 2], 0.0) for turn in range(40)]
    assert admissions.count(LimiterVerdict.WAITS) == 20  # of both flows together
    assert admissions[-1] is LimiterVerdict.WITHHELD
    assert limiter.withheld == 40 - 20 - 4


def test_repairs_take_tokens_and_never_wait() -> None:
    """A repair is one more message of its flow (002 section 1.2); who still needs it will ask again.

    When there are no tokens one of them may have the next one, before all messages that wait.
    """
    limiter, publisher = a_limiter()
    receive(limiter, "s", a=10.0)
    message = make_message(Identity("p", 1, 1), {"a": True})
    encoding = SCHEME.encode_message(message.attributes)
    assert [limiter.admit(message, encoding, now=0.0) for _ in range(5)] == [True, True, True, False, False]
    assert publisher.offer("a", 0.0) is LimiterVerdict.WAITS
    assert publisher.release(0.1) == []  # this token was spent already
    assert limiter.deadline() == pytest.approx(0.2)
    assert publisher.release(0.2) == [1]
    assert limiter.admit(message, encoding, now=0.2)
    limiter.expire(0.0, now=5.0)
    assert publisher.offer("a", 5.0) is LimiterVerdict.OPEN  # debts go with their flow
    other = make_message(Identity("p", 1, 1), {"b": True})
    assert limiter.admit(other, SCHEME.encode_message(other.attributes), now=0.0)


# --- Flows that come and go while somebody waits.


def test_whoever_waited_for_a_flow_that_is_no_more_leaves() -> None:
    limiter, publisher = a_limiter()
    receive(limiter, "s", a=10.0)
    for _ in range(5):
        publisher.offer("a", 0.0)
    assert limiter.expire(2.0, now=10.0) != []
    assert limiter.deadline() == 0.0
    assert publisher.release(10.0) == [3, 4, 5]
    assert (limiter.waiting, limiter.deadline()) == (0, None)


def test_a_wider_flow_takes_over_those_who_wait() -> None:
    """Else the whole queue of the narrower one would leave at once, just when somebody asked for less."""
    limiter, publisher = a_limiter()
    limiter.feedback_received(Feedback("s", 0.0, (flow_quota("a AND b", 10.0),)), SCHEME, now=0.0)
    for _ in range(6):
        publisher.offer("ab", 0.0)
    limiter.feedback_received(Feedback("t", 0.0, (flow_quota("a", 5.0),)), SCHEME, now=0.0)
    assert len(limiter) == 1
    assert publisher.release(0.0) == [3, 4]  # a new flow's bucket is full
    assert publisher.release(0.1) == []
    assert publisher.release(0.2) == [5]
    assert [report.queue for report in limiter.report()] == [1]


def test_when_two_queues_become_one_those_who_are_too_many_are_withheld() -> None:
    limiter, publisher = a_limiter()
    limiter.feedback_received(
        Feedback("s", 0.0, (flow_quota("a AND b", 2.0), flow_quota("a AND c", 2.0))), SCHEME, now=0.0
    )
    for _ in range(7):
        publisher.offer("ab", 0.0)
        publisher.offer("ac", 0.0)
    limiter.feedback_received(Feedback("t", 0.0, (flow_quota("a", 1.0),)), SCHEME, now=0.0)
    assert [report.queue for report in limiter.report()] == [5]
    assert [waiting.ticket for waiting in limiter.shed] == [14, 13, 12, 11, 10]
    assert publisher.offer("ad", 0.0) is LimiterVerdict.WITHHELD
    publisher.release(1.0)
    assert publisher.offer("ad", 1.0) is LimiterVerdict.WAITS


def test_nobody_waits_after_a_withdrawal() -> None:
    limiter, publisher = a_limiter(WAIT)
    receive(limiter, "s", a=10.0)
    for _ in range(5):
        publisher.offer("a", 0.0)
    assert [waiting.ticket for waiting in limiter.withdraw_all()] == [3, 4, 5]
    assert (limiter.waiting, limiter.withheld, limiter.deadline()) == (0, 3, None)
    assert publisher.release(5.0) == []
    assert publisher.offer("a", 5.0) is LimiterVerdict.OPEN


# --- Feedback.


def test_who_slows_whom_is_recorded_once() -> None:
    limiter, _ = a_limiter()
    (record,) = receive(limiter, "s", a=100.0)
    assert record == FlowLimited(flow_name(next(iter(limiter._table)), SCHEME), "s", 100.0)
    assert receive(limiter, "s", now=0.1, a=110.0) == []  # not worth a record
    assert [type(record) for record in receive(limiter, "s", now=0.2, a=50.0)] == [FlowLimited]
    (taken_over,) = receive(limiter, "other", now=0.3, a=49.0)  # the same quota, but somebody else's feedback
    assert isinstance(taken_over, FlowLimited)
    assert taken_over.limiting_receiver == "other"
    assert [record.quota for record in limiter.expire(2.0, now=9.0) if isinstance(record, FlowLimited)] == [0.0]


def test_flows_of_the_same_bits_are_told_apart_and_those_that_a_wider_one_replaces_are_reported_free() -> None:
    limiter, _ = a_limiter()
    flows = (flow_quota("price < 10", 5.0), flow_quota("price > 20", 5.0))
    reported = limiter.feedback_received(Feedback("s", 0.0, flows), SCHEME, now=0.0)
    assert [(record.flow, record.quota) for record in reported if isinstance(record, FlowLimited)] == [
        ("price < 10", 5.0),
        ("price > 20", 5.0),
    ]
    reported = limiter.feedback_received(Feedback("t", 1.0, (flow_quota("EXISTS price", 4.0),)), SCHEME, now=1.0)
    assert [(record.flow, record.quota) for record in reported if isinstance(record, FlowLimited)] == [
        ("EXISTS price", 4.0),
        ("price < 10", 0.0),
        ("price > 20", 0.0),
    ]


def test_the_report_says_who_slows_whom() -> None:
    limiter, _ = a_limiter()
    limiter.feedback_received(Feedback("slow", 2.9, (flow_quota("kind = 'bulk'", 7.0),)), SCHEME, now=3.0)
    (report,) = limiter.report()
    assert (report.flow, report.quota, report.limiting_receiver, report.since) == ("kind = 'bulk'", 7.0, "slow", 3.0)
    assert limiter.limiting_receivers() == ["slow"]
    limiter.feedback_received(Feedback("slow", 3.9, (flow_quota("kind = 'bulk'", 6.0),)), SCHEME, now=4.0)
    assert limiter.report()[0].since == 3.0  # when it began, not when feedback last came


def test_a_flow_by_bits_is_called_by_what_its_messages_have_in_common_with_it() -> None:
    limiter, _ = a_limiter()
    flows = tuple(flow_quota(where, 7.0, exact=False) for where in ("symbol = 'IBM' AND venue IS NOT NULL", "rare"))
    limiter.recent.append(make_message(Identity("p", 1, 1), {"price": 12.5, "symbol": "IBM", "venue": "X"}))
    limiter.recent.append(make_message(Identity("p", 1, 2), {"price": 12.5}))
    limiter.feedback_received(Feedback("slow", 2.9, flows), SCHEME, now=3.0)
    known, unknown = [report.flow for report in limiter.report()]
    assert known == "symbol = 'IBM' AND venue IS NOT NULL"
    assert unknown.startswith("bits ")


def test_the_slowest_flow_is_the_one_that_a_message_names() -> None:
    """Erratum C7."""
    limiter, _ = a_limiter()
    receive(limiter, "fast", a=50.0)
    receive(limiter, "slow", b=5.0)
    flows = list(limiter._table)
    named = slowest(flows)
    assert named is not None
    assert named.limiting_receiver == "slow"
    assert slowest([]) is None


@pytest.mark.parametrize(
    "forged",
    [
        FlowQuota(nan, bytes(32)),
        FlowQuota(inf, bytes(32)),
        FlowQuota(-1.0, bytes(32)),
        FlowQuota(2 * QUOTA_MAX, bytes(32)),
        FlowQuota(10.0, bytes(31)),
        FlowQuota(10.0, b""),
        FlowQuota(10.0, bytes(32), "a ="),
        FlowQuota(10.0, bytes(32), "(" * 10_000),
    ],
)
def test_a_forged_flow_is_refused_counted_and_changes_nothing(forged: FlowQuota) -> None:
    limiter, publisher = a_limiter()
    receive(limiter, "s", a=10.0)
    for _ in range(4):
        publisher.offer("a", 0.0)
    before = limiter.report(), limiter.waiting, limiter.deadline()
    records = limiter.feedback_received(Feedback("liar", 0.0, (forged,)), SCHEME, now=0.0)
    assert [type(record) for record in records] == [InputRefused]
    assert limiter.refused == 1
    assert (limiter.report(), limiter.waiting, limiter.deadline()) == before


def test_the_good_flows_of_a_feedback_count_although_one_is_bad() -> None:
    limiter, _ = a_limiter()
    limiter.feedback_received(Feedback("s", 0.0, (FlowQuota(1.0, b"x"), flow_quota("a", 5.0))), SCHEME, now=0.0)
    assert [report.quota for report in limiter.report()] == [5.0]


def test_nobody_fills_the_table_alone() -> None:
    limiter, _ = a_limiter()
    for start in range(0, 1000, 50):
        flows = tuple(flow_quota(f"n = {number}", 5.0) for number in range(start, start + 50))
        records = limiter.feedback_received(Feedback("greedy", 0.0, flows), SCHEME, now=start / 500.0)
    assert len(limiter) == FLOWS_MAX
    assert records == [LimitReached("flows of one receiver", FLOWS_MAX)]
    assert limiter.refused == 1000 - FLOWS_MAX
    limiter.feedback_received(
        Feedback("greedy", 0.0, (flow_quota("n = 3", 2.0),)), SCHEME, now=2.5
    )  # its own it may still change
    assert min(report.quota for report in limiter.report()) == 2.0
    receive(limiter, "modest", a=5.0)
    assert len(limiter) == FLOWS_MAX + 1


def test_a_feedback_may_bring_little_new_text_at_a_time() -> None:
    """To parse a text takes time; one that is known costs nothing."""
    limiter, _ = a_limiter()
    flows = tuple(flow_quota(f"n < {number} AND region = '{'x' * 100}'", 5.0) for number in range(20))
    for turn, known in enumerate((8, 16, 20, 20)):
        limiter.feedback_received(Feedback("s", 0.0, flows), SCHEME, now=0.1 * turn)
        assert len(limiter._texts) == known
    assert limiter.refused == 12 + 4


def test_no_feedback_counts_that_comes_too_often() -> None:
    limiter, _ = a_limiter()
    for turn in range(1000):
        receive(limiter, "chatterbox", now=turn / 1024, a=float(turn))
        if turn % 10 == 0:
            receive(limiter, "other", now=turn / 1024, b=float(turn))
    assert limiter.feedbacks == 167 + 100  # every sixth, and all


def test_a_flow_is_one_filter() -> None:
    """To compare texts with many takes time; a subscriber's flows have one each."""
    limiter, _ = a_limiter()
    (refused,) = limiter.feedback_received(Feedback("s", 0.0, (flow_quota("a OR b", 5.0),)), SCHEME, now=0.0)
    assert isinstance(refused, InputRefused)
    assert len(limiter) == 0


def test_a_quota_grows_no_faster_than_the_rules_allow() -> None:
    """Beyond 000: else one who lowers and raises in turn sends floods to all others."""
    limiter, _ = a_limiter()
    receive(limiter, "honest", a=100.0)
    quotas = []
    for turn in range(1, 100):
        feedback = Feedback("liar", 0.0, (flow_quota("a", 0.0 if turn == 1 else 1e9, exact=False),))
        limiter.feedback_received(feedback, SCHEME, now=0.02 * turn, round_trip=0.1)
        quotas.append(limiter.report()[0].quota)
    assert quotas[0] == 0.1  # the floor of this limiter
    per_word = 1.5 ** (2.0 * 0.02 / 0.1)
    assert quotas[1:] == [pytest.approx(0.1 * per_word**turn) for turn in range(1, 99)]


def test_who_is_far_away_may_be_silent_for_longer_and_nobody_else() -> None:
    limiter, _ = a_limiter()
    receive(limiter, "near", a=10.0)
    receive(limiter, "far", b=10.0)
    limiter.expire(2.0, now=3.0, slower={"far": 20.0})
    assert limiter.limiting_receivers() == ["far"]


# --- Writers that wait.


@pytest.mark.parametrize(("urgent", "plain"), [(1, 1), (10, 1), (1, 10)])
def test_content_that_nobody_is_short_of_is_not_held_up_by_writers_of_narrow_content(urgent: int, plain: int) -> None:
    """000's promise, for publishers that wait: what is urgent may leave 40 times per second, all together 200 times."""
    limiter, _ = a_limiter(WAIT)
    limiter.feedback_received(Feedback("narrow", 0.0, (flow_quota("k AND u", 40.0, exact=False),)), SCHEME, now=0.0)
    receive(limiter, "wide", k=200.0)
    writers, left, now = ["ku"] * urgent + ["k"] * plain, {"ku": 0, "k": 0}, 0.0
    idle = list(enumerate(writers))
    while now < 20.0:
        for writer, names in idle:
            attributes: Attributes = dict.fromkeys(names, True)
            message = make_message(Identity("p", 1, 1), attributes)
            if (
                limiter.offer(message, SCHEME.encode_message(attributes), writer, now=now).admission
                is LimiterVerdict.OPEN
            ):
                left[names] += 1
        waiting = {one.ticket for one in limiter._pending}
        idle = [(writer, names) for writer, names in enumerate(writers) if writer not in waiting]
        if not idle:
            deadline = limiter.deadline()
            assert deadline is not None
            now = max(now, deadline)
            gone = [one.ticket for one in limiter.release(now=now)]
            idle = [(writer, writers[writer]) for writer in gone if writer is not None]
            for _, names in idle:
                left[names] += 1
    each = 200.0 / len(writers)  # if they take turns
    assert left["ku"] / 20.0 == pytest.approx(min(40.0, urgent * each), rel=0.1)
    assert (left["ku"] + left["k"]) / 20.0 == pytest.approx(200.0, rel=0.1)


def test_a_message_of_two_flows_does_not_starve_between_writers_of_one_each() -> None:
    """They would take every token of either flow as it comes, half a step apart, and it would never find both."""
    limiter, _ = a_limiter(WAIT)
    receive(limiter, "s", a=10.0)
    receive(limiter, "t", now=0.05, b=10.0)
    left, now, idle = dict.fromkeys(("a", "b", "ab"), 0), 0.05, ["a", "a", "a", "b", "b", "b", "ab"]
    while now < 60.0:
        for names in idle:
            attributes: Attributes = dict.fromkeys(names, True)
            message = make_message(Identity("p", 1, 1), attributes)
            encoding = SCHEME.encode_message(attributes)
            while limiter.offer(message, encoding, 0, now=now).admission is LimiterVerdict.OPEN:
                left[names] += 1
        now = max(now, limiter.deadline() or now)
        idle = ["".join(one.message.attributes) for one in limiter.release(now=now)]
        for names in idle:
            left[names] += 1
    assert left["ab"] > 100
    assert left["a"] + left["ab"] == pytest.approx(600, rel=0.05)
    assert left["b"] + left["ab"] == pytest.approx(600, rel=0.05)


def test_one_shared_message_does_not_push_out_a_queue_that_loses_nothing() -> None:
    limiter, publisher = a_limiter(TransportConfig(congestion=True, when_full="drop"))
    receive(limiter, "s", a=10.0, b=100.0)
    for _ in range(42):
        publisher.offer("a", 0.0)  # 40 of them wait: within its queue, which empties in four seconds
    for _ in range(60):
        publisher.offer("b", 0.0)  # overloaded
    assert publisher.offer("ab", 0.0) is LimiterVerdict.WITHHELD
    assert [report.queue for report in limiter.report()] == [40, 50]
    for _ in range(20):
        publisher.offer("a", 0.0)  # now this is overloaded too
    assert publisher.offer("ab", 0.0) is LimiterVerdict.WAITS


# --- Quarantine.

STRICT = TransportConfig(congestion=True, when_full="drop", quarantine_below=20.0, quarantine_after=5.0)


def test_to_let_go_for_a_moment_or_to_name_it_in_another_way_does_not_keep_one_out_of_quarantine() -> None:
    """Time below adds up over all flows of a receiver, and falls off half as fast."""
    for requests in ([("a", 1.0), ("a", 1.0), ("a", 1.0), ("a", 100.0)], [("a", 1.0), ("a AND EXISTS a", 1.0)]):
        limiter = RateLimiter(STRICT)
        for second in range(30):
            where, quota = requests[second % len(requests)]
            limiter.feedback_received(
                Feedback("liar", float(second), (flow_quota(where, quota),)), SCHEME, now=float(second)
            )
            limiter.expire(2.0, now=second + 0.5)
        assert len(limiter) == 0
        assert "liar" in limiter._quarantine


def test_nobody_gets_a_flow_below_the_floor() -> None:
    limiter = RateLimiter(TransportConfig(congestion=True))
    receive(limiter, "liar", a=0.0)
    assert [report.quota for report in limiter.report()] == [1.0]


def send_feedback(limiter: RateLimiter, until: int, start: int = 0, **quotas: float) -> list[Record]:
    """Each of these subscribers asks for its quota of `a` every second."""
    records: list[Record] = []
    for second in range(start, until):
        for subscriber, quota in quotas.items():
            records += receive(limiter, subscriber, float(second), a=quota)
        records += limiter.expire(2.0, now=float(second))
    return records


def test_who_alone_holds_a_flow_down_for_too_long_is_not_followed_any_more() -> None:
    limiter = RateLimiter(STRICT)
    records = send_feedback(limiter, 5, snail=3.0)
    assert [report.limiting_receiver for report in limiter.report()] == ["snail"]
    records = send_feedback(limiter, 20, 5, snail=3.0)
    assert limiter.report() == []
    refused = [record for record in records if isinstance(record, InputRefused)]
    assert [record.sender for record in refused] == ["snail"]
    assert FlowLimited(f"bits {flow_of(parse_predicate('a'), SCHEME, exact=False).encoding:x}", "snail", 0.0) in records
    send_feedback(limiter, 60, 20, snail=3.0)
    assert [report.limiting_receiver for report in limiter.report()] == ["snail"]  # it has another chance


def test_a_flow_that_is_not_held_down_stays_limited() -> None:
    limiter = RateLimiter(STRICT)
    send_feedback(limiter, 100, busy=25.0)
    assert [report.quota for report in limiter.report()] == [25.0]


def test_two_who_agree_are_right() -> None:
    limiter = RateLimiter(STRICT)
    send_feedback(limiter, 10, snail=3.0)
    assert limiter.report() == []
    send_feedback(limiter, 100, 10, snail=3.0, turtle=4.0)
    (report,) = limiter.report()
    assert report.quota <= 4.0


def test_of_two_who_do_not_agree_each_is_alone() -> None:
    limiter = RateLimiter(STRICT)
    send_feedback(limiter, 10, snail=1.0)
    send_feedback(limiter, 14, 10, snail=1.0, runner=15.0)
    assert [report.limiting_receiver for report in limiter.report()] == ["runner"]
    send_feedback(limiter, 25, 14, snail=1.0, runner=15.0)
    assert limiter.report() == []


def test_the_table_is_bounded_and_says_so() -> None:
    limiter = RateLimiter(TransportConfig(congestion=True, flows_max=10))
    records: list[Record] = []
    for number in range(50):
        records += limiter.feedback_received(
            Feedback(f"s{number}", 0.0, (flow_quota(f"n = {number}", 5.0),)), SCHEME, now=0.0
        )
    assert len(limiter) == 10
    assert records.count(LimitReached("flows", 10)) == 1


# --- Properties.


class Simple:
    """The rate limiter as its header describes it, worked out anew for every question."""

    def __init__(self, config: TransportConfig) -> None:
        self.config = config
        self.table = FlowTable(config.flows_max)
        self.waiting: list[PendingMessage] = []

    def offer(self, message: Message, encoding: int, ticket: int, now: float) -> LimiterVerdict:
        flows = tuple(self.table.matching(encoding, message.attributes))
        waiting = [[other for other in self.waiting if flow in other.flows] for flow in flows]
        ready = [other for queue in waiting for other in queue if all(flow.bucket.has(now) for flow in other.flows)]
        older = {flow for flow, queue in zip(flows, waiting, strict=True) if queue}
        before = ready if self.config.when_full == "wait" else older
        if not flows or (not before and self._take(flows, now, older)):
            return LimiterVerdict.OPEN
        fastest = max(flow.quota for flow in flows)
        gone: list[PendingMessage] = []
        first = next(flow for flow in flows if flow.quota == fastest)
        wait = max(0.0, len(waiting[flows.index(first)]) + 1 - first.bucket.tokens(now)) / fastest
        rooms = [
            min(self.config.flow_queue, flow.bucket.tokens(now) + flow.quota * wait + 1e-9)
            if flow is not first
            else self.config.flow_queue
            for flow in flows
        ]
        for queue, room in zip(waiting, rooms, strict=True) if self.config.when_full == "drop" else []:
            ahead = list(queue)
            for other in reversed(queue) if self.config.prefer_shared else []:
                if len(ahead) + 1 > room and len(other.flows) < len(flows):
                    ahead.remove(other)
                    gone.append(other)
            if len(ahead) + 1 > room:
                return LimiterVerdict.WITHHELD
        self.waiting = [other for other in self.waiting if not any(other is one for one in gone)]
        self.waiting.append(PendingMessage(0, message, encoding, ticket, flows))
        return LimiterVerdict.WAITS

    def feedback_received(self, where: str, quota: float, subscriber: str, now: float) -> None:
        self.table.request(flow_of(parse_predicate(where), SCHEME, exact=True), quota, subscriber, now)
        self._match()

    def expire(self, now: float) -> None:
        self.table.expire(now, 2.0)
        self._match()

    def release(self, now: float) -> list[int]:
        left, blocked = [], set[Flow]()
        for waiting in list(self.waiting):
            overtakes = self.config.when_full == "wait"
            if (overtakes or blocked.isdisjoint(waiting.flows)) and self._take(waiting.flows, now, blocked):
                self.waiting.remove(waiting)
                left.append(waiting.ticket or 0)
            else:
                blocked.update(waiting.flows)
        return left

    def deadline(self) -> float | None:
        ready, before = [], set[Flow]()
        for waiting in self.waiting:
            if self.config.when_full == "wait" or before.isdisjoint(waiting.flows):
                costs = [(flow, 2.0 if flow in before else 1.0) for flow in waiting.flows]
                ready.append(max((flow.bucket.ready_at(cost) for flow, cost in costs), default=0.0))
            before.update(waiting.flows)
        return min(ready, default=None)

    def _match(self) -> None:
        for waiting in self.waiting:
            waiting.flows = tuple(self.table.matching(waiting.encoding, waiting.message.attributes))

    def _take(self, flows: tuple[Flow, ...], now: float, kept: set[Flow]) -> bool:
        if not all(flow.bucket.has(now, 2.0 if flow in kept else 1.0) for flow in flows):
            return False
        for flow in flows:
            flow.bucket.take(now)
        return True


WHERES = ("a", "b", "c", "a AND b", "b AND c", "TRUE")
OFFERS = st.sampled_from(["a", "b", "c", "ab", "bc", "ac", "abc", "d"])
PAUSES = st.sampled_from([0.01, 0.1, 0.5, 3.0])
FEEDBACKS = st.builds(
    Feedback,
    st.sampled_from("st"),
    st.just(0.0),
    st.tuples(st.builds(flow_quota, st.sampled_from(WHERES), st.sampled_from([1.0, 5.0, 20.0]))),
)
DEEP = TransportConfig(congestion=True, when_full="drop", flow_queue=10**9, quota_floor=0.1, prefer_shared=False)
STEPS = st.lists(st.one_of(OFFERS, OFFERS, PAUSES, FEEDBACKS), max_size=60)


@settings(max_examples=150)
@given(steps=STEPS, config=st.sampled_from([DROP, TAIL, WAIT]))
def test_it_does_what_the_simple_limiter_does(steps: list[str | float | Feedback], config: TransportConfig) -> None:
    limiter, simple, now, count = RateLimiter(config), Simple(config), 0.0, 0
    for step in steps:
        if isinstance(step, str):
            count += 1
            attributes: Attributes = dict.fromkeys(step, True)
            message, encoding = make_message(Identity("p", 1, count), attributes), SCHEME.encode_message(attributes)
            admission = limiter.offer(message, encoding, count, now=now).admission
            assert admission is simple.offer(message, encoding, count, now)
        elif isinstance(step, Feedback):
            now += 0.01  # no feedback counts more often
            limiter.feedback_received(step, SCHEME, now=now)
            simple.feedback_received(step.flows[0].where, step.flows[0].quota, step.subscriber, now)
        else:
            now += step
            limiter.expire(2.0, now=now)
            simple.expire(now)
        assert [waiting.ticket for waiting in limiter.release(now=now)] == simple.release(now)
        assert limiter.deadline() == simple.deadline()
        assert limiter.waiting == len(simple.waiting)


@settings(max_examples=100)
@given(
    offers=st.lists(st.tuples(st.sampled_from(["a", "b", "ab", "bc", "abc", "d"]), st.floats(0.0, 0.2)), max_size=80),
    quotas=st.tuples(*[st.sampled_from([0.5, 3.0, 30.0])] * 3),
    in_order=st.booleans(),
)
def test_order_holds_no_window_sees_too_much_and_nobody_waits_for_ever(
    offers: list[tuple[str, float]], quotas: tuple[float, float, float], in_order: bool
) -> None:
    """In order: within each flow. Overtaking: among messages of the same flows."""
    limiter, publisher = a_limiter(DEEP if in_order else WAIT)
    receive(limiter, "s", a=quotas[0], b=quotas[1], c=quotas[2])
    names, now = {}, 0.0
    withheld: list[int] = []
    for which, pause in offers:
        now += pause
        admission = publisher.offer(which, now)
        names[publisher.count] = which
        withheld += [publisher.count] if admission is LimiterVerdict.WITHHELD else []
        assert admission is LimiterVerdict.OPEN or which != "d"  # those of no flow are never delayed
        publisher.release(now)
    while (deadline := limiter.deadline()) is not None:
        assert deadline > now
        now = deadline
        assert publisher.release(now)  # at each deadline somebody leaves, so there is no deadlock
    assert sorted([count for _, count in publisher.left] + withheld) == list(range(1, publisher.count + 1))
    assert in_order or not withheld
    for flow, quota in zip("abc", quotas, strict=True):
        left = [(time, count) for time, count in publisher.left if flow in names[count]]
        alike = [[c for _, c in left if in_order or names[c] == kind] for kind in dict.fromkeys(names.values())]
        assert all(counts == sorted(counts) for counts in alike)
        for first, (begin, _) in enumerate(left):
            for number, (end, _) in enumerate(left[first:], start=1):
                assert number <= max(2.0, 0.05 * quota) + quota * (end - begin) + 1e-6
