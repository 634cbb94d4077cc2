"""Brokers between a pubend and its readers: relays that are forgotten and made again, busy streams, slow ways."""

from __future__ import annotations

import pytest

from penstock.streams.broker_service import StreamBroker
from penstock.streams.client_service import StreamClient
from penstock.streams.packets import Knowledge, Progress, Routed, StreamDelivery
from penstock.streams.records import DurableBegan
from penstock.testing import ClientMachine, Flight
from stream_row import PUBEND, StreamRow

SECOND = 1_000_000  # ticks


def advance(row: StreamRow, seconds: float, held: list[tuple[float, Flight]], delay: float, *kinds: type) -> None:
    """Time passes; between b0 and b1 packets of these kinds need so long, and wait in `held`."""
    pump = row.pump
    until = pump.now + seconds
    while True:
        while pump.questions or pump.flights:
            if pump.questions:
                pump.answer()
            elif {pump.flights[0].sender, pump.flights[0].receiver} == {"b0", "b1"} and isinstance(
                pump.flights[0].packet, kinds
            ):
                held.append((pump.now + delay, pump.flights.pop(0)))
            else:
                pump.deliver()
        wakes = [(at, name) for name, machine in pump.machines.items() if (at := machine.deadline()) is not None]
        at, name = min(wakes)
        if held and held[0][0] <= at:
            at, name = held[0][0], ""
        if at > until:
            pump.now = until
            return
        pump.now = max(pump.now, at)
        if name:
            pump.apply(name, pump.machines[name].wake(now=pump.now))
        else:
            _, flight = held.pop(0)
            pump.receive(flight.receiver, flight.packet, sender=flight.link)


def acknowledge_all(row: StreamRow, client: ClientMachine, name: str) -> None:
    came = [message for _, message in row.pump.got(name)]
    row.take(client, name, len(came))
    machine = client.node.machine(StreamClient)
    tick = came[-1].tick  # type: ignore[attr-defined]
    row.pump.apply(name, client.node.route(machine.acknowledge(1, PUBEND, tick, ticket=0, now=row.pump.now)))


def position(row: StreamRow) -> int:
    """Of the only durable name, at its pubend."""
    hosted = row.pump.machines["b0"].machine(StreamBroker)._hosting.pubends[PUBEND]  # type: ignore[attr-defined]
    (name,) = hosted._names
    return int(name.newest.position)


def test_silence_for_an_interest_that_was_forgotten_is_none_for_the_next() -> None:
    """Knowledge that was filtered for a reader who left comes when another one is there, in the same life."""
    row = StreamRow(2)
    publisher, late = row.client("pub", "b0"), row.client("late", "b1")
    row.read(late, "late", "kind = 'b'", durable="late")
    row.pump.advance(1.0)
    row.pump.change("late", "b1", up=False)
    row.pump.advance(3.0)
    early = row.client("early", "b1")
    row.read(early, "early", "kind = 'a'", durable="early")
    row.pump.advance(3.0)
    ticket = row.publish(publisher, "pub", 1, kind="b")
    held: list[tuple[float, Flight]] = []
    advance(row, 0.3, held, 100.0, Knowledge)
    assert row.stored(ticket)
    row.pump.change("early", "b1", up=False)
    advance(row, 1.5, held, 100.0, Knowledge)
    row.pump.change("late", "b1", up=True)
    advance(row, 0.001, held, 100.0, Knowledge)
    assert any(flight.packet.first <= row.stored(ticket) <= flight.packet.last for _, flight in held)  # type: ignore
    for _, flight in held:
        row.pump.receive(flight.receiver, flight.packet, sender=flight.link)
    row.pump.advance(5.0)
    assert row.got("late") == [1]


@pytest.mark.parametrize("brokers", [2, 3])
def test_a_loss_on_a_busy_stream_is_noticed_though_nothing_else_matches(brokers: int) -> None:
    row = StreamRow(brokers)
    publisher, reader, busy = row.client("pub", "b0"), row.client("sub", row.edge), row.client("busy", "b1")
    row.read(reader, "sub", "kind = 'b'")
    row.read(busy, "busy", "kind = 'a'", durable="busy")
    row.pump.advance(2.0)
    lost: list[Flight] = []

    def loses(flight: Flight) -> bool:
        data = flight.packet.data if isinstance(flight.packet, Knowledge) else ()
        if flight.receiver == row.edge and any(one.attributes["kind"] == "b" for _, one in data) and not lost:
            lost.append(flight)
            return True
        return False

    row.pump.loses = loses
    row.publish(publisher, "pub", 1, kind="b")
    for count in range(100):
        row.publish(publisher, "pub", 2 + count, kind="a")
        row.pump.advance(0.02)
    assert lost
    assert row.got("sub") == [1]


def test_a_reader_of_nothing_on_a_busy_stream_holds_up_no_log() -> None:
    row = StreamRow(3)
    publisher, reader = row.client("pub", "b0"), row.client("sub", "b2")
    row.read(reader, "sub", "kind = 'b'")
    row.pump.advance(2.0)
    for count in range(200):
        row.publish(publisher, "pub", 1 + count, kind="a")
        row.pump.advance(0.02)
    assert position(row) > row.pump.now * SECOND - 3 * SECOND


def test_a_subscription_begins_over_a_way_that_is_slower_than_the_patience_of_its_broker() -> None:
    row = StreamRow(2)
    publisher, reader = row.client("pub", "b0"), row.client("sub", "b1")
    held: list[tuple[float, Flight]] = []
    row.read(reader, "sub", "n > 0")
    advance(row, 15.0, held, 0.7, Routed)
    assert row.pump.records_of("sub", DurableBegan)
    row.publish(publisher, "pub", 1)
    advance(row, 5.0, held, 0.7, Routed)
    assert row.got("sub") == [1]


def test_a_name_that_is_done_with_all_holds_up_no_log_after_a_crash_of_its_edge() -> None:
    row = StreamRow(2)
    publisher, reader = row.client("pub", "b0"), row.client("sub", "b1")
    row.read(reader, "sub", "n > 0")
    row.pump.advance(2.0)
    row.publish(publisher, "pub", 1)
    row.pump.advance(1.0)
    acknowledge_all(row, reader, "sub")
    row.pump.advance(1.0)
    row.pump.loses = lambda flight: isinstance(flight.packet, Routed) and isinstance(flight.packet.payload, Progress)
    row.pump.advance(3.0)  # the client hears how far its broker is, the pubend does not
    row.pump.loses = lambda flight: False
    row.crash("b1")
    row.pump.advance(10.0)
    assert position(row) > row.pump.now * SECOND - 3 * SECOND


def test_one_question_is_answered_with_one_slice_of_the_log() -> None:
    """A relay that has nothing in its cache asks; what is too much for one answer is left to the next question."""
    row = StreamRow(2, cache_bytes=1, answer_bytes=1_000)
    publisher, reader = row.client("pub", "b0"), row.client("sub", "b1")
    row.read(reader, "sub", "n > 0")
    row.pump.advance(1.0)
    row.pump.change("sub", "b1", up=False)
    for count in range(1, 31):
        row.publish(publisher, "pub", count, filling="x" * 400)
        row.pump.advance(0.1)
    handed: list[Flight] = []
    row.pump.loses = lambda flight: handed.append(flight) or False  # type: ignore[func-returns-value]
    row.pump.change("sub", "b1", up=True)
    row.pump.advance(5.0)
    assert row.got("sub") == list(range(1, 31))
    data = [one.packet for one in handed if isinstance(one.packet, Knowledge) and one.packet.data]
    assert sum(len(packet.data) for packet in data if isinstance(packet, Knowledge)) <= 2 * 30


def test_who_catches_up_takes_small_steps_while_others_get_live_messages() -> None:
    """A large slice of the log keeps the broker busy, and live messages wait for it."""
    row = StreamRow(2, cache_bytes=1, answer_bytes=8_000)
    publisher, follower = row.client("pub", "b0"), row.client("sub", "b0")
    row.read(follower, "sub", "TRUE")
    for count in range(1, 101):
        row.publish(publisher, "pub", count, filling="x" * 400)
        row.pump.advance(0.01)
    steps: dict[str, list[int]] = {}

    def watch(flight: Flight) -> bool:
        if isinstance(flight.packet, StreamDelivery) and len(flight.packet.items) > 0:
            steps.setdefault(flight.receiver, []).append(len(flight.packet.items))
        return False

    row.pump.loses = watch
    for name, live in (("quiet", 0), ("busy", 3)):
        row.pump.advance(1.0)
        for count in range(live):
            row.publish(publisher, "pub", 101 + count)
            row.pump.advance(0.02)
        row.read(row.client(name, "b0"), name, "TRUE", durable=name, start_at="earliest")
        row.pump.advance(0.05)
        assert row.got(name) == list(range(1, 101 + live))
    assert max(steps["quiet"]) > 20
    assert max(steps["busy"]) < 8


def test_a_broker_that_has_not_read_yet_what_it_stores_does_not_deny_it() -> None:
    """A stream that was made by command, at the only broker: clients are back before its disk has answered."""
    row = StreamRow(1, declared=False)
    publisher, reader = row.client("pub", "b0"), row.client("sub", "b0")
    row.add(publisher, "pub")
    row.pump.advance(1.0)
    row.read(reader, "sub", "n > 0")
    row.pump.advance(1.0)
    row.crash("b0")
    ticket = row.publish(publisher, "pub", 1)
    while row.pump.flights:
        row.pump.deliver()
    assert row.pump.questions
    row.pump.advance(10.0)
    assert row.stored(ticket)
    assert row.got("sub") == [1]
