"""The list of pubends that were made at a broker: whoever removes one is told when the list on disk says so."""

from __future__ import annotations

import pytest

from penstock.kernel.machine import Effect
from penstock.kernel.storage import Ask, Put, ServiceStorage, StorageFailed, StorageResult, StorageTickets, Stored
from penstock.streams.hosting import MADE, Hosting
from pubend_bench import PubendBench


@pytest.mark.parametrize("result", [Stored(), StorageFailed("the disk is full")])
def test_a_removed_pubend_is_answered_for_when_the_list_on_disk_is_without_it(result: StorageResult) -> None:
    told: list[str] = []

    def then(problem: str, now: float) -> list[Effect]:
        told.append(problem)
        return []

    pubend = PubendBench().pubend
    hosting = Hosting(ServiceStorage("streams", StorageTickets()), [], lambda *_: pubend, lambda *_, **__: [])
    hosting.pubends[pubend.name] = pubend
    (asked,) = hosting.forget(pubend, then)
    assert isinstance(asked, Ask)
    assert asked.operation == Put(MADE, b"[]")
    assert (told, hosting.pubends) == ([], {})
    assert hosting.completed(asked.ticket, result, now=1.0) == []
    assert [("full" in problem, "started again" in problem) for problem in told] == [
        (isinstance(result, StorageFailed),) * 2
    ]
