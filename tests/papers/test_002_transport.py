"""What 002 says about the transport as a whole, one claim per test: sections 3.2.6, 3.3, 4.1.2, 4.2 and 4.3.

All of it runs over a network that knows nothing of Penstock's overlay (`foreign_bus`): the thesis proposes an
end-to-end solution over any best-effort content-based network. Its parts have paper tests of their own.
"""

from __future__ import annotations

import pytest

from foreign_bus import Bus
from penstock.content.envelope import DATA, kind_of, opened
from penstock.content.message import Message
from penstock.transport.config import TransportConfig, papers_config
from penstock.transport.records import LossDetected, Recovered, RepairSent, RequestSent
from penstock.transport.session import detection_probability
from penstock.transport.wire.control_messages import HEARTBEAT, REPAIR, REQUEST, Request, decode_control
from penstock.transport.wire.header import decode_header

PEERS = papers_config(publisher_answers=False, cache_min=50)
SPORT = "news = 'sport'"


def a_bus(config: TransportConfig, readers: dict[str, str], *, ordered: bool = True) -> Bus:
    """A publisher and readers, on a bus that loses nothing by itself and keeps order."""
    bus = Bus(11, stage=0.0)
    bus.add("p", config, publishes=True)
    for name, where in readers.items():
        bus.add(name, config)
        bus.subscribe(name, 1, where, ordered=ordered, recover=True)
    bus.loses = lambda sender, receiver, message: False
    return bus


def lose(bus: Bus, *lost: tuple[str, int]) -> None:
    """These readers do not get the originals with these numbers."""

    def loses(sender: str, receiver: str, message: Message) -> bool:
        return kind_of(message) == DATA and (receiver, message.identity.count) in lost

    bus.loses = loses


def got(bus: Bus, name: str) -> list[int]:
    return [message.identity.count for message in bus.got(name, 1)]


def lost(bus: Bus, name: str) -> list[int]:
    return [record.sequence for record in bus.records_of(name, LossDetected)]


def test_4_1_2_a_reader_tells_a_lost_message_from_one_that_it_never_wanted() -> None:
    """4.1.2: without more, "a receiver can not distinguish a message that was lost from" one that does not match."""
    bus = a_bus(PEERS, {"a": SPORT})
    lose(bus, ("a", 3))
    for number, news in enumerate(["sport", "politics", "sport", "weather", "sport"], start=1):
        bus.publish("p", {"news": news}, at=0.1 * number)
    bus.run(5.0)
    assert lost(bus, "a") == [3], "2 and 4 are gaps too, and no losses"


def test_3_2_6_the_record_lists_the_latest_publications_of_the_sender() -> None:
    """3.2.6 and erratum B5: entry i of the record on message k is the encoding of message k - i."""
    bus = a_bus(papers_config(record_entries=3), {"a": "TRUE"})
    for number in range(1, 8):
        bus.publish("p", {"n": number}, at=0.1 * number)
    bus.run(2.0)
    scheme = papers_config().encoding
    for carried in bus.control_messages(DATA):
        header = decode_header(opened(carried.message)[0], 0, entry_bits=256)
        before = range(header.sequence - 1, max(0, header.sequence - 4), -1)
        assert header.entries() == tuple(scheme.encode_message({"n": number}) for number in before)


@pytest.mark.parametrize(("gap", "found"), [(1, True), (3, True), (4, False)])
def test_3_3_a_loss_is_found_if_one_of_the_next_k_publications_comes(gap: int, found: bool) -> None:
    """3.3 and 4.3: with a record of three entries, the third message after it still tells, the fourth does not."""
    bus = a_bus(papers_config(record_entries=3, publisher_answers=False), {"a": SPORT})
    lose(bus, ("a", 2))
    wanted = {1, 2, 2 + gap}
    for number in range(1, 9):
        bus.publish("p", {"news": "sport" if number in wanted else "politics"}, at=0.1 * number)
    bus.run(5.0)
    assert lost(bus, "a") == ([2] if found else [])


def test_4_2_5_recovery_begins_when_the_latch_has_expired() -> None:
    """4.2.5: if the missing message arrives within the latch "the delivery proceeds as usual"."""
    for arrives_after, expected_requests in ((0.3, False), (30.0, True)):
        bus = a_bus(papers_config(latch="static", static_latch=0.5, publisher_answers=False), {"a": "TRUE"})
        lose(bus, ("a", 3))
        for number in range(1, 6):
            bus.publish("p", {"n": number}, at=0.1 * number)
        bus.run(0.41 + arrives_after)
        assert bool(bus.records_of("a", RequestSent)) == expected_requests
        bus.hand("a", (1,), next(c.message for c in bus.carried if c.message.identity.count == 3))
        bus.run(60.0)
        assert got(bus, "a") == ([1, 2, 4, 5, 3] if expected_requests else [1, 2, 3, 4, 5])


def test_4_2_2_a_request_reaches_who_cached_the_message_under_another_filter() -> None:
    """4.2.2: Alice wants {team=Yankees}, Bob {news=sport}; Bob's request must reach Alice all the same."""
    bus = a_bus(PEERS, {"alice": "team = 'Yankees'", "bob": SPORT, "carol": "team = 'Mets'"})
    lose(bus, ("bob", 1 + 1))
    bus.publish("p", {"news": "sport", "team": "Mets"}, at=0.1)
    bus.publish("p", {"news": "sport", "team": "Yankees"}, at=0.2)
    bus.publish("p", {"news": "sport", "team": "Mets"}, at=0.3)
    bus.run(10.0)
    assert [record.requester for record in bus.records_of("alice", RepairSent)] == ["bob"]
    assert not [received for received in bus.members["carol"].received if kind_of(received.message) == REQUEST], (
        "and only Alice"
    )
    assert sorted(got(bus, "bob")) == [1, 2, 3]


def test_4_2_2_figure_4_1() -> None:
    """A, B and C want m5; B and C lose it; m9 reveals it; one asks, the other receives it; A repairs; each has it
    once."""
    config = papers_config(publisher_answers=False, cache_min=50, request_spread=20.0, distance_first=0.01)
    bus = a_bus(config, {"a": SPORT, "b": SPORT, "c": SPORT})
    lose(bus, ("b", 5), ("c", 5))
    for number in range(1, 10):
        bus.publish("p", {"news": "sport" if number in (1, 5, 9) else "politics"}, at=0.1 * number)
    bus.run(20.0)
    (request,) = bus.control_messages(REQUEST)
    assert request.sender in ("b", "c")
    (repair,) = bus.control_messages(REPAIR)
    assert repair.sender == "a"
    for name in ("b", "c"):
        assert lost(bus, name) == [5]
        assert [record.sequence for record in bus.records_of(name, Recovered)] == [5]
        assert got(bus, name) == [1, 9, 5], "after its latch it is late by construction"
    assert got(bus, "a") == [1, 5, 9], "who has it recognises the duplicate"


def test_4_2_2_a_request_says_which_message_and_not_what_is_in_it() -> None:
    """4.2.2: the one-bits of the message's encoding, and its source and sequence number."""
    bus = a_bus(PEERS, {"a": SPORT, "b": SPORT})
    lose(bus, ("a", 2))
    for number in range(1, 4):
        bus.publish("p", {"news": "sport", "team": f"t{number}"}, at=0.1 * number)
    bus.run(10.0)
    request = bus.control_messages(REQUEST)[0].message
    sent = decode_control(opened(request)[0], Request)
    assert (sent.key.publisher, sent.key.sequence, sent.requester) == ("p", 2, "a")
    bits = {name for name in request.attributes if name.startswith("_b")}
    encoding = papers_config().encoding.encode_message({"news": "sport", "team": "t2"})
    assert len(bits) == encoding.bit_count()
    assert not {"news", "team"} & set(request.attributes)


def test_4_2_2_requests_can_be_kept_within_one_domain() -> None:
    """4.2.2: "restricting request and repair messages within a single administrative domain"."""
    bus = Bus(11, stage=0.0)
    bus.add("p", PEERS, publishes=True)
    for name, domain in (("a", "east"), ("b", "west"), ("c", "east")):
        bus.add(name, papers_config(publisher_answers=False, cache_min=50, domain=domain))
        bus.subscribe(name, 1, SPORT, ordered=True, recover=True)
    lose(bus, ("a", 2), ("c", 3))
    for number in range(1, 6):
        bus.publish("p", {"news": "sport"}, at=0.1 * number)
    bus.run(10.0)
    assert not [received for received in bus.members["b"].received if kind_of(received.message) == REQUEST]
    assert sorted(got(bus, "a")) == sorted(got(bus, "c")) == [1, 2, 3, 4, 5]


def test_4_2_2_designated_nodes_can_keep_messages_for_all_others() -> None:
    """4.2.2: "designated cache nodes" answer; the others need keep nothing."""
    reader = papers_config(publisher_answers=False, answers=False)
    bus = a_bus(reader, {"a": SPORT, "b": SPORT})
    bus.add("cache", PEERS)
    bus.subscribe("cache", 1, "EXISTS news", recover=True)
    lose(bus, ("a", 2))
    for number in range(1, 6):
        bus.publish("p", {"news": "sport"}, at=0.1 * number)
    bus.run(10.0)
    assert {carried.sender for carried in bus.control_messages(REPAIR)} == {"cache"}
    assert sorted(got(bus, "a")) == [1, 2, 3, 4, 5]


def test_4_2_3_a_republished_repair_serves_all_who_lost_it_even_those_who_did_not_notice() -> None:
    """4.2.3 and Figure 4.2(b): losses are shared, so it is enough that one of the receivers detects."""
    bus = a_bus(PEERS, {"a": SPORT, "b": SPORT, "c": SPORT})
    lose(bus, ("b", 2), *[("c", number) for number in range(2, 6)])
    for number in range(1, 6):
        bus.publish("p", {"news": "sport"}, at=0.1 * number)
    bus.run(10.0)
    assert lost(bus, "c") == [], "nothing more came that could have revealed it"
    assert 2 in got(bus, "c")


def test_4_2_3_a_repair_for_one_disturbs_nobody_else() -> None:
    """4.2.3: a unicast reply, when a republished message "would reach many receivers that already received" it."""
    received = {}
    for repair_to in ("all", "requester"):
        config = papers_config(publisher_answers=False, cache_min=50, repair_to=repair_to)
        bus = a_bus(config, {"a": SPORT, "b": SPORT, "c": SPORT})
        lose(bus, ("a", 2))
        for number in range(1, 6):
            bus.publish("p", {"news": "sport"}, at=0.1 * number)
        bus.run(10.0)
        assert sorted(got(bus, "a")) == [1, 2, 3, 4, 5]
        members = bus.members.items()
        received[repair_to] = {n for n, m in members if any(kind_of(h.message) == REPAIR for h in m.received)}
    assert received == {"all": {"a", "b", "c"}, "requester": {"a"}}


@pytest.mark.parametrize(("matched", "loss", "entries"), [(0.05, 0.1, 10), (0.2, 0.05, 5), (0.5, 0.3, 2)])
def test_4_3_equation_4_1_is_what_happens(matched: float, loss: float, entries: int) -> None:
    """Equation (4.1): 1 - (1 - P_match + P_match P_loss)^R of the losses are noticed."""
    config = papers_config(record_entries=entries, record_bits=1024, publisher_answers=False, answers=False)
    bus = Bus(1, loss=loss, stage=0.0)
    bus.add("p", config, publishes=True)
    bus.add("a", config)
    bus.subscribe("a", 1, SPORT, recover=True)
    for number in range(6_000):
        bus.publish("p", {"news": "sport" if bus.random.random() < matched else "other"}, at=0.05 * number)
    bus.run(320.0)
    gone = {message.identity.count for message in bus.due("a", 1)} - set(got(bus, "a"))
    share = len(gone & set(lost(bus, "a"))) / len(gone)
    expected = detection_probability(matched, loss, entries)
    assert share == pytest.approx(expected, abs=4.0 * (expected * (1.0 - expected) / len(gone)) ** 0.5)


def test_4_3_heartbeats_help_those_who_receive_too_little() -> None:
    """4.3: soft-state messages that carry a record find what the next publication would be too late to tell."""
    found = {}
    for interval in (0.0, 0.5):
        config = papers_config(record_entries=3, heartbeat_interval=interval)
        bus = Bus(3, loss=0.1, stage=0.0)
        bus.add("p", config, publishes=True)
        bus.add("a", config)
        bus.subscribe("a", 1, SPORT, recover=True)
        for number in range(2_000):
            bus.publish("p", {"news": "sport" if number % 20 == 0 else "other"}, at=0.02 * number)
        bus.run(60.0)
        found[interval] = len(bus.got("a", 1))
        assert bool(bus.control_messages(HEARTBEAT)) == (interval > 0.0)
    assert found[0.0] < 95
    assert found[0.5] >= 98, "all but what was lost before it asked for heartbeats"
