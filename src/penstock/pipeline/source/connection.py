"""The way from Spark's processes to the network: one connection for each that needs one, and patience.

A broker that is killed comes back, and a query should not fail for that: what only looks is tried again until
`giveUpAfter` is over. A stream that does not exist, or a text that is wrong, is said at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import inf
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

from penstock.errors import PenstockError, StreamRefused, UnknownStream, Unreachable
from penstock.kernel.trace import TRACE_CLIENT, TRACE_STREAM
from penstock.pipeline.source.offsets import Next, Offsets, PubendExtent

if TYPE_CHECKING:
    from penstock.live.client.blocking import BlockingNetwork
    from penstock.live.client.blocking_stream import BlockingStream

T = TypeVar("T")

RETRY_AFTER = 0.5  # seconds
FIRST_CONTACT = 5.0  # seconds in which a network that never answered must do so


class StreamLink:
    """One stream of one network, as long as somebody needs it."""

    def __init__(self, servers: str, stream: str, give_up_after: float, *, patient: bool = False) -> None:
        self.stream = stream
        self._servers = servers
        self._give_up_after = give_up_after
        self._network: BlockingNetwork | None = None
        self._known = patient  # whether the stream was there before: then whatever is wrong may pass

    @property
    def log(self) -> BlockingStream:
        """The stream; connects if need be, and raises Unreachable."""
        if self._network is None:
            from penstock.live.client.blocking import connect_blocking  # half a second; most of Spark's processes plan
            from penstock.streams.config import StreamsClientConfig

            within = self._give_up_after if self._known else min(FIRST_CONTACT, self._give_up_after)
            held = StreamsClientConfig(window=1)  # who holds a name reads nothing under it
            name = f"{TRACE_CLIENT}{uuid4().hex[:12]}" if self.stream == TRACE_STREAM else None  # not traced itself
            self._network = connect_blocking(self._servers, name=name, connect_within=within, streams=held).open()
        return self._network.stream(self.stream)

    def close(self) -> None:
        if self._network is not None:
            self._network.close()
            self._network = None

    def survey(self, ranges: Mapping[int, Mapping[str, int]] | None = None) -> dict[int, PubendExtent]:
        """What each pubend has; of some of them only a range is measured."""
        asked = {f"{self.stream}/{number}": part for number, part in (ranges or {}).items()}
        report = self._tried(lambda: self.log.survey(asked))
        self._known = True
        found: dict[int, PubendExtent] = {}
        for one in report["pubends"]:
            number = int(one.pop("pubend").rpartition("/")[2])
            found[number] = PubendExtent(**one | {"marks": tuple(one["marks"])})
        return dict(sorted(found.items()))

    def expect(self) -> None:
        """Return when the stream is there; if nobody knows it, its broker may just have come back."""
        self._tried(lambda: self.log.survey({}), unknown_within=FIRST_CONTACT)

    def begin(self, writer: str, batch: int, part: int) -> tuple[Offsets, bool]:
        """Where in each pubend a batch began, and whether this part of it has been begun before."""
        report = self._tried(lambda: self.log.begin(writer=writer, batch=batch, part=part))
        newest = max(one["batch"] for one in report["pubends"])
        if newest > batch:
            raise PenstockError(
                f"batch {batch} of this query is over at stream '{self.stream}': batch {newest} has begun. Two runs of"
                " a query write at the same time, or its checkpoint is older than what it has written"
            )
        began = {
            int(one["pubend"].rpartition("/")[2]): Next(one["epoch"], one["after"] + 1) for one in report["pubends"]
        }
        return began, any(one["again"] for one in report["pubends"])

    def over(self, writer: str) -> None:
        """This writer will try nothing again."""
        self._tried(lambda: self.log.over(writer=writer))

    def hold(self, durable: str, offsets: Offsets, where: str) -> None:
        """Let the stream keep what is not read, under this name."""
        at = [(f"{self.stream}/{number}", place.epoch, place.tick - 1) for number, place in offsets.items()]
        self._tried(lambda: self.log.hold(durable, at, where=where))

    def _tried(self, ask: Callable[[], T], *, unknown_within: float = inf) -> T:
        began = time.monotonic()
        while True:
            try:
                return ask()
            except (UnknownStream, StreamRefused, Unreachable) as error:
                passes = self._known or (isinstance(error, StreamRefused) and not isinstance(error, UnknownStream))
                within = unknown_within if isinstance(error, UnknownStream) else inf
                if not passes or time.monotonic() - began > min(self._give_up_after, within):
                    raise PenstockError(f"{self._servers}: {error}") from None
                time.sleep(RETRY_AFTER)


@contextmanager
def stream_link(servers: str, stream: str, give_up_after: float, *, patient: bool = False) -> Iterator[StreamLink]:
    """A link that ends with the block."""
    link = StreamLink(servers, stream, give_up_after, patient=patient)
    try:
        yield link
    finally:
        link.close()
