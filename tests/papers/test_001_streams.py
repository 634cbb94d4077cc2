"""What 001 says about guaranteed delivery, one claim per test: sections 1.1 and 4, and the errata on NACKs.

The parts of a publisher hosting broker (PHB), an intermediate one (IB) and a subscriber hosting one (SHB), fed with
packets by hand. What the pubend writes is said by the test. `test_001_guaranteed_delivery.py` has whole brokers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

import pytest

from penstock.content.language.parser import parse_predicate
from penstock.kernel.machine import Effect, Send
from penstock.kernel.packet import Packet
from penstock.streams.config import StreamsConfig
from penstock.streams.interest import OURSELVES, filters_of
from penstock.streams.known import Known
from penstock.streams.nacks import NackSchedule
from penstock.streams.packets import Item, Join, Knowledge, Nack, Range
from penstock.streams.relay import Relay
from penstock.streams.ticks import TickRanges
from penstock.testing import a_message

PUBEND, EPOCH, LIFE = "orders/0", 7, 1
UP, DOWN, OTHER = 0, 1, 2  # links of a relay
ALL = {"bytes_max": 1 << 30, "items_max": 1 << 30}
SECOND = 1_000_000  # ticks


def order(tick: int, **attributes: Any) -> Item:
    return tick, a_message(tick, attributes or {"price": tick % 100})


def sent(effects: Iterable[Effect], kind: type[Packet], link: int | None = None) -> list[Any]:
    return [
        one.packet
        for one in effects
        if isinstance(one, Send) and isinstance(one.packet, kind) and link in (None, *one.to)
    ]


def told(packets: Sequence[Knowledge]) -> list[tuple[int, int, list[int]]]:
    return [(one.first, one.last, [tick for tick, _ in one.data]) for one in packets]


def wants(where: str) -> tuple[bytes, ...]:
    return tuple(sorted(filters_of([parse_predicate(where)])))


def publisher_hosting(**settings: Any) -> Relay:
    """A PHB with one neighbour that wants everything."""
    relay = Relay(PUBEND, EPOCH, LIFE, StreamsConfig(**settings))
    relay.at_source = True
    relay.join(Join(PUBEND, LIFE, 1, ()), DOWN, now=0.0)
    return relay


def intermediate(*, where: str = "", **settings: Any) -> Relay:
    """An IB between a neighbour upstream and one downstream, which has joined."""
    relay = Relay(PUBEND, EPOCH, LIFE, StreamsConfig(**settings))
    relay.upstream = UP
    relay.join(Join(PUBEND, LIFE, 1, wants(where) if where else ()), DOWN, now=0.0)
    return relay


def subscriber_hosting(**settings: Any) -> Relay:
    """An SHB with a reader of everything."""
    relay = Relay(PUBEND, EPOCH, LIFE, StreamsConfig(**settings))
    relay.upstream = UP
    relay.interest.set(OURSELVES, None)
    relay.has_readers = True
    return relay


def knowledge(first: int, last: int, *items: Item, version: int = 1, life: int = LIFE) -> Knowledge:
    return Knowledge(PUBEND, EPOCH, life, version, first, last, items)


def nack(*ranges: Range, version: int = 1) -> Nack:
    return Nack(PUBEND, LIFE, version, ranges)


def asked_upstream(relay: Relay, now: float) -> list[Range]:
    """What the relay asks for, as soon as it may."""
    relay.ask(relay.asked(), now=now)
    packets = sent(relay.ask(relay.asked(), now=now + 0.01), Nack, UP)
    return [one for packet in packets for one in packet.ranges]


# Section 4: ticks.


def letter(known: Known, tick: int) -> str:
    """The state of a tick, for whoever wants everything that version 1 of our interest contains."""
    if tick <= known.gone:
        return "f"
    spans = known.known(tick, tick, 1, **ALL)
    return ("d" if spans[0].items else "s") if spans else "q"


def states(known: Known, upto: int) -> str:
    return "".join(letter(known, tick) for tick in range(1, upto + 1))


def test_4_a_stream_begins_unknown_and_becomes_data_or_silence_and_then_final() -> None:
    known = Known(bytes_max=1 << 20, runs_max=100)
    assert states(known, 8) == "qqqqqqqq"
    known.learn(1, 5, 1, [order(3)])
    assert states(known, 8) == "ssdssqqq"
    known.learn_gone(4)
    assert states(known, 8) == "ffffsqqq"


LEGAL = {("q", "d"), ("q", "s"), ("d", "f"), ("s", "f"), ("q", "f")}


@pytest.mark.parametrize("seed", range(20))
def test_4_only_the_legal_moves_are_made_whatever_arrives_in_whatever_order(seed: int) -> None:
    """Packets of one true history, duplicated, overlapping, late, and some without valid silence."""
    random = Random(seed)
    truth = {tick: order(tick) for tick in range(1, 61) if random.random() < 0.3}
    known = Known(bytes_max=1 << 20, runs_max=1_000)
    before = states(known, 60)
    for _ in range(200):
        first = random.randint(1, 60)
        last = min(60, first + random.choice([0, 2, 9]))
        data = [item for tick, item in truth.items() if first <= tick <= last]
        if random.random() < 0.2:
            known.learn_data(data)
        else:
            known.learn(first, last, 1, data)
        if random.random() < 0.02:
            known.learn_gone(known.gone + 2)
        after = states(known, 60)
        assert {move for move in zip(before, after, strict=True) if move[0] != move[1]} <= LEGAL
        before = after
    assert all((tick in truth) == (state == "d") for tick, state in enumerate(before, 1) if state in "ds")


def test_4_a_data_message_is_prefixed_with_all_silence_since_the_last_one() -> None:
    phb = publisher_hosting()
    phb.committed([order(100)], 100)
    assert told(sent(phb.committed([order(250)], 250), Knowledge, DOWN)) == [(101, 250, [250])]


def test_4_an_idle_pubend_says_that_it_is_silent() -> None:
    phb = publisher_hosting()
    phb.committed([order(100)], 100)
    assert told(sent(phb.committed([], 900), Knowledge, DOWN)) == [(101, 900, [])]


def test_4_silence_shows_that_the_last_message_was_lost() -> None:
    shb = subscriber_hosting()
    shb.learn(knowledge(1, 100, order(100)), UP, now=0.0)
    shb.learn(knowledge(251, 900), UP, now=0.0)  # that of 101 to 250 did not come
    assert shb.known.unknown(101, shb.known.head, 1, 9) == [(101, 250)]


# Section 4: the subscriber hosting broker.


def test_4_the_doubt_horizon_stands_before_the_first_unknown_tick_and_never_goes_back() -> None:
    shb = subscriber_hosting()
    horizons = []
    packets = [knowledge(1, 100), knowledge(201, 300), knowledge(101, 150), knowledge(151, 200), knowledge(1, 50)]
    for packet in packets:
        shb.learn(packet, UP, now=0.0)
        horizons.append(shb.horizon)
    assert horizons == [100, 100, 150, 300, 300]


def test_4_all_ticks_before_the_doubt_horizon_can_be_delivered_in_order_and_none_behind_it() -> None:
    shb = subscriber_hosting()
    shb.learn(knowledge(1, 100, order(40), order(90)), UP, now=0.0)
    shb.learn(knowledge(201, 300, order(250)), UP, now=0.0)
    span = shb.known.contiguous(0, 1, **ALL)
    assert span is not None
    assert (span.last, [tick for tick, _ in span.items]) == (100, [40, 90])
    assert shb.known.contiguous(100, 1, **ALL) is None


def test_4_what_is_beyond_the_receive_window_is_ignored_and_asked_for_later() -> None:
    shb = subscriber_hosting(receive_window=2.0, nack_window=1.0)
    shb.learn(knowledge(1, 100), UP, now=0.0)
    far = 100 + 2 * SECOND
    shb.learn(knowledge(far + 1, far + 50, order(far + 9)), UP, now=0.0)
    assert (shb.ignored, shb.known.messages) == (1, 0)
    shb.learn(knowledge(101, far), UP, now=0.0)
    assert shb.horizon == far
    assert shb.known.unknown(far + 1, shb.newest, 1, 9) == [(far + 1, far + 50)]


def test_4_the_nack_window_is_part_of_the_receive_window() -> None:
    with pytest.raises(ValueError, match="nack_window is at most receive_window"):
        StreamsConfig(receive_window=2.0, nack_window=3.0)


# Section 1.1: the intermediate broker.


def test_1_1_an_intermediate_broker_turns_what_is_not_wanted_into_silence() -> None:
    ib = intermediate(where="price < 50")
    effects = ib.learn(knowledge(1, 300, order(120, price=70), order(220, price=30)), UP, now=0.0)
    assert told(sent(effects, Knowledge, DOWN)) == [(1, 300, [220])]


def test_1_1_each_neighbour_gets_its_own_subset_of_the_messages() -> None:
    ib = intermediate(where="price < 50")
    ib.join(Join(PUBEND, LIFE, 1, wants("price > 60")), OTHER, now=0.0)
    packet = knowledge(1, 300, order(120, price=70), order(220, price=30), version=ib.interest.version)
    effects = ib.learn(packet, UP, now=0.0)
    assert told(sent(effects, Knowledge, DOWN)) == [(1, 300, [220])]
    assert told(sent(effects, Knowledge, OTHER)) == [(1, 300, [120])]


def test_1_1_an_intermediate_broker_answers_from_its_cache() -> None:
    ib = intermediate(where="price < 50")
    ib.learn(knowledge(1, 300, order(120, price=70), order(220, price=30)), UP, now=0.0)
    effects = ib.nack(nack((101, 250)), DOWN, now=1.0)
    assert [(first, ticks) for first, _, ticks in told(sent(effects, Knowledge, DOWN))] == [(101, [220])]
    assert asked_upstream(ib, 1.0) == []


def test_4_a_phb_tells_silence_together_with_the_messages_that_it_reads_for_the_same_nack() -> None:
    """Section 4: silence ticks travel with data. A part of the log ends with the silence before the next message."""
    phb = publisher_hosting()
    phb.committed([], 400)  # it has just been started: all before that is in its log
    assert phb.nack(nack((1, 150)), DOWN, now=1.0) == []
    assert told(sent(phb.read(1, 199, [order(100)], cut=False), Knowledge, DOWN)) == [(1, 150, [100])]
    assert phb.nack(nack((151, 250)), DOWN, now=1.0) == []  # 151 to 199 are known to be silent
    assert list(phb.asked()) == [(151, 250)]
    assert told(sent(phb.read(151, 299, [order(200)], cut=False), Knowledge, DOWN)) == [(151, 250, [200])]


def test_1_1_what_it_cannot_answer_it_asks_for_upstream_and_passes_the_answer_on() -> None:
    ib = intermediate()
    ib.learn(knowledge(1, 100), UP, now=0.0)
    ib.learn(knowledge(201, 300), UP, now=0.0)
    effects = ib.nack(nack((51, 250)), DOWN, now=1.0)
    assert told(sent(effects, Knowledge, DOWN))[0][:2] == (51, 100)
    assert asked_upstream(ib, 1.0) == [(101, 200)]
    effects = ib.learn(knowledge(101, 200, order(130)), UP, now=1.1)
    assert told(sent(effects, Knowledge, DOWN)) == [(101, 200, [130])]


def test_1_1_two_that_ask_for_the_same_cause_one_question_upstream_and_both_are_answered() -> None:
    ib = intermediate()
    ib.join(Join(PUBEND, LIFE, 1, ()), OTHER, now=0.0)
    ib.learn(knowledge(201, 300), UP, now=0.0)
    ib.nack(nack((101, 200)), DOWN, now=1.0)
    ib.nack(nack((151, 200)), OTHER, now=1.0)
    assert asked_upstream(ib, 1.0) == [(101, 200)]
    effects = ib.learn(knowledge(101, 200, order(160)), UP, now=1.1)
    assert told(sent(effects, Knowledge, DOWN)) == [(101, 200, [160])]
    assert told(sent(effects, Knowledge, OTHER)) == [(151, 200, [160])]


def test_1_1_the_publisher_hosting_broker_answers_from_the_pubend_what_it_has_not_cached() -> None:
    phb = publisher_hosting()
    phb.committed([order(900)], 900)
    phb.nack(nack((101, 800)), DOWN, now=0.0)
    assert list(phb.asked()) == [(101, 800)]  # to be read from the log
    effects = phb.read(101, 800, [order(130)], cut=False)
    assert told(sent(effects, Knowledge, DOWN)) == [(101, 800, [130])]


def test_1_1_after_a_restart_it_tells_nothing_of_what_it_has_not_read_from_the_log() -> None:
    phb = publisher_hosting()
    phb.known.learn_gone(50)  # the log begins above 50, and has messages
    effects = phb.committed([order(900)], 900)
    assert told(sent(effects, Knowledge, DOWN)) == [(900, 900, [900])]


# Filtering and exactly-once delivery, which 001 leaves to an earlier paper: interest has versions.


def test_silence_that_was_filtered_for_an_older_interest_is_unknown_to_a_newer_one() -> None:
    ib = intermediate(where="price < 50")
    ib.learn(knowledge(1, 300, order(220, price=30)), UP, now=0.0)  # there was one of 70 at 120
    ib.join(Join(PUBEND, LIFE, 1, wants("price > 60")), OTHER, now=0.0)
    effects = ib.nack(nack((1, 300)), OTHER, now=1.0)
    assert not any(first <= 120 <= last for first, last, _ in told(sent(effects, Knowledge, OTHER)))
    assert [120 in range(first, last + 1) for first, last in asked_upstream(ib, 1.0)] == [True, False]
    packet = knowledge(1, 219, order(120, price=70), version=ib.interest.version)
    assert [ticks for _, _, ticks in told(sent(ib.learn(packet, UP, now=1.1), Knowledge, OTHER))] == [[120]]


def test_silence_for_an_earlier_life_of_a_broker_is_none_for_this_one() -> None:
    ib = intermediate()
    ib.learn(knowledge(1, 300, order(220), life=LIFE + 1), UP, now=0.0)
    assert ib.known.unknown(1, 300, 0, 9) == [(1, 219), (221, 300)]


# Errata: when an unanswered NACK is sent again, and how many are under way.


def test_errata_an_unanswered_nack_is_sent_again_after_200_ms_doubled_each_time() -> None:
    nacks, times, now = NackSchedule(StreamsConfig(nack_delay=0.0)), [], 0.0
    while now < 4.0:
        if nacks.due([(5, 9)], now):
            times.append(round(now, 3))
        following = nacks.next_at()
        assert following is not None
        now = following
    assert times == [0.0, 0.2, 0.6, 1.4, 3.0]


def test_errata_or_after_two_round_trips_smoothed_by_an_eighth() -> None:
    nacks = NackSchedule(StreamsConfig(nack_delay=0.0))
    nacks.due([(1, 9)], 0.0)
    nacks.answered(1, 9, 0.2)
    nacks.due([(10, 19)], 1.0)
    nacks.answered(10, 19, 1.6)
    assert nacks.round_trip == pytest.approx(7 / 8 * 0.2 + 1 / 8 * 0.6)
    nacks.due([(20, 29)], 2.0)
    assert nacks.next_at() == pytest.approx(2.0 + 2 * 0.25)


def test_errata_a_limit_on_outstanding_ranges() -> None:
    nacks = NackSchedule(StreamsConfig(nack_delay=0.0, outstanding_max=5))
    wanted = [(first, first + 3) for first in range(1, 1_000, 10)]
    assert nacks.due(wanted, 0.0) == wanted[:5]


@pytest.mark.parametrize("seed", range(10))
def test_only_unknown_ticks_are_asked_for(seed: int) -> None:
    random = Random(seed)
    shb = subscriber_hosting(nack_delay=0.0, outstanding_max=8)
    for step in range(100):
        first = random.randint(1, 500)
        version = shb.interest.version
        shb.learn(knowledge(first, first + random.choice([0, 5, 40]), version=version), UP, now=step * 0.1)
        wanted = TickRanges()
        for one in shb.known.unknown(1, shb.newest, version, 64):
            wanted.add(*one)
        packets = sent(shb.ask(wanted, now=step * 0.1), Nack, UP)
        for first, last in (one for packet in packets for one in packet.ranges):
            assert wanted.overlap(first, last) == [(first, last)]
