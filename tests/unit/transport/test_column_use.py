"""Columns that nobody's filters name are left out of records and ledgers; who lacks one asks, and gets everything."""

from __future__ import annotations

import pytest

from foreign_bus import Bus
from penstock import services
from penstock.content.bloom import EncodingScheme
from penstock.content.language.parser import parse_predicate
from penstock.content.message import DEFAULT_LIMITS, Identity, make_message
from penstock.errors import InvalidPacket
from penstock.overlay.interest import read_entries
from penstock.overlay.interest_form import ExactForm, interest_form
from penstock.testing import ClientMachine, a_client, broker_network
from penstock.transport.broker_service import Unused
from penstock.transport.client_service import TransportClient
from penstock.transport.config import TransportConfig
from penstock.transport.ledgers.column_use import ASKED_FOR, NAMES_MAX, ColumnUse
from penstock.transport.ledgers.ledger import decode_ledger, make_ledger
from penstock.transport.ledgers.publisher import LedgerPublisher
from penstock.transport.ledgers.record import SketchRecord, decode_data_header
from penstock.transport.ledgers.sketch import LEDGER_BITS
from penstock.transport.ledgers.sketch_predicate import CANNOT_TELL, NO, YES, SketchPredicate

RECOVER = services.options({"recover": True})


def publisher_of(bus: Bus, name: str) -> LedgerPublisher:
    outgoing = bus.members[name].transport.scheme.outgoing
    assert isinstance(outgoing, LedgerPublisher)
    return outgoing


@pytest.mark.parametrize("loss", [0.0, 0.1])
def test_who_lacks_a_column_asks_and_gets_all(loss: float) -> None:
    """The network is wrong: it says that nobody uses two of the columns."""
    bus = Bus(seed=3, loss=loss)
    bus.add("p", TransportConfig(), publishes=True)
    bus.add("a", TransportConfig())
    bus.subscribe("a", 1, "n < 50 AND s = 'a'", recover=True)
    publisher_of(bus, "p").unused(("s", "price"))
    due = 0
    for step in range(300):
        content = {"n": step % 100, "s": "ab"[step % 2], "price": step / 4}
        due += content["n"] < 50 and content["s"] == "a"
        bus.publish("p", content, at=1.0 + step * 0.02)
    bus.run(60.0)
    report = bus.report("a", 1)
    assert (len(bus.got("a", 1)), report.known_lost, report.pending) == (due, 0, 0)
    columns = publisher_of(bus, "p").columns
    assert [name for name in ("n", "s", "price") if columns.used(name)] == ["n", "s"], "what it asked for is told now"


def test_filters_that_are_too_long_for_a_request_still_get_their_columns() -> None:
    bus = Bus(seed=3, loss=0.0)
    bus.add("p", TransportConfig(), publishes=True)
    bus.add("a", TransportConfig())
    listed = ", ".join(f"'{'long' * 10}{number}'" for number in range(40))
    bus.subscribe("a", 1, f"s = 'a' OR s IN ({listed})", recover=True)
    publisher_of(bus, "p").unused(("s",))
    for step in range(40):
        bus.publish("p", {"n": step, "s": "ab"[step % 2]}, at=1.0 + step * 0.02)
    bus.run(10.0)
    assert publisher_of(bus, "p").columns.used("s")
    assert len(bus.got("a", 1)) == 20


def test_a_column_that_is_left_out_cannot_be_told_and_others_that_no_message_has_are_missing() -> None:
    messages = [(make_message(Identity("p", 1, 1), {"n": 5, "s": "a"}), 1.0)]
    data = make_ledger(1, 1, messages, last=1, sent_at=2.0, used=lambda name: name == "n")
    content = decode_ledger(data)

    def verdict(where: str) -> int:
        form = SketchPredicate(parse_predicate(where).filters).form(content.columns, LEDGER_BITS, complete=True)
        return dict(form.verdicts(content, [0])).get(0, NO)

    assert [verdict(where) for where in ("n = 5", "n = 6", "other = 1", "NOT EXISTS other")] == [YES, NO, NO, YES]
    assert verdict("s = 'a'") == verdict("EXISTS s") == verdict("NOT EXISTS s") == CANNOT_TELL
    assert verdict("n = 6 AND s = 'a'") == NO


def test_a_record_has_the_columns_that_are_used_and_so_more_entries() -> None:
    use = ColumnUse()
    records = SketchRecord(use)
    content = {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5, "f": 6}

    def publish(count: int) -> bytes:
        for at in range(count):
            data = records.header(content, float(at))
            records.left(content, float(at))
        return data

    assert decode_data_header(publish(30)).record_size == 8
    use.told(("a", "c", "d", "e", "f"))
    header = decode_data_header(publish(2))
    assert (header.record_size, header.mask) == (24, 0b10)
    assert [column.name for column in header.columns(content)] == ["b"]


def test_what_was_asked_for_is_used_for_a_while() -> None:
    use = ColumnUse()
    use.publishes(["n", "s"])
    use.told(("n", "s"))
    use.asked(["s", "a name that we do not have"], 10.0)
    assert (use.used("n"), use.used("s"), use.used("unknown")) == (False, True, True)
    use.forget(10.0 + ASKED_FOR)
    assert not use.used("s")
    use.told(())
    assert use.used("n")


def test_names_are_counted_until_the_last_filter_goes() -> None:
    form = ExactForm()
    names = ("a", "b", "c")
    assert form.unused(names) == names
    (one,) = read_entries(form.entries(parse_predicate("a = 1 AND b > 2")), form)
    form.add(3, one.entry, one.selected)
    form.count(one.selected, 1)
    form.remove(3, one.entry, one.selected)
    assert form.unused(names) == ("c",)
    form.count(one.selected, -1)
    assert form.unused(names) == names


def test_of_encodings_nobody_knows_the_names() -> None:
    form = interest_form("encoded", EncodingScheme())
    assert form.unused(("a",)) == ()


def a_publisher() -> ClientMachine:
    return a_client("p", settings={"transport": TransportConfig()})


def test_the_home_broker_tells_a_publisher_what_nobody_uses() -> None:
    """Filters of its own clients and of other brokers' clients count."""
    pump = broker_network([(0, 1)])
    writer = a_publisher()
    readers = {"near": ("b0", "n < 5"), "far": ("b1", "s LIKE 'a%' AND NOT urgent")}
    for name, (home, where) in readers.items():
        reader = a_client(name)
        pump.add(name, reader)
        pump.connect(name, home)
        pump.run()
        pump.apply(name, reader.subscribe(1, where, RECOVER, ticket=1, now=pump.now))
    pump.add("p", writer)
    pump.connect("p", "b0")
    pump.advance(4.0)
    content = {"n": 9, "s": "b", "urgent": False, "place": "x", "price": 2.5}
    for number in range(1, 4):
        message = make_message(Identity("p", 1, number), content)
        pump.apply("p", writer.publish(message, ticket=number, now=pump.now))
        pump.advance(0.5)
    outgoing = writer.node.machine(TransportClient).transport.scheme.outgoing
    assert isinstance(outgoing, LedgerPublisher)
    assert [name for name in content if not outgoing.columns.used(name)] == ["place", "price"]


def test_an_answer_with_too_many_names_is_refused() -> None:
    with pytest.raises(InvalidPacket):
        Unused(tuple(map(str, range(NAMES_MAX + 1)))).checked(DEFAULT_LIMITS)
    with pytest.raises(InvalidPacket):
        Unused(("n" * 1_000_000,)).checked(DEFAULT_LIMITS)
