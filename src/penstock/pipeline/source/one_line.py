"""Errors of ours as one line at the driver, not as the end of a traceback through Spark's processes.

Whatever a source in Python is asked, it is asked in a process of Spark's, which reports an error as text and ends. The
text has the whole traceback, unless SPARK_HIDE_TRACEBACK is set there when the error is reported: then it is the kind
of the error and its message. So that is set just before an error of ours goes out, and nothing else is ever hidden.

Spark 4.3 has one place where an error is not reported: where a query that goes on is handed its reader it reports
its own failure to stop that reader. So a reader that cannot be made says why when it is first asked (`RefusedReader`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import Any, NoReturn, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from penstock.errors import PenstockError

C = TypeVar("C")


def one_line_errors(kind: type[C]) -> type[C]:
    """A class whose methods Spark calls: what they raise of ours is told without a traceback."""
    for name, method in list(vars(kind).items()):
        if callable(method) and not name.startswith("_"):
            setattr(kind, name, _told(method))
    return kind


def _told(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def asked(*args: Any, **named: Any) -> Any:
        try:
            return method(*args, **named)
        except PenstockError:
            if os.environ.get("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER":
                os.environ["SPARK_HIDE_TRACEBACK"] = "1"
            raise

    return asked


class RefusedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """In the place of one that cannot be made."""

    def __init__(self, error: PenstockError) -> None:
        self._error = error

    def initialOffset(self) -> NoReturn:  # noqa: N802  # Spark's name
        raise self._error

    def prepareForTriggerAvailableNow(self) -> NoReturn:  # noqa: N802
        raise self._error

    def getDefaultReadLimit(self) -> NoReturn:  # noqa: N802
        raise self._error

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> NoReturn:  # noqa: N802
        raise self._error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> NoReturn:
        raise self._error

    def read(self, partition: InputPartition) -> NoReturn:
        raise self._error


one_line_errors(RefusedReader)
