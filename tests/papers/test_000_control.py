"""What 000 says about the whole of congestion control, one claim per test: messages on a network, and their errata.

The parts without a network are in `test_000_congestion` (C1 to C5, C8, C12 to C14). C11 is about the set-up of one
experiment (diameter 3 or 6, 758 or 760 subscribers); its test is in `lab/test_congestion`.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import pytest

from narrow_bus import DELAY, PAPERS_CONFIG, NarrowBus, Path, a_bus
from penstock.content.envelope import DATA, kind_of, opened
from penstock.transport.config import papers_config
from penstock.transport.receiver.rate_controller import RateController, receiver_hash
from penstock.transport.records import FlowLimited
from penstock.transport.wire.control_messages import ECHO, FEEDBACK, TO, Feedback, decode_control
from penstock.transport.wire.flow_fields import Control
from penstock.transport.wire.header import Header, decode_header, encode_header, whole_entry


def headers(bus: NarrowBus) -> list[tuple[float, Header]]:
    """Of all that the publisher sent."""
    found = []
    for carried in bus.carried:
        if kind_of(carried.message) == DATA:
            data, _ = opened(carried.message)
            found.append((carried.time, decode_header(data, 0, entry_bits=PAPERS_CONFIG.record_bits)))
    return found


def controller_of(bus: NarrowBus, name: str) -> RateController:
    transport = bus.members[name].transport
    assert transport is not None
    (session,) = transport.scheme._sessions.values()
    assert session.rate_controller is not None
    return session.rate_controller


@cache
def two_receivers() -> NarrowBus:
    """B behind a narrow place, C free, disjoint interests; all clocks are wrong."""
    bus = a_bus(1, PAPERS_CONFIG)
    bus.subscriber("B", "kind = 'bulk'", Path(100.0))
    bus.subscriber("C", "kind = 'news'")
    bus.stream(300.0, 12.0, kind="bulk")
    bus.stream(100.0, 12.0, kind="news")
    bus.run(12.0)
    return bus


def test_the_rates_of_two_flows_are_modulated_independently() -> None:
    """Section II-B, Figure 1."""
    bus = two_receivers()
    assert bus.rate_at("B", 4.0, 12.0) == pytest.approx(100.0, rel=0.15)
    assert bus.rate_at("C", 4.0, 12.0) == pytest.approx(100.0, rel=0.05)


def test_only_messages_that_match_a_controlled_flow_are_marked() -> None:
    """Section III-B8."""
    bus = two_receivers()
    for carried in bus.carried:
        if kind_of(carried.message) == DATA and carried.time > 4.0:
            data, inside = opened(carried.message)
            control = decode_header(data, 0, entry_bits=PAPERS_CONFIG.record_bits).control
            assert control is not None
            assert (control.limiting == receiver_hash("B")) == (inside.attributes["kind"] == "bulk")


def test_feedback_goes_through_the_network_itself_to_whom_it_is_for() -> None:
    """Section III-B1: the sender subscribes for feedback that is addressed to it."""
    bus = two_receivers()
    feedbacks = bus.control_messages(FEEDBACK)
    assert feedbacks
    assert {carried.message.attributes[TO] for carried in feedbacks} == {"p"}
    assert {carried.sender for carried in feedbacks} == {"B"}
    received = [
        name for name, member in bus.members.items() if any(kind_of(h.message) == FEEDBACK for h in member.received)
    ]
    assert received == ["p"]


def test_there_is_at_most_one_feedback_per_round_trip() -> None:
    """Sections II-C and III-B5, erratum C2."""
    bus = two_receivers()
    times = [carried.time for carried in bus.control_messages(FEEDBACK)]
    assert min(later - earlier for earlier, later in pairwise(times)) > 2.0 * DELAY * 0.9


def test_feedback_carries_the_time_it_was_sent() -> None:
    """Section III-B6, erratum C6: without it the publisher cannot say how long it travelled."""
    bus = two_receivers()
    for carried in bus.control_messages(FEEDBACK):
        feedback = decode_control(opened(carried.message)[0], Feedback)
        assert feedback.sent_at == pytest.approx(bus.members["B"].local(carried.time), abs=1e-3)


def test_the_session_begins_with_an_echo() -> None:
    """Section III-B4."""
    bus = two_receivers()
    first = min(carried.time for carried in bus.control_messages(ECHO) if carried.sender == "B")
    assert first < 0.1


def test_the_limiting_receiver_measures_its_round_trip_although_no_two_clocks_agree() -> None:
    """Section III-B4, erratum C6: offsets of hours, drifts of 100 ppm."""
    bus = a_bus(1, PAPERS_CONFIG)
    bus.subscriber("B", "kind = 'bulk'", Path(100.0))
    bus.stream(300.0, 10.0, kind="bulk")
    offsets = [bus.members[name].offset for name in ("p", "B")]
    assert abs(offsets[0] - offsets[1]) > 100.0
    bus.run(4.0)
    measured, real = [], []
    for tenth in range(41, 100):
        bus.run(tenth / 10.0)
        measured.append(controller_of(bus, "B").round_trip)
        real.append(2.0 * DELAY + len(bus.paths["B"].leaving) / bus.paths["B"].rate)
    assert sum(measured) / len(measured) == pytest.approx(sum(real) / len(real), rel=0.1)


def test_the_travel_in_the_header_means_nothing_to_anybody_else() -> None:
    """Erratum C6: it cancels the clock of the limiting receiver. D wants the same and has a clock of its own."""
    bus = a_bus(5, PAPERS_CONFIG)
    bus.subscriber("B", "kind = 'bulk'", Path(100.0, 5))
    bus.subscriber("D", "kind = 'bulk'")
    bus.stream(300.0, 6.0, kind="bulk")
    bus.run(6.0)
    control = headers(bus)[-1][1].control
    assert control is not None
    assert control.limiting == receiver_hash("B")
    assert abs(bus.members["B"].offset - bus.members["D"].offset) > 100.0
    assert controller_of(bus, "D").round_trip == pytest.approx(2.0 * DELAY, abs=0.005)  # by its own echo


def test_a_message_of_several_flows_names_all_their_receivers_the_slowest_first() -> None:
    """Figure 2, erratum C7: there is one field, so a receiver whose messages have other flows too is hardly named."""
    bus = a_bus(6, PAPERS_CONFIG)
    bus.subscriber("slow", "bulk", Path(50.0))
    bus.subscriber("middle", "urgent", Path(100.0))
    bus.stream(150.0, 8.0, bulk=True)
    bus.stream(150.0, 8.0, urgent=True)
    bus.stream(20.0, 8.0, bulk=True, urgent=True)
    bus.run(8.0)
    assert len(bus.flows()) == 2
    for carried in bus.carried[-200:]:
        if kind_of(carried.message) == DATA:
            data, inside = opened(carried.message)
            control = decode_header(data, 0, entry_bits=PAPERS_CONFIG.record_bits).control
            assert control is not None
            wanted = {"bulk": receiver_hash("slow"), "urgent": receiver_hash("middle")}
            assert {flow.limiting for flow in control.followed} == {wanted[name] for name in inside.attributes}
    assert controller_of(bus, "slow").limiting
    assert controller_of(bus, "middle").limiting


def test_the_flag_is_taken_back_when_somebody_else_is_named() -> None:
    """Figure 3, erratum C7: the papers only say how it is set."""
    bus = a_bus(7, PAPERS_CONFIG)
    path = Path(150.0)
    bus.subscriber("first", "kind = 'bulk'", path)
    bus.stream(300.0, 16.0, kind="bulk")
    bus.run(5.0)
    assert controller_of(bus, "first").limiting
    bus.subscriber("second", "kind = 'bulk'", Path(50.0))
    bus.run(15.0)
    assert not controller_of(bus, "first").limiting
    assert controller_of(bus, "second").limiting


def test_a_header_with_a_record_of_two() -> None:
    """Section IV, erratum C9: 80 bytes are two entries of 32 and 16 for all the rest.

    Ours has 48 for the rest: 8 bytes each for number and departure instead of 4, ages of both entries, counts, and the
    flow and place by which a limiting receiver sees its losses.
    """
    entries = [whole_entry(1, 32), whole_entry(2, 32)]
    control = Control(2000.0, receiver_hash("B"), 0.12, 3, 917)
    data = encode_header(917, 120.5, [0.001, 0.002], entries, flags=0, entry_bytes=32, control=control)
    assert len(data) == 2 * 32 + 48
    read = decode_header(data, 0, entry_bits=256).control
    assert read is not None
    assert read._replace(travel=0.12) == control
    assert read.travel == pytest.approx(0.12)


def test_numbers_are_given_when_messages_leave() -> None:
    """Section III-B8, erratum C10: numbered when queued, whoever overtakes would look like a loss."""
    bus = two_receivers()
    numbers = [header.sequence for _, header in headers(bus)]
    assert numbers == list(range(1, len(numbers) + 1))
    late = controller_of(bus, "C").loss_intervals
    assert late.events == 0  # C lost nothing, although B's messages waited


def test_stale_entries_are_discarded() -> None:
    """Section III-B6: after a set timeout."""
    bus = a_bus(8, PAPERS_CONFIG)
    bus.subscriber("B", "kind = 'bulk'", Path(100.0))
    bus.stream(300.0, 4.0, kind="bulk")
    bus.run(4.0)
    assert bus.flows()
    bus.unsubscribe("B", 1)
    bus.run(8.0)
    assert bus.flows() == []
    last = bus.records_of("p", FlowLimited)[-1]
    assert (last.limiting_receiver, last.quota) == ("B", 0.0)


def test_exact_filters_may_stand_in_for_encodings() -> None:
    """Section III-B2: the encoding is an optimisation, and can be removed."""
    exact = papers_config(
        congestion=True, record_entries=2, when_full="drop", publisher_answers=False, feedback_exact=True
    )
    bus = a_bus(9, exact)
    bus.subscriber("B", "kind = 'bulk'", Path(100.0), exact)
    bus.stream(300.0, 8.0, kind="bulk")
    bus.run(8.0)
    (flow,) = bus.flows()
    assert flow.flow == "kind = 'bulk'"
    assert bus.rate_at("B", 3.0, 8.0) == pytest.approx(100.0, rel=0.15)
