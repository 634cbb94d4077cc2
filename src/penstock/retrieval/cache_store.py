"""A cache on disk: what it holds, and in which table each publication is listed, so that a restart repeats nothing.

Each publication has a slot: `c/7` has its content and `p/7` its place, so that a change of the place is a small write.
It is on disk before anything that follows from it leaves the broker: effects are held until the store has answered,
and the times that packets carry grow by as much.
What the store had not taken when the broker died has had no effect either.

`life` names the life of the cache: chains that were served from another one count as moved. If the store fails, the
cache goes on in memory as another life of it, and clients are told. Items that were held then never reach their
clients: `take_withheld` names them, so that they do not count as delivered.

Bounds: two values for each place of the cache, and a third for its life.
"""

from __future__ import annotations

from collections import deque

import msgspec

from penstock.content.message import Identity, Message
from penstock.kernel.link import Link
from penstock.kernel.machine import Effect, Send
from penstock.kernel.storage import (
    Ask,
    Get,
    Names,
    NamesFound,
    Put,
    ServiceStorage,
    StorageFailed,
    StorageResult,
    Value,
)
from penstock.overlay.egress import dropped
from penstock.retrieval.contents import ItemContent, content_of
from penstock.retrieval.interest import PublicationId, PublishedItem
from penstock.retrieval.life_cycle import PLACES, CachePlace
from penstock.retrieval.packets import NumberedPacket, RetrievedItem

LIFE = "life"
CONTENT, PLACE = "c/", "p/"


class StoredContent(msgspec.Struct, frozen=True, array_like=True):
    """The value of a slot."""

    message: Message
    content_hash: bytes
    uploaded: float


_read_content = msgspec.msgpack.Decoder(StoredContent)
_encode = msgspec.msgpack.Encoder().encode


class CacheStore:
    """What a broker's cache keeps on disk."""

    def __init__(self, storage: ServiceStorage, size: int, new_life: int) -> None:
        self.life = new_life
        self.loaded = False
        self.failed = ""
        self.damaged = 0  # publications that came back from the disk, and not as they were
        self._storage = storage
        self._free = deque(range(size))
        self._slots: dict[PublicationId, int] = {}
        self._puts: list[Put] = []  # since the last commit
        self._held: deque[tuple[int, float, list[Effect]]] = deque()  # until this ticket is answered; since when
        self._withheld: list[tuple[Link, RetrievedItem]] = []  # when the store failed
        self._tickets: dict[int, str] = {}  # of reads -> name
        self._values: dict[str, bytes] = {}

    # Loading.

    def load(self) -> list[Effect]:
        """Ask for all there is."""
        return [self._read(Names(), "")]

    def _read(self, operation: Names | Get, name: str) -> Ask:
        asked = self._storage.ask(operation)
        self._tickets[asked.ticket] = name
        return asked

    def completed(self, ticket: int, result: StorageResult, now: float) -> list[Effect]:
        """The store has answered: what may happen now."""
        if isinstance(result, StorageFailed):
            return self._fail(result.problem, now)
        if not self.loaded:
            return self._answered(self._tickets.pop(ticket), result)
        released: list[Effect] = []
        while self._held and self._held[0][0] <= ticket:
            released += self._release(now)
        return released

    def _release(self, now: float) -> list[Effect]:
        """What is held longest."""
        _, since, effects = self._held.popleft()
        return [_held_for(effect, max(0.0, now - since)) for effect in effects]

    def _answered(self, name: str, result: StorageResult) -> list[Effect]:
        if isinstance(result, NamesFound):
            asks: list[Effect] = [self._read(Get(found), found) for found in result.names]
            self.loaded = not asks
            return asks
        assert isinstance(result, Value)
        self._values[name] = result.value
        self.loaded = not self._tickets
        return []

    def restored(self, now: float) -> list[tuple[PublishedItem, CachePlace]]:
        """What the disk has, oldest first; call it once, when it is loaded.

        If the clock was set back meanwhile, what would come from the future was published now.
        """
        values, self._values = self._values, {}
        if LIFE in values:
            self.life = int.from_bytes(values[LIFE], "big")
        else:
            self._puts.append(Put(LIFE, self.life.to_bytes(8, "big")))
        found: list[tuple[PublishedItem, CachePlace]] = []
        free = dict.fromkeys(self._free)
        for name, place in values.items():
            if not name.startswith(PLACE):
                continue
            slot = _slot(name)
            item = _item(values.get(f"{CONTENT}{slot}", b""), now) if slot in free else None
            if item is None or item.id in self._slots or not place or place[0] >= len(PLACES):
                self.damaged += 1
                self._puts.append(Put(name, b""))
                continue
            del free[slot]
            self._slots[item.id] = slot
            found.append((item, PLACES[place[0]]))
        self._free = deque(free)
        found.sort(key=lambda pair: pair[0].uploaded)
        return found

    # Changes.

    def placed(self, item: PublishedItem, place: CachePlace | None) -> None:
        """The cache lists it there now, or nowhere."""
        if self.failed:
            return
        slot = self._slots.get(item.id)
        if place is None:
            if slot is not None:
                del self._slots[item.id]
                self._free.append(slot)
                self._puts.append(Put(f"{PLACE}{slot}", b""))
            return
        if slot is None:
            slot = self._slots[item.id] = self._free.popleft()
            content = content_of(item)
            stored = StoredContent(content.message, content.content_hash, item.uploaded)
            self._puts.append(Put(f"{CONTENT}{slot}", _encode(stored)))
        self._puts.append(Put(f"{PLACE}{slot}", bytes([PLACES.index(place)])))

    def commit(self, effects: list[Effect], now: float) -> list[Effect]:
        """These effects follow from the changes so far: the asks, and whatever need not wait for them."""
        if self.failed or not (self._puts or self._held):
            return effects
        puts, self._puts = self._puts, []
        asks = [self._storage.ask(put) for put in puts]
        ticket = asks[-1].ticket if asks else self._held[-1][0]
        self._held.append((ticket, now, effects))
        return list(asks)

    def link_down(self, link: Link) -> list[Effect]:
        """What is held for this link is not for whoever comes over it next; returns the records of that."""
        gone: list[Effect] = []
        for place, (ticket, since, effects) in enumerate(self._held):
            for_link = [effect for effect in effects if isinstance(effect, Send) and effect.to == (link,)]
            if for_link:
                kept = [effect for effect in effects if not (isinstance(effect, Send) and effect.to == (link,))]
                self._held[place] = (ticket, since, kept)
                gone += [dropped("egress", "link down", "", effect.lane, effect.packet) for effect in for_link]
        return gone

    def _fail(self, problem: str, now: float) -> list[Effect]:
        """Go on without the disk: what was held goes, but for items to clients, whose use is not on disk."""
        if self.failed:
            return []
        self.failed = problem
        self.loaded = True
        self._puts.clear()
        held: list[Effect] = []
        while self._held:
            held += [self._unless_item(effect) for effect in self._release(now)]
        return held

    def _unless_item(self, effect: Effect) -> Effect:
        if isinstance(effect, Send) and isinstance(effect.packet, RetrievedItem):
            self._withheld.append((effect.to[0], effect.packet))
            return dropped("egress", "the store failed", "", effect.lane, effect.packet)
        return effect

    def take_withheld(self) -> list[tuple[Link, RetrievedItem]]:
        """What clients were to get when the store failed, and did not; call it once."""
        withheld, self._withheld = self._withheld, []
        return withheld


def _held_for(effect: Effect, seconds: float) -> Effect:
    if isinstance(effect, Send) and isinstance(effect.packet, NumberedPacket):
        return Send(effect.to, effect.packet.later(seconds), effect.lane)
    return effect


def _slot(name: str) -> int:
    digits = name.removeprefix(PLACE)
    return int(digits) if digits.isascii() and digits.isdigit() else -1


def _item(data: bytes, now: float) -> PublishedItem | None:
    try:
        stored = _read_content.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    content = ItemContent(stored.message, stored.content_hash)
    identity: Identity = stored.message.identity
    return PublishedItem(identity, min(stored.uploaded, now), 0, content) if content.whole else None
