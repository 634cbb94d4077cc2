"""Clients that read slowly: the link to one is a slow link, and its broker thins what goes there.

A client says how many messages per second one of its subscriptions takes (`ReaderRate`). Its broker lets so many
through and withholds the rest, which is counted and told. With `newest` the latest message that found no token waits
for the next one, in the place of an earlier one; otherwise what comes too early is withheld.

Who publishes seldom, or always a moment after somebody else, would find no token for ever. So a publisher of whom a
reader got nothing for STARVED_AFTER need not wait for one: its message goes, and the next token pays for it. Who reads
slowly now and then is still the same reader: since when it gets nothing of whom is known for REMEMBERED seconds more.

What was not said again for `expire_after` counts no longer.

State: an entry for each subscription that is slow, with one message at most, and since when it gets nothing of whom,
also for some that were slow lately. Bounds: the subscriptions of the clients; PUBLISHERS_MAX for each.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.content.message import Message
from penstock.kernel.link import Link
from penstock.kernel.packet import Lane
from penstock.kernel.token_bucket import TokenBucket
from penstock.rates.regulated import publisher_of

DEPTH_SECONDS, DEPTH_LEAST = 0.1, 2.0
RATE_LEAST = 0.1  # messages per second: nobody is starved for more than ten seconds
STARVED_AFTER = 4.0  # seconds
REMEMBERED = 10.0  # seconds
PUBLISHERS_MAX = 256


class ReaderKey(NamedTuple):
    """One subscription of a client."""

    link: Link
    subscription: int


class SlowReader:
    """What is known of one."""

    __slots__ = ("bucket", "held", "newest", "told_at", "without")

    def __init__(self, rate: float, newest: bool, now: float, without: dict[str, float]) -> None:
        self.bucket = TokenBucket(rate, _depth(rate), now)
        self.newest = newest
        self.told_at = now
        self.held: tuple[Message, Lane] | None = None
        self.without = without  # since when it gets nothing of these publishers

    def takes(self, publisher: str, now: float) -> bool:
        """Whether there is a token for a message of this publisher; it is taken."""
        since = self.without.get(publisher, now)
        starved = abs(now - since) > STARVED_AFTER
        if self.bucket.overdraw(now) if starved else self.held is None and self.bucket.take(now):
            self.without.pop(publisher, None)
            return True
        self.without.pop(publisher, None)
        self.without[publisher] = since  # at the end: who asked last
        if len(self.without) > PUBLISHERS_MAX:
            del self.without[next(iter(self.without))]
        return False


class SlowReaders:
    """All slow readers of one broker."""

    def __init__(self, expire_after: float) -> None:
        self._expire_after = expire_after
        self._readers: dict[ReaderKey, SlowReader] = {}
        self._lately: dict[ReaderKey, tuple[float, dict[str, float]]] = {}  # slow until then, and without whom

    def __len__(self) -> int:
        return len(self._readers)

    def tell(self, reader: ReaderKey, rate: float, newest: bool, now: float) -> tuple[Message, Lane] | None:
        """A client takes so many per second, 0: any number; returns what waited and may leave for that."""
        known = self._readers.get(reader)
        if rate <= 0.0:
            return self._forget(reader, now)
        rate = max(RATE_LEAST, rate)
        if known is None:
            until, without = self._lately.pop(reader, (now, {}))
            known_still = abs(now - until) <= REMEMBERED
            self._readers[reader] = SlowReader(rate, newest, now, without if known_still else {})
            return None
        known.bucket.set_rate(rate, now, _depth(rate))
        known.newest, known.told_at = newest, now
        return None

    def rate(self, reader: ReaderKey) -> float:
        """How many messages per second it takes; 0: any number."""
        slow = self._readers.get(reader)
        return slow.bucket.rate if slow is not None else 0.0

    def admits(self, reader: ReaderKey, message: Message, lane: Lane, now: float) -> tuple[bool, Message | None]:
        """Whether the reader gets this message now, and the message that it will never get, if there is one."""
        slow = self._readers.get(reader)
        if slow is None:
            if reader in self._lately:
                self._lately[reader][1].pop(publisher_of(message), None)
            return True, None
        if slow.held is None and abs(now - slow.told_at) > self._expire_after:
            slow.without.pop(publisher_of(message), None)
            return True, None  # what is held goes first, also when the reader is slow no longer
        publisher = publisher_of(message)
        if slow.takes(publisher, now):
            overtaken = slow.held if slow.held is not None and publisher_of(slow.held[0]) == publisher else None
            slow.held = None if overtaken is not None else slow.held
            return True, overtaken[0] if overtaken is not None else None
        if not slow.newest:
            return False, message
        replaced = slow.held
        slow.held = (message, lane)
        return False, replaced[0] if replaced is not None else None

    def ready_at(self, reader: ReaderKey) -> float | None:
        """When what waits for this reader may leave; None if nothing does."""
        slow = self._readers.get(reader)
        return slow.bucket.ready_at() if slow is not None and slow.held is not None else None

    def serve(self, reader: ReaderKey, now: float) -> tuple[Message, Lane] | None:
        """What waited for this reader, if it may leave."""
        slow = self._readers.get(reader)
        if slow is None or slow.held is None or not slow.bucket.take(now):
            return None
        held, slow.held = slow.held, None
        slow.without.pop(publisher_of(held[0]), None)
        return held

    def expire(self, now: float) -> list[tuple[ReaderKey, tuple[Message, Lane]]]:
        """Forget what is too old; returns what waited, which may leave."""
        old = [one for one, slow in self._readers.items() if abs(now - slow.told_at) > self._expire_after]
        held = [(reader, self._forget(reader, now)) for reader in old]
        self._lately = {one: lately for one, lately in self._lately.items() if abs(now - lately[0]) <= REMEMBERED}
        return [(reader, waiting) for reader, waiting in held if waiting is not None]

    def _forget(self, reader: ReaderKey, now: float) -> tuple[Message, Lane] | None:
        """It is slow no longer; returns what waited."""
        slow = self._readers.pop(reader, None)
        if slow is None:
            return None
        if slow.held is not None:
            slow.without.pop(publisher_of(slow.held[0]), None)
        if slow.without:
            self._lately[reader] = (now, slow.without)
        return slow.held

    def link_down(self, link: Link) -> int:
        """A client has gone; returns how many messages waited for it."""
        self._lately = {one: lately for one, lately in self._lately.items() if one.link != link}
        gone = [reader for reader in self._readers if reader.link == link]
        return sum(self._readers.pop(reader).held is not None for reader in gone)


def _depth(rate: float) -> float:
    return max(DEPTH_LEAST, DEPTH_SECONDS * rate)
