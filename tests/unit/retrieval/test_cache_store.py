"""A cache comes back from its store: what is damaged there is left out, and nothing comes from the future.

What is held until the store has answered grows older meanwhile.
"""

from __future__ import annotations

from msgspec.structs import replace

from penstock.content.message import Identity, make_message
from penstock.kernel.machine import Effect, Send
from penstock.kernel.memory_store import MemoryStore
from penstock.kernel.packet import Lane
from penstock.kernel.storage import Put, ServiceStorage, StorageTickets, Stored
from penstock.retrieval.cache_store import CacheStore
from penstock.retrieval.contents import content_of, new_item
from penstock.retrieval.interest import PublishedItem
from penstock.retrieval.life_cycle import DISSEMINATED, OVERFLOWING, PENDING, CachePlace
from penstock.retrieval.packets import RetrievalAnswer, RetrievalInterest


def an_item(count: int, uploaded: float) -> PublishedItem:
    return new_item(make_message(Identity("w", 1, count), {"n": count}), uploaded)


def a_store(disk: MemoryStore, size: int = 8) -> CacheStore:
    """As a broker has it when it has started."""
    store = CacheStore(ServiceStorage("retrieval", StorageTickets()), size, 2)
    asked = store.load()
    while asked:
        answers = [(one.ticket, disk.carry_out(one.area, one.operation)) for one in asked]  # type: ignore[attr-defined]
        asked = [more for answer in answers for more in store.completed(*answer, 0.0)]
    assert store.loaded
    return store


def written(places: dict[int, CachePlace]) -> MemoryStore:
    disk = MemoryStore()
    store = a_store(disk)
    assert store.restored(0.0) == []
    for count, place in places.items():
        store.placed(an_item(count, float(count)), place)
    for asked in store.commit([], 0.0):
        disk.carry_out(asked.area, asked.operation)  # type: ignore[attr-defined]
    return disk


def counts(found: list[tuple[PublishedItem, CachePlace]]) -> list[tuple[object, CachePlace, float]]:
    return [(item.id.count, place, item.uploaded) for item, place in found]  # type: ignore[attr-defined]


def test_places_come_back_and_what_was_published_in_the_future_was_published_now() -> None:
    disk = written({1: PENDING, 2: OVERFLOWING, 9: DISSEMINATED})
    found = counts(a_store(disk).restored(5.0))
    assert found == [(1, PENDING, 1.0), (2, OVERFLOWING, 2.0), (9, DISSEMINATED, 5.0)]


def test_what_is_damaged_is_left_out_and_counted() -> None:
    disk = written({1: PENDING, 2: PENDING, 3: PENDING, 4: PENDING, 5: DISSEMINATED})
    for name, value in (("p/0", b"\x09"), ("c/1", b"?"), ("p/x", b"\x00"), ("p/77", b"\x00")):
        disk.carry_out("retrieval", Put(name, value))
    store = a_store(disk)
    assert [one[0] for one in counts(store.restored(9.0))] == [3, 4, 5]
    assert store.damaged == 4
    store.placed(an_item(6, 6.0), PENDING)  # in a place that is free
    taken = [asked.operation.name for asked in store.commit([], 0.0)]  # type: ignore[attr-defined]
    assert taken[-2:] == ["c/0", "p/0"]


def test_times_in_packets_pass_while_the_disk_writes() -> None:
    store = a_store(MemoryStore())
    store.restored(0.0)
    item = an_item(1, 9.0)
    store.placed(item, PENDING)
    content = content_of(item)
    answer = RetrievalAnswer(1, 1, 1, 1, content.message, content.content_hash, 1.0, True, (0, 1, 1))
    interest = RetrievalInterest(1, 1, 2, 1, (0, 1, 1), "TRUE", 5, 4.0, 2.0, True, 3.0, ())
    sends: list[Effect] = [Send((7,), answer, Lane.BEST_EFFORT), Send((7,), interest, Lane.SERVICE_CONTROL)]
    asks = store.commit(sends, 10.0)
    released = store.completed(asks[-1].ticket, Stored(), 10.5)  # type: ignore[attr-defined]
    assert [effect.packet for effect in released] == [  # type: ignore[attr-defined]
        replace(answer, age=1.5),
        replace(interest, left=3.5, age=2.5, moved=3.5),
    ]
