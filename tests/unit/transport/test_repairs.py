"""Repairs: who answers, when, to whom, and when somebody else has done it."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.content.envelope import kind_of, opened
from penstock.content.message import Identity, Message, Value, make_message
from penstock.kernel.timers import ServiceTimers, Timers
from penstock.kernel.trace import Counted, InputRefused, LimitReached, Record
from penstock.transport.bearer import BearerPublish, TransportEffect
from penstock.transport.config import papers_config
from penstock.transport.records import RepairSent, RequestReceived
from penstock.transport.recovery.distance_estimator import DISTANCE_MIN, DistanceEstimator
from penstock.transport.recovery.repairs import Repairs
from penstock.transport.timers import TransportTimer
from penstock.transport.wire.control_messages import (
    ECHO,
    REPAIR,
    TO,
    ControlIdentities,
    EchoReply,
    Key,
    Repair,
    Request,
    decode_control,
    repaired_message,
)

KEY = Key("p", 1, 5)
MESSAGE = make_message(Identity("p", 1, 50), {"symbol": "IBM", "price": 119.5}, b"body")
OWN = Key("me", 1, 5)
OWN_MESSAGE = make_message(Identity("me", 1, 50), {"symbol": "IBM"}, b"mine")
D = 0.1  # the distance that is not measured yet


class Client:
    """Repairs with timers, driven by hand."""

    def __init__(self, seed: int = 1, **settings: Any) -> None:
        settings.setdefault("echo_interval", 0.0)
        config = papers_config(**settings)
        self.timers, identities = Timers(), ControlIdentities("me", 1)
        self.distances = DistanceEstimator("me", config, identities)
        timers = ServiceTimers("transport", self.timers)
        self.repairs = Repairs("me", config, timers, Random(seed), self.distances, identities)
        self.repairs.keep(KEY, MESSAGE, 4.5, 0.0)
        self.repairs.keep_published(OWN, OWN_MESSAGE, 4.5)

    def next_wait(self, now: float) -> float:
        deadline = self.timers.deadline()
        assert deadline is not None
        return deadline - now

    def run_to_timer(self) -> tuple[float, list[TransportEffect]]:
        now = self.timers.deadline()
        assert now is not None
        name = self.timers.pop_due(now)
        assert name is not None
        assert name[:2] == ("transport", TransportTimer.REPAIR)
        return now, self.repairs.expired(name[2:], now=now)


def a_request(key: Key = KEY, requester: str = "other", attempt: int = 1, distance: float = 0.1) -> Request:
    return Request(key, requester, 0.0, distance, 2.0, 2.0, attempt)


def published(effects: list[TransportEffect]) -> list[Message]:
    return [effect.message for effect in effects if isinstance(effect, BearerPublish)]


def records(effects: list[TransportEffect]) -> list[Record]:
    return [effect for effect in effects if isinstance(effect, Record)]


def restored(message: Message) -> tuple[Repair, Message]:
    header, inside = opened(message)
    repair = decode_control(header, Repair)
    return repair, repaired_message(repair, inside)


@pytest.mark.parametrize("seed", range(20))
def test_a_request_for_what_we_have_starts_a_wait_of_d1_to_d1_plus_d2_distances(seed: int) -> None:
    client = Client(seed, repair_first=1.0, repair_spread=2.0)
    assert client.repairs.request_received(a_request(), 10.0) == [RequestReceived("p", 1, 5, "other", hit=True)]
    assert 1.0 * D <= client.next_wait(10.0) <= 3.0 * D
    assert (client.repairs.hits, client.repairs.misses) == (1, 0)


def test_a_request_for_what_we_do_not_have_is_a_miss_and_no_more() -> None:
    client = Client(echo_interval=10.0)
    assert client.repairs.request_received(a_request(Key("p", 1, 6)), 0.0) == [
        RequestReceived("p", 1, 6, "other", hit=False)
    ]
    assert client.timers.deadline() is None
    assert client.repairs.misses == 1
    assert client.repairs.cache.hit_ratio("p", 1) == 0.0


def test_who_may_answer_measures_how_far_the_requester_is() -> None:
    client = Client(echo_interval=10.0)
    (message,) = published(client.repairs.request_received(a_request(), 0.0))
    assert kind_of(message) == ECHO
    assert message.attributes[TO] == "other"


def test_the_repair_is_the_message_again_for_everybody() -> None:
    client = Client()
    client.repairs.request_received(a_request(), 10.0)
    _, effects = client.run_to_timer()
    assert records(effects) == [RepairSent("p", 1, 5, "other")]
    (message,) = published(effects)
    assert kind_of(message) == REPAIR
    assert message.identity.publisher == "~me"
    assert message.attributes["symbol"] == "IBM"
    assert TO not in message.attributes
    assert restored(message) == (Repair(KEY, 50, 4.5, "other"), MESSAGE)
    assert client.repairs.sent == 1


def test_or_for_the_requester_alone() -> None:
    client = Client(repair_to="requester")
    client.repairs.request_received(a_request(), 10.0)
    (message,) = published(client.run_to_timer()[1])
    assert message.attributes == {"_t": REPAIR, TO: "other"}
    assert restored(message)[1] == MESSAGE


def test_for_one_alone_everybody_who_asked_meanwhile_gets_its_own() -> None:
    client = Client(repair_to="requester")
    for requester in ("a", "b", "a"):
        client.repairs.request_received(a_request(requester=requester), 10.0)
    messages = published(client.run_to_timer()[1])
    assert [message.attributes[TO] for message in messages] == ["a", "b"]
    client.repairs.request_received(a_request(requester="c"), 10.25)
    assert len(client.timers) == 1  # c is not b: nobody has answered it


def test_for_everybody_one_is_enough() -> None:
    client = Client()
    for requester in ("a", "b"):
        client.repairs.request_received(a_request(requester=requester), 10.0)
    assert len(published(client.run_to_timer()[1])) == 1


def test_anothers_repair_cancels_ours() -> None:
    client = Client()
    client.repairs.request_received(a_request(), 10.0)
    assert client.repairs.repair_received(KEY, 10.05) == []
    assert client.timers.deadline() is None
    assert (client.repairs.suppressed, client.repairs.sent) == (1, 0)


@pytest.mark.parametrize("ours", [True, False])
def test_for_three_distances_after_a_repair_requests_are_ignored(ours: bool) -> None:
    client = Client()
    client.repairs.request_received(a_request(), 10.0)
    if ours:
        now, _ = client.run_to_timer()
    else:
        now = 10.05
        client.repairs.repair_received(KEY, now)
    received = client.repairs.request_received(a_request(requester="third"), now + 2.9 * D)
    assert received == [RequestReceived("p", 1, 5, "third", hit=True)]
    assert client.timers.deadline() is None
    client.repairs.request_received(a_request(requester="third"), now + 3.1 * D)
    assert client.timers.deadline() is not None


def test_who_was_repaired_itself_does_not_answer_requests_that_crossed_the_repair() -> None:
    client = Client()
    missing = Key("p", 1, 9)
    client.repairs.repair_received(missing, 10.0)
    client.repairs.keep(missing, MESSAGE, 0.0, 10.0)
    client.repairs.request_received(a_request(missing), 10.1)
    assert client.timers.deadline() is None


def test_our_own_repair_coming_back_says_nothing_new() -> None:
    client = Client()
    client.repairs.request_received(a_request(), 10.0)
    client.repairs.repair_received(KEY, 10.05, sender="~me")
    assert client.timers.deadline() is not None


def test_our_own_request_coming_back_is_none() -> None:
    assert Client().repairs.request_received(a_request(requester="me"), 0.0) == []


@pytest.mark.parametrize(("distance", "wait"), [("requester", 1.0), ("publisher", D)])
def test_the_distance_is_that_to_the_requester_or_as_printed_to_the_publisher(distance: str, wait: float) -> None:
    client = Client(repair_distance=distance, repair_spread=0.0, echo_interval=10.0)
    client.distances.ask("other", 0.0)
    client.distances.echo_reply_received(EchoReply("other", 0.0, 0.0), 2.0)
    client.repairs.request_received(a_request(), 5.0)
    assert client.next_wait(5.0) == pytest.approx(wait)


def test_a_publisher_asked_by_everybody_takes_part_like_the_others() -> None:
    client = Client()
    client.repairs.request_received(a_request(OWN), 10.0)
    assert D <= client.next_wait(10.0) <= 2 * D
    (message,) = published(client.run_to_timer()[1])
    assert restored(message)[1] == OWN_MESSAGE


def test_a_publisher_that_waits_by_its_distance_to_itself_hardly_waits() -> None:
    client = Client(repair_distance="publisher")
    client.repairs.request_received(a_request(OWN), 10.0)
    assert client.next_wait(10.0) <= 2.01 * DISTANCE_MIN


def test_a_publisher_asked_in_its_inbox_answers_at_once_and_there() -> None:
    client = Client()
    effects = client.repairs.request_received(a_request(OWN), 10.0, direct=True)
    assert records(effects) == [RequestReceived("me", 1, 5, "other", hit=True), RepairSent("me", 1, 5, "other")]
    (message,) = published(effects)
    assert message.attributes[TO] == "other"
    assert restored(message)[1] == OWN_MESSAGE
    assert client.timers.deadline() is None


def test_the_inbox_ignores_what_the_same_client_repeats_but_not_another() -> None:
    client = Client()
    client.repairs.request_received(a_request(OWN), 10.0, direct=True)
    assert published(client.repairs.request_received(a_request(OWN), 10.0 + 2.9 * D, direct=True)) == []
    assert published(client.repairs.request_received(a_request(OWN, "third"), 10.1, direct=True))
    assert published(client.repairs.request_received(a_request(OWN), 10.0 + 3.1 * D, direct=True))


def test_who_does_not_answer_keeps_nothing_and_says_nothing() -> None:
    client = Client(answers=False)
    assert client.repairs.request_received(a_request(), 0.0) == []
    assert len(client.repairs.cache) == 0
    assert client.repairs.request_received(a_request(OWN), 0.0) != []  # as a publisher it does


def test_a_publisher_that_does_not_answer() -> None:
    client = Client(publisher_answers=False)
    assert client.repairs.request_received(a_request(OWN), 0.0, direct=True) == []
    assert client.repairs.request_received(a_request(), 0.0) != []


def test_own_messages_are_kept_in_a_ring_and_never_in_the_cache() -> None:
    client = Client(published_kept=3)
    for sequence in range(10, 15):
        key = Key("me", 1, sequence)
        client.repairs.keep_published(key, OWN_MESSAGE, 0.0)
        client.repairs.keep(key, OWN_MESSAGE, 0.0, 0.0)
    assert len(client.repairs.cache) == 1
    for sequence in range(10, 15):
        client.repairs.request_received(a_request(Key("me", 1, sequence)), 0.0)
    assert (client.repairs.hits, client.repairs.misses) == (3, 2)


def test_what_was_promised_is_sent_even_if_the_ring_has_moved_on() -> None:
    client = Client(cache_min=1)
    client.repairs.request_received(a_request(), 0.0)
    client.repairs.keep(Key("p", 1, 6), MESSAGE, 0.0, 0.01)
    assert client.repairs.cache.get(KEY) is None
    assert restored(published(client.run_to_timer()[1])[0])[1] == MESSAGE


def test_a_repair_makes_us_the_active_repairer_and_tune_tells_of_the_size() -> None:
    client = Client(cache_interval=1.0)
    client.repairs.request_received(a_request(Key("p", 1, 1)), 0.0)  # a miss: the hit ratio is too low
    client.repairs.request_received(a_request(), 0.0)
    client.run_to_timer()
    assert client.repairs.tune(1.0) == [Counted("cache entries", "p", 6)]


@pytest.mark.parametrize(
    "request_",
    [
        a_request(requester=""),
        a_request(requester="x" * 5_000),
        a_request(Key("x" * 5_000, 1, 1)),
        a_request(distance=1e9),
        Request(KEY, "other", 0.0, 0.1, 1e12, 2.0, 1),
        Request(KEY, "other", 0.0, 0.1, 2.0, 1e12, 1),
        Request(KEY, "other", 0.0, float("nan"), 2.0, 2.0, 1),
    ],
)
def test_requests_that_cannot_be_are_refused_and_change_nothing(request_: Request) -> None:
    client = Client(echo_interval=10.0)
    (record,) = client.repairs.request_received(request_, 0.0)
    assert isinstance(record, InputRefused)
    assert len(record.sender) <= 40
    assert client.timers.deadline() is None
    assert client.repairs.hits == client.repairs.misses == 0
    assert client.repairs.cache.hit_ratio("p", 1) == 1.0


def test_repairs_that_wait_are_bounded() -> None:
    client = Client(requests_pending_max=2, cache_min=10)
    for sequence in (6, 7, 8):
        client.repairs.keep(Key("p", 1, sequence), MESSAGE, 0.0, 0.0)
    client.repairs.request_received(a_request(Key("p", 1, 6)), 0.0)
    client.repairs.request_received(a_request(Key("p", 1, 7)), 0.0)
    effects = client.repairs.request_received(a_request(Key("p", 1, 8)), 0.0)
    assert effects[-1] == LimitReached("repairs", 2)
    assert len(client.timers) == len(client.repairs) == 2


def test_repairs_received_are_remembered_within_bounds() -> None:
    client = Client(requests_pending_max=10)
    for sequence in range(1_000):
        client.repairs.repair_received(Key("p", 1, sequence), 0.0)
    assert len(client.repairs._quiet) == 10


def test_a_full_cache_of_publishers_is_recorded() -> None:
    client = Client(sessions_max=1)
    effects = client.repairs.keep(Key("q", 1, 1), MESSAGE, 0.0, 0.0)
    assert effects == [LimitReached("cached publishers", 1)]


@pytest.mark.parametrize("to", ["all", "requester"])
def test_a_message_too_large_to_be_sent_again_is_refused_with_a_record(to: str) -> None:
    attributes: dict[str, Value] = {f"name{number}": "x" * 4_000 for number in range(20)}
    body = b"x" * ((1 << 20) - 10 if to == "all" else 10)
    client = Client(repair_to=to)
    large = Key("p", 1, 6)
    client.repairs.keep(large, make_message(Identity("p", 1, 6), attributes, body), 0.0, 0.0)
    client.repairs.request_received(a_request(large), 0.0)
    (record,) = client.run_to_timer()[1]
    assert isinstance(record, InputRefused)
    assert client.repairs.sent == 0


def test_with_tuned_waits_duplicate_repairs_make_us_wait_longer() -> None:
    client = Client(adaptive_suppression=True, cache_min=100)
    now = 0.0
    for sequence in range(10, 40):
        key, now = Key("p", 1, sequence), now + 10.0
        client.repairs.keep(key, MESSAGE, 0.0, now)
        client.repairs.request_received(a_request(key), now)
        for _ in range(4):
            client.repairs.repair_received(key, now + 0.05)
    assert client.repairs.suppression.spread > 5.0


steps = st.lists(
    st.tuples(
        st.sampled_from(["keep", "heard", "direct", "repair", "tune"]),
        st.integers(1, 5),
        st.sampled_from(["a", "b", "me"]),
        st.sampled_from(["p", "me"]),
        st.floats(0.0, 0.4),
    ),
    max_size=80,
)


@given(steps, st.integers(0, 100), st.sampled_from(["all", "requester"]))
def test_whatever_happens_there_is_one_timer_per_key_that_waits(
    events: list[tuple[str, int, str, str, float]], seed: int, to: str
) -> None:
    client, now = Client(seed, repair_to=to, requests_pending_max=3, cache_min=2), 0.0
    for verb, sequence, requester, publisher, step in events:
        key, now = Key(publisher, 1, sequence), now + step
        if verb == "keep":
            client.repairs.keep(key, MESSAGE, 0.0, now)
        elif verb == "repair":
            client.repairs.repair_received(key, now)
        elif verb == "tune":
            client.repairs.tune(now)
        else:
            client.repairs.request_received(a_request(key, requester), now, direct=verb == "direct")
        while (name := client.timers.pop_due(now)) is not None:
            client.repairs.expired(name[2:], now)
        assert len(client.timers) == len(client.repairs) <= 3
