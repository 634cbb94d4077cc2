"""The publisher's side: numbers, times and records on what leaves, and heartbeats that tell of it again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.content.envelope import opened
from penstock.content.message import DEFAULT_LIMITS, Value
from penstock.errors import InvalidMessage
from penstock.kernel.timers import ServiceTimers, Timers
from penstock.testing import a_message
from penstock.transport.bearer import BearerPublish
from penstock.transport.config import RECORD_ENTRIES_TAKEN_MAX, TransportConfig, papers_config
from penstock.transport.sender.publication_record import HEARTBEAT_NEW, LIMITS, PublicationRecord
from penstock.transport.timers import TransportTimer
from penstock.transport.wire.control_messages import FROM, ControlIdentities, Key
from penstock.transport.wire.header import Header, decode_header

HEARTBEAT_TIMER = ("transport", TransportTimer.HEARTBEAT)


def a_publisher(config: TransportConfig | None = None) -> tuple[PublicationRecord, Timers]:
    timers, identities = Timers(), ControlIdentities("p", 1)
    service_timers = ServiceTimers("transport", timers)
    return PublicationRecord("p", 1, config or papers_config(), service_timers, identities), timers


def header_of(config: TransportConfig, data: bytes, attributes: dict[str, Value] | None = None) -> Header:
    own = config.encoding.encode_message(attributes) if attributes is not None else 0
    return decode_header(data, own, entry_bits=config.record_bits)


def sent(record: PublicationRecord, config: TransportConfig, attributes: dict[str, Value], now: float) -> Header:
    wrapped, key = record.wrap(a_message(1, attributes), now=now)
    data, inside = opened(wrapped)
    assert inside == a_message(1, attributes)
    assert key == Key("p", 1, record.sequence)
    return header_of(config, data, attributes)


def heartbeated(record: PublicationRecord, config: TransportConfig, now: float) -> Header | None:
    effects = record.heartbeat(now=now)
    if not effects:
        return None
    (publish,) = effects
    assert isinstance(publish, BearerPublish)
    assert publish.message.attributes[FROM] == "p"
    return header_of(config, opened(publish.message)[0])


@pytest.mark.parametrize("form", ["whole", "shared"])
@given(values=st.lists(st.integers(0, 5), max_size=30), entries=st.integers(0, 12))
def test_the_record_is_that_of_the_messages_before_newest_first(form: str, values: list[int], entries: int) -> None:
    """The i-th entry is that of message n - i (erratum B5)."""
    config = papers_config(record_entries=entries, record_form=form)  # type: ignore[arg-type]
    record, _ = a_publisher(config)
    for place, value in enumerate(values):
        header = sent(record, config, {"n": value, "s": "x"}, 10.0 + place)
        before = values[max(0, place - entries) : place][::-1]
        assert header.sequence == place + 1
        assert header.departure == 10.0 + place
        assert header.entries() == tuple(config.encoding.encode_message({"n": old, "s": "x"}) for old in before)
        assert header.ages == pytest.approx([1.0 + i for i in range(min(place, max(1, entries)))])


def test_both_forms_say_the_same_and_the_shared_one_is_shorter() -> None:
    sizes = {}
    for form in ("whole", "shared"):
        config = papers_config(record_form=form)
        record, _ = a_publisher(config)
        total = 0
        for number in range(100):
            message = a_message(1, {"symbol": "IBM", "exchange": "NYSE", "price": float(number), "volume": 100})
            total += len(opened(record.wrap(message, now=float(number))[0])[0])
        sizes[form] = total / 100
    assert sizes["whole"] > 340
    assert sizes["shared"] < 0.5 * sizes["whole"], sizes


def test_a_clock_that_was_set_back_does_not_make_the_record_run_backwards() -> None:
    config = papers_config()
    record, _ = a_publisher(config)
    departures = []
    for now in (10.0, 11.0, 4.0, 4.5, 12.0):
        header = sent(record, config, {"n": 1}, now)
        departures.append(header.departure)
        assert list(header.ages) == sorted(header.ages)
    assert departures == [10.0, 11.0, 11.0, 11.0, 12.0]


def test_after_a_clock_was_set_back_heartbeats_come_in_time_by_the_clock_as_it_is() -> None:
    config = papers_config(heartbeat_interval=1.0)
    record, timers = a_publisher(config)
    sent(record, config, {"n": 1}, 1000.0)
    timers.pop_due(1001.0)
    assert heartbeated(record, config, 1001.0) is not None
    sent(record, config, {"n": 2}, 5.0)
    assert timers.deadline() == 6.0
    timers.pop_due(6.0)
    header = heartbeated(record, config, 6.0)
    assert header is not None
    assert header.departure == 1000.0
    assert timers.deadline() == 7.0


def test_a_message_without_room_for_a_header_is_refused_and_changes_nothing() -> None:
    config = papers_config(heartbeat_interval=1.0)
    record, timers = a_publisher(config)
    full = a_message(1, {f"a{n}": n for n in range(DEFAULT_LIMITS.attributes_max)})
    with pytest.raises(InvalidMessage):
        record.wrap(full, now=1.0)
    assert (record.sequence, len(timers)) == (0, 0)
    assert sent(record, config, {"n": 1}, 2.0).sequence == 1


@pytest.mark.parametrize("form", ["whole", "shared"])
def test_whatever_is_within_the_limits_has_room_for_the_largest_header(form: str) -> None:
    config = papers_config(
        record_entries=RECORD_ENTRIES_TAKEN_MAX,
        record_bits=1024,
        record_form=form,  # type: ignore[arg-type]
        heartbeat_interval=1.0,
    )
    record, _ = a_publisher(config)
    attributes: dict[str, Value] = {f"a{n}": n for n in range(LIMITS.attributes_max)}
    for number in range(RECORD_ENTRIES_TAKEN_MAX + 2):
        header = sent(record, config, {**attributes, "a0": number}, float(number))
    assert header.record_size == RECORD_ENTRIES_TAKEN_MAX
    record.wrap(a_message(1, attributes, body=bytes(LIMITS.body_bytes_max)), now=1e3)
    heartbeat = heartbeated(record, config, 1e3)
    assert heartbeat is not None
    assert heartbeat.record_size == RECORD_ENTRIES_TAKEN_MAX


def test_with_a_span_the_record_is_as_long_as_the_publisher_is_fast() -> None:
    """002 section 3.2.6: a fast publisher needs a longer record."""
    config = papers_config(record_entries=50, record_span=1.0)
    record, _ = a_publisher(config)
    now, sizes = 0.0, {}
    for gap in (0.1, 0.025, 0.5, 3.0, 0.001):
        for _ in range(120):
            now += gap
            header = sent(record, config, {"n": 1}, now)
        sizes[gap] = header.record_size
    assert sizes[0.1] in (9, 10, 11)
    assert sizes[0.025] in (39, 40, 41)
    assert sizes[0.5] in (1, 2)
    assert sizes[3.0] == 1, "never less than one, so that a single loss is still covered"
    assert sizes[0.001] == 50, "never more than record_entries"


def test_a_heartbeat_covers_what_left_since_the_heartbeat_before_the_last() -> None:
    config = papers_config(heartbeat_interval=1.0, record_entries=2)
    record, timers = a_publisher(config)
    covered = []
    for burst in range(3):
        for number in range(5):
            sent(record, config, {"n": number}, 10.0 * burst + 0.1 * number)
        assert timers.deadline() == 10.0 * burst + 1.0, "the first message after a heartbeat starts the clock"
        assert timers.pop_due(10.0 * burst + 1.0) == HEARTBEAT_TIMER
        header = heartbeated(record, config, 10.0 * burst + 1.0)
        assert header is not None
        covered.append((header.sequence, header.record_size))
    assert covered == [(6, 5), (11, 10), (16, 10)], "each message in two heartbeats, so that one may be lost"


def test_a_heartbeat_is_repeated_when_nothing_follows_and_then_never_more() -> None:
    config = papers_config(heartbeat_interval=1.0, heartbeat_repeats=3)
    record, timers = a_publisher(config)
    sent(record, config, {"n": 1}, 0.0)
    heartbeats = []
    for _ in range(20):
        deadline = timers.deadline()
        if deadline is None:
            break
        assert timers.pop_due(deadline) == HEARTBEAT_TIMER
        header = heartbeated(record, config, deadline)
        assert header is not None
        heartbeats.append((deadline, header.record_size))
    assert heartbeats == [(1.0, 1), (2.0, 1), (3.0, 1), (4.0, 1)], "once, and three times again"


def test_without_repeats_a_heartbeat_is_sent_once() -> None:
    config = papers_config(heartbeat_interval=1.0, heartbeat_repeats=0)
    record, timers = a_publisher(config)
    sent(record, config, {"n": 1}, 0.0)
    timers.pop_due(1.0)
    assert heartbeated(record, config, 1.0) is not None
    assert timers.deadline() is None
    sent(record, config, {"n": 1}, 5.0)
    assert timers.deadline() == 6.0


def test_a_fast_publisher_does_not_wait_for_the_time_of_its_heartbeat() -> None:
    config = papers_config(heartbeat_interval=1000.0)
    record, timers = a_publisher(config)
    covered: set[int] = set()
    for number in range(1, 1000):
        sent(record, config, {"n": number}, 0.001 * number)
        if record.heartbeat_due():
            header = heartbeated(record, config, 0.001 * number)
            assert header is not None
            covered.update(header.sequence - back for back in range(1, header.record_size + 1))
    assert covered == set(range(1, 999 - 999 % HEARTBEAT_NEW + 1)), "none is left out"
    assert timers.deadline() is not None, "and the rest is covered in time"


def test_without_heartbeats_there_is_no_timer_and_no_heartbeat_is_due() -> None:
    record, timers = a_publisher(papers_config(heartbeat_interval=0.0))
    for number in range(200):
        record.wrap(a_message(number), now=float(number))
    assert timers.deadline() is None
    assert not record.heartbeat_due()


def test_a_heartbeat_works_without_a_record_on_messages() -> None:
    config = papers_config(record_entries=0, heartbeat_interval=1.0)
    record, _ = a_publisher(config)
    assert sent(record, config, {"n": 1}, 0.0).record_size == 0
    assert sent(record, config, {"n": 2}, 0.5).ages == (0.5,)
    header = heartbeated(record, config, 1.0)
    assert header is not None
    assert header.entries() == tuple(config.encoding.encode_message({"n": n}) for n in (2, 1))


def test_memory_does_not_grow() -> None:
    for config in (papers_config(), papers_config(record_entries=0), papers_config(heartbeat_interval=1.0)):
        record, timers = a_publisher(config)
        for number in range(2_000):
            record.wrap(a_message(number), now=0.001 * number)
        kept = max(1, config.record_entries, RECORD_ENTRIES_TAKEN_MAX if config.heartbeat_interval else 0)
        assert len(record._departures) == len(record._encodings) == len(record._written) == kept
        assert len(timers) <= 1
