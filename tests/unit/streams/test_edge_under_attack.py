"""What a client, or another broker, may send to a broker: whatever it is, it harms nobody else."""

from __future__ import annotations

import pytest

from penstock.content.language.parser import parse_predicate
from penstock.content.message import DEFAULT_LIMITS
from penstock.errors import InvalidPacket
from penstock.kernel.machine import Refused
from penstock.services import options
from penstock.streams.broker_service import StreamBroker
from penstock.streams.interest import filters_of
from penstock.streams.known import Known
from penstock.streams.packets import (
    Command,
    CommandAnswer,
    Join,
    Knowledge,
    Nack,
    Routed,
    StreamCommand,
    StreamPublish,
    StreamPublished,
    StreamReport,
)
from penstock.streams.records import PubendCommitted
from penstock.streams.relay import ANSWER_PACKETS
from penstock.testing import a_message
from stream_row import PUBEND, STREAM, StreamRow

DEEP = b'{"durable":' + b"[" * 100_000

UNREADABLE = {
    "a time beyond all numbers": ("trim", b'{"time":1e308}'),
    "an age beyond all numbers": ("trim", b'{"age":1e305}'),
    "a tick of nine thousand digits": ("trim", b'{"tick":' + b"9" * 9_000 + b"}"),
    "a negative tick": ("trim", b'{"tick":-5}'),
    "nested too deeply": ("info", DEEP),
    "not UTF-8": ("info", b'{"durable":"\xff"}'),
    "not JSON": ("verify", b"\xff\xfe"),
    "a lone surrogate": ("add", b'{"at":["\xed\xa0\x80"]}'),
}


@pytest.mark.parametrize(("verb", "arguments"), UNREADABLE.values(), ids=UNREADABLE)
def test_a_command_that_makes_no_sense_is_answered_with_a_problem(verb: str, arguments: bytes) -> None:
    row = StreamRow(2)
    row.client("mallory", "b0")
    row.pump.receive("b0", StreamCommand(1, verb, STREAM, arguments), sender=row.pump.link("b0", "mallory"))
    while row.pump.questions:
        row.pump.answer()
    (report,) = row.pump.in_flight(StreamReport)
    assert isinstance(report, StreamReport)
    assert report.problem


NOT_TO_ADD = {
    "a number that is a word": (STREAM, b'{"number":"abc","of":1}'),
    "a number that is a table": (STREAM, b'{"number":{},"of":1}'),
    "a fraction": (STREAM, b'{"number":0.5,"of":"2"}'),
    "far too many": (STREAM, b'{"number":1e300,"of":3}'),
    "nothing at all": (STREAM, b""),
    "nested too deeply": (STREAM, DEEP),
    "a name with a path in it": ("../notes", b'{"number":0,"of":1}'),
}


@pytest.mark.parametrize(("stream", "arguments"), NOT_TO_ADD.values(), ids=NOT_TO_ADD)
def test_a_broker_that_asks_for_an_impossible_pubend_is_refused(stream: str, arguments: bytes) -> None:
    row = StreamRow(2)
    packet = Routed(0, 1, 3, Command(5, "add", stream, arguments))
    row.pump.receive("b0", packet, sender=row.pump.link("b0", "b1"))
    (answer,) = row.pump.in_flight(Routed)
    assert isinstance(answer, Routed)
    assert isinstance(answer.payload, CommandAnswer)
    assert answer.payload.problem


def test_an_answer_to_a_command_that_cannot_be_read_is_named_in_the_report() -> None:
    row = StreamRow(2)
    row.client("operator", "b1")
    row.pump.receive("b1", StreamCommand(1, "info", STREAM, b"{}"), sender=row.pump.link("b1", "operator"))
    (asked,) = (one for one in row.pump.in_flight(Routed) if isinstance(one, Routed))
    assert isinstance(asked.payload, Command)
    row.pump.flights.clear()
    answer = CommandAnswer(asked.payload.request, b"{nonsense")
    row.pump.receive("b1", Routed(1, 0, 3, answer), sender=row.pump.link("b1", "b0"))
    (report,) = row.pump.in_flight(StreamReport)
    assert isinstance(report, StreamReport)
    assert "cannot be read" in report.problem


def test_a_client_cannot_publish_under_the_name_of_another() -> None:
    row = StreamRow(2)
    row.client("mallory", "b1")
    message = a_message(1, {"n": 1}, publisher="alice")
    row.pump.receive("b1", StreamPublish(1, STREAM, "", "id", 0.0, message), sender=row.pump.link("b1", "mallory"))
    (answer,) = row.pump.in_flight(StreamPublished)
    assert isinstance(answer, StreamPublished)
    assert not answer.again
    assert "under its own name" in answer.problem
    row.pump.run()
    assert row.pump.records_of("b0", PubendCommitted) == []


def test_two_subscriptions_of_one_client_are_two_readers_of_a_name() -> None:
    """The second takes over, and the first ends: neither wins the name back, and nothing comes twice."""
    row = StreamRow(2)
    publisher, reader = row.client("pub", "b0"), row.client("sub", "b1")
    row.read(reader, "sub", "n > 0")
    row.pump.advance(1.0)
    takeover = options({"stream": STREAM, "durable": "billing", "takeover": True})
    row.pump.apply("sub", reader.subscribe(2, "n > 0", takeover, ticket=9, now=row.pump.now))
    row.pump.advance(2.0)
    for count in range(1, 6):
        row.publish(publisher, "pub", count)
        row.pump.advance(1.0)
    assert row.got("sub") == [1, 2, 3, 4, 5]
    assert len(row.pump.machines["b1"].machine(StreamBroker).status().relays) == 1  # type: ignore[attr-defined]
    assert not isinstance(row.outcome(9), Refused)


def test_a_nack_for_the_whole_of_time_is_answered_with_a_bounded_number_of_packets() -> None:
    row = StreamRow(2)
    relays = row.pump.machines["b0"].machine(StreamBroker)._relays  # type: ignore[attr-defined]
    relay = relays.get(PUBEND)
    link = row.pump.link("b0", "b1")
    wants = tuple(sorted(filters_of([parse_predicate("n > 0")])))
    row.pump.receive("b0", Join(PUBEND, 1, 1, wants), sender=link)
    relay.known = Known(bytes_max=1 << 20, runs_max=10_000)
    for tick in range(1, 4_000, 2):
        relay.known.learn(tick, tick, 1 << 61, ())
    relay.newest = relay.known.head
    effects = row.pump.receive("b0", Nack(PUBEND, 1, 1, ((1, 1 << 61),)), sender=link)
    told = [one for one in row.pump.in_flight(Knowledge) if isinstance(one, Knowledge)]
    assert 0 < len(told) <= ANSWER_PACKETS + 1
    assert told[-1].cut
    assert len(effects) < 2 * ANSWER_PACKETS


@pytest.mark.parametrize("ranges", [((1, 9), (5, 20)), ((1, 9), (9, 20)), ((5, 9), (1, 2)), ((9, 5),)])
def test_ranges_of_a_nack_do_not_overlap(ranges: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(InvalidPacket):
        Nack(PUBEND, 1, 1, ranges).checked(DEFAULT_LIMITS)


def test_ranges_of_a_nack_may_be_single_ticks() -> None:
    packet = Nack(PUBEND, 1, 1, ((1, 1), (2, 2), (5, 9)))
    assert packet.checked(DEFAULT_LIMITS) is packet
