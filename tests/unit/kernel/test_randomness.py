"""Streams of randomness: the same everywhere, and independent of each other."""

from __future__ import annotations

import subprocess
import sys

from penstock.kernel.randomness import derive, generator


def test_a_stream_is_pinned_so_that_old_runs_replay() -> None:
    assert derive(7, "north", "recovery") == 0x4B5E992FF94A3045
    assert generator(7, "north").random() == 0.4253154331247997


def test_the_same_names_give_the_same_numbers() -> None:
    a, b = generator(7, "north", "routing", 3), generator(7, "north", "routing", 3)
    assert [a.random() for _ in range(5)] == [b.random() for _ in range(5)]


def test_seed_names_types_and_boundaries_all_count() -> None:
    keys = [(1,), (2,), (1, "a"), (1, "b"), (1, "a", "b"), (1, "ab"), (1, 1), (1, "1"), (11,), (1, "a", 1), (1, "'a'")]
    assert len({derive(*key) for key in keys}) == len(keys)


def test_a_draw_in_one_stream_disturbs_no_other() -> None:
    first, other = generator(1, "a"), generator(1, "b")
    expected = generator(1, "b").random()
    first.random()
    assert other.random() == expected


def test_another_process_with_another_hash_seed_draws_the_same() -> None:
    code = "from penstock.kernel.randomness import derive; print(derive(7, 'north', 3))"
    out = [
        subprocess.run([sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True)
        for seed in ("0", "12345")
    ]
    assert {int(process.stdout) for process in out} == {derive(7, "north", 3)}
