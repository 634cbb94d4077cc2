"""What is known of a pubend's ticks: the rules one by one, and random histories against one entry per tick."""

from __future__ import annotations

import sys
from collections import OrderedDict
from itertools import pairwise
from random import Random

import pytest

from penstock.content.message import Message
from penstock.streams.known import Known, KnownSpan
from penstock.streams.packets import Item, Range
from penstock.testing import a_message

AMPLE = {"bytes_max": 1 << 30, "items_max": 1 << 30}
UPTO = 60  # the highest tick of the random histories
SIZE = a_message(1).size_bytes


def known(*, messages_max: int = 1_000, runs_max: int = 1_000) -> Known:
    return Known(bytes_max=messages_max * SIZE, runs_max=runs_max)


def items(*ticks: int) -> list[Item]:
    return [(tick, a_message(tick)) for tick in ticks]


def ticks_of(spans: list[KnownSpan]) -> list[tuple[int, int, list[int]]]:
    return [(span.first, span.last, [tick for tick, _ in span.items]) for span in spans]


def everything(book: Known, since: int = 0) -> list[tuple[int, int, list[int]]]:
    return ticks_of(book.known(1, UPTO, since, **AMPLE))


# The rules, one by one.


def test_what_is_not_listed_is_silence() -> None:
    book = known()
    book.learn(1, 10, 1, items(4, 7))
    assert everything(book, since=1) == [(1, 10, [4, 7])]
    assert book.head == 10
    assert book.size_bytes == 2 * SIZE


def test_silence_of_an_older_interest_is_unknown_to_a_newer_one_and_data_are_not() -> None:
    book = known()
    book.learn(1, 10, 1, items(4, 7))
    assert everything(book, since=2) == [(4, 4, [4]), (7, 7, [7])]
    assert book.unknown(1, 12, 2, 9) == [(1, 3), (5, 6), (8, 12)]
    assert book.unknown(1, 12, 1, 9) == [(11, 12)]


def test_the_higher_version_of_silence_stays() -> None:
    book = known()
    book.learn(5, 8, 3, [])
    book.learn(1, 10, 2, [])
    assert everything(book, since=3) == [(5, 8, [])]
    assert everything(book, since=2) == [(1, 10, [])]
    book.learn(1, 10, 3, [])
    assert book.runs == 1


def test_data_stay_data_and_silence_may_become_data() -> None:
    book = known()
    book.learn(1, 10, 1, items(4))
    book.learn(1, 10, 2, items(6))
    assert everything(book, since=2) == [(1, 10, [4, 6])]


def test_of_the_ticks_around_lone_data_nothing_is_known() -> None:
    book = known()
    book.learn_data(items(4, 7))
    book.learn(5, 6, 1, [])
    assert everything(book) == [(4, 7, [4, 7])]
    assert everything(book, since=2) == [(4, 4, [4]), (7, 7, [7])]
    assert book.head == 7


def test_a_live_stream_is_one_run() -> None:
    book = known()
    for tick in range(10, 1_000, 10):
        book.learn(tick - 9, tick, 1, items(tick))
    assert book.runs == 1


def test_what_is_gone_is_neither_known_nor_unknown_and_never_comes_back() -> None:
    book = known()
    book.learn(1, 10, 1, items(2, 7))
    book.learn_gone(5)
    book.learn(1, 4, 1, items(3))
    book.learn_data(items(5))
    assert everything(book) == [(6, 10, [7])]
    assert book.unknown(1, 10, 0, 9) == []
    assert book.size_bytes == SIZE
    assert book.contiguous(4, 0, **AMPLE) is None  # whoever is there has missed something
    book.learn_gone(3)
    assert book.gone == 5
    book.learn_gone(20)
    assert (book.gone, book.head, book.size_bytes, book.runs) == (20, 10, 0, 0)


def test_what_is_gone_says_nothing_of_how_far_anything_is_known() -> None:
    book = known()
    book.learn_gone(20)
    assert book.head == 0  # whoever goes on from the head must not take what follows for silence
    book.learn(30, 40, 1, [])
    assert book.unknown(1, 40, 1, 9) == [(21, 29)]


def test_the_message_learnt_longest_ago_goes_and_its_tick_is_unknown() -> None:
    book = known(messages_max=2)
    book.learn(1, 10, 1, items(3, 6))
    book.learn(11, 12, 1, items(12))
    assert everything(book) == [(4, 12, [6, 12])]
    book.learn(1, 3, 1, items(3))  # asked for again
    assert everything(book) == [(1, 5, [3]), (7, 12, [12])]
    assert book.size_bytes == 2 * SIZE


def test_what_is_asked_for_again_does_not_drive_out_the_newest() -> None:
    book = known(messages_max=4)
    book.learn(1, 30, 1, items(22, 24, 26, 28))
    for tick in range(1, 10):
        book.learn(tick, tick, 1, items(tick))
        assert [tick for _, _, ticks in everything(book) for tick in ticks][-2:] == [26, 28]
        assert book.messages == 4
    book.learn(31, 34, 1, items(31, 32, 33, 34))
    assert everything(book)[-1][2] == [31, 32, 33, 34]  # nor does it keep its place before the newest


def test_without_anything_newer_late_messages_have_all_the_room() -> None:
    book = known(messages_max=4)
    book.learn(21, 40, 1, [])
    book.learn_data(items(9))
    for tick in range(1, 9):
        book.learn(tick, tick, 1, items(tick))
    assert [tick for _, _, ticks in everything(book) for tick in ticks] == [6, 7, 8, 9]


def test_nothing_of_the_packet_just_learnt_goes() -> None:
    book = known(messages_max=2)
    book.learn(1, 2, 1, items(2))
    book.learn(3, 9, 1, items(4, 5, 6, 7))
    assert everything(book) == [(3, 9, [4, 5, 6, 7])]


def test_the_lowest_runs_go_but_not_what_was_just_learnt() -> None:
    book = known(runs_max=3)
    for tick in (10, 20, 30, 40):
        book.learn(tick, tick + 1, 1, items(tick))
    assert everything(book) == [(10, 10, [10]), (20, 21, [20]), (30, 31, [30]), (40, 41, [40])]
    book.learn(2, 3, 1, [])
    assert everything(book, since=1)[:2] == [(2, 3, []), (10, 10, [10])]
    assert book.runs == 3


def test_spans_end_before_the_message_that_is_too_many() -> None:
    book = known()
    book.learn(1, 10, 1, items(4, 7))
    book.learn(15, 20, 1, items(16))
    assert ticks_of(book.known(1, 20, 1, bytes_max=SIZE, items_max=9)) == [(1, 6, [4])]
    assert ticks_of(book.known(1, 20, 1, bytes_max=1, items_max=9)) == [(1, 6, [4])]
    assert ticks_of(book.known(1, 20, 1, bytes_max=SIZE + 1, items_max=9)) == [(1, 10, [4, 7]), (15, 15, [])]
    assert ticks_of(book.known(1, 20, 1, bytes_max=9 * SIZE, items_max=2)) == [(1, 10, [4, 7]), (15, 15, [])]
    assert ticks_of(book.known(7, 16, 1, bytes_max=SIZE, items_max=1)) == [(7, 10, [7]), (15, 15, [])]
    assert ticks_of(book.known(7, 16, 2, bytes_max=SIZE, items_max=1)) == [(7, 7, [7])]


def test_contiguous_goes_as_far_as_there_is_no_hole() -> None:
    book = known()
    book.learn(1, 10, 1, items(4, 7))
    book.learn(11, 15, 2, [])
    book.learn(17, 20, 2, [])
    assert book.contiguous(0, 1, **AMPLE) == KnownSpan(1, 15, items(4, 7))
    assert book.contiguous(0, 1, upto=5, **AMPLE) == KnownSpan(1, 5, items(4))
    assert book.contiguous(4, 1, bytes_max=1, items_max=1) == KnownSpan(5, 15, items(7))
    assert book.contiguous(3, 2, **AMPLE) == KnownSpan(4, 4, items(4))
    assert book.contiguous(4, 2, **AMPLE) is None
    assert book.contiguous(15, 1, **AMPLE) is None
    assert book.contiguous(20, 1, **AMPLE) is None


# Random histories.


class Model:
    """One entry per tick. Silence that went together with a message before which it stood may be known or not."""

    def __init__(self, messages_max: int) -> None:
        self.messages_max = messages_max
        self.messages: OrderedDict[int, Message] = OrderedDict()
        self.late: OrderedDict[int, Message] = OrderedDict()
        self.highest = 0  # of the messages that there were
        self.silence: dict[int, int] = {}  # tick -> version
        self.perhaps: dict[int, int] = {}  # as far as it may have been forgotten
        self.gone = 0
        self.head = 0

    def learn(self, first: int, last: int, version: int, data: list[Item]) -> None:
        for tick in range(max(first, self.gone + 1), last + 1):
            highest = max(version, self.silence.get(tick, 0))
            self.perhaps[tick] = max(highest, self.perhaps.get(tick, 0))
            self.silence[tick] = highest
            self.head = max(self.head, tick)
        self.learn_data(data)

    def learn_data(self, data: list[Item]) -> None:
        data = [item for item in data if item[0] > self.gone]
        if not data:
            return
        fresh = late = 0
        for tick, message in data:
            self.head = max(self.head, tick)
            is_late = tick in self.late or (tick not in self.messages and tick < self.highest)
            for known in [self.late, self.messages] if is_late else [self.messages]:
                known[tick] = message
                known.move_to_end(tick)
            late += is_late
            fresh += not is_late
        self.highest = max(self.highest, data[-1][0])
        while len(self.messages) > max(self.messages_max, len(data)):
            self.forget(self.next_to_go(fresh, late))

    def next_to_go(self, fresh: int, late: int) -> int:
        others = [tick for tick in self.messages if tick not in self.late]
        many = 2 * len(self.late) > self.messages_max or len(others) <= fresh
        tick = next(iter(self.late)) if many and len(self.late) > late else others[0]
        self.late.pop(tick, None)
        del self.messages[tick]
        return tick

    def forget(self, tick: int) -> None:
        covered = self.perhaps.pop(tick, None) is not None
        self.silence.pop(tick, None)
        while covered and tick - 1 in self.perhaps and tick - 1 not in self.messages:
            tick -= 1
            self.silence.pop(tick, None)

    def learn_gone(self, upto: int) -> None:
        self.gone = max(self.gone, upto)
        for known in (self.messages, self.late, self.silence, self.perhaps):
            for tick in [tick for tick in known if tick <= upto]:
                del known[tick]

    def surely(self, tick: int, since: int) -> bool:
        return tick in self.messages or self.silence.get(tick, -1) >= since

    def possibly(self, tick: int, since: int) -> bool:
        return tick in self.messages or self.perhaps.get(tick, -1) >= since


def check(book: Known, model: Model, random: Random) -> None:
    since = random.randint(0, 4)
    first = random.randint(1, UPTO)
    last = random.randint(first - 1, UPTO)
    spans = book.known(first, last, since, **AMPLE)
    covered = [tick for span in spans for tick in range(span.first, span.last + 1)]
    asked = range(max(first, model.gone + 1), last + 1)
    assert covered == sorted(set(covered))
    assert {tick for tick in asked if model.surely(tick, since)} <= set(covered)
    assert set(covered) <= {tick for tick in asked if model.possibly(tick, since)}
    assert all(one.last + 1 < other.first for one, other in pairwise(spans))
    assert all(span.first <= tick <= span.last for span in spans for tick, _ in span.items)
    found = [item for span in spans for item in span.items]
    assert found == sorted((tick, model.messages[tick]) for tick in model.messages if first <= tick <= last)
    holes = book.unknown(first, last, since, UPTO)
    assert [tick for begin, end in holes for tick in range(begin, end + 1)] == sorted(set(asked) - set(covered))
    assert book.unknown(first, last, since, 2) == holes[:2]
    assert (book.head, book.gone) == (model.head, model.gone)
    assert book.size_bytes == sum(message.size_bytes for message in model.messages.values())
    check_budgets(book, spans, (first, last), since, random)


def check_budgets(book: Known, spans: list[KnownSpan], asked: Range, since: int, random: Random) -> None:
    """What fits is what a plain count takes; contiguous is the first span, if it begins there."""
    first, last = asked
    items_max = random.randint(1, 5)
    expected: list[KnownSpan] = []
    left = items_max
    for span in spans:
        expected.append(KnownSpan(span.first, span.last, span.items[:left]))
        if len(span.items) > left:
            expected[-1] = expected[-1]._replace(last=span.items[left][0] - 1)
            break
        left -= len(span.items)
    expected = [span for span in expected if span.first <= span.last]
    assert book.known(first, last, since, bytes_max=1 << 30, items_max=items_max) == expected
    limited = book.contiguous(first - 1, since, bytes_max=1 << 30, items_max=items_max, upto=last)
    assert limited == (expected[0] if expected and expected[0].first == first else None)


def step(book: Known, model: Model, random: Random) -> None:
    first = random.randint(1, UPTO)
    last = min(UPTO, first + random.choice([0, 1, 3, 8, 20]))
    if random.random() < 0.3:  # the end of the stream, as it comes
        first = min(UPTO, model.head + 1)
        last = max(first, last)
    ticks = [tick for tick in range(first, last + 1) if tick % 3 and random.random() < 0.3]
    kind = random.random()
    if kind < 0.7:
        version = random.randint(0, 4)
        book.learn(first, last, version, items(*ticks))
        model.learn(first, last, version, items(*ticks))
    elif kind < 0.97:
        book.learn_data(items(*ticks))
        model.learn_data(items(*ticks))
    else:
        upto = min(first, model.gone + 3)
        book.learn_gone(upto)
        model.learn_gone(upto)


@pytest.mark.parametrize("messages_max", [3, 10, 1_000])
@pytest.mark.parametrize("seed", range(30))
def test_it_knows_what_one_entry_per_tick_would_know(seed: int, messages_max: int) -> None:
    random = Random(seed)
    book, model = known(messages_max=messages_max), Model(messages_max)
    for _ in range(150):
        step(book, model, random)
        check(book, model, random)
        if messages_max == 1_000:
            assert model.silence == model.perhaps  # nothing is forgotten, and the comparison is exact


@pytest.mark.parametrize("seed", range(30))
def test_with_few_runs_it_knows_less_but_nothing_wrong_and_what_was_just_learnt(seed: int) -> None:
    random = Random(seed)
    book, model = known(messages_max=5, runs_max=4), Model(5)
    for _ in range(150):
        first = random.randint(1, UPTO - 3)
        ticks = [tick for tick in range(first, first + 3) if random.random() < 0.3]
        book.learn(first, first + 2, 1, items(*ticks))
        model.learn(first, first + 2, 1, items(*ticks))
        assert book.runs <= 4
        spans = book.known(1, UPTO, 1, **AMPLE)
        covered = {tick for span in spans for tick in range(span.first, span.last + 1)}
        assert covered <= {tick for tick in range(1, UPTO + 1) if model.possibly(tick, 1)}
        assert {tick for tick in range(first, first + 3) if model.surely(tick, 1)} <= covered
        assert sorted(model.messages) == [tick for span in spans for tick, _ in span.items]


# Many messages.


def test_a_long_stream_takes_no_more_memory_than_a_short_one() -> None:
    book = known(messages_max=500)
    message = a_message(1)
    sizes: list[int] = []
    for count in range(1, 20_001):
        book.learn(count * 100 - 99, count * 100, 1, [(count * 100, message)])
        if count in (5_000, 20_000):
            sizes.append(sum(sys.getsizeof(part) for part in (book._ticks, book._messages, book._firsts)))
            assert (book.runs, book.messages) == (1, 500)
            assert len(book._ticks) < 2 * 500
    assert sizes[1] < 1.5 * sizes[0]


def test_catching_up_below_a_live_stream_makes_few_runs() -> None:
    book = known(messages_max=300)
    for count in range(2_000):
        live, past = 1_000_000 + count * 10, 1 + count * 10
        book.learn(live, live + 9, 1, [(live + 4, a_message(1))])
        book.learn(past, past + 9, 1, [(past + 4, a_message(1))])
        assert book.runs <= 4
