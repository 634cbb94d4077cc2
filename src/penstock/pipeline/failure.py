"""Why Spark gave up, in one line.

What Spark raises fills a screen: its own stack, and within it the traceback of the Python worker in which something
went wrong. What went wrong is said at the end of that traceback, in the exception's own words. Where Java itself has
ended, Spark cannot even be asked: whatever one does with the session, or with the error, raises another one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from penstock.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORDS_MAX = 300  # characters
_TRACEBACK = "Traceback (most recent call last):"
_OWN = "penstock.errors."
_OURS = re.compile(r"\bpenstock(?:\.\w+)+: (.+)")  # as the data source's are told, which have no traceback


def gave_up(spark: SparkSession, error: Exception) -> PipelineError:
    """The error to raise instead of Spark's."""
    if java_has_ended(spark):
        return PipelineError(
            "Java, in which Spark works, has ended, most likely for want of memory; give it more with"
            " spark-submit --driver-memory 8g .../penstock/pipeline/run.py RUN..., or look at fewer runs at a time"
        )
    return PipelineError(f"Spark gave up: {last_words(str(error))[:WORDS_MAX]}")


def java_has_ended(spark: SparkSession) -> bool:
    """Whether Java answers no more."""
    try:
        spark.sparkContext._jvm.java.lang.System.nanoTime()  # type: ignore[union-attr]
    except Exception:  # py4j has many ways to say so, and none of them matters here
        return True
    return False


def last_words(text: str) -> str:
    """What the exception at the end of the last traceback says, or without one an error of ours, or the first line."""
    _, found, stack = text.rpartition(_TRACEBACK)
    lines = stack.splitlines()
    begin = next((number for number, line in enumerate(lines) if line and not line[0].isspace()), None)
    if not found or begin is None:
        ours = _OURS.search(text)
        if ours is not None:
            return ours[1].strip()
        return next((line.strip() for line in text.splitlines() if line.strip()), "it does not say why")
    end = next((n for n, line in enumerate(lines) if n > begin and (not line or line.startswith("\tat "))), len(lines))
    # The name of an error of our own says nothing that its words do not; that of another may be half of the story.
    return " ".join(" ".join(lines[begin:end]).split()).removeprefix(_OWN).removeprefix("PipelineError: ")
