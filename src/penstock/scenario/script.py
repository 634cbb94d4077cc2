"""What a client publishes in a run, message by message: the same in both worlds for the same seed.

Each flow of a client draws from a generator of its own, first a time and then the attributes of the message that is due
at that time. Clients in the simulator and live clients both follow this script, so they publish the same messages,
under the same counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

from penstock.content.message import Value
from penstock.kernel.randomness import generator
from penstock.scenario.spec import ClientSpec
from penstock.scenario.workload import attribute_source, publication_times


class Line(NamedTuple):
    """One publication: when, counted from the beginning of the run, and what."""

    time: float
    attributes: dict[str, Value]
    body: bytes
    options: dict[str, Any]  # what it asks of services
    repeats: float = 0.0  # how likely it is to be published once more, if it is for a stream
    unanswered_max: int | None = None  # it is not published if so many that the client has published are not stored yet


def script(client: ClientSpec, end: float, seed: int, only: int | None = None) -> Iterator[Line]:
    """All publications of a client up to `end`, in order of time: of one flow, or of all that do not wait."""
    flows = []
    for number, publisher in enumerate(client.publish):
        if number != only and (only is not None or publisher.waits):
            continue
        random = generator(seed, client.name, "publish", number)
        times = publication_times(publisher, end, random)
        body = bytes(publisher.body_bytes)
        flows.append((times, attribute_source(publisher, random), body, publisher))
    due = [(at, number) for number, (times, _, _, _) in enumerate(flows) if (at := next(times, None)) is not None]
    heapify(due)
    while due:
        at, number = heappop(due)
        times, draw, body, publisher = flows[number]
        yield Line(at, draw(), body, publisher.options, publisher.repeats, publisher.unanswered_max)
        following = next(times, None)
        if following is not None:
            heappush(due, (following, number))
