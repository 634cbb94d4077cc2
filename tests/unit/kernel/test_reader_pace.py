"""A subscriber whose application is slow reports it before anything is lost, over a foreign network and over ours.

The application has a queue with a bound and takes its messages at a pace that a test changes. `ReaderPace` looks at
the queue whenever a message is put into it, as a live subscription does, and the transport gets what it reports.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import cache
from math import inf
from random import Random

import pytest
from msgspec.structs import replace

import narrow_bus
from narrow_bus import NarrowBus, a_bus
from overlay_bus import OverlayBus
from penstock.content.message import Message
from penstock.kernel.reader_pace import AIM, CALM, ReaderPace
from penstock.transport.records import FlowLimited, MessageWithheld
from penstock.transport.wire.control_messages import FEEDBACK

# What waits when a flow becomes free is no burst to speak of; and the queue fills at once, not after a slow start.
CONFIG = replace(narrow_bus.CONFIG, flow_queue=10, slow_start=False)
TICK = 0.01
QUEUE_MAX = 200
OFFERED, SLOW, QUICK = 150.0, 40.0, 1000.0  # messages/s
WAKES, ENDS = 7.0, 14.0
BUSES = pytest.mark.parametrize("ours", [False, True], ids=["foreign", "ours"])


@dataclass
class Application:
    """Takes the messages of the first subscription of `busy`."""

    bus: NarrowBus | OverlayBus
    paces: dict[float, float]  # messages/s from these times on
    reader: ReaderPace = field(default_factory=lambda: ReaderPace(QUEUE_MAX))
    queue: deque[Message] = field(default_factory=deque)
    seen: int = 0
    credit: float = 0.0
    times: list[float] = field(default_factory=list)  # when messages came
    reported: list[tuple[float, float]] = field(default_factory=list)
    fullest: int = 0

    def tick(self) -> None:
        now = self.bus.now
        pace = [pace for start, pace in self.paces.items() if start <= now][-1]
        self.credit = self.credit + pace * TICK if self.queue else 0.0
        while self.queue and self.credit >= 1.0:
            self.queue.popleft()
            self.reader.taken += 1
            self.credit -= 1.0
        come = self.bus.got("busy", 1)
        for message in come[self.seen :]:
            self._put(message, now)
        self.seen = len(come)
        self.bus.at(now + TICK, self.tick)

    def _put(self, message: Message, now: float) -> None:
        rate = self.reader.look(len(self.queue), now)
        if rate is not None:
            self.reported.append((now, rate))
            self.bus.reader_takes("busy", rate)
        self.queue.append(message)
        self.times.append(now)
        self.fullest = max(self.fullest, len(self.queue))

    def rate_at(self, start: float, end: float) -> float:
        return len([time for time in self.times if start <= time < end]) / (end - start)


@cache
def reported(ours: bool) -> tuple[NarrowBus | OverlayBus, Application, list[tuple[str, float]]]:
    """An application that is slow for a while; also who limited which quota just before it woke up."""
    bus: NarrowBus | OverlayBus
    if ours:
        bus = OverlayBus(1, delay=0.08)  # one message per round trip is far below what the application takes
        bus.add("p", CONFIG)
        for name, where in (("busy", "kind = 'bulk'"), ("free", "kind = 'news'")):
            bus.add(name, CONFIG)
            bus.subscribe(name, 1, where)
    else:
        bus = a_bus(1, CONFIG)
        for name, where in (("busy", "kind = 'bulk'"), ("free", "kind = 'news'")):
            bus.subscriber(name, where, config=CONFIG)
    random, now = Random(2), 0.0
    while now < ENDS:
        bus.publish("p", {"kind": "bulk"}, at=now)
        bus.publish("p", {"kind": "news"}, at=now + 0.001)
        now += random.uniform(0.5, 1.5) / OFFERED
    application = Application(bus, {0.0: SLOW, WAKES: QUICK})
    bus.at(0.0, application.tick)
    bus.run(WAKES)
    limited = [(flow.limiting_receiver, flow.quota) for flow in bus.flows()]
    bus.run(ENDS)
    return bus, application, limited


@BUSES
def test_a_slow_application_is_followed_and_nothing_is_ever_lost(ours: bool) -> None:
    bus, application, limited = reported(ours)
    ((receiver, quota),) = limited
    assert receiver == "busy"
    assert quota == pytest.approx(SLOW, rel=0.2)
    assert application.rate_at(3.0, WAKES) == pytest.approx(SLOW, rel=0.15)
    assert application.fullest < 0.5 * QUEUE_MAX
    assert application.fullest > AIM * QUEUE_MAX * 0.5  # so much of the queue is used
    assert bus.control("busy").loss_event_rate == 0.0
    assert {record.limiting_receiver for record in bus.records_of("p", MessageWithheld)} == {"busy"}


@BUSES
def test_it_is_reported_as_soon_as_the_queue_fills(ours: bool) -> None:
    bus, application, _ = reported(ours)
    began, rate = application.reported[0]
    assert began < 0.5
    assert rate < OFFERED / 2.0
    first = min(carried.time for carried in bus.control_messages(FEEDBACK))
    assert began < first < began + 0.2  # a round trip later
    assert {carried.sender.lstrip("~") for carried in bus.control_messages(FEEDBACK)} == {"busy"}


@BUSES
def test_other_content_comes_as_before(ours: bool) -> None:
    bus, _, _ = reported(ours)
    published = [message for _, message in bus.published if message.attributes["kind"] == "news"]
    assert len(published) - len(bus.got("free", 1)) < 0.1 * OFFERED  # those that are still under way


@BUSES
def test_it_ends_when_the_application_keeps_up_again(ours: bool) -> None:
    bus, application, _ = reported(ours)
    calm, rate = application.reported[-1]
    assert rate == inf
    assert calm == pytest.approx(WAKES + CALM, abs=0.2)
    assert [rate for _, rate in application.reported].count(inf) == 1
    assert max(carried.time for carried in bus.control_messages(FEEDBACK)) < calm + 0.2
    assert bus.flows() == []
    assert bus.control("busy").allowed_rate is None
    assert application.rate_at(ENDS - 2.0, ENDS) == pytest.approx(OFFERED, rel=0.1)
    last = bus.records_of("p", FlowLimited)[-1]
    assert (last.limiting_receiver, last.quota) == ("busy", 0.0)
