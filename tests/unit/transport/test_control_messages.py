"""What transports say to each other: who hears it, what comes back from bytes, and what is refused."""

from __future__ import annotations

from contextlib import suppress
from math import inf, nan
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.content.bloom import DEFAULT_SCHEME, matches
from penstock.content.envelope import kind_of, opened
from penstock.content.language.parser import parse_predicate
from penstock.content.message import DEFAULT_LIMITS, Attributes, Identity, Message, Value, make_message
from penstock.errors import InvalidHeader
from penstock.testing import a_message
from penstock.transport.config import papers_config
from penstock.transport.wire.control_messages import (
    ANSWER,
    ANY,
    BITS_MAX,
    ECHO,
    HEARTBEAT,
    REPAIR,
    REQUEST,
    TO,
    ControlIdentities,
    EchoReply,
    EchoRequest,
    Key,
    Repair,
    Request,
    about_where,
    decode_control,
    echo_reply_message,
    echo_request_message,
    heartbeat_message,
    heartbeats_where,
    inbox_where,
    repair_to_all,
    repair_to_requester,
    repaired_message,
    request_to_peers,
    request_to_publisher,
    requests_where,
)

SCHEME = papers_config().encoding
KEY = Key("p", 1, 7)
encode = msgspec.msgpack.encode


def a_request(key: Key = KEY, *, requester: str = "a") -> Request:
    return Request(key, requester, 12.5, 0.1, 2.0, 2.0, 1)


def some_identities() -> ControlIdentities:
    return ControlIdentities("a", 3)


def asked(attributes: Attributes, *, domain: str = "", publisher: str = "p") -> Message:
    """A request for a message with these attributes."""
    return request_to_peers(
        some_identities(), a_request(Key(publisher, 1, 7)), SCHEME.encode_message(attributes), domain
    )


def receives(where: str, message: Message) -> bool:
    return parse_predicate(where).matches(message.attributes)


def test_every_control_message_has_an_identity_of_its_own_that_no_application_has() -> None:
    identities = some_identities()
    sent = [
        echo_request_message(identities, "b", EchoRequest("a", 1.0)),
        echo_request_message(identities, "b", EchoRequest("a", 1.0)),
    ]
    assert [message.identity for message in sent] == [Identity("~a", 3, 1), Identity("~a", 3, 2)]


WHERES = [
    "symbol = 'IBM'",
    "symbol = 'IBM' AND price < 120",
    "symbol IN ('IBM', 'AMD') OR volume > 70",
    "NOT urgent",
    "urgent",
    "volume IS NULL",
    "TRUE",
    "symbol LIKE 'I%' AND NOT (urgent OR price > 100)",
    "price BETWEEN 90 AND 110 OR symbol <> 'IBM'",
]
ATTRIBUTES = st.fixed_dictionaries(
    {},
    optional={
        "symbol": st.sampled_from(["IBM", "AMD", "SAP"]),
        "price": st.floats(80, 140),
        "volume": st.integers(0, 100),
        "urgent": st.booleans(),
    },
)


@given(ATTRIBUTES, st.sampled_from(WHERES))
def test_a_request_reaches_everybody_who_may_have_the_message(attributes: dict[str, Value], where: str) -> None:
    """Protocols section 4: bits(F) is a subset of bits(m) whenever m matches F, so there is no false negative."""
    predicate = parse_predicate(where)
    listening = requests_where(SCHEME.routing_encodings(predicate), "")
    if predicate.matches(attributes):
        assert receives(listening, asked(attributes))


@given(ATTRIBUTES, st.sampled_from(WHERES))
def test_a_request_finds_its_way_through_a_network_of_encodings_too(attributes: dict[str, Value], where: str) -> None:
    """The overlay routes by the encoding of the request, whose attributes are bits themselves (erratum B6)."""
    predicate = parse_predicate(where)
    listening = parse_predicate(requests_where(SCHEME.routing_encodings(predicate), ""))
    if predicate.matches(attributes):
        bits = DEFAULT_SCHEME.encode_message(asked(attributes).attributes)
        assert any(matches(one, bits) for one in DEFAULT_SCHEME.routing_encodings(listening))


def test_a_request_reaches_nobody_who_cannot_have_the_message() -> None:
    def listening(where: str) -> str:
        return requests_where(SCHEME.routing_encodings(parse_predicate(where)), "")

    request = asked({"symbol": "IBM", "price": 119.5})
    assert not receives(listening("symbol = 'AMD'"), request)
    assert not receives(listening("volume > 3"), request)
    assert receives(listening("symbol = 'IBM'"), request)


def test_requests_stay_in_their_domain() -> None:
    for mine, theirs in (("", ""), ("east", "east"), ("east", "west"), ("", "east"), ("east", "")):
        where = requests_where(SCHEME.routing_encodings(parse_predicate("n = 1")), mine)
        request = asked({"n": 1}, domain=theirs)
        assert receives(where, request) == (mine == theirs)
        assert receives(about_where("p", mine), request) == (mine == theirs)


def test_a_publisher_receives_requests_about_itself_whatever_they_are_for() -> None:
    assert receives(about_where("p", ""), asked({"n": 1}))
    assert not receives(about_where("q", ""), asked({"n": 1}))


def test_a_message_with_too_many_bits_is_asked_for_from_everybody() -> None:
    attributes: dict[str, Value] = {f"a{number}": number for number in range(40)}
    assert SCHEME.encode_message(attributes).bit_count() > BITS_MAX
    request = asked(attributes)
    assert ANY in request.attributes
    for where in ("a3 = 3", "other = 1"):
        assert receives(requests_where(SCHEME.routing_encodings(parse_predicate(where)), ""), request)


def test_the_largest_request_still_is_a_message() -> None:
    encoding = (1 << BITS_MAX) - 1
    request = request_to_peers(some_identities(), a_request(), encoding, "d" * 100)
    assert len(request.attributes) == BITS_MAX + 3 <= DEFAULT_LIMITS.attributes_max


@pytest.mark.parametrize(
    "where",
    [
        " OR ".join(f"a{number} = {number}" for number in range(64)),
        "symbol IN (" + ", ".join(f"'s{number}'" for number in range(64)) + ")",
        " OR ".join(f"(a = {n} AND b = {n} AND c = {n} AND d = {n} AND e = {n})" for n in range(40)),
    ],
    ids=["64 filters", "64 values", "40 long filters"],
)
def test_the_largest_subscription_can_still_subscribe_to_requests(where: str) -> None:
    """A subscription that a broker takes leads to one for requests that it takes as well."""
    listening = requests_where(SCHEME.routing_encodings(parse_predicate(where)), "")
    assert receives(listening, asked({"a0": 0, "symbol": "s0", "a": 0, "b": 0, "c": 0, "d": 0, "e": 0}))


def test_who_wants_nothing_that_can_be_subscribes_to_next_to_nothing() -> None:
    encodings = SCHEME.routing_encodings(parse_predicate("a = 1 AND a = 2"))
    assert not receives(requests_where(encodings, ""), asked({"a": 1}))


@pytest.mark.parametrize("name", ["plain", "it's", 'a "quoted" one', "naïve", "x' OR TRUE OR 'x", "\\", "%"])
def test_names_are_quoted(name: str) -> None:
    echo = echo_request_message(some_identities(), name, EchoRequest("a", 1.0))
    assert receives(inbox_where(name), echo)
    assert not receives(inbox_where(name + "x"), echo)
    assert not receives(inbox_where("x"), echo)
    assert receives(heartbeats_where(name), heartbeat_message(some_identities(), name, b""))
    assert not receives(heartbeats_where("x"), heartbeat_message(some_identities(), name, b""))
    assert receives(about_where(name, name), asked({"n": 1}, publisher=name, domain=name))


def test_what_goes_to_one_inbox_is_received_by_nobody_else() -> None:
    """Not even by somebody who subscribed to everything the message says."""
    repair = repair_to_requester(some_identities(), Repair(KEY, 7, 1.0, "b"), a_message(7, {"n": 1}))
    straight = request_to_publisher(some_identities(), a_request())
    assert receives(inbox_where("b"), repair)
    assert receives(inbox_where("p"), straight)
    everybody_else = [
        inbox_where("c"),
        "n = 1",
        requests_where(SCHEME.routing_encodings(parse_predicate("n = 1")), ""),
        about_where("p", ""),
        heartbeats_where("p"),
    ]
    assert not any(receives(where, message) for where in everybody_else for message in (repair, straight))


def test_a_repair_for_all_takes_the_way_of_the_original() -> None:
    original = a_message(7, {"n": 1, "x": "y"}, body=b"body")
    repair = repair_to_all(some_identities(), Repair(KEY, 7, 1.0, "b"), original)
    assert kind_of(repair) == REPAIR
    assert receives("n = 1 AND x = 'y'", repair)


@pytest.mark.parametrize("say", [repair_to_all, repair_to_requester])
def test_a_repair_holds_the_message_as_it_was(say: object) -> None:
    original = make_message(Identity("p", 1, 9), {"n": 1, "x": "ÿ", "f": 0.5, "b": True}, b"body")
    sent = say(some_identities(), Repair(KEY, 9, 1.0, "b"), original)  # type: ignore[operator]
    header, inside = opened(sent)
    repair = decode_control(header, Repair)
    assert repair.key == KEY
    assert repaired_message(repair, inside) == original


SAID = [
    (REQUEST, request_to_publisher(some_identities(), a_request()), a_request()),
    (ECHO, echo_request_message(some_identities(), "b", EchoRequest("a", 1.5)), EchoRequest("a", 1.5)),
    (ANSWER, echo_reply_message(some_identities(), "b", EchoReply("a", 1.5, -2.5)), EchoReply("a", 1.5, -2.5)),
]


@pytest.mark.parametrize(("kind", "message", "expected"), SAID)
def test_what_is_sent_is_received(kind: str, message: Message, expected: Any) -> None:
    assert kind_of(message) == kind
    assert decode_control(opened(message)[0], type(expected)) == expected


def test_a_heartbeat_is_a_header_by_itself() -> None:
    heartbeat = heartbeat_message(some_identities(), "a", b"bytes")
    assert (kind_of(heartbeat), opened(heartbeat)[0]) == (HEARTBEAT, b"bytes")


BAD: dict[str, Any] = {
    "a distance below nothing": Request(KEY, "a", 1.0, -1.0, 2.0, 2.0, 1),
    "a distance that is no number": Request(KEY, "a", 1.0, nan, 2.0, 2.0, 1),
    "an endless spread": Request(KEY, "a", 1.0, 0.1, 2.0, inf, 1),
    "a first wait below nothing": Request(KEY, "a", 1.0, 0.1, -2.0, 2.0, 1),
    "a time that is no number": Request(KEY, "a", nan, 0.1, 2.0, 2.0, 1),
    "an attempt below nothing": Request(KEY, "a", 1.0, 0.1, 2.0, 2.0, -1),
    "a sequence number below nothing": Request(Key("p", 1, -7), "a", 1.0, 0.1, 2.0, 2.0, 1),
    "a sequence number beyond all": Request(Key("p", 1, 1 << 63), "a", 1.0, 0.1, 2.0, 2.0, 1),
    "a life below nothing": Request(Key("p", -1, 7), "a", 1.0, 0.1, 2.0, 2.0, 1),
    "a count below nothing": Repair(KEY, -1, 1.0, "b"),
    "an endless departure": Repair(KEY, 1, inf, "b"),
    "an echo from no time": EchoRequest("a", nan),
    "an answer from no time": EchoReply("a", 1.0, -inf),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_is_refused(name: str) -> None:
    sent = BAD[name]
    with pytest.raises(InvalidHeader, match="cannot be"):
        decode_control(encode(sent), type(sent))


@pytest.mark.parametrize("kind", [Request, Repair, EchoRequest, EchoReply])
@given(data=st.binary(max_size=60))
def test_any_bytes_are_a_control_message_or_refused(kind: type[Request], data: bytes) -> None:
    with suppress(InvalidHeader):
        assert isinstance(decode_control(data, kind), kind)


@pytest.mark.parametrize(
    "attributes",
    [{"_to": "x"}, {"": 1}, {"n": nan}, {"n": 1 << 63}, {f"a{n}": n for n in range(65)}, {"n": "x" * 5000}],
    ids=["a reserved name", "no name", "no number", "a number too large", "too many", "too long"],
)
def test_a_repair_of_no_possible_message_is_refused(attributes: dict[str, Value]) -> None:
    repair = Repair(KEY, 7, 1.0, "b", attributes)
    with pytest.raises(InvalidHeader, match="no possible message"):
        repaired_message(repair, Message(Identity("~a", 1, 1), {TO: "b"}, b"", 30))
