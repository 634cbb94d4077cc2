"""The test double host itself: two small machines, pumped by hand. Also an example of what a machine looks like."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from penstock.kernel.link import Link
from penstock.kernel.machine import Accepted, Done, Effect, Hold, Send
from penstock.kernel.packet import Lane, Packet
from penstock.kernel.storage import Append, Appended, Ask, Entries, Read, StorageResult, Stored, Ticket, Trim
from penstock.kernel.trace import Counted
from penstock.testing import Pump


class Ping(Packet, frozen=True):
    number: int


class Echo:
    """Sends a Ping on each new link, answers every Ping with the next number up to `last`, and beats twice a second."""

    def __init__(self, last: int = 3, beat: float | None = None) -> None:
        self.last = last
        self.heard: list[int] = []
        self.beats: list[float] = []
        self.results: list[StorageResult] = []
        self._beat = beat

    def receive(self, packets: Sequence[Packet], *, sender: Link, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for packet in packets:
            assert isinstance(packet, Ping)
            self.heard.append(packet.number)
            if packet.number < self.last:
                effects.append(Send((sender,), Ping(packet.number + 1), Lane.CONTROL))
        return effects

    def link_ready(self, link: Link, *, room_bytes: int, now: float) -> list[Effect]:
        return []

    def link_changed(self, link: Link, *, up: bool, now: float) -> list[Effect]:
        return [Send((link,), Ping(0), Lane.CONTROL)] if up else [Counted("link down", "", 1)]

    def completed(self, ticket: Ticket, result: StorageResult, *, now: float) -> list[Effect]:
        self.results.append(result)
        return [Done(ticket, Accepted())]

    def wake(self, *, now: float) -> list[Effect]:
        self.beats.append(now)
        assert self._beat is not None
        self._beat += 0.5
        return []

    def deadline(self) -> float | None:
        return self._beat


def a_pair(last: int = 3) -> Pump:
    pump = Pump(steps_max=100)
    pump.add("a", Echo(last))
    pump.add("b", Echo(last))
    pump.connect("a", "b")
    return pump


def heard(pump: Pump, name: str) -> list[int]:
    machine = pump.machines[name]
    assert isinstance(machine, Echo)
    return machine.heard


def test_packets_wait_in_flight_until_they_are_delivered() -> None:
    pump = a_pair()
    assert [(flight.sender, flight.receiver, flight.kind) for flight in pump.flights] == [
        ("a", "b", "Ping"),
        ("b", "a", "Ping"),
    ]
    assert heard(pump, "b") == []
    pump.deliver(0)
    assert heard(pump, "b") == [0]
    assert heard(pump, "a") == []


def test_packets_can_be_delivered_out_of_order() -> None:
    pump = a_pair()
    pump.deliver(0)
    pump.flights.reverse()
    pump.deliver(0)
    assert heard(pump, "a") == [1]


def test_a_dropped_packet_is_seen_among_the_lost_and_by_nobody_else() -> None:
    pump = a_pair()
    pump.drop(0)
    pump.run()
    assert [flight.receiver for flight in pump.lost] == ["b"]
    assert heard(pump, "a") == [0, 2]


def test_wires_can_lose_by_themselves() -> None:
    pump = a_pair()
    pump.loses = lambda flight: flight.receiver == "b"
    pump.run()
    assert heard(pump, "a") == [0]


def test_run_hands_over_everything_and_stops_machines_that_never_rest() -> None:
    pump = a_pair()
    pump.run()
    assert heard(pump, "a") == heard(pump, "b") == [0, 1, 2, 3]
    endless = a_pair(last=10**9)
    with pytest.raises(AssertionError, match="still busy after 100 steps"):
        endless.run()


def test_time_passes_from_deadline_to_deadline() -> None:
    pump = Pump(now=10.0)
    pump.add("a", Echo(beat=10.2))
    pump.advance(1.2)
    assert pump.machines["a"].beats == [10.2, 10.7, 11.2]  # type: ignore[attr-defined]
    assert pump.now == 11.2


def test_the_number_of_wakings_is_bounded() -> None:
    pump = Pump(steps_max=100)
    pump.add("a", Echo(beat=0.0))
    with pytest.raises(AssertionError, match="more than 100 deadlines"):
        pump.advance(1e6)


def test_a_link_that_goes_down_loses_what_is_on_it() -> None:
    pump = a_pair()
    pump.change("a", "b", up=False)
    assert pump.flights == []
    assert [name for name, _ in pump.records] == ["a", "b"]


def test_storage_answers_once_from_a_log_that_survives_a_new_life() -> None:
    pump = Pump()
    first, second = Echo(), Echo()
    pump.add("a", first)
    pump.join("a", "b")
    operations = (Append(((1, b"x"), (2, b"y"))), Append(((5, b"z"),)), Trim(1), Read(0, 9, 9))
    pump.apply("a", [Ask(ticket, "log", operation) for ticket, operation in enumerate(operations, start=1)])
    assert first.results == []
    pump.run()
    assert first.results == [Appended(), Appended(), Stored(), Entries(((2, b"y"), (5, b"z")), True)]
    assert [done.ticket for _, done in pump.done] == [1, 2, 3, 4]
    pump.add("b", Echo())
    pump.add("a", second)
    pump.apply("a", [Ask(5, "log", Read(3, 9, 1)), Ask(6, "other log", Read(0, 9, 9))])
    pump.run()
    assert second.results == [Entries(((5, b"z"),), True), Entries((), True)]


def test_a_crash_is_never_answered() -> None:
    pump = Pump()
    first, second = Echo(), Echo()
    pump.add("a", first)
    pump.join("a", "b")
    pump.add("b", Echo())
    pump.apply("a", [Ask(1, "log", Append(((1, b"x"),)))])
    pump.add("a", second)
    pump.run()
    assert first.results == second.results == []
    assert pump.done == []


def test_a_hold_is_the_nodes_own_business_and_no_hosts() -> None:
    with pytest.raises(AssertionError):
        a_pair().apply("a", [Hold(0, Lane.PRICED)])


def test_a_packet_knows_its_size_and_says_by_default_that_it_carries_no_message() -> None:
    assert Ping(1).size_bytes() == len(b"\x92\xa4Ping\x01")
    assert Ping(1).carried() is None
    assert Ping(1).meant_for() == 1
