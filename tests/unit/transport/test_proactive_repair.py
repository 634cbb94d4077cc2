"""Proactive repairs, and heartbeats that cover everything once."""

from __future__ import annotations

import pytest

from foreign_bus import Bus
from overlay_bus import OverlayBus
from penstock.content.envelope import DATA, kind_of, opened
from penstock.kernel.timers import ServiceTimers, Timers
from penstock.kernel.trace import LimitReached
from penstock.testing import a_message
from penstock.transport.bearer import BearerPublish
from penstock.transport.config import papers_config
from penstock.transport.records import Recovered, RequestSent
from penstock.transport.recovery.proactive_repair import EVERYBODY, ProactiveRepair
from penstock.transport.sender.publication_record import PublicationRecord
from penstock.transport.timers import TransportTimer
from penstock.transport.wire.control_messages import REPAIR, ControlIdentities, Key, Repair, decode_control
from penstock.transport.wire.header import decode_header

TWICE = papers_config(record_entries=0, proactive_repair_after=0.05)


def copies(proactive_repair: ProactiveRepair, now: float) -> list[Repair]:
    sent = proactive_repair.expired(now=now)
    assert all(isinstance(effect, BearerPublish) for effect in sent)
    return [decode_control(opened(effect.message)[0], Repair) for effect in sent if isinstance(effect, BearerPublish)]


def test_the_copy_follows_in_its_time_and_in_order() -> None:
    timers = Timers()
    proactive_repair = ProactiveRepair(TWICE, ServiceTimers("transport", timers), ControlIdentities("p", 1))
    for number, now in ((1, 1.0), (2, 1.01), (3, 1.2)):
        assert proactive_repair.left(Key("p", 1, number), a_message(number), now) == []
    assert timers.deadline() == pytest.approx(1.05)
    assert [(c.key.sequence, c.departure, c.requester) for c in copies(proactive_repair, 1.06)] == [
        (1, 1.0, EVERYBODY),
        (2, 1.01, EVERYBODY),
    ]
    assert timers.deadline() == pytest.approx(1.25)
    assert [c.key.sequence for c in copies(proactive_repair, 1.25)] == [3]
    assert proactive_repair.sent == 3


def test_without_a_time_there_are_no_copies() -> None:
    timers = Timers()
    proactive_repair = ProactiveRepair(papers_config(), ServiceTimers("transport", timers), ControlIdentities("p", 1))
    assert proactive_repair.left(Key("p", 1, 1), a_message(1), 1.0) == []
    assert timers.deadline() is None


def test_a_queue_of_copies_is_bounded_and_says_so() -> None:
    timers = Timers()
    config = papers_config(proactive_repair_after=1.0, published_kept=2)
    proactive_repair = ProactiveRepair(config, ServiceTimers("transport", timers), ControlIdentities("p", 1))
    reported = [proactive_repair.left(Key("p", 1, n), a_message(n), float(n) / 10) for n in (1, 2, 3)]
    assert reported == [[], [], [LimitReached("copies", 2)]]
    assert timers.deadline() == pytest.approx(1.2), "the oldest has none"
    assert timers.pop_due(1.3) == ("transport", TransportTimer.PROACTIVE_REPAIR)
    assert [c.key.sequence for c in copies(proactive_repair, 1.3)] == [2, 3]


@pytest.mark.parametrize("network", [Bus, OverlayBus], ids=["foreign", "ours"])
def test_a_copy_brings_back_what_was_lost_before_anybody_asks(network: type[Bus] | type[OverlayBus]) -> None:
    net = network(3, loss=0.1)
    net.add("p", TWICE, publishes=True)
    net.add("s", TWICE)
    net.subscribe("s", 1, "TRUE", recover=True)
    for number in range(400):
        net.publish("p", {"n": number}, at=0.5 + 0.01 * number)
    net.run(10.0)
    got, due = net.got("s", 1), net.due("s", 1)
    assert len({message.identity for message in got}) == len(got), "nothing twice"
    back = net.records_of("s", Recovered)
    assert len(back) > 10
    assert net.records_of("s", RequestSent) == []
    assert len(due) - len(got) < len(back) / 2, "only those that were lost twice stay away"
    assert len(net.control_messages(REPAIR)) == 400


def test_the_copy_of_the_first_message_begins_a_session() -> None:
    """Otherwise a publisher that sends seldom would lose everything up to the first original that comes."""
    net = Bus(1)
    net.loses = lambda sender, receiver, message: kind_of(message) == DATA  # only originals
    net.add("p", TWICE, publishes=True)
    net.add("s", TWICE)
    net.subscribe("s", 1, "TRUE", recover=True)
    net.publish("p", {"n": 1}, at=0.5)
    net.run(2.0)
    assert [message.attributes["n"] for message in net.got("s", 1)] == [1]
    assert len(net.records_of("s", Recovered)) == 1


def test_a_heartbeat_of_one_span_covers_only_what_is_new() -> None:
    reported = {}
    for spans in (1, 2):
        config = papers_config(record_entries=0, heartbeat_interval=0.5, heartbeat_spans=spans)
        outgoing = PublicationRecord("p", 1, config, ServiceTimers("transport", Timers()), ControlIdentities("p", 1))
        sizes = []
        for burst in (4, 3, 0):
            for _ in range(burst):
                outgoing.wrap(a_message(1), now=1.0)
            for effect in outgoing.heartbeat(now=2.0):
                assert isinstance(effect, BearerPublish)
                sizes.append(decode_header(opened(effect.message)[0], 0, entry_bits=256).record_size)
        reported[spans] = sizes
    assert reported == {1: [4, 3, 3], 2: [4, 7, 3]}, "when nothing follows, the last is repeated"


def test_a_heartbeat_has_one_span_or_two() -> None:
    with pytest.raises(ValueError, match="heartbeat_spans"):
        papers_config(heartbeat_spans=3)
