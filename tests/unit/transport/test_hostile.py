"""What a transport makes of input that nobody honest sends, and of more input than it can keep.

A forged header is refused with a record and leaves everything as it was: the whole state is compared. Tables stay
within their bounds whatever comes, and a record says when one is hit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum
from functools import partial
from math import inf, nan
from random import Random
from struct import pack

import msgspec
import pytest

from foreign_bus import Bus
from penstock.content.envelope import DATA, FLAG, control_message, kind_of, opened, wrap
from penstock.content.language.parser import parse_predicate
from penstock.content.message import Identity, Message, Value, make_message
from penstock.kernel.machine import SERVICE_SUBSCRIPTIONS, Deliver
from penstock.kernel.randomness import generator
from penstock.kernel.timers import ServiceTimers, Timers
from penstock.kernel.trace import InputRefused, LimitReached
from penstock.transport.bearer import BearerPublish, TransportEffect
from penstock.transport.config import TransportConfig, papers_config
from penstock.transport.records import GaveUp, LossDetected, RequestSent
from penstock.transport.transport import Transport
from penstock.transport.wire.control_messages import (
    FROM,
    REPAIR,
    REQUEST,
    TO,
    EchoReply,
    EchoRequest,
    Key,
    Repair,
    Request,
)
from penstock.transport.wire.header import encode_header, whole_entry

CONFIG = papers_config(heartbeat_interval=0.2)
INBOX = SERVICE_SUBSCRIPTIONS  # the first of the transport's own
COUNTERS = ("refused", "_refused", "_refusals", "_suspect", "_row", "_heartbeats_received", "duplicates", "_quiet")
MEMOS = ("_served", "_splits")  # of what has been worked out, and would be again


def state(thing: object, seen: dict[int, object] | None = None) -> object:
    """Everything that an object remembers, as plain values, but for counters of refusals and of repairs received."""
    seen = {} if seen is None else seen
    if thing is None or isinstance(thing, bool | int | float | str | bytes | Enum) or callable(thing):
        return thing
    if id(thing) in seen:
        return "again"
    seen[id(thing)] = thing
    if isinstance(thing, Random):
        return thing.getstate()
    if isinstance(thing, Mapping):
        return [(state(key, seen), state(value, seen)) for key, value in thing.items()]
    if isinstance(thing, list | tuple | deque):
        return [state(item, seen) for item in thing]
    names = list(getattr(thing, "__dict__", {}))
    for kind in type(thing).__mro__:
        names += [name for name in getattr(kind, "__slots__", ()) if hasattr(thing, name)]
    if isinstance(thing, msgspec.Struct):
        names += list(thing.__struct_fields__)
    # The cache of an encoding scheme is shared, and the heap of a set of timers may be in any order.
    kept = [name for name in names if name not in COUNTERS + MEMOS and name not in ("config", "_config", "_scheme")]
    return type(thing).__name__, {name: state(getattr(thing, name), seen) for name in kept}


def a_transport(name: str, config: TransportConfig, *, publishes: bool, seed: int = 1) -> tuple[Transport, Timers]:
    timers, random = Timers(), partial(generator, seed, name)
    return Transport(name, 1, config, ServiceTimers("transport", timers), random, publishes=publishes), timers


def a_client(config: TransportConfig = CONFIG) -> tuple[Transport, Timers]:
    client, timers = a_transport("a", config, publishes=False)
    client.subscribe(1, parse_predicate("n > 0"), ordered=True, recover=True, now=0.0)
    return client, timers


def published(config: TransportConfig, *values: int) -> list[Message]:
    """What a publisher puts on the network: a message with a header every 0.1 s from 10.1 on."""
    publisher, _ = a_transport("p", config, publishes=True)
    sent = []
    for place, value in enumerate(values, start=1):
        message = make_message(Identity("p", 1, place), {"n": value}, b"body")
        effects = publisher.publish(message, now=10.0 + 0.1 * place)
        sent += [effect.message for effect in effects if isinstance(effect, BearerPublish)]
    return sent


def a_client_that_received(count: int = 5, config: TransportConfig = CONFIG) -> tuple[Transport, Timers]:
    client, timers = a_client(config)
    for place, message in enumerate(published(config, *range(1, count + 1)), start=1):
        client.arrived((1,), message, now=0.1 * place)
    return client, timers


def a_header(sequence: int, departure: float, ages: list[float], entries: int, *, entry_bytes: int = 32) -> bytes:
    written = [whole_entry(1, entry_bytes)] * entries
    return encode_header(sequence, departure, ages, written, flags=0, entry_bytes=entry_bytes)


def data(header: bytes, *, count: int = 6, publisher: str = "p") -> Message:
    return wrap(make_message(Identity(publisher, 1, count), {"n": 6}), header)


def heartbeat(header: bytes) -> Message:
    return control_message(Identity("~p", 1, 1), "heartbeat", {FROM: "p"}, header)


GOOD = a_header(6, 10.6, [0.1], 1)
FORGED: dict[str, bytes] = {
    "a billion messages later": a_header(1_000_000_006, 10.6, [0.1], 1),
    "from the far future": a_header(6, 1e9, [0.1], 1),
    "from the far past": a_header(6, -1e9, [0.1], 1),
    "from the end of time": a_header(6, 1e300, [0.1], 1),
    "from no time": a_header(6, nan, [0.1], 1),
    "from an endless time": a_header(6, inf, [0.1], 1),
    "a record of 255 entries": pack("<BBQdBBBB", 1, 0, 1_000, 10.6, 0, 255, 255, 32) + bytes(255 * 36),
    "a record longer than the past": a_header(6, 10.6, [0.1] * 9, 9),
    "cut short": GOOD[:-1],
    "cut in the middle": GOOD[:12],
    "empty": b"",
    "with something behind it": GOOD + b"x",
    "a later number that left earlier": a_header(6, 5.0, [0.1], 1),
}


@pytest.mark.parametrize("name", FORGED)
@pytest.mark.parametrize("make", [data, heartbeat])
def test_a_forged_header_is_refused_counted_and_changes_nothing(name: str, make: Callable[[bytes], Message]) -> None:
    client, timers = a_client_that_received()
    numbers = (1,) if make is data else (INBOX + 5,)
    before, report = (state(client), state(timers)), client.report(1)
    effects = client.arrived(numbers, make(FORGED[name]), now=0.6)
    assert [type(effect) for effect in effects] == [InputRefused]
    assert (state(client), state(timers)) == before
    assert client.report(1) == replace(report, refused=report.refused + 1)


def test_the_forgeries_differ_from_a_good_header() -> None:
    client, _ = a_client_that_received()
    effects = client.arrived((1,), data(GOOD), now=0.6)
    assert any(isinstance(effect, Deliver) for effect in effects)


def test_a_forged_first_header_opens_no_session() -> None:
    for name, header in FORGED.items():
        client, timers = a_client()
        before = state(client), state(timers)
        effects = client.arrived((1,), data(header), now=0.6)
        refused = [effect for effect in effects if isinstance(effect, InputRefused)]
        if refused:
            assert (state(client), state(timers)) == before, name


def test_a_publisher_with_other_settings_is_delivered_as_without_a_header() -> None:
    client, _ = a_client_that_received()
    effects = client.arrived((1,), data(a_header(6, 10.6, [0.1], 1, entry_bytes=16)), now=0.6)
    assert [type(effect) for effect in effects] == [InputRefused, Deliver]
    assert client.report(1).without_header == 1


def test_a_message_with_a_forged_header_still_reaches_who_subscribed_plainly() -> None:
    """The header is of no use to them; the message may well be."""
    client, _ = a_client_that_received()
    effects = client.arrived((1, 7), data(b"nonsense"), now=0.6)
    assert [effect.subscription for effect in effects if isinstance(effect, Deliver)] == [7]


KEY = Key("p", 1, 3)
BAD_TALK: dict[str, tuple[str, dict[str, Value], bytes]] = {
    "a request that is none": (REQUEST, {TO: "a"}, b"\xc1"),
    "a request without end": (REQUEST, {TO: "a"}, msgspec.msgpack.encode(Request(KEY, "b", inf, 0.1, 2.0, 2.0, 1))),
    "a repair that is none": (REPAIR, {"n": 3}, b""),
    "a repair of a billionth": (REPAIR, {"n": 3}, msgspec.msgpack.encode(Repair(Key("p", 1, 10**9), 9, 10.0, "b"))),
    "a repair of number zero": (REPAIR, {"n": 3}, msgspec.msgpack.encode(Repair(Key("p", 1, 0), 9, 10.0, "b"))),
    "a repair with a reserved name": (
        REPAIR,
        {TO: "a"},
        msgspec.msgpack.encode(Repair(KEY, 3, 1.0, "a", {"_to": "x"})),
    ),
    "an echo of no time": ("echo", {TO: "a"}, msgspec.msgpack.encode(EchoRequest("b", nan))),
    "an answer to nothing": ("answer", {TO: "a"}, msgspec.msgpack.encode(EchoReply("b", 1.0, 2.0))),
    "an unknown kind": ("gossip", {TO: "a"}, b""),
}


@pytest.mark.parametrize("name", BAD_TALK)
def test_control_messages_that_cannot_be_changes_nothing(name: str) -> None:
    client, timers = a_client_that_received()
    kind, attributes, header = BAD_TALK[name]
    before = state(client), state(timers)
    numbers = (1,) if "n" in attributes else (INBOX,)
    effects = client.arrived(numbers, control_message(Identity("~b", 1, 1), kind, attributes, header), now=0.6)
    assert all(isinstance(effect, InputRefused) for effect in effects)
    assert (state(client), state(timers)) == before


def test_a_heartbeat_in_anothers_name_is_ignored() -> None:
    client, timers = a_client_that_received()
    before = state(client), state(timers)
    forged = control_message(Identity("~mallory", 1, 1), "heartbeat", {FROM: "p"}, a_header(50, 10.7, [0.1] * 40, 40))
    assert client.arrived((INBOX + 5,), forged, now=0.6) == []
    assert (state(client), state(timers)) == before


def test_what_is_meant_for_others_is_not_taken_for_ours() -> None:
    """An application that subscribes to everything gets inboxes and domains of others; its transport does not care."""
    bus = Bus(1, stage=0.0)
    config = papers_config(request_to="publisher", cache_min=100)
    bus.add("p", config, publishes=True)
    bus.add("a", config)
    bus.add("nosy", config)
    bus.subscribe("a", 1, "EXISTS n", ordered=True, recover=True)
    bus.subscribe("nosy", 1, "TRUE", ordered=True, recover=True)
    bus.loses = lambda sender, receiver, message: receiver == "a" and bus.random.random() < 0.1
    for number in range(1, 101):
        bus.publish("p", {"n": number}, at=0.01 * number)
    bus.run(10.0)
    received = [
        received for received in bus.members["nosy"].received if received.message.attributes.get(TO) in ("p", "a")
    ]
    assert received, "it does receive them"
    sent = [carried for carried in bus.carried if carried.sender == "nosy" and carried.kind in ("answer", REPAIR)]
    assert not sent
    assert len(bus.got("a", 1)) >= 95


def test_a_flag_that_is_no_text_is_delivered_to_nobody() -> None:
    """A client without a transport does not deliver it either."""
    client, _ = a_client_that_received()
    odd = Message(Identity("p", 1, 9), {"n": 1, FLAG: 5}, b"\0\0", 40)
    (refused,) = client.arrived((1, 7), odd, now=0.6)
    assert isinstance(refused, InputRefused)


# More than can be kept.


def test_every_table_stays_within_its_bounds() -> None:
    """50,000 messages of 40 publishers, a tenth of them lost, some late, nobody who answers."""
    config = papers_config(
        record_entries=3,
        sessions_max=10,
        window=64,
        queue_max=16,
        requests_pending_max=50,
        cache_max=20,
        cache_min=5,
        distances_max=10,
        published_kept=30,
        session_idle=20.0,
        latch="static",
        static_latch=0.2,
    )
    random = Random(5)
    client, timers = a_transport("a", config, publishes=True)
    client.subscribe(1, parse_predicate("TRUE"), ordered=True, recover=True, now=0.0)
    publishers = [a_transport(f"p{n}", config, publishes=True)[0] for n in range(40)]
    counts = [0] * 40
    got: dict[Identity, int] = {}
    limits: dict[str, int] = {}
    under_way: list[Message] = []

    def take(effects: list[TransportEffect]) -> None:
        for effect in effects:
            if isinstance(effect, Deliver):
                got[effect.message.identity] = got.get(effect.message.identity, 0) + 1
            elif isinstance(effect, LimitReached):
                limits[effect.table] = limits.get(effect.table, 0) + 1

    now = 0.0
    for step in range(50_000):
        now += 0.002
        # A few publish all the time; the others take turns, so that sessions come and go.
        number = random.randrange(6) if random.random() < 0.8 else 6 + step // 200 % 34
        counts[number] += 1
        message = make_message(Identity(f"p{number}", 1, counts[number]), {"n": counts[number]})
        sent = publishers[number].publish(message, now=now)
        under_way += [effect.message for effect in sent if isinstance(effect, BearerPublish)]
        if len(under_way) > 5:
            chosen = under_way.pop(random.randrange(5))
            if random.random() > 0.1:
                take(client.arrived((1,), chosen, now=now))
        while (name := timers.pop_due(now)) is not None:
            take(client.expired(int(name[1]), name[2:], now=now))
        if step % 500 == 0:
            check_bounds(client, timers, config)
    assert max(got.values()) == 1, "forgetting a session makes nothing come twice, for the network brings each once"
    assert len(got) > 40_000
    assert {"sessions", "requests"} <= set(limits), "and it was recorded"


def check_bounds(client: Transport, timers: Timers, config: TransportConfig) -> None:
    assert len(client.scheme._sessions) <= config.sessions_max
    for session in client.scheme._sessions.values():
        assert session.reorder_buffer.queued <= config.queue_max + 1
    assert len(client.scheme._requests) <= config.requests_pending_max
    assert len(client.scheme._requests._given_up_at) <= config.requests_pending_max
    assert len(client._distances) <= config.distances_max
    assert len(client.scheme._repairs.cache) <= config.sessions_max * config.cache_max
    assert len(client.scheme._repairs._published) <= config.published_kept
    assert len(timers) <= config.sessions_max + 2 * config.requests_pending_max + 3


def test_a_publishers_memory_is_bounded() -> None:
    config = papers_config(published_kept=30, heartbeat_interval=1.0)
    publisher, _ = a_transport("p", config, publishes=True)
    for count in range(1, 2_000):
        publisher.publish(make_message(Identity("p", 1, count), {"n": count}), now=0.01 * count)
    assert len(publisher.scheme._repairs._published) == 30


@pytest.mark.parametrize("where", ["n > 0.5", "n < 0.1 OR n > 0.9"])
def test_what_a_record_cannot_tell_apart_costs_requests_but_no_wrong_delivery(where: str) -> None:
    """A record entry tells that there is an `n`, not how large it is: what does not match a range looks like a loss."""
    phantoms = asked = 0
    for seed in range(4):
        bus = Bus(seed, loss=0.0, stage=0.0)
        bus.add("p", papers_config(), publishes=True)
        bus.add("a", papers_config())
        bus.subscribe("a", 1, where, ordered=True, recover=True)
        for number in range(200):
            bus.publish("p", {"n": bus.random.random()}, at=0.02 * number)
        bus.run(30.0)
        assert bus.got("a", 1) == bus.due("a", 1)
        assert not bus.records_of("a", GaveUp)  # the publisher sends it to who asks again, who then sees what it is
        assert all(kind_of(carried.message) == DATA or opened(carried.message) for carried in bus.carried)
        phantoms += len(bus.records_of("a", LossDetected))
        asked += len(bus.records_of("a", RequestSent))
    assert asked <= phantoms / 3
