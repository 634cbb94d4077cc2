"""A cache comes back from its store: what is damaged there is left out, and nothing comes from the future."""

from __future__ import annotations

from penstock.content.message import Identity, make_message
from penstock.kernel.memory_store import MemoryStore
from penstock.kernel.storage import Put, ServiceStorage, StorageTickets
from penstock.retrieval.cache_store import CacheStore
from penstock.retrieval.contents import new_item
from penstock.retrieval.interest import PublishedItem
from penstock.retrieval.life_cycle import DISSEMINATED, OVERFLOWING, PENDING, CachePlace


def an_item(count: int, uploaded: float) -> PublishedItem:
    return new_item(make_message(Identity("w", 1, count), {"n": count}), uploaded)


def a_store(disk: MemoryStore, size: int = 8) -> CacheStore:
    """As a broker has it when it has started."""
    store = CacheStore(ServiceStorage("retrieval", StorageTickets()), size, 2)
    asked = store.load()
    while asked:
        asked = [more for one in asked for more in store.completed(one.ticket, disk.carry_out(one.area, one.operation))]  # type: ignore[attr-defined]
    assert store.loaded
    return store


def written(places: dict[int, CachePlace]) -> MemoryStore:
    disk = MemoryStore()
    store = a_store(disk)
    assert store.restored(0.0) == []
    for count, place in places.items():
        store.placed(an_item(count, float(count)), place)
    for asked in store.commit([]):
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
    taken = [asked.operation.name for asked in store.commit([])]  # type: ignore[attr-defined]
    assert taken[-2:] == ["c/0", "p/0"]
