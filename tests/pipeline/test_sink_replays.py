"""A batch that is tried again is stored once, however large it is and however long ago it was tried first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from zlib import crc32

import pyarrow as pa
import pytest

import penstock
from penstock.errors import PenstockError
from penstock.overlay.assembly import NodeConfig
from penstock.pipeline.source import stored_before
from penstock.pipeline.source.options import sink_options
from penstock.pipeline.source.writing import Task, written
from penstock.streams.config import StreamsConfig
from penstock.testing import BlockingEmbeddedNetwork, embedded_network_blocking

IDS_MAX = 100  # a pubend knows no more ids than this
ROWS = 500


@pytest.fixture(scope="module")
def brokers() -> Iterator[BlockingEmbeddedNetwork]:
    node = NodeConfig(services={"streams": StreamsConfig(ids_max=IDS_MAX)})
    with embedded_network_blocking(("a", "b"), node=node) as network:
        yield network


@pytest.fixture
def copies(brokers: BlockingEmbeddedNetwork, request: pytest.FixtureRequest) -> Iterator[penstock.BlockingStream]:
    with penstock.connect_blocking(brokers.urls["b"]) as network:
        name = f"s{crc32(request.node.name.encode())}"
        network.add_stream(name, at=["a", "b"])
        yield network.stream(name)


def write(brokers: BlockingEmbeddedNetwork, stream: str, task: Task, *numbers: range, **options: str) -> None:
    batches = iter([pa.RecordBatch.from_pydict({"n": list(one)}) for one in numbers])
    written(sink_options({"servers": brokers.urls["b"], "stream": stream, **options}), task, batches)


def entries(stream: penstock.BlockingStream) -> int:
    return sum(pubend["entries"] for pubend in stream.survey()["pubends"])


def interrupted(brokers: BlockingEmbeddedNetwork, stream: str, task: Task, numbers: range) -> None:
    """The task is killed when it has written these."""

    def rows() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"n": list(numbers)})
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        written(sink_options({"servers": brokers.urls["b"], "stream": stream}), task, rows())


def test_a_batch_of_more_rows_than_ids_are_known_is_stored_once(
    brokers: BlockingEmbeddedNetwork, copies: penstock.BlockingStream
) -> None:
    """Killed three times, each time further on; each try begins with the first row, and the order may be another."""
    task = Task("query", 7, 0)
    for upto in (ROWS // 2, ROWS - 20):
        interrupted(brokers, copies.name, task, range(upto))
    write(brokers, copies.name, task, range(ROWS - 1, -1, -1))
    write(brokers, copies.name, task, range(200), range(200, ROWS))
    assert entries(copies) == ROWS
    write(brokers, copies.name, Task("query", 7, 1), range(ROWS))
    write(brokers, copies.name, Task("query", 8, 0), range(ROWS))
    write(brokers, copies.name, Task("query", 8, 0), range(ROWS))
    assert entries(copies) == 3 * ROWS, "another part, another batch"
    with pytest.raises(PenstockError, match="batch 7 of this query is over"):
        write(brokers, copies.name, task, range(ROWS))
    assert entries(copies) == 3 * ROWS


def test_a_batch_is_known_again_after_its_brokers_have_crashed(
    brokers: BlockingEmbeddedNetwork, copies: penstock.BlockingStream
) -> None:
    interrupted(brokers, copies.name, Task("query", 0, 3), range(ROWS - 7))
    for broker in "ab":
        brokers.crash(broker)
        brokers.start(broker)
    write(brokers, copies.name, Task("query", 0, 3), range(ROWS))
    assert entries(copies) == ROWS


def test_only_who_tries_again_reads_the_log(
    brokers: BlockingEmbeddedNetwork, copies: penstock.BlockingStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    def looked(self: Any) -> None:
        raise AssertionError("it is the first")

    monkeypatch.setattr(stored_before.StoredBefore, "look", looked)
    for task in (Task("query", 0, 0), Task("query", 0, 1), Task("query", 1, 0)):
        write(brokers, copies.name, task, range(5))
    assert entries(copies) == 15


def test_with_a_column_for_ids_another_partitioning_stores_nothing_twice(
    brokers: BlockingEmbeddedNetwork, copies: penstock.BlockingStream
) -> None:
    """Without one, it does: the id of a row names its part."""
    for part in range(2):
        write(brokers, copies.name, Task("query", 0, part), range(40 * part, 40 * part + 40), idColumn="n")
    write(brokers, copies.name, Task("query", 0, 0), range(80), idColumn="n")
    assert entries(copies) == 80


def test_with_such_a_column_a_part_that_had_not_begun_finds_what_the_others_have_stored(
    brokers: BlockingEmbeddedNetwork, copies: penstock.BlockingStream
) -> None:
    """The first try had one part, of more rows than ids are known, and the second has two."""
    write(brokers, copies.name, Task("query", 0, 0), range(ROWS), idColumn="n")
    for part in range(2):
        half = range(part * ROWS // 2, (part + 1) * ROWS // 2)
        write(brokers, copies.name, Task("query", 0, part), half, idColumn="n")
    assert entries(copies) == ROWS


def test_if_nobody_can_know_what_is_stored_nothing_is_written(
    brokers: BlockingEmbeddedNetwork, copies: penstock.BlockingStream
) -> None:
    interrupted(brokers, copies.name, Task("query", 0, 0), range(ROWS))
    newest = max(pubend["last"] for pubend in copies.survey()["pubends"])
    copies.trim(upto=newest, force=True)
    with pytest.raises(PenstockError, match=r"keeps nothing up to tick \d+.*nobody can know which") as told:
        write(brokers, copies.name, Task("query", 0, 0), range(ROWS))
    assert "\n" not in str(told.value)
    assert entries(copies) == 0
    write(brokers, copies.name, Task("query", 0, 0), range(ROWS), mayStoreTwice="true")
    assert ROWS - 2 * IDS_MAX <= entries(copies) <= ROWS, "those whose ids are known yet are not stored again"
