"""Fuzzing with atheris: `python fuzz/run.py --target parser --seconds 20`.

Whatever the bytes, a target may only raise the error that its documentation names, and whatever it accepts must hold
together: a predicate agrees with its normal form and its encoding, a packet and a scenario survive being written again,
a transport that received nonsense still delivers what comes next.
Anything else is a finding: atheris prints the bytes and leaves them in a file named crash-<hash>.

Exit codes: 0 nothing found, 4 atheris is not installed, anything else a finding.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable

MISSING = "atheris is not installed; `pip install 'penstock[fuzz]'` brings it (Python below 3.13 only)"
SEEDS: dict[str, list[bytes]] = {
    "parser": [
        b"symbol = 'IBM' AND (price < 120 OR price BETWEEN 200 AND 250) AND note LIKE 'urgent%' AND EXISTS urgent",
        b"NOT a IN (1, 2.5, 'x') OR \"quoted name\" IS NOT NULL AND b NOT LIKE '!%' ESCAPE '!'",
        b"((TRUE)) AND x <> -9223372036854775808 OR NOT NOT y",
    ],
    "codec": [
        b"\x95\xa5Hello\x01\x01\xa1s\x01",
        b"\x94\xabPublication\x92\x01\x02\x05\x94\x93\xa1p\x01\x01\x81\xa1n\x01\xc4\x00\x1e",
        b"\x99\xa8Interest\x01\x01\x00\x01\x91\xc4\x01x\x90\x00\x01",
        b"\x95\xabPublication\x92\x01\x02\x05\x94\x93\xa1p\x01\x01\x81\xa1n\x01\xc4\x00\x1e\x03",
        b"\x93\xa6Credit\x01\xce\x00\x04\x00\x00",
        b"\x93\xa6Status\x01\xc4\x02{}",
    ],
    "frames": [
        b"\x01\x00\x00\x00\x01\x90",
        b"\x80\x00\x00\x00\x1ePENSTOCK\x00\x01\x97\xa6client\xa4fuzz\x00\x01\xc4\x00\x00\x00",
        b"\x01\x00\x00\x00\x0d\x91\x94\xa9Subscribe\x01\x01",
        b"\x01\x00\x00\x00\x04\xa3bye",
    ],
    "header": [
        b"\x01\x00" + bytes(7) + b"\x01" + bytes(14),
        b"\x01\x01\x0a" + bytes(15) + b"\x00\x02\x02\x08" + bytes(8) + b"\x00\x01\x3f",
        b"\x01\x02\x0a" + bytes(15) + b"\x00\x02\x02\x08" + bytes(24),
    ],
    "control": [
        b"\x00\x97\x93\xa1p\x01\x02\xa1r\xcb?\xf0\x00\x00\x00\x00\x00\x00\xcb?\xb9\x99\x99\x99\x99\x99\x9a\x02\x02\x01",
        b"\x01\x95\x93\xa1p\x01\x02\x02\xcb?\xf0\x00\x00\x00\x00\x00\x00\xa1a\xc0",
        b"\x02\x01\x02\x0a" + bytes(15) + b"\x00\x02\x02\x08" + bytes(24),
        b"\x03\x92\xa1r\xcb?\xf0\x00\x00\x00\x00\x00\x00",
    ],
    "scenario": [
        b'name = "pair"\nduration = 10\n[[broker]]\nname = "a"\n[[broker]]\nname = "b"\n'
        b'[[link]]\nbetween = ["a", "b"]\n',
        b'name = "x"\nduration = 1\nbroker = [{name = "a"}]\n[[client]]\nname = "c"\nbroker = "a"\n'
        b"[[client.publish]]\nrate_messages_per_s = 5\nattributes = {n = {uniform = [0, 1]}}\n",
        b'name = "x"\nduration = 1\n[services.routing]\nhello_interval = 0.4\n[[broker]]\nname = "a"\n'
        b'[[client]]\nname = "c"\nbroker = "a"\n[client.transport]\nrecord_entries = 5\n'
        b"[[client.subscribe]]\nwhere = 'n > 1'\nordered = true\nrecover = true\n",
    ],
}


def explained(error: Exception) -> None:
    """A refusal says what is wrong."""
    assert str(error).strip()


def parser_target() -> Callable[[bytes], None]:
    from penstock.content.bloom import DEFAULT_SCHEME, matches
    from penstock.content.language.evaluate import filter_matches
    from penstock.content.language.parser import parse_predicate
    from penstock.errors import InvalidPredicate

    messages = [{}, {"a": 1}, {"a": True, "price": 110.0}, {"symbol": "IBM", "price": 110, "urgent": True, "note": "x"}]

    def target(data: bytes) -> None:
        try:
            predicate = parse_predicate(data.decode("utf-8", "replace"))
        except InvalidPredicate as error:
            explained(error)
            return
        announced = DEFAULT_SCHEME.routing_encodings(predicate)
        for message in messages:
            wanted = predicate.matches(message)
            assert wanted == any(filter_matches(one, message) for one in predicate.filters)
            bits = DEFAULT_SCHEME.encode_message(message)
            assert not wanted or any(matches(one, bits) for one in announced)

    return target


def codec_target() -> Callable[[bytes], None]:
    from penstock.errors import InvalidPacket
    from penstock.overlay.codec import encode
    from penstock.services import codec

    decode = codec().decode

    def target(data: bytes) -> None:
        try:
            packet = decode(data)
        except InvalidPacket as error:
            explained(error)
            return
        assert decode(encode(packet)) == packet
        assert packet.size_bytes() > 0
        assert packet.meant_for() >= 1

    return target


def scenario_target() -> Callable[[bytes], None]:
    from penstock.errors import InvalidScenario
    from penstock.scenario.reader import parse_scenario
    from penstock.scenario.validate import validate

    def target(data: bytes) -> None:
        try:
            validate(parse_scenario(data))
        except InvalidScenario as error:
            explained(error)

    return target


def frames_target() -> Callable[[bytes], None]:
    from penstock.errors import InvalidPacket
    from penstock.live.wire.frames import FrameDecoder, Handshake, encode_handshake

    handshake = encode_handshake(Handshake(role="client", name="fuzz"))

    def target(data: bytes) -> None:
        """The first byte chooses where the stream is cut, and whether it begins with a good handshake."""
        if not data:
            return
        stream = (handshake if data[0] % 2 else b"") + data[1:]
        cut = data[0] * len(stream) // 255
        outcomes = []
        for chunks in ([stream], [stream[:cut], stream[cut:]]):
            decoder = FrameDecoder()
            try:
                outcomes.append([frame for chunk in chunks for frame in decoder.feed(chunk)])
            except InvalidPacket as error:
                explained(error)
                outcomes.append([])
            assert decoder.waiting_bytes() <= len(stream)
        assert outcomes[0] == outcomes[1], "where a stream is cut changes nothing"

    return target


def header_target() -> Callable[[bytes], None]:
    from penstock.errors import InvalidHeader
    from penstock.transport.config import RECORD_ENTRIES_TAKEN_MAX
    from penstock.transport.wire.header import decode_header

    def target(data: bytes) -> None:
        """The first byte stands for the encoding of the message that carries the header."""
        try:
            header = decode_header(data[1:], data[0] if data else 0, entry_bits=64)
        except InvalidHeader as error:
            explained(error)
            return
        assert len(header.entries()) == header.record_size <= min(RECORD_ENTRIES_TAKEN_MAX, header.sequence - 1)
        assert all(0 <= encoding < 1 << 64 for encoding in header.entries())
        assert list(header.ages) == sorted(header.ages)

    return target


def control_target() -> Callable[[bytes], None]:
    from functools import partial

    from penstock.content.envelope import control_message
    from penstock.content.language.parser import parse_predicate
    from penstock.content.message import Identity, make_message
    from penstock.kernel.machine import Deliver
    from penstock.kernel.randomness import generator
    from penstock.kernel.timers import ServiceTimers, Timers
    from penstock.transport.bearer import BearerPublish
    from penstock.transport.config import TransportConfig
    from penstock.transport.transport import Transport

    config = TransportConfig(record_bits=64, heartbeat_interval=1.0)
    kinds = ("request", "repair", "heartbeat", "echo", "answer", "data")
    everything = parse_predicate("TRUE")

    def target(data: bytes) -> None:
        """The first byte chooses the kind of control message; a client gets it amid good messages of a publisher."""
        timers = Timers()
        ours, theirs = ServiceTimers("transport", timers), ServiceTimers("transport", Timers())
        publisher = Transport("p", 1, config, theirs, partial(generator, 1, "p"), publishes=True)
        client = Transport("a", 1, config, ours, partial(generator, 1, "a"), publishes=False)
        client.subscribe(1, everything, ordered=True, recover=True, now=0.0)
        delivered: list[int] = []

        def receive(effects: list[object]) -> None:
            given = [effect.message for effect in effects if isinstance(effect, Deliver)]
            delivered.extend(message.identity.count for message in given if message.body == b"good")

        for count in (1, 2, 3):
            good = make_message(Identity("p", 1, count), {"n": count}, b"good")
            for effect in publisher.publish(good, now=0.1 * count):
                if isinstance(effect, BearerPublish):
                    receive([*client.arrived((1,), effect.message, now=0.1 * count)])
            if count == 2 and data:
                kind = kinds[data[0] % len(kinds)]
                sender = "~p" if kind == "heartbeat" else "p"
                message = control_message(
                    Identity(sender, 1, 2), kind, {"_from": "p"} if kind == "heartbeat" else {"n": 2}, data[1:]
                )
                receive([*client.arrived((1,), message, now=0.25)])
        for _ in range(1_000):
            deadline = timers.deadline()
            if deadline is None or deadline > 60.0:
                break
            timer = timers.pop_due(deadline)
            assert timer is not None
            receive([*client.expired(int(timer[1]), timer[2:], now=deadline)])
        # A forged repair of the third may take its place: the network below has no signatures.
        assert sorted(delivered) in ([1, 2, 3], [1, 2])

    return target


TARGETS: dict[str, Callable[[], Callable[[bytes], None]]] = {
    "parser": parser_target,
    "codec": codec_target,
    "frames": frames_target,
    "header": header_target,
    "control": control_target,
    "scenario": scenario_target,
}


def main() -> int:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--target", choices=sorted(TARGETS), required=True)
    arguments.add_argument("--seconds", type=int, default=20)
    chosen = arguments.parse_args()
    try:
        import atheris
    except ImportError:
        print(MISSING, file=sys.stderr)
        return 4
    with atheris.instrument_imports(include=["penstock", "tomllib"]):
        target = TARGETS[chosen.target]()
    with tempfile.TemporaryDirectory(prefix="penstock-fuzz-") as corpus:
        for number, seed in enumerate(SEEDS[chosen.target]):
            target(seed)  # also does whatever the first call has to set up
            with open(f"{corpus}/seed-{number}", "wb") as file:
                file.write(seed)
        options = [f"-max_total_time={chosen.seconds}", "-max_len=4096", "-timeout=10", "-rss_limit_mb=2048"]
        atheris.Setup([sys.argv[0], *options, corpus], target)
        atheris.Fuzz()  # ends the process: 0 after the time, else with the code of the finding
    return 0


if __name__ == "__main__":
    sys.exit(main())
