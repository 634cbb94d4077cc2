"""Ledgers among liars: forged numbers, invented lives, floods of requests. Honest clients get what is theirs."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest

from foreign_bus import Bus
from penstock.content.envelope import FLAG, kind_of, wrap
from penstock.content.message import INBOX, Identity, Message, make_message
from penstock.errors import InvalidHeader
from penstock.kernel.machine import SERVICE_SUBSCRIPTIONS
from penstock.kernel.trace import Counted, InputRefused
from penstock.transport.config import TransportConfig, papers_config
from penstock.transport.ledgers.answer_budget import ALL_DEPTH, ALL_RATE, ONE_DEPTH, ONE_RATE
from penstock.transport.ledgers.ledger import make_ledger
from penstock.transport.ledgers.messages import (
    Again,
    Fills,
    MessageRequest,
    Reply,
    Resent,
    again_message,
    ask_message,
    decode_message,
    ledger_message,
    reply_message,
)
from penstock.transport.ledgers.record import SketchRecord
from penstock.transport.ledgers.session_table import LIVES_MAX
from penstock.transport.records import RequestReceived
from penstock.transport.wire.control_messages import ControlIdentities

OVERDRAWN = 60_000  # bytes by which the last request overdraws a budget


@pytest.mark.parametrize("liars", [1, 2])
def test_few_small_requests_do_not_make_a_publisher_send_its_ring_to_all(liars):
    bus = Bus(seed=1, loss=0.0)
    names = ("liar", "friend")[:liars]
    for name in ("p", *names):
        bus.add(name, TransportConfig(), publishes=True)
    for n in range(600):
        bus.publish("p", {"n": n}, bytes(10_000), at=1.0 + n * 0.001)
    bus.run(10.0)
    before = len(bus.carried)
    for name, asks in [(name, step) for step in range(5) for name in names]:
        numbers = ((1, 600), ()) if not asks else ((), (1, 600))  # the first time, and again
        asked = ask_message(ControlIdentities(name, 1), "p", MessageRequest(1, 0, *numbers))
        bus.hand("p", (SERVICE_SUBSCRIPTIONS,), asked)
    bus.run(11.0)
    kinds = Counter(carried.kind for carried in bus.carried[before:])
    assert 0 < kinds["reply"] <= liars * 5 * 16
    assert kinds["again"] == (0 if liars == 1 else 4), "a repair for all takes two who ask"


@pytest.mark.parametrize("liars", [1, 12])
def test_a_flood_of_requests_is_bounded_and_who_asks_for_little_is_answered(liars):
    """Each liar asks for all that there may be, ten times per second."""
    bus = Bus(seed=1, loss=0.0)
    names = [f"liar{number}" for number in range(liars)]
    for name in ("p", *names):
        bus.add(name, TransportConfig(), publishes=True)
    bus.add("a", TransportConfig())
    bus.subscribe("a", 1, "n >= 0", recover=True)
    bus.loses = lambda sender, to, message: kind_of(message) == "data" and message.attributes["n"] % 10 == 1

    def ask(name: str) -> None:
        asked = ask_message(ControlIdentities(name, 1), "p", MessageRequest(1, 0, (1, 4_096)))
        bus.hand("p", (SERVICE_SUBSCRIPTIONS,), asked)

    for n in range(300):
        bus.publish("p", {"n": n}, bytes(500), at=1.0 + n * 0.02)
    for step in range(60):
        for name in names:
            bus.at(1.5 + step * 0.1, partial(ask, name))
    bus.run(10.0)
    assert len(bus.got("a", 1)) == 300
    assert bus.report("a", 1).known_lost == 0
    answered = Counter(record.requester for record in bus.records_of("p", RequestReceived))
    published = sum(message.size_bytes for _, message in bus.published)
    one, of_all = ONE_DEPTH + 6 * ONE_RATE + published, ALL_DEPTH + 6 * ALL_RATE + 8 * published
    most = min(liars * (one + OVERDRAWN), of_all + OVERDRAWN)
    assert 8 * sum(answered[name] for name in names) <= most
    refused = {record.peer for record in bus.records_of("p", Counted) if record.name == "requests refused"}
    assert refused == set(names), "and it is told who was refused"


def test_a_request_with_names_that_no_attribute_has_is_refused():
    asked = MessageRequest(1, 0, (), fills=Fills((1, 1), texts=("x" * 129,)))
    with pytest.raises(InvalidHeader):
        decode_message(ask_message(ControlIdentities("liar", 1), "p", asked).body[2:], MessageRequest)


def test_ledgers_of_many_lives_do_not_fill_the_memory():
    """Each of them tells of 4,096 numbers that nobody has seen."""
    bus = Bus(seed=1, loss=0.0)
    bus.add("liar", TransportConfig(), publishes=True)
    bus.add("a", TransportConfig())
    bus.subscribe("a", 1, "n > 0", recover=True)
    identities = ControlIdentities("liar", 1)
    for life in range(100):
        invented_life(bus, identities, life)
    report = bus.report("a", 1)
    assert report.publishers == LIVES_MAX
    assert report.pending == 5_000
    assert report.unrevealed >= 100 * 4_096 - 5_000, "and those before, of lives that were given up"


def invented_life(bus: Bus, identities: ControlIdentities, life: int) -> None:
    """A ledger of a client that says it has sent 90,000 messages in this life."""
    ledger = make_ledger(life, 90_000, [], last=89_999, sent_at=bus.members["a"].local(bus.now))
    bus.hand("a", (SERVICE_SUBSCRIPTIONS,), ledger_message(identities, ledger))


def test_who_invents_lives_takes_no_room_from_others():
    bus = Bus(seed=1, loss=0.0)
    for name in ("liar", "p", "q"):
        bus.add(name, TransportConfig(), publishes=True)
    bus.add("a", TransportConfig())
    bus.subscribe("a", 1, "n >= 0", recover=True)
    bus.loses = lambda sender, to, message: kind_of(message) == "data" and message.attributes["n"] % 3 == 1
    identities = ControlIdentities("liar", 1)
    for life in range(60):
        bus.at(0.5 + life * 0.1, partial(invented_life, bus, identities, life))
    for n in range(250):
        for name in ("p", "q"):
            bus.publish(name, {"n": n}, at=1.0 + n * 0.02)
    bus.run(30.0)
    report = bus.report("a", 1)
    assert len(bus.got("a", 1)) == 500, "all that honest publishers sent"
    assert (report.known_lost, report.not_asked) == (0, 0)
    assert report.pending <= 5_000


def test_two_schemes_are_noticed_and_named():
    bus = Bus(seed=1, loss=0.0)
    bus.add("p", papers_config(), publishes=True)
    bus.add("q", TransportConfig(), publishes=True)
    bus.add("a", TransportConfig())
    bus.add("b", papers_config())
    for name in ("a", "b"):
        bus.subscribe(name, 1, "n > 0", ordered=True)
    bus.publish("p", {"n": 1}, at=1.0)
    bus.publish("q", {"n": 2}, at=2.0)
    bus.run(3.0)
    for name in ("a", "b"):
        assert [message.attributes["n"] for message in bus.got(name, 1)] == [1, 2], "it is delivered all the same"
        assert bus.report(name, 1).without_header == 1
        (refused,) = bus.records_of(name, InputRefused)
        assert refused.sender == ("p" if name == "a" else "q")
        assert "scheme" in refused.problem, "and what differs is named"


@pytest.mark.parametrize("number", [500, 9_000, 10**6, 10**15])
@pytest.mark.parametrize("first", [False, True])
def test_one_forged_number_does_not_stop_an_ordered_subscription(number, first):
    bus = Bus(seed=1, loss=0.0)
    bus.add("p", TransportConfig(), publishes=True)
    bus.add("a", TransportConfig())
    bus.subscribe("a", 1, "n < 1000", ordered=True, recover=True)

    def forge() -> None:
        records = SketchRecord()
        records.number = number - 1
        departure = bus.members["p"].local(bus.now)
        content = {"n": 999}
        forged = wrap(make_message(Identity("p", 1, number), content), records.header(content, departure))
        bus.hand("a", (1,), forged)

    bus.at(0.5 if first else 3.05, forge)
    for n in range(60):
        bus.publish("p", {"n": n}, at=1.0 + 0.1 * n)
    bus.run(60.0)
    got = [message.attributes["n"] for message in bus.got("a", 1) if message.attributes["n"] != 999]
    assert sorted(got) == list(range(60))
    assert got[45:] == list(range(45, 60)), "in order again"


def forged(bus: Bus, number: int, content: dict[str, int], *, later: float = 0.0) -> None:
    """A message of p for a, with a number and a departure that somebody made up."""
    records = SketchRecord()
    records.number = number - 1
    header = records.header(content, bus.members["p"].local(bus.now) + later)
    bus.hand("a", (1,), wrap(make_message(Identity("p", 1, number), content), header))


def a_long_run(lost: int = 0) -> tuple[Bus, list[Message]]:
    """20,000 messages, one of them lost, and so are all repairs; so the window has left the first ones behind."""
    bus = Bus(seed=1, loss=0.0)
    bus.add("p", TransportConfig(), publishes=True)
    bus.add("a", TransportConfig())
    bus.subscribe("a", 1, "n > 0", ordered=True, recover=True)
    gone: list[Message] = []

    def loses(sender: str, to: str, message: Message) -> bool:
        if kind_of(message) == "data" and message.attributes["n"] == lost:
            gone.append(message)
            return True
        return kind_of(message) == "reply"

    bus.loses = loses
    for n in range(1, 20_001):
        bus.publish("p", {"n": n}, at=1.0 + n * 0.0001)
    bus.run(3.05)
    return bus, gone


def test_a_missed_message_may_come_after_the_window_has_left_it_behind():
    bus, gone = a_long_run(lost=100)
    assert bus.report("a", 1).pending == 1
    bus.hand("a", (1,), gone[0])
    report = bus.report("a", 1)
    assert (report.delivered, report.pending, report.refused) == (20_000, 0, 0)


def test_old_numbers_among_refused_headers_that_are_believed_in_the_end():
    bus, _ = a_long_run()
    forged(bus, 5, {"n": 1})
    for step in range(1, 13):
        forged(bus, 20_000 + step, {"n": step}, later=100.0)
    report = bus.report("a", 1)
    assert (report.delivered, report.refused) == (20_013, 10)


@pytest.mark.parametrize("behind", [False, True])
def test_a_number_far_ahead_or_behind_moves_nothing_until_eight_agree(behind):
    bus, _ = a_long_run()
    first = 100 if behind else 10_000_000
    for step in range(7):
        forged(bus, first + step, {"n": 1}, later=0.01 * step)
    (session,) = bus.members["a"].transport.scheme.sessions()
    assert (session.window.top, bus.report("a", 1).refused) == (20_000, 7)
    bus.publish("p", {"n": 20_001})
    bus.run(bus.now + 0.1)
    assert session.window.top == 20_001, "one that fits ends the row"
    for step in range(7):
        forged(bus, first + 10 + step, {"n": 1}, later=0.01 * step)
    assert session.window.top == 20_001
    forged(bus, first + 17, {"n": 1}, later=0.07)
    forged(bus, first + 18, {"n": 1}, later=0.08)
    assert session.window.top == first + 18, "eight agree: what was believed was wrong"


def test_nobody_tells_or_repairs_in_anothers_name():
    """Whose a control message is says the name that brokers vouch for: a liar's are about the liar itself."""
    bus = Bus(seed=1, loss=0.0)
    for name in ("p", "liar"):
        bus.add(name, TransportConfig(), publishes=True)
    bus.add("a", TransportConfig())
    bus.subscribe("a", 1, "n < 1000", recover=True)
    bus.publish("p", {"n": 1}, at=1.0)
    lies = ControlIdentities("liar", 1)
    ledger = make_ledger(1, 2, [(make_message(Identity("p", 1, 2), {"n": 5}), 1.5)], last=2, sent_at=2.0)
    again = again_message(lies, Again(1, 2, 2), make_message(Identity("p", 1, 2), {"n": 5}))
    bus.at(2.0, lambda: bus.hand("a", (1 << 40,), ledger_message(lies, ledger)))
    bus.at(2.1, lambda: bus.hand("a", (1,), again))
    bus.run(5.0)
    reply = Reply(1, 0, (), (), 2, (Resent(2, 2, {"n": 5}, 0),))
    bus.hand("a", (SERVICE_SUBSCRIPTIONS,), reply_message(lies, "a", reply, []))
    came = bus.got("a", 1)
    assert {message.identity.publisher: message.attributes["n"] for message in came} == {"p": 1, "liar": 5}
    session = bus.members["a"].transport.scheme.session("p", 1)
    assert (session.window.top, session.missed) == (1, {}), "of another's messages they say nothing"


@pytest.mark.parametrize("kind", ["ask", "reply", "again", "ledger"])
def test_a_control_message_under_an_ordinary_name_is_refused(kind):
    bus = Bus(seed=1, loss=0.0)
    bus.add("p", TransportConfig(), publishes=True)
    bus.subscribe("p", 1, "n < 1000", recover=True)
    bare = make_message(Identity("liar", 1, 1), {FLAG: kind, INBOX: "p"}, b"\0\0", reserved=True)
    bus.hand("p", (SERVICE_SUBSCRIPTIONS,), bare)
    assert len(bus.records_of("p", InputRefused)) == 1
    assert not bus.members["p"].transport.scheme.sessions()


@pytest.mark.parametrize("version", [2, 4])
def test_another_release_at_the_other_end_is_named_and_its_messages_are_delivered_without_order(version):
    bus = Bus(seed=1, loss=0.0)
    bus.add("a", TransportConfig(), publishes=True)
    bus.subscribe("a", 1, "n < 1000", ordered=True, recover=True)
    message = make_message(Identity("p", 1, 1), {"n": 5}, b"body")
    header = bytes([version]) + SketchRecord().header(message.attributes, 1.0)[1:]
    bus.hand("a", (1,), wrap(message, header))
    assert [one.body for one in bus.got("a", 1)] == [b"body"]
    others = ControlIdentities("p", 1)
    ledger = make_ledger(1, 1, [(message, 1.0)], last=1, sent_at=2.0)
    mark = bytes([version]) if version > 2 else b""  # version 2 had none in control messages
    for told in (
        ledger_message(others, mark + ledger[1:]),
        _marked(ask_message(others, "a", MessageRequest(1, 0, (1, 1))), mark),
    ):
        bus.hand("a", (SERVICE_SUBSCRIPTIONS,), told)
    problems = [record.problem for record in bus.records_of("a", InputRefused)]
    named = f"of version {version}, this side has 3: use the same release at both ends"
    assert [problem.split(" ", 1)[1] for problem in problems] == [named] * 3


def _marked(message: Message, mark: bytes) -> Message:
    """The same control message with another version."""
    return Message(message.identity, message.attributes, message.body[:2] + mark + message.body[3:], message.size_bytes)
