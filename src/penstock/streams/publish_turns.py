"""Publications that wait for the disk of one pubend: each publisher has a queue, and the queues take turns.

So a publisher with one message is not behind the thousands of another when the rate is limited (`publish_queue`). What
one publisher sent stays in the order in which it came. A turn is one message.

Bounds: what all may hold together is divided as it is used: a publisher may add as long as it has no more than is free.
Alone it gets half, two get a third each, and there is always room for one more. Whoever has nothing waiting may add as
long as anything is free.

State: the queues, in the order of their turns, and the bytes of each.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from msgspec import Struct

from penstock.content.message import Message
from penstock.overlay.packets import BrokerId

ENTRY_OVERHEAD = 100  # what a waiting publication takes besides its entry

Asker = tuple[BrokerId, int]  # and the number of its request


class PendingPublication(Struct, gc=False):
    """A message on its way to disk."""

    publication_id: str
    digest: bytes
    message: Message
    entry: bytes
    askers: list[Asker]
    came_at: float

    @property
    def size_bytes(self) -> int:
        return len(self.entry) + ENTRY_OVERHEAD

    @property
    def publisher(self) -> str:
        return self.message.identity.publisher


class PublicationTurns:
    """The queues of one pubend."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[PendingPublication]] = {}  # none is empty
        self._bytes: dict[str, int] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[PendingPublication]:
        for queue in self._queues.values():
            yield from queue

    def has_room(self, publisher: str, size_bytes: int, free_bytes: int) -> bool:
        """Whether this publisher may add so much, of what is free for all."""
        return self._bytes.get(publisher, 0) + size_bytes <= free_bytes

    def add(self, publication: PendingPublication) -> None:
        """The last of its publisher."""
        publisher = publication.publisher
        queue = self._queues.get(publisher)
        if queue is None:
            queue = self._queues[publisher] = deque()
        queue.append(publication)
        self._bytes[publisher] = self._bytes.get(publisher, 0) + publication.size_bytes
        self._count += 1

    def take(self, count_max: int, bytes_max: int) -> list[PendingPublication]:
        """Those whose turn it is: at most so many, and so many bytes of entries unless the first has more."""
        if len(self._queues) == 1 and self._count <= count_max and sum(self._bytes.values()) <= bytes_max:
            return self._take_all()
        taken: list[PendingPublication] = []
        size_bytes = 0
        while len(taken) < count_max and self._queues:
            publisher, queue = next(iter(self._queues.items()))
            size_bytes += len(queue[0].entry)
            if taken and size_bytes > bytes_max:
                break
            taken.append(queue.popleft())
            self._took(publisher, queue, taken[-1].size_bytes)
        self._count -= len(taken)
        return taken

    def _take_all(self) -> list[PendingPublication]:
        """All that the only publisher has."""
        (queue,) = self._queues.values()
        self._queues.clear()
        self._bytes.clear()
        self._count = 0
        return list(queue)

    def oldest(self) -> float | None:
        """When the one came that has waited longest; None if none waits."""
        return min((queue[0].came_at for queue in self._queues.values()), default=None)

    def _took(self, publisher: str, queue: deque[PendingPublication], size_bytes: int) -> None:
        """Its turn is over: it goes to the end, or has nothing more."""
        del self._queues[publisher]
        if queue:
            self._queues[publisher] = queue
            self._bytes[publisher] -= size_bytes
        else:
            del self._bytes[publisher]
