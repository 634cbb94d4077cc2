"""Frames: whatever the chunks, the same frames; whatever the bytes, frames or InvalidPacket and nothing worse."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.errors import InvalidPacket
from penstock.live.wire.frames import (
    HANDSHAKE_BYTES_MAX,
    KEEPALIVE,
    MAGIC,
    VERSION,
    Acknowledgement,
    Close,
    Frame,
    FrameDecoder,
    Handshake,
    decode_handshake,
    encode_acknowledgement,
    encode_close,
    encode_frame,
    encode_handshake,
    framed,
)
from penstock.overlay.codec import BATCH_BYTES_MAX
from penstock.overlay.packets import Hello, Publish, Subscribe
from penstock.testing import a_message

HANDSHAKE = Handshake(role="client", name="somebody", incarnation=7, credentials=b"secret")
PACKETS = [Subscribe(1, 2, "a = 1"), Publish(a_message(1, body=b"x" * 300)), Hello(1, 2, "s", 3)]
ACKNOWLEDGED = encode_acknowledgement(70_000)
BOTH = encode_acknowledgement(3, 5)
STREAM = (
    encode_handshake(HANDSHAKE) + encode_frame(PACKETS) + KEEPALIVE + ACKNOWLEDGED + BOTH + encode_frame(PACKETS[:1])
)


def handshaken() -> FrameDecoder:
    decoder = FrameDecoder()
    assert decoder.feed(encode_handshake(HANDSHAKE)) == [HANDSHAKE]
    return decoder


def fed(decoder: FrameDecoder, data: bytes, cuts: list[int]) -> list[Frame]:
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [frame for a, b in pairwise(places) for frame in decoder.feed(data[a:b])]


def explained(work: Callable[[], object]) -> bool:
    """Whether it goes well, or is refused with a reason; any other error passes through and fails the test."""
    try:
        work()
    except InvalidPacket as error:
        return bool(str(error))
    return True


@given(st.lists(st.integers(0, 10_000), max_size=40))
@example(list(range(1000)))
def test_any_cutting_of_the_stream_gives_the_same_frames(cuts: list[int]) -> None:
    decoder = FrameDecoder()
    frames = fed(decoder, STREAM + encode_close("enough"), cuts)
    assert frames == [
        HANDSHAKE,
        PACKETS,
        [],
        Acknowledgement(70_000),
        Acknowledgement(3, 5),
        PACKETS[:1],
        Close("enough"),
    ]
    assert decoder.waiting_bytes() == 0


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=5), st.booleans())
@example(b"\x00\x00\x00\x00", [], True)
@example(b"\xff\xff\xff\xff", [], True)
@example(b"\x00\x00\x00\x01\xc1", [], True)
@example(framed(b"\x91" * 3000), [], True)
@example(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", [], False)
def test_any_bytes_are_frames_or_refused(data: bytes, cuts: list[int], after_handshake: bool) -> None:
    decoder = handshaken() if after_handshake else FrameDecoder()
    assert explained(lambda: fed(decoder, data, cuts))
    assert decoder.waiting_bytes() <= len(data)


@given(st.integers(4, len(STREAM) - 1), st.integers(0, 255))
def test_a_damaged_byte_is_refused_or_harmless(place: int, value: int) -> None:
    damaged = bytearray(STREAM)
    damaged[place] = value
    assert explained(lambda: FrameDecoder().feed(bytes(damaged)))


@given(st.integers(0, len(STREAM)))
def test_a_stream_that_is_cut_short_yields_only_whole_frames(end: int) -> None:
    frames = FrameDecoder().feed(STREAM[:end])
    assert (
        frames == [HANDSHAKE, PACKETS, [], Acknowledgement(70_000), Acknowledgement(3, 5), PACKETS[:1]][: len(frames)]
    )


def test_a_long_frame_is_refused_by_its_length_before_it_is_held() -> None:
    decoder = handshaken()
    with pytest.raises(InvalidPacket, match="limit"):
        decoder.feed((BATCH_BYTES_MAX + 1).to_bytes(4, "big"))
    with pytest.raises(InvalidPacket, match="handshake of"):
        FrameDecoder().feed((HANDSHAKE_BYTES_MAX + 1).to_bytes(4, "big"))


def test_a_decoder_never_holds_more_than_one_frame_and_one_chunk() -> None:
    decoder = handshaken()
    frame = framed(b"\x90" + bytes(BATCH_BYTES_MAX - 1))
    for start in range(0, len(frame) - 1000, 1000):
        assert decoder.feed(frame[start : start + 1000]) == []
        assert decoder.waiting_bytes() <= start + 1000


def test_another_version_is_told_apart_whatever_follows_it() -> None:
    stranger = framed(MAGIC + (VERSION + 1).to_bytes(2, "big") + b"\xc1 anything at all")
    with pytest.raises(InvalidPacket, match=f"version {VERSION + 1}.*speaks version {VERSION}"):
        FrameDecoder().feed(stranger)


@pytest.mark.parametrize(
    "changes",
    [
        {"role": "god"},
        {"name": ""},
        {"name": "x" * 200},
        {"name": "two\nlines"},
        {"broker": -1},
        {"broker": 70_000},
        {"incarnation": -1},
        {"datagram_port": 70_000},
        {"credentials": b"x" * 5000},
        {"name": 5},
    ],
)
def test_a_handshake_that_makes_no_sense_is_refused(changes: dict[str, object]) -> None:
    fields = [changes.get(name, getattr(HANDSHAKE, name)) for name in Handshake.__struct_fields__]
    with pytest.raises(InvalidPacket):
        decode_handshake(MAGIC + VERSION.to_bytes(2, "big") + msgspec.msgpack.encode(fields))


def test_after_a_close_nothing_counts() -> None:
    decoder = handshaken()
    assert decoder.feed(encode_close() + b"\xff" * 100) == [Close("")]
    assert decoder.feed(b"\xff" * 100) == []


def test_a_close_is_short_and_printable_however_long_the_reason() -> None:
    (close,) = handshaken().feed(encode_close("é\n" * 5000))
    assert isinstance(close, Close)
    assert len(close.problem) <= 1024
    assert close.problem.isprintable()
