"""Queues by score and in order, and the score itself."""

from __future__ import annotations

from random import Random

import pytest

from penstock.retrieval.forwarding import FifoQueue, ScoreQueue, score


def test_the_score_is_takers_over_the_shortest_time_left():
    assert score([15.0, 30.0], now=10.0) == pytest.approx(2 / 5)
    assert score([12.0], now=10.0) == pytest.approx(1 / 2)
    assert score([9.0, 10.0], now=10.0) == 0.0


def test_a_full_fifo_takes_no_more():
    queue: FifoQueue[str] = FifoQueue(2)
    assert [queue.push(name, 1.0) for name in "abc"] == [None, None, "c"]
    assert queue.dropped == 1
    assert [queue.pop(), queue.pop()] == ["a", "b"]


def test_a_full_queue_by_score_drops_the_least_wanted():
    queue: ScoreQueue[str] = ScoreQueue(2)
    assert [queue.push(*one) for one in (("a", 1.0), ("b", 3.0), ("c", 2.0), ("d", 0.5))] == [None, None, "a", "d"]
    assert [queue.pop(), queue.pop()] == ["b", "c"]
    assert queue.dropped == 2


def test_at_random_as_a_sorted_list():
    random = Random("score queue")
    queue: ScoreQueue[int] = ScoreQueue(30)
    model: list[tuple[float, int]] = []
    for number in range(2_000):
        if model and random.random() < 0.45:
            model.sort(key=lambda one: (-one[0], one[1]))
            assert queue.pop() == model.pop(0)[1]
            continue
        points = float(random.randrange(10))
        model.append((points, number))
        out = queue.push(number, points)
        if len(model) > 30:
            model.sort(key=lambda one: (-one[0], one[1]))
            assert out == model.pop()[1]
        assert len(queue) == len(model)
