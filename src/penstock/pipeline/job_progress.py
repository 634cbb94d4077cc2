"""How far Spark has got with a job, for a progress bar.

A thread beside the job asks Spark every `LOOK_EVERY` seconds which stages it works on and how many of their tasks are
done. The pipeline's job has a stage for each of its rounds (see `execution`), and all rounds count the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_EVERY = 0.2  # seconds
ROUNDS = 3
NEARLY = 0.95  # until the job has really ended


@contextmanager
def job_progress(spark: SparkSession, progress: Callable[[float], None] | None) -> Iterator[None]:
    """Call `progress` with the share that is done, while the body lets Spark work; with 1.0 when it has ended well."""
    if progress is None:
        yield
        return
    ended = Event()
    watcher = Thread(target=_watch, args=(spark, progress, ended), name="job progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
    progress(1.0)


def _watch(spark: SparkSession, progress: Callable[[float], None], ended: Event) -> None:
    done: dict[int, float] = {}  # stage -> share of its tasks
    with suppress(Exception):  # a bar is not worth an error: if the job failed, the caller hears of that
        tracker = spark.sparkContext.statusTracker()
        before = set(tracker.getActiveStageIds())  # of somebody else
        while not ended.wait(LOOK_EVERY):
            active = set(tracker.getActiveStageIds()) - before
            for stage in active | done.keys():
                info = tracker.getStageInfo(stage)
                if info is not None and info.numTasks:
                    done[stage] = info.numCompletedTasks / info.numTasks
            progress(min(NEARLY, sum(done.values()) / ROUNDS))
