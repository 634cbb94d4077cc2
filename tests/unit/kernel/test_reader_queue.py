"""What waits for an application: bounded, the oldest goes first, and readings that say how it reads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.content.message import Message
from penstock.kernel import reader_queue
from penstock.kernel.reader_queue import ReaderQueue
from penstock.kernel.service import Reading
from penstock.testing import a_message


def filled(queue_max: int, count: int) -> ReaderQueue:
    queue = ReaderQueue(queue_max)
    for number in range(1, count + 1):
        queue.put(a_message(number))
    return queue


def counts(messages: list[Message]) -> list[int]:
    return [message.identity.count for message in messages]


def test_messages_are_taken_in_the_order_they_came() -> None:
    queue = filled(10, 4)
    assert counts(queue.take(3)) == [1, 2, 3]
    assert counts(queue.take(3)) == [4]
    assert queue.take(3) == []
    assert (queue.received, queue.dropped) == (4, 0)


def test_taking_none_takes_none() -> None:
    queue = filled(10, 2)
    assert queue.take(0) == []
    assert counts(queue.take(9)) == [1, 2]


def test_a_full_queue_gives_up_its_oldest_message_and_says_which() -> None:
    queue = filled(2, 2)
    assert queue.put(a_message(3)) == a_message(1)
    assert queue.put(a_message(4)) == a_message(2)
    assert counts(queue.take(9)) == [3, 4]
    assert queue.put(a_message(5)) is None
    assert (queue.received, queue.dropped) == (5, 2)


@pytest.mark.parametrize("queue_max", [0, -1])
def test_a_queue_for_nothing_is_a_mistake(queue_max: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        ReaderQueue(queue_max)


def test_a_reading_says_what_happened_since_the_last_one() -> None:
    queue = filled(2, 3)
    queue.take(1)
    assert queue.reading() == Reading(1, 1, 2, (a_message(1),))
    assert queue.reading() == Reading(0, 1, 2, ())
    queue.take(5)
    assert queue.reading() == Reading(1, 0, 2, ())
    assert queue.dropped == 1, "the total stays"


def test_of_many_dropped_messages_a_reading_has_the_first_and_the_total_counts_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reader_queue, "DROPPED_KEPT_MAX", 3)
    queue = filled(1, 6)
    assert counts(list(queue.reading().dropped)) == [1, 2, 3]
    assert queue.dropped == 5


STEPS = st.lists(st.one_of(st.just("put"), st.just("reading"), st.integers(0, 4)), max_size=60)


@given(st.integers(1, 5), STEPS)
def test_every_message_is_taken_dropped_or_waiting_and_readings_add_up(queue_max: int, steps: list[str | int]) -> None:
    queue = ReaderQueue(queue_max)
    taken: list[int] = []
    dropped: list[int] = []
    readings: list[Reading] = []
    for step in [*steps, "reading"]:
        if step == "put":
            gone = queue.put(a_message(queue.received + 1))
            dropped += counts([gone]) if gone is not None else []
        elif isinstance(step, int):
            taken += counts(queue.take(step))
        else:
            readings.append(queue.reading())
        assert len(queue.messages) <= queue_max
    assert sorted([*taken, *dropped, *counts(list(queue.messages))]) == list(range(1, queue.received + 1))
    assert taken == sorted(taken)
    assert sum(reading.taken for reading in readings) == len(taken)
    assert [count for reading in readings for count in counts(list(reading.dropped))] == dropped
    assert readings[-1].waiting == len(queue.messages)
