"""Simulations that give numbers and no trace: each is one Spark task, and is made once.

Some runs are too large to be recorded message by message; they count, and return named numbers. A task is data that can
be written as text; its numbers are kept in a file under the hash of that text and of the code, as the runs of
scenarios are kept in folders. Every worker writes its own file when it is done, so that a sweep that is stopped goes on
where it was; one that fails does not stop the others. Few and small ones, as at smoke scale, are done here and now: a
Spark task would cost more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from hashlib import blake2b
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING, Protocol

import msgspec

from penstock.scenario.runs import code_hash, environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER = "numbers"
SECONDS = "processor seconds"  # among the numbers of a task: how long it took
Numbers = dict[str, float]


class CountedTask(Protocol):
    """One simulation. Equal tasks have equal texts."""

    def text(self) -> str:
        """Everything that decides what comes out."""

    def work(self) -> float:
        """How long it takes, beside others."""

    def run(self) -> Numbers:
        """Simulate."""


def task_numbers(
    tasks: Sequence[CountedTask],
    *,
    runs_root: Path,
    spark: Callable[[], SparkSession] | None,
    progress: Callable[[str, float], None],
    failed: dict[str, str],
) -> dict[str, Numbers]:
    """The numbers of each task by its text, found or made; the longest are begun first.

    Those that fail are left out, and `failed` has why.
    """
    wanted = {task.text(): task for task in tasks}
    missing = [task for text, task in wanted.items() if not numbers_file(runs_root, text).exists()]
    missing.sort(key=lambda task: -task.work())
    if spark is None:
        for number, task in enumerate(missing):
            progress(task.text(), number / len(missing))
            failed.update(_try(runs_root, task))
    elif missing:
        failed.update(_make_on_spark(spark(), missing, runs_root, progress))
    made = {text: numbers_file(runs_root, text) for text in wanted if text not in failed}
    return {text: msgspec.json.decode(file.read_bytes(), type=Numbers) for text, file in made.items()}


def _make_on_spark(
    session: SparkSession,
    tasks: Sequence[CountedTask],
    runs_root: Path,
    progress: Callable[[str, float], None],
) -> dict[str, str]:
    """A few at a time for each core, so that there is progress to tell; returns which failed, and why."""
    failed: dict[str, str] = {}
    context = session.sparkContext
    batch = max(1, 4 * context.defaultParallelism)
    for begin in range(0, len(tasks), batch):
        some = tasks[begin : begin + batch]
        progress(f"{some[0].text()} and {len(some) - 1} more", begin / len(tasks))
        for one in context.parallelize(some, len(some)).map(partial(_try, runs_root.resolve())).collect():
            failed |= one
    return failed


def _try(runs_root: Path, task: CountedTask) -> dict[str, str]:
    """Make its numbers; if that fails, its text and why."""
    try:
        make_numbers(runs_root, task)
    except Exception as error:  # whatever it was: the others go on, and it is told with the experiments that need it
        return {task.text(): f"{type(error).__name__}: {error}"}
    return {}


def make_numbers(runs_root: Path, task: CountedTask) -> None:
    """Simulate and keep the numbers."""
    file = numbers_file(runs_root, task.text())
    began = process_time()
    found = task.run()
    found = {**found, SECONDS: process_time() - began}
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(".draft")
    draft.write_bytes(msgspec.json.encode(found))
    draft.replace(file)


def numbers_digest(numbers: Numbers) -> str:
    """Whether two tasks gave the same, whatever time they took."""
    given = {name: value for name, value in sorted(numbers.items()) if name != SECONDS}
    return blake2b(msgspec.json.encode(given), digest_size=8).hexdigest()


def seconds_for_work(tasks: Sequence[CountedTask], runs_root: Path) -> float:
    """How long tasks that were made took, for one unit of their work; 0 if none says."""
    files = [(task, numbers_file(runs_root, task.text())) for task in tasks]
    made = [(task, msgspec.json.decode(file.read_bytes(), type=Numbers)) for task, file in files if file.exists()]
    timed = [(task.work(), numbers[SECONDS]) for task, numbers in made if SECONDS in numbers]
    work = sum(one for one, _ in timed)
    return sum(seconds for _, seconds in timed) / work if work else 0.0


def numbers_file(runs_root: Path, text: str) -> Path:
    """Where the numbers of a task belong, by this code (the lab's own simulators too) in this environment."""
    digest = blake2b(text.encode(), digest_size=10, person=b"penstock-tasks")
    digest.update(f"{code_hash('lab/fast')}\n{environment()}".encode())
    return runs_root / FOLDER / f"{digest.hexdigest()}.json"
