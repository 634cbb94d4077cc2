"""Settings and fixtures for all tests.

Hypothesis draws the same examples in every run and never looks at the clock. Spark is started once, and xdist keeps all
tests that use it on one worker. Ctrl-C interrupts also where a shell has started the tests in the background.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK_FILES = ("test_cluster.py", "test_cli_pipeline.py")  # they start Spark by themselves

settings.register_profile(
    "penstock",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("penstock")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-transcripts",
        action="store_true",
        help="write tests/simulation/transcripts anew instead of comparing",
    )
    parser.addoption(
        "--trace-seeds",
        metavar="FIRST:END",
        help="compare the pipeline with DuckDB on the random traces of these seeds instead of a dozen",
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say where the browser test has left its pictures, if it ran."""
    if any("test_pages_in_browser" in report.nodeid for report in terminalreporter.stats.get("passed", ())):
        terminalreporter.write_line("screenshots of the pages: runs/screenshots")


@pytest.hookimpl(tryfirst=True)  # before xdist looks for groups; later it would overlook them without a word
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) or item.path.name in SPARK_FILES:
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one session: two cores, started in a hurry."""
    from penstock.pipeline.session import spark_session, stop_session

    yield spark_session("local[2]", fast=True, settings={"spark.sql.shuffle.partitions": "2"})
    stop_session()
