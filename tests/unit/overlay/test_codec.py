"""The codec: what goes out comes in again; whatever else comes in is refused with InvalidPacket and nothing worse."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.content.message import INTEGER_MAX, INTEGER_MIN, Identity, Message, MessageLimits, make_message
from penstock.errors import InvalidPacket
from penstock.kernel.packet import CLIENT_NAME_BYTES_MAX, DATA_LANES, Lane, Packet
from penstock.overlay.codec import BATCH_BYTES_MAX, PACKET_BYTES_MAX, Codec, encode, encode_batch
from penstock.overlay.credit import Credit, CreditRequest
from penstock.overlay.link_reports import NUMBER_MAX, LinkReport
from penstock.overlay.packets import (
    BROKER_ID_MAX,
    DESTINATIONS_MAX,
    HOPS_MAX,
    READY_WITHIN_MAX,
    Answer,
    Attach,
    Confirmation,
    ConfirmRequest,
    Delivery,
    Hello,
    Interest,
    LinkState,
    Publication,
    Publish,
    Ready,
    ReadyRequest,
    Subscribe,
    Summary,
    Unsubscribe,
)
from penstock.overlay.status import Losses, LossesRequest, Status, StatusRequest
from penstock.pricing.packets import (
    Bought,
    ClassesRequest,
    NotBought,
    PricedClasses,
    PricedPublication,
    PricedPublish,
    PriceRequest,
    Prices,
)
from penstock.rates.packets import (
    VERSION_MAX,
    ClientTerms,
    LinkRate,
    Note,
    RateHeard,
    ReaderRate,
    ReadersWithheld,
    WithheldFrom,
    WithheldNotice,
)
from penstock.services import SERVICES, codec
from penstock.testing import a_message
from penstock.tracing.packets import ONE_IN_MAX, SECONDS_MAX, TraceOrder, TraceRequest, TraceState
from penstock.transport.broker_service import Unused, UnusedRequest
from retrieval_packets import retrieval_packets
from stream_packets import stream_packets

decode = codec().decode
counts = st.integers(0, 2**64 - 1)
brokers = st.integers(0, BROKER_ID_MAX)
lanes = st.sampled_from(DATA_LANES)
texts = st.text(st.characters(codec="utf-8"), max_size=30)
client_names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30)
link_values = st.dictionaries(brokers, st.floats(0.0, 1e6), max_size=5).map(lambda found: tuple(sorted(found.items())))
encodings = st.lists(st.binary(max_size=64), max_size=5).map(tuple)
values = st.one_of(
    st.booleans(), st.integers(INTEGER_MIN, INTEGER_MAX), st.floats(allow_nan=False, allow_infinity=False), texts
)
identities = st.builds(Identity, client_names, st.integers(0, INTEGER_MAX), st.integers(0, INTEGER_MAX))
attribute_tables = st.dictionaries(client_names, values, max_size=6)
messages = st.builds(
    lambda identity, attributes, body: make_message(identity, attributes, body, reserved=True),
    identities,
    attribute_tables,
    st.binary(max_size=100),
)


notes = st.lists(
    st.builds(
        Note,
        *(client_names, st.tuples(client_names, client_names), st.floats(0.0, 1e15), client_names),
        *(st.integers(0, 2**50), st.integers(0, 2**50), st.floats(0.0, 1e9), st.integers(0, 2**50)),
        st.lists(st.integers(1, 1_000), max_size=5).map(lambda drawn: tuple(drawn + drawn)),
        *(st.booleans(), st.integers(-1, 2**40)),
    ),
    max_size=5,
).map(tuple)


def increasing(numbers: st.SearchStrategy[int], **size: int) -> st.SearchStrategy[tuple[int, ...]]:
    return st.lists(numbers, unique=True, **size).map(lambda drawn: tuple(sorted(drawn)))  # type: ignore[arg-type]


@st.composite
def interests(draw: st.DrawFn) -> Interest:
    version = draw(st.integers(1, 2**63))
    base = draw(st.integers(0, version - 1))
    parts = 1 if base else draw(st.integers(1, 4096))
    removed = draw(encodings) if base else ()
    part = draw(st.integers(0, parts - 1))
    return Interest(draw(brokers), draw(counts), base, version, draw(encodings), removed, part, parts)


PACKETS: dict[type[Packet], st.SearchStrategy[Any]] = {
    Hello: st.builds(Hello, brokers, counts, texts, counts),
    LinkState: st.builds(
        LinkState,
        brokers,
        counts,
        counts,
        st.dictionaries(brokers, st.integers(1, 65_535), max_size=6).map(lambda table: tuple(sorted(table.items()))),
    ),
    Interest: interests(),
    Summary: st.builds(
        Summary,
        st.dictionaries(brokers, st.tuples(counts, counts, counts), max_size=6).map(
            lambda table: tuple((broker, *rest) for broker, rest in sorted(table.items()))
        ),
    ),
    Publication: st.builds(
        Publication, increasing(brokers, min_size=1, max_size=20), st.integers(0, HOPS_MAX), messages, lanes
    ),
    ConfirmRequest: st.builds(ConfirmRequest, brokers, counts, counts, st.booleans()),
    Confirmation: st.builds(
        Confirmation, brokers, counts, counts, st.lists(brokers, max_size=16).map(tuple), st.booleans()
    ),
    ReadyRequest: st.builds(ReadyRequest, counts, st.floats(0.0, READY_WITHIN_MAX)),
    Ready: st.builds(Ready, counts, st.lists(texts, max_size=3).map(tuple)),
    Attach: st.builds(Attach, client_names, counts),
    Subscribe: st.builds(Subscribe, counts, counts, texts),
    Unsubscribe: st.builds(Unsubscribe, counts, counts),
    Answer: st.builds(Answer, counts, texts),
    Publish: st.builds(Publish, messages, lanes),
    Delivery: st.builds(Delivery, increasing(counts, max_size=20), messages, lanes),
    StatusRequest: st.builds(StatusRequest, counts),
    Status: st.builds(Status, counts, st.binary(max_size=100)),
    LossesRequest: st.builds(LossesRequest, counts),
    UnusedRequest: st.builds(UnusedRequest, st.lists(st.text(max_size=10), max_size=5).map(tuple)),
    Unused: st.builds(Unused, st.lists(st.text(max_size=10), max_size=5).map(tuple)),
    Losses: st.builds(
        Losses,
        st.dictionaries(st.integers(0, 2**63), st.integers(1, 2**63), max_size=6).map(
            lambda found: tuple(sorted(found.items()))
        ),
        counts,
    ),
    Credit: st.builds(Credit, lanes, counts),
    CreditRequest: st.builds(CreditRequest, lanes),
    LinkReport: st.builds(LinkReport, brokers, counts, st.integers(0, NUMBER_MAX - 1), link_values),
    LinkRate: st.builds(LinkRate, brokers, counts, brokers, st.integers(0, VERSION_MAX - 1), st.floats(1e-3, 1e15)),
    RateHeard: st.builds(RateHeard, brokers, brokers, st.integers(0, VERSION_MAX - 1), brokers),
    ReaderRate: st.builds(ReaderRate, counts, st.floats(0.0, 1e15), st.booleans()),
    ClientTerms: st.builds(
        ClientTerms, st.sampled_from(["thin", "wait", "drop"]), st.sampled_from(["oldest", "newest"])
    ),
    WithheldNotice: st.builds(WithheldNotice, st.sampled_from(["publisher", "reader"]), notes, counts),
    WithheldFrom: st.builds(WithheldFrom, brokers, brokers, notes),
    ReadersWithheld: st.builds(ReadersWithheld, brokers, counts, notes),
    TraceOrder: st.builds(TraceOrder, counts, counts, st.integers(0, SECONDS_MAX * 1_000), st.integers(1, ONE_IN_MAX)),
    TraceRequest: st.builds(
        TraceRequest, counts, st.booleans(), st.integers(0, SECONDS_MAX), st.integers(0, ONE_IN_MAX)
    ),
    TraceState: st.builds(TraceState, counts, counts, counts, counts),
    ClassesRequest: st.builds(ClassesRequest),
    PricedClasses: st.builds(PricedClasses, st.lists(texts, max_size=3).map(tuple), st.integers(1, 1 << 20)),
    PricedPublish: st.builds(PricedPublish, counts, messages),
    NotBought: st.builds(NotBought, counts, texts),
    Bought: st.builds(Bought, st.lists(counts, min_size=1, max_size=5).map(tuple)),
    PricedPublication: st.builds(
        PricedPublication, increasing(brokers, min_size=1, max_size=20), st.integers(0, HOPS_MAX), messages
    ),
    PriceRequest: st.builds(PriceRequest, counts),
    Prices: st.builds(Prices, counts, st.binary(max_size=100)),
    **stream_packets(messages),
    **retrieval_packets(messages),
}
MESSAGE = a_message()


def raw(packet: Packet, **changes: object) -> bytes:
    """The bytes of a packet with some fields replaced by whatever a peer may send."""
    fields = [changes.get(name, getattr(packet, name)) for name in packet.__struct_fields__]
    return msgspec.msgpack.encode([packet.__struct_config__.tag, *fields])


def raw_message(**changes: object) -> list[object]:
    return [changes.get(name, getattr(MESSAGE, name)) for name in MESSAGE.__struct_fields__]


def test_every_kind_of_packet_is_tested_here() -> None:
    assert set(PACKETS) == {kind for service in SERVICES for kind in service.packets}
    assert set(PACKETS) == set(codec().kinds)


@pytest.mark.parametrize("kind", PACKETS, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_a_packet_survives_the_wire(kind: type[Packet], data: st.DataObject) -> None:
    packet = data.draw(PACKETS[kind])
    again = decode(encode(packet))
    assert again == packet
    assert type(again) is kind
    assert again.size_bytes() == packet.size_bytes()


@pytest.mark.parametrize("kind", [Publication, Publish, Delivery])
@given(data=st.data())
def test_the_size_a_packet_claims_is_near_its_size_on_the_wire(kind: type[Packet], data: st.DataObject) -> None:
    packet = data.draw(PACKETS[kind])
    length = len(encode(packet))
    carried = packet.carried()
    assert carried is not None
    destinations = 5 * max(packet.meant_for(), len(getattr(packet, "subscriptions", ())))
    assert abs(packet.size_bytes() - length) <= 30 + 9 * len(carried.attributes) + destinations


@given(st.binary(max_size=200))
@example(b"")
@example(b"\x91" * 5000)
@example(b"\xdd\xff\xff\xff\xff")
@example(b"\xc1")
@example(b"\x92\xa5Hello\xd9\xff")
def test_arbitrary_bytes_are_refused_and_do_nothing_worse(data: bytes) -> None:
    with pytest.raises(InvalidPacket):
        decode(data)


@given(st.data())
def test_damaged_packets_are_refused_or_still_packets(data: st.DataObject) -> None:
    packet = data.draw(st.sampled_from(sorted(PACKETS, key=lambda kind: kind.__name__)).flatmap(PACKETS.__getitem__))
    damaged = bytearray(encode(packet))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(damaged) - 1))
        damaged[place] = data.draw(st.integers(0, 255))
    try:
        again = decode(bytes(damaged))
    except InvalidPacket:
        return
    assert decode(encode(again)) == again


ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(INTEGER_MIN, 2**64 - 1), st.floats(), texts, st.binary(max_size=9)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=12,
)


@given(st.sampled_from([kind.__name__ for kind in PACKETS]), st.lists(ANYTHING, max_size=8))
def test_well_formed_nonsense_is_refused_or_a_packet(kind: str, fields: list[object]) -> None:
    try:
        packet = decode(msgspec.msgpack.encode([kind, *fields]))
    except InvalidPacket:
        return
    assert decode(encode(packet)) == packet


HELLO, LINKS, INTEREST = Hello(1, 1, "s", 1), LinkState(1, 1, 1, ((2, 1),)), Interest(1, 1, 0, 1, (b"x",))
COPY, DELIVERY = Publication((1, 2), 5, MESSAGE), Delivery((1, 2), MESSAGE)
BAD = {
    "unknown kind": msgspec.msgpack.encode(["Goodbye", 1]),
    "no kind": msgspec.msgpack.encode([]),
    "not an array": msgspec.msgpack.encode({"type": "Hello"}),
    "trailing bytes": encode(HELLO) + b"\x00",
    "cut short": encode(HELLO)[:-1],
    "missing field": msgspec.msgpack.encode(["Hello", 1, 1]),
    "negative broker": raw(HELLO, broker=-1),
    "broker id over the limit": raw(HELLO, broker=BROKER_ID_MAX + 1),
    "origin over the limit": raw(LINKS, origin=BROKER_ID_MAX + 1),
    "negative incarnation": raw(HELLO, incarnation=-1),
    "boolean for a number": raw(HELLO, incarnation=True),
    "float for a number": raw(HELLO, incarnation=1.5),
    "neighbours unsorted": raw(LINKS, neighbours=[(3, 1), (2, 1)]),
    "neighbour twice": raw(LINKS, neighbours=[(2, 1), (2, 2)]),
    "neighbour no broker": raw(LINKS, neighbours=[(-2, 1)]),
    "neighbour at no cost": raw(LINKS, neighbours=[(2, 0)]),
    "neighbour too dear": raw(LINKS, neighbours=[(2, 65_536)]),
    "interest that goes backwards": raw(INTEREST, base=5, version=5),
    "snapshot that removes": raw(INTEREST, removed=[b"x"]),
    "change in parts": raw(INTEREST, base=1, version=2, parts=2),
    "part beyond the parts": raw(INTEREST, part=1),
    "no parts": raw(INTEREST, parts=0),
    "too many parts": raw(INTEREST, parts=4097),
    "origins unsorted": raw(Summary(()), known=[(2, 1, 1, 1), (1, 1, 1, 1)]),
    "origin twice": raw(Summary(()), known=[(2, 1, 1, 1), (2, 1, 1, 2)]),
    "summary of no broker": raw(Summary(()), known=[(-1, 1, 1, 1)]),
    "summary of a broker over the limit": raw(Summary(()), known=[(BROKER_ID_MAX + 1, 1, 1, 1)]),
    "summary with a negative version": raw(Summary(()), known=[(1, 1, -1, 1)]),
    "message in the control lane": raw(COPY, lane=0),
    "publication in the control lane": raw(Publish(MESSAGE), lane=0),
    "delivery in the control lane": raw(DELIVERY, lane=0),
    "unknown lane": raw(COPY, lane=len(Lane)),
    "long control message": raw(Publish(a_message(1, body=bytes(60_001))), lane=Lane.SERVICE_CONTROL),
    "credit for control": raw(Credit(Lane.STREAM, 1), lane=0),
    "credit below zero": raw(Credit(Lane.STREAM, 1), bytes_in_all=-1),
    "credit for no lane": raw(Credit(Lane.STREAM, 1), lane=len(Lane)),
    "no destinations": raw(COPY, destinations=[]),
    "a destination twice": raw(COPY, destinations=[1, 1]),
    "destinations unsorted": raw(COPY, destinations=[2, 1]),
    "negative destination": raw(COPY, destinations=[-1, 1]),
    "destination over the limit": raw(COPY, destinations=[1, BROKER_ID_MAX + 1]),
    "absurdly many destinations": raw(COPY, destinations=list(range(DESTINATIONS_MAX + 1))),
    "negative hops": raw(COPY, hops_left=-1),
    "absurdly many hops": raw(COPY, hops_left=HOPS_MAX + 1),
    "subscriptions unsorted": raw(DELIVERY, subscriptions=[2, 1]),
    "negative subscription": raw(DELIVERY, subscriptions=[-2, 1]),
    "nameless client": raw(Attach("c", 1), client=""),
    "client with a long name": raw(Attach("c", 1), client="é" * (CLIENT_NAME_BYTES_MAX // 2 + 1)),
    "nameless publisher": raw(COPY, message=raw_message(identity=["", 1, 1])),
    "publisher with a long name": raw(COPY, message=raw_message(identity=["x" * 129, 1, 1])),
    "negative count": raw(COPY, message=raw_message(identity=["p", 1, -1])),
    "count beyond 63 bits": raw(COPY, message=raw_message(identity=["p", 1, 2**63])),
    "not a number": raw(COPY, message=raw_message(attributes={"a": float("nan")})),
    "infinite": raw(COPY, message=raw_message(attributes={"a": float("inf")})),
    "integer out of range": raw(COPY, message=raw_message(attributes={"a": 2**63})),
    "null attribute": raw(COPY, message=raw_message(attributes={"a": None})),
    "list attribute": raw(COPY, message=raw_message(attributes={"a": [1]})),
    "nameless attribute": raw(COPY, message=raw_message(attributes={"": 1})),
    "long attribute": raw(COPY, message=raw_message(attributes={"a": "x" * 5000})),
    "too many attributes": raw(COPY, message=raw_message(attributes={f"a{i}": i for i in range(65)})),
    "body too long": raw(COPY, message=raw_message(body=bytes((1 << 20) + 1))),
    "body of text": raw(COPY, message=raw_message(body="text")),
    "larger than any packet": bytes(PACKET_BYTES_MAX + 1),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_packet_is_refused_whole(name: str) -> None:
    with pytest.raises(InvalidPacket) as refusal:
        decode(BAD[name])
    assert str(refusal.value)


def test_the_size_of_a_message_is_counted_again_whatever_a_peer_claims() -> None:
    packet = decode(raw(COPY, message=raw_message(size_bytes=10**9)))
    assert isinstance(packet, Publication)
    assert packet.message.size_bytes == MESSAGE.size_bytes


def test_the_largest_message_with_the_most_destinations_fits_a_packet() -> None:
    attributes = {f"{i:03}" + "n" * 125: "v" * 4096 for i in range(64)}
    message = make_message(Identity("p" * 128, 1, 1), attributes, bytes(1 << 20))
    packet = Publication(tuple(range(DESTINATIONS_MAX)), HOPS_MAX, message)
    assert decode(encode(packet)) == packet


def test_reserved_names_may_travel() -> None:
    message = make_message(Identity("p", 1, 1), {"_to": "q"}, reserved=True)
    assert decode(encode(Publish(message))) == Publish(message)


def test_the_limits_of_messages_can_be_set() -> None:
    with pytest.raises(InvalidPacket, match="body_bytes_max is 1"):
        decode(encode(Publish(a_message(body=b"two"))), limits=MessageLimits(body_bytes_max=1))


def test_a_message_that_was_decoded_is_a_message_and_its_attributes_keep_their_types() -> None:
    attributes: dict[str, bool | int | float | str] = {"b": True, "i": 1, "f": 1.0, "s": "1"}
    packet = decode(encode(Publish(make_message(Identity("p", 1, 1), attributes))))
    assert isinstance(packet, Publish)
    assert isinstance(packet.message, Message)
    assert [type(value) for value in packet.message.attributes.values()] == [bool, int, float, str]


def test_a_message_without_a_lane_goes_by_best_effort() -> None:
    packet = decode(msgspec.msgpack.encode(["Publish", MESSAGE]))
    assert packet == Publish(MESSAGE, Lane.BEST_EFFORT)


def test_a_batch_survives_the_wire_and_one_bad_packet_spoils_it() -> None:
    packets = [HELLO, COPY, DELIVERY]
    assert codec().decode_batch(encode_batch(packets)) == packets
    assert codec().decode_batch(encode_batch([])) == []
    with pytest.raises(InvalidPacket, match="hops_left"):
        codec().decode_batch(encode_batch([HELLO, Publication((1,), HOPS_MAX + 1, MESSAGE)]))
    for bad in (encode(HELLO), b"", bytes(BATCH_BYTES_MAX + 1)):
        with pytest.raises(InvalidPacket):
            codec().decode_batch(bad)


def test_a_codec_knows_the_kinds_of_the_services_in_use_and_no_others() -> None:
    small = Codec([Hello, Attach])
    assert small.decode(encode(HELLO)) == HELLO
    with pytest.raises(InvalidPacket, match="no packet of this protocol"):
        small.decode(encode(COPY))
