"""A pubend whose rate is limited: publishers take turns, are told why they wait, and do not give up."""

from __future__ import annotations

from random import Random

import pytest

from penstock.kernel.machine import Reported, Unknown
from penstock.streams.alert_minima import Alert, AlertMinima
from penstock.streams.client_publishing import IN_FLIGHT_MAX
from penstock.streams.config import StreamsConfig
from penstock.streams.packets import (
    WAITING_MAX,
    PublishAnswer,
    PublishWaits,
    StreamPublish,
    StreamPublished,
    StreamWaits,
    Uca,
    WaitNotice,
)
from penstock.streams.pdcc import PubendControl
from penstock.streams.publish_limit import PublishLimit
from penstock.streams.publish_turns import PendingPublication, PublicationTurns
from penstock.streams.records import PublisherSlowed
from penstock.streams.wait_notices import NOTICE_EVERY
from penstock.testing.pump import a_message
from pubend_bench import PubendBench
from scripted_home import ScriptedHome
from scripted_home import a_message as ours

SECOND = 1_000_000


def limited(bench: PubendBench, rate: float) -> None:
    limit = PublishLimit(rate, bench.now - 7.0, "edge2", False, 0.4, bench.now)
    bench.run(bench.pubend.limit(limit, now=bench.now))


def waits(bench: PubendBench) -> list[PublishWaits]:
    found = bench.all_sent(PublishWaits)
    bench.sent = [one for one in bench.sent if not isinstance(one[1], PublishWaits)]
    return found


# Turns.


@pytest.mark.parametrize("seed", range(20))
def test_turns_are_those_of_brute_force(seed: int) -> None:
    random, turns = Random(seed), PublicationTurns()
    queues: dict[str, list[int]] = {}
    order: list[str] = []
    count = 0
    for _ in range(200):
        if random.random() < 0.6:
            count += 1
            name = random.choice("aaaab")
            message = a_message(count, publisher=name)
            turns.add(PendingPublication(str(count), b"", message, bytes(random.randrange(50)), [], float(count)))
            if not queues.setdefault(name, []):
                order.append(name)
            queues[name].append(count)
        else:
            due: list[int] = []
            for _ in range(min(random.randrange(6), sum(map(len, queues.values())))):
                name = order.pop(0)
                due.append(queues[name].pop(0))
                if queues[name]:
                    order.append(name)
            assert [one.message.identity.count for one in turns.take(len(due), 1 << 20)] == due
        assert len(turns) == sum(map(len, queues.values()))
        assert turns.oldest() == min((float(one[0]) for one in queues.values() if one), default=None)


def test_a_publisher_with_one_message_is_not_behind_the_hundreds_of_another() -> None:
    bench = PubendBench()
    limited(bench, 10.0)
    for number in range(300):
        bench.publish(f"flood{number}", a_message(number + 1, publisher="flood"))
    slow = bench.publish("one", a_message(1, publisher="slow"))
    bench.advance(0.3)
    assert bench.published(slow).tick > 0
    flood = [entry.message.identity.count for _, entry in bench.log() if entry.message.identity.publisher == "flood"]
    assert flood == list(range(1, len(flood) + 1))  # and each one's own stay in order


def test_one_publisher_leaves_room_for_others() -> None:
    bench = PubendBench(StreamsConfig(pending_bytes_max=100_000))
    limited(bench, 10.0)
    flood = [bench.publish(f"f{n}", a_message(n + 1, publisher="flood", body=bytes(900))) for n in range(150)]
    refused = [answer for answer in bench.all_sent(PublishAnswer) if answer.problem]
    assert 50 < len(refused) < len(flood)
    assert all(answer.again and "share" in answer.problem for answer in refused)
    others = [bench.publish(f"o{n}", a_message(n + 1, publisher=f"other{n}", body=bytes(900))) for n in range(20)]
    bench.advance(10.0)
    assert all(bench.published(request).tick for request in others)


# Notices.


def test_who_waits_for_the_rate_is_told_at_once_when_it_asks_again_and_every_few_seconds() -> None:
    bench = PubendBench()
    for number in range(5):
        bench.publish(f"before{number}")
    assert waits(bench) == []
    limited(bench, 10.0)
    requests = [bench.publish(str(number)) for number in range(70)]
    told = waits(bench)
    assert {one.requests[0] for one in told} <= set(requests)
    assert len(told) >= 60  # all but those that are written soon
    assert told[-1].notice == WaitNotice("orders/0", 10.0, 7.0, "edge2", False, 0.4, NOTICE_EVERY)
    again = bench.publish("69", a_message(requests[69]))  # the same message under another request
    assert [one.requests for one in waits(bench)] == [(again,)]
    bench.advance(NOTICE_EVERY)
    (sweep,) = waits(bench)
    assert again in sweep.requests
    assert len(sweep.requests) == bench.pubend.status().waiting
    assert sweep.notice.limited_for == pytest.approx(12.0)
    bench.advance(30.0)
    assert bench.pubend.status().waiting == 0
    waits(bench)
    bench.advance(30.0)
    assert waits(bench) == []


def test_notices_come_in_packets_of_a_bounded_size_for_each_broker() -> None:
    bench = PubendBench()
    limited(bench, 10.0)
    for number in range(WAITING_MAX + 100):
        bench.publish(f"a{number}", broker=5)
    bench.publish("b", broker=6)
    waits(bench)
    bench.run(bench.pubend.limit(PublishLimit(0.01, bench.now, "", True, 1.5, bench.now), now=bench.now))
    bench.sent.clear()
    bench.advance(NOTICE_EVERY)
    sizes = [(broker, len(one.requests)) for broker, one in bench.sent if isinstance(one, PublishWaits)]
    assert [broker for broker, _ in sizes] == [5, 5, 6]
    assert sizes[0][1] == WAITING_MAX


def test_reports_say_the_limit_its_reason_and_how_long_somebody_waits() -> None:
    bench = PubendBench()
    assert bench.pubend.status().limit is None
    limited(bench, 10.0)
    for number in range(20):
        bench.publish(str(number))
    came = bench.now
    bench.advance(0.5)
    status = bench.pubend.status()
    assert status.limit is not None
    assert (status.limit["rate"], status.limit["edge"], status.limit["since"]) == (10.0, "edge2", came - 7.0)
    assert "edge2" in status.limit["reason"]
    assert status.waiting_since == came
    report = bench.report(bench.command("info"))
    assert (report["limit"], report["waiting"]) == (status.limit, status.waiting)
    bench.run(bench.pubend.limit(None, now=bench.now))
    assert bench.pubend.status().limit is None
    assert bench.pubend.status().waiting == 0


# Who it is that cannot keep up.


def test_an_alert_keeps_the_broker_of_the_lowest_pace_of_each_class() -> None:
    minima = AlertMinima()
    assert minima.add(Alert(1, 0.9, keeping_up_edge=3)) == Alert(1, 0.9, keeping_up_edge=3)
    assert minima.add(Alert(1, 0.2, keeping_up_edge=4)) is None
    assert minima.add(Alert(1, recovering=1.1, recovering_edge=5)) is None
    assert minima.add(Alert(2, 0.5, keeping_up_edge=6)) == Alert(2, 0.2, 1.1, 4, 5)


def test_the_reason_of_a_limit_is_the_last_alert_those_who_keep_up_first() -> None:
    control = PubendControl("orders/0", 7, StreamsConfig(), 5 * SECOND)
    assert control.limit(str) is None
    query = control.query(5 * SECOND)
    control.alerted(Uca("orders/0", 7, query.sequence, 0.5, 1.2, 3, 4), offered=100.0, message_bytes=100.0, now=1.0)
    assert control.limit(lambda broker: f"b{broker}") == PublishLimit(50.0, 1.0, "b3", False, 0.5, 1.0)
    control.alerted(Uca("orders/0", 7, query.sequence, None, 1.2, None, 4), offered=100.0, message_bytes=100.0, now=2.0)
    limit = control.limit(lambda broker: f"b{broker}")
    assert limit == PublishLimit(50.0, 1.0, "b4", True, 1.2, 2.0)
    assert limit is not None
    assert limit.reason == "broker 'b4' catches up too slowly, by 1.2 s of the stream per second"


# The client.


def told(*requests: int, rate: float = 10.0, edge: str = "edge2", pubend: str = "orders/0") -> StreamWaits:
    return StreamWaits(requests, WaitNotice(pubend, rate, 7.0, edge, False, 0.4, 5.0))


def connected(**settings: float) -> ScriptedHome:
    home = ScriptedHome(**settings)
    home.up()
    return home


def test_a_publisher_that_is_told_to_wait_neither_repeats_itself_nor_gives_up() -> None:
    home = connected(give_up_after=20.0)
    (ticket,) = home.publish(ours())
    (packet,) = home.take_sent(StreamPublish)
    for _ in range(100):  # more than eight minutes
        home.say(told(packet.request))
        home.wait(5.0)
    assert (home.done, home.take_sent(StreamPublish)) == ({}, [])
    home.wait(5.1)  # a notice is overdue: ask
    (again,) = home.take_sent(StreamPublish)
    assert again.publication_id == packet.publication_id
    assert again.age == pytest.approx(10.0)  # since it was known not to be stored
    home.say(StreamPublished(packet.request, "orders/0", 5))
    assert isinstance(home.done[ticket], Reported)
    assert len(home.recorded(PublisherSlowed)) == 1


def test_without_notices_it_is_given_up_after_as_long_as_ever() -> None:
    home = connected(give_up_after=20.0)
    (ticket,) = home.publish(ours())
    home.say(told(home.take_sent(StreamPublish)[0].request))
    home.wait(24.9)
    assert home.done == {}
    home.wait(0.2)
    assert isinstance(home.done[ticket], Unknown)


def test_refused_for_lack_of_room_while_the_rate_is_limited_it_is_tried_on_for_ever() -> None:
    home = connected(give_up_after=20.0)
    (ticket,) = home.publish(ours())
    attempts = 0
    for _ in range(2_000):
        for packet in home.take_sent(StreamPublish):
            attempts += 1
            home.say(told(packet.request), StreamPublished(packet.request, problem="no room", again=True))
        home.wait(0.1)
    assert home.done == {}
    assert 30 < attempts < 60  # every five seconds in the end
    home.wait(6.0)
    home.say(StreamPublished(home.take_sent(StreamPublish)[-1].request, "orders/0", 5))
    assert isinstance(home.done[ticket], Reported)


def test_those_that_wait_for_their_turn_in_the_client_are_not_given_up_either() -> None:
    home = connected(give_up_after=20.0)
    tickets = home.publish(*(ours(n + 1) for n in range(IN_FLIGHT_MAX + 3)))
    packets = home.take_sent(StreamPublish)
    for _ in range(20):
        home.say(told(*(packet.request for packet in packets)))
        home.wait(5.0)
    assert home.done == {}
    home.say(*(StreamPublished(packet.request, "orders/0", n + 1) for n, packet in enumerate(packets)))
    assert len(home.done) == IN_FLIGHT_MAX
    home.wait(60.0)  # nothing is heard any more
    assert {type(home.done[ticket]) for ticket in tickets[-3:]} == {Unknown}


def test_a_report_says_what_waits_and_who_slows_it_down_while_that_is_fresh() -> None:
    home = connected()
    home.publish(ours(1), ours(2))
    began = home.now
    home.say(told(home.take_sent(StreamPublish)[0].request))
    home.say(told(7, pubend="other/0"))
    home.wait(2.0)
    report = home.machine.publishing("orders", now=home.now)
    assert (report.unanswered, report.waiting_since) == (2, began)
    (slowed,) = report.slowed
    assert (slowed.pubend, slowed.rate, slowed.since, slowed.edge) == ("orders/0", 10.0, began - 7.0, "edge2")
    assert slowed.reason == "broker 'edge2' cannot keep up: it gets 0.4 s of the stream per second"
    home.wait(10.0)
    assert home.machine.publishing("orders", now=home.now).slowed == ()
