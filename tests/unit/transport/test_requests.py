"""Requests: when they go out, when they wait for somebody else's, when they end, and how many there may be."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.content.envelope import kind_of, opened
from penstock.content.message import Message
from penstock.kernel.timers import ServiceTimers, Timers
from penstock.kernel.trace import LimitReached
from penstock.transport.bearer import BearerPublish, TransportEffect
from penstock.transport.config import papers_config
from penstock.transport.records import GaveUp, RequestSent
from penstock.transport.recovery.distance_estimator import DistanceEstimator
from penstock.transport.recovery.requests import RequestOutcome, Requests
from penstock.transport.timers import TransportTimer
from penstock.transport.wire.control_messages import (
    ABOUT,
    DOMAIN,
    ECHO,
    REQUEST,
    TO,
    ControlIdentities,
    EchoReply,
    Key,
    Request,
    decode_control,
)

KEY = Key("p", 1, 5)
ENCODING = 1 << 7 | 1 << 15
D = 0.1  # the distance that is not measured yet


class Client:
    """Requests with timers, driven by hand."""

    def __init__(self, seed: int = 1, **settings: Any) -> None:
        settings.setdefault("echo_interval", 0.0)
        config = papers_config(**settings)
        self.timers, identities = Timers(), ControlIdentities("me", 1)
        self.distances = DistanceEstimator("me", config, identities)
        timers = ServiceTimers("transport", self.timers)
        self.requests = Requests("me", config, timers, Random(seed), self.distances, identities)

    def next_wait(self, now: float) -> float:
        deadline = self.timers.deadline()
        assert deadline is not None
        return deadline - now

    def run_to_timer(self) -> tuple[float, list[TransportEffect]]:
        """Let the next timer expire; when, and what came of it."""
        now = self.timers.deadline()
        assert now is not None
        name = self.timers.pop_due(now)
        assert name is not None
        assert name[:2] == ("transport", TransportTimer.REQUEST)
        return now, self.requests.expired(name[2:], now=now)


def from_another(key: Key = KEY, requester: str = "other", attempt: int = 1) -> Request:
    return Request(key, requester, 0.0, 0.1, 2.0, 2.0, attempt)


def sent(effects: list[TransportEffect]) -> tuple[Message, Request]:
    (message,) = [effect.message for effect in effects if isinstance(effect, BearerPublish)]
    assert kind_of(message) == REQUEST
    return message, decode_control(opened(message)[0], Request)


@pytest.mark.parametrize("seed", range(20))
def test_the_first_wait_lies_between_c1_and_c1_plus_c2_distances(seed: int) -> None:
    client = Client(seed, request_first=1.0, request_spread=3.0, distance_first=0.5)
    client.requests.lost(KEY, ENCODING, 10.0)
    assert 0.5 <= client.next_wait(10.0) <= 2.0
    assert client.requests.pending(KEY)


def test_a_measured_distance_to_the_publisher_counts() -> None:
    client = Client(echo_interval=10.0)
    client.distances.ask("p", 0.0)
    client.distances.echo_reply_received(EchoReply("p", 0.0, 0.0), 2.0)
    client.requests.lost(KEY, ENCODING, 5.0)
    assert 2.0 <= client.next_wait(5.0) <= 4.0


def test_who_misses_something_also_measures_how_far_the_publisher_is() -> None:
    (effect,) = Client(echo_interval=10.0).requests.lost(KEY, ENCODING, 0.0)
    assert isinstance(effect, BearerPublish)
    assert kind_of(effect.message) == ECHO
    assert effect.message.attributes[TO] == "p"


def test_the_request_says_what_is_lost_in_bits_and_what_repairers_need() -> None:
    client = Client(domain="north")
    client.requests.lost(KEY, ENCODING, 0.0)
    now, effects = client.run_to_timer()
    assert effects[0] == RequestSent("p", 1, 5, 1)
    message, request = sent(effects)
    assert request == Request(KEY, "me", now, D, 2.0, 2.0, 1)
    assert {"_b7", "_b15"} <= message.attributes.keys()
    assert message.attributes[DOMAIN] == "north"
    assert message.attributes[ABOUT] == "p"


def test_each_request_doubles_the_wait_and_after_three_and_one_more_wait_it_is_given_up() -> None:
    client = Client()
    client.requests.lost(KEY, ENCODING, 0.0)
    for attempt in (1, 2, 3):
        now, effects = client.run_to_timer()
        assert effects[0] == RequestSent("p", 1, 5, attempt)
        scale = D * 2**attempt
        assert 2 * scale <= client.next_wait(now) <= 4 * scale
    _, effects = client.run_to_timer()
    assert effects == [GaveUp("p", 1, 5, 3)]
    assert client.timers.deadline() is None
    assert (client.requests.sent, client.requests.given_up, len(client.requests)) == (3, 1, 0)


def test_what_is_pending_or_was_given_up_lately_is_not_begun_again() -> None:
    client = Client(requests_max=1, session_idle=100.0)
    client.requests.lost(KEY, ENCODING, 0.0)
    before = client.next_wait(0.0)
    assert client.requests.lost(KEY, ENCODING, 0.05) == []
    assert client.next_wait(0.0) == before
    client.run_to_timer()
    now, _ = client.run_to_timer()
    client.requests.lost(KEY, ENCODING, now + 99.0)
    assert not client.requests.pending(KEY)
    client.requests.lost(KEY, ENCODING, now + 101.0)
    assert client.requests.pending(KEY)


def test_the_message_ends_the_request_and_tells_how_it_went() -> None:
    client = Client()
    client.requests.lost(KEY, ENCODING, 1.0)
    first, _ = client.run_to_timer()
    client.run_to_timer()
    assert client.requests.received(KEY, 9.0) == RequestOutcome(1.0, first, 2)
    assert client.timers.deadline() is None
    assert client.requests.recovered == 1
    assert client.requests.received(KEY, 9.1) is None


def test_a_message_that_was_only_late_was_never_asked_for() -> None:
    client = Client()
    client.requests.lost(KEY, ENCODING, 1.0)
    assert client.requests.received(KEY, 1.01) == RequestOutcome(1.0, None, 0)
    assert client.requests.sent == 0


def test_a_message_that_comes_after_it_was_given_up_is_counted() -> None:
    client = Client(requests_max=1)
    client.requests.lost(KEY, ENCODING, 0.0)
    client.run_to_timer()
    client.run_to_timer()
    assert client.requests.received(KEY, 9.0) is None
    assert (client.requests.given_up, client.requests.came_after_all) == (1, 1)


def test_anothers_request_doubles_the_wait_instead_of_ours() -> None:
    client = Client()
    client.requests.lost(KEY, ENCODING, 0.0)
    assert client.requests.request_received(from_another(), 0.1) == []
    assert 4 * D <= client.next_wait(0.1) <= 8 * D
    assert (client.requests.suppressed, client.requests.sent) == (1, 0)


def test_a_round_of_requests_backs_off_only_once() -> None:
    client = Client()
    client.requests.lost(KEY, ENCODING, 0.0)
    client.requests.request_received(from_another(), 0.1)
    wait = client.next_wait(0.1)
    client.requests.request_received(from_another(requester="third"), 0.1 + 0.49 * wait)
    assert client.next_wait(0.1) == wait
    client.requests.request_received(from_another(requester="fourth"), 0.1 + 0.51 * wait)
    assert client.next_wait(0.1) > wait
    assert (client.requests.suppressed, client.requests.duplicates) == (2, 2)


def test_a_request_that_crosses_ours_does_not_double_again() -> None:
    client = Client()
    client.requests.lost(KEY, ENCODING, 0.0)
    now, _ = client.run_to_timer()
    wait = client.next_wait(now)
    client.requests.request_received(from_another(), now + 0.01)
    assert client.next_wait(now) == wait
    assert client.requests.duplicates == 1


def test_our_own_request_coming_back_changes_nothing() -> None:
    client = Client()
    client.requests.lost(KEY, ENCODING, 0.0)
    before = client.next_wait(0.0)
    client.requests.request_received(from_another(requester="me"), 0.1)
    assert client.next_wait(0.0) == before


def test_requests_for_what_we_do_not_miss_change_nothing() -> None:
    client = Client()
    assert client.requests.request_received(from_another(), 0.0) == []
    assert client.timers.deadline() is None


def test_nobody_can_silence_a_client_for_ever() -> None:
    client = Client()
    client.requests.lost(KEY, ENCODING, 0.0)
    now, requests = 0.0, 0
    while client.requests.pending(KEY):
        now += 0.01
        client.requests.request_received(from_another(requester="forger"), now)
        while (name := client.timers.pop_due(now)) is not None:
            requests += any(isinstance(effect, RequestSent) for effect in client.requests.expired(name[2:], now))
        assert now < 200.0
    assert requests == 3


def test_when_all_places_are_taken_the_new_loss_is_refused_with_a_record() -> None:
    client = Client(requests_pending_max=2)
    for sequence in (1, 2):
        client.requests.lost(Key("p", 1, sequence), ENCODING, 0.0)
    assert client.requests.lost(Key("p", 1, 3), ENCODING, 0.0) == [LimitReached("requests", 2)]
    assert (len(client.requests), client.requests.refused, len(client.timers)) == (2, 1, 2)
    client.requests.received(Key("p", 1, 1), 0.1)
    client.requests.lost(Key("p", 1, 3), ENCODING, 0.2)
    assert client.requests.pending(Key("p", 1, 3))


def test_keys_that_were_given_up_are_remembered_within_bounds() -> None:
    client = Client(requests_pending_max=3, requests_max=1)
    for sequence in range(1, 11):
        client.requests.lost(Key("p", 1, sequence), ENCODING, float(sequence) * 10)
        client.run_to_timer()
        client.run_to_timer()
    assert client.requests.given_up == 10
    client.requests.lost(Key("p", 1, 1), ENCODING, 111.0)
    client.requests.lost(Key("p", 1, 10), ENCODING, 111.0)
    assert client.requests.pending(Key("p", 1, 1))
    assert not client.requests.pending(Key("p", 1, 10))


def test_a_publisher_can_be_forgotten_without_a_trace() -> None:
    client = Client()
    client.requests.lost(KEY, ENCODING, 0.0)
    client.requests.lost(Key("p", 2, 5), ENCODING, 0.0)
    client.requests.forget("p", 1)
    assert not client.requests.pending(KEY)
    assert client.requests.pending(Key("p", 2, 5))
    assert len(client.timers) == 1
    assert client.requests.given_up == 0


@pytest.mark.parametrize("seed", range(10))
def test_straight_to_the_publisher_the_first_wait_is_short_and_the_next_are_round_trips(seed: int) -> None:
    client = Client(seed, request_to="publisher")
    client.requests.lost(KEY, ENCODING, 0.0)
    assert 0.0 <= client.next_wait(0.0) <= 0.1 * D
    round_trip = 2 * D
    for attempt in (1, 2, 3):
        now, effects = client.run_to_timer()
        message, request = sent(effects)
        assert message.attributes[TO] == "p"
        assert request.attempt == attempt
        assert 1.5 * round_trip <= client.next_wait(now) / 2 ** (attempt - 1) <= 2 * round_trip
    assert client.run_to_timer()[1] == [GaveUp("p", 1, 5, 3)]


def test_straight_to_the_publisher_others_requests_suppress_nothing() -> None:
    client = Client(request_to="publisher")
    client.requests.lost(KEY, ENCODING, 0.0)
    before = client.next_wait(0.0)
    client.requests.request_received(from_another(), 0.001)
    assert client.next_wait(0.0) == before


def test_where_repairs_go_to_one_alone_nobody_holds_back_for_another() -> None:
    client = Client(repair_to="requester")
    client.requests.lost(KEY, ENCODING, 0.0)
    before = client.next_wait(0.0)
    client.requests.request_received(from_another(), 0.1)
    assert client.next_wait(0.0) == before


def test_with_tuned_waits_many_duplicates_make_us_wait_longer_and_the_request_says_so() -> None:
    client = Client(adaptive_suppression=True)
    for sequence in range(1, 20):
        key = Key("p", 1, sequence)
        client.requests.lost(key, ENCODING, 0.0)
        for number in range(5):
            client.requests.request_received(from_another(key, f"other{number}"), 0.1)
        client.requests.received(key, 0.2)
    assert client.requests.suppression.spread > 5.0
    client.requests.lost(Key("p", 1, 99), ENCODING, 0.0)
    _, request = sent(client.run_to_timer()[1])
    assert request.spread == client.requests.suppression.spread


steps = st.lists(
    st.tuples(st.sampled_from(["lost", "requested", "received", "time"]), st.integers(1, 4), st.floats(0.0, 0.5)),
    max_size=80,
)


@given(steps, st.integers(0, 100), st.sampled_from(["peers", "publisher"]))
def test_whatever_happens_there_is_one_timer_per_key_that_is_asked_for(
    events: list[tuple[str, int, float]], seed: int, to: str
) -> None:
    client, now = Client(seed, request_to=to, requests_pending_max=3), 0.0
    for verb, sequence, step in events:
        key, now = Key("p", 1, sequence), now + step
        if verb == "lost":
            client.requests.lost(key, ENCODING, now)
        elif verb == "requested":
            client.requests.request_received(from_another(key), now)
        elif verb == "received":
            client.requests.received(key, now)
        while (name := client.timers.pop_due(now)) is not None:
            client.requests.expired(name[2:], now)
        assert len(client.timers) == len(client.requests) <= 3
        assert sum(client.requests.pending(Key("p", 1, number)) for number in range(1, 5)) == len(client.requests)
