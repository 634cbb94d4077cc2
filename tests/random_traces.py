"""Random traces: everything that a trace may hold, and much that it should not, drawn from a seed.

Nothing here happened in any network. Records are drawn so that the edges of every metric are hit: several lives of a
publisher, several subscriptions of a client that come and go, messages at the very moment at which a subscription
becomes due, many things at one moment, deliveries that came twice, too early, or for nothing that was published, kinds
without any record, names that a careless query trips over, one pair with most of the messages. They are written by
several writers, in small part files, in the order of time or in none.

The texts of PREDICATES mean the same in SQL, where missing attributes are NULL, so a database can judge them by itself.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from math import floor
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from penstock.content.language.evaluate import filter_matches
from penstock.content.language.parser import parse_predicate
from penstock.kernel import trace
from penstock.kernel.trace import Record
from penstock.kernel.trace_files import TraceFiles
from penstock.overlay import records as overlay
from penstock.rates import records as rates
from penstock.retrieval import records as retrieval
from penstock.streams import records as streams
from penstock.transport import records as transport

Line = tuple[float, str, Record]
Item = TypeVar("Item")

PREDICATES = {
    text: parse_predicate(text)
    for text in (
        "TRUE",
        "k = 3",
        "k < 5",
        "k IN (1, 2, 8)",
        "k BETWEEN 2 AND 6",
        "NOT k = 3",
        "k IS NULL",
        "s = 'it''s'",
        "s LIKE 'ü%'",
        "k > 2 AND f < 0.5",
        "k = 3 OR s <> 'ü ö'",
        "b = TRUE AND f IS NOT NULL",
    )
}
PUBLISHERS = ("p", "P", "p ", "ticker's", 'say "no"', "ü/ö", "\\", "p1", "p2", "p3")
CLIENTS = ("c", "c%", "p", "C,d", "ticker's", "日本", "tab\there", "NULL", "c1", "c2", "c3", "c4")
NODES = ("b1", "b 2", "b'3")
RECORDS = (5, 20, 80)  # how many of a kind that is nobody's main interest
LARGE = 1_300  # messages of one publisher's life: enough for the models of a pair, which want a thousand
INTERVAL = 0.125  # of the clock of some runs: many things happen at one moment, and sums of such times are exact


def write_random_run(folder: Path, seed: int) -> None:
    """A run of this seed, complete, with its `run.json`."""
    draw = Random(seed)
    run = _Run(draw)
    lines = run.lines()
    if draw.random() < 0.5:
        lines.sort(key=lambda line: line[0])  # as they happened; else in any order
    else:
        draw.shuffle(lines)
    writers = draw.choice((("",), ("w1", "w2"), ("b", "a", "c"), ("d", "c", "b", "a")))
    most = max(Counter(type(record) for *_, record in lines).values(), default=0)
    rows_max = max(draw.choice((20, 60)), most // 8)  # of the largest kind about ten part files
    files = [TraceFiles(folder, rows_max=rows_max, writer=writer) for writer in writers]
    for line in lines:
        files[hash_of(line[1]) % len(files) if draw.random() < 0.9 else 0].write(*line)
    for file in files:
        file.close()
    head = {"name": "random", "seed": seed, "complete": True, "scenario": run.scenario}
    (folder / "run.json").write_text(json.dumps(head))


def matches(text: str, attributes: dict[str, Any]) -> bool:
    """Whether a message with these attributes is wanted."""
    return any(filter_matches(one, attributes) for one in PREDICATES[text].filters)


def hash_of(name: str) -> int:
    """The same in every process."""
    return sum(name.encode())


class _Run:
    """One run: who takes part, and how its clock goes."""

    def __init__(self, draw: Random) -> None:
        self.draw = draw
        self.scenario = draw.choice(({}, {"settle": 0.0}, {"settle": 0.25}, {"settle": 1.0}, {"settle": 2}))
        self.grace = float(self.scenario.get("settle", 1.0))
        self.begin = draw.choice((0.0, 1_700_000_000.0))  # virtual time, and a clock on the wall
        self.lasts = draw.choice((4.0, 12.0))
        self.exact = draw.random() < 0.6
        self.publishers = draw.sample(PUBLISHERS, draw.choice((1, 4, 8)))
        self.clients = draw.sample(CLIENTS, draw.choice((1, 5, 10)))
        self.large = draw.random() < 0.2
        self.waits = draw.random() < 0.5

    def lines(self) -> list[Line]:
        """All records, in the order in which they were thought of."""
        changes = self.changes()
        publications = self.publications()
        lines = changes + publications
        lines += [line for line in self.deliveries(publications, changes) if self.draw.random() < 0.98]
        makers = (
            self.lives,
            self.network,
            self.refusals,
            self.counts,
            self.recovery,
            self.flow,
            self.order,
            self.streams,
            self.thinned,
            self.retrieved,
        )
        for make in makers:
            lines += make() if self.draw.random() < 0.8 else []
        # A kind that never happened has no folder; two of all kinds never do.
        gone = self.draw.sample(sorted({type(record).__name__ for *_, record in lines}), 2 if len(lines) > 9 else 0)
        return [line for line in lines if type(line[2]).__name__ not in gone or self.draw.random() < 0.3]

    def time(self, low: float = 0.0, high: float | None = None) -> float:
        """Some time of the run."""
        at = self.draw.uniform(low, self.lasts if high is None else high)
        return self.begin + (floor(at / INTERVAL) * INTERVAL if self.exact else at)

    def span(self, mean: float) -> float:
        """Some length of time."""
        length = self.draw.expovariate(1.0 / mean)
        return floor(length / INTERVAL) * INTERVAL if self.exact else length

    def skewed(self, some: list[Item]) -> Item:
        """One of these; the first far more often than the last."""
        return some[floor(len(some) * self.draw.random() ** 3)]

    def node(self) -> str:
        return self.skewed([*NODES])

    def client(self) -> str:
        return self.skewed(self.clients)

    def message(self) -> tuple[str, int, int]:
        """A publisher, a life and a number, as the transport names messages."""
        return self.skewed(self.publishers), self.draw.randint(1, 2), self.draw.randrange(20)

    def many(self, make: Callable[[], Record], node: Callable[[], str]) -> list[Line]:
        return [(self.time(), node(), make()) for _ in range(self.draw.choice(RECORDS))]

    # What applications do.

    def changes(self) -> list[Line]:
        """Subscriptions that come, go, come back, are replaced; each at most once at one moment."""
        lines: dict[Any, Line] = {}
        if self.large:
            lines["all"] = (self.begin - 5.0, self.clients[0], trace.Subscribed(7, "TRUE"))
        for client in self.clients:
            for number in range(self.draw.choice((0, 1, 1, 3))):
                for _ in range(self.draw.choice((1, 1, 1, 2, 4))):
                    at = self.time(0.0, self.lasts / 8) if self.draw.random() < 0.7 else self.time()
                    lines[client, number, at] = (at, client, trace.Subscribed(number, self.draw.choice([*PREDICATES])))
                    ends = at if self.draw.random() < 0.1 else at + self.span(self.lasts)
                    if self.draw.random() < 0.5:
                        lines[client, number, ends, "end"] = (ends, client, trace.Unsubscribed(number))
        return list(lines.values())

    def publications(self) -> list[Line]:
        lines: list[Line] = []
        for place, publisher in enumerate(self.publishers):
            lives = sorted(self.draw.sample((1, 2, 3, 2**40), self.draw.randint(1, 3)))
            for life in lives:
                many = LARGE if self.large and not place and life == lives[0] else self.draw.choice((0, 2, 10, 30))
                times = [self.time() for _ in range(many)]
                if self.draw.random() < 0.8:
                    times.sort()
                counts = range(1, many + 1) if self.draw.random() < 0.5 else range(10**9, 10**9 + 3 * many, 3)
                for at, count in zip(times, counts, strict=True):
                    node = publisher if self.draw.random() < 0.99 else "impostor"
                    line = (at, node, self.publication(publisher, life, count))
                    lines += [line] * (1 if self.draw.random() < 0.99 else 2)  # the same identity twice
        return lines

    def publication(self, publisher: str, life: int, count: int) -> trace.Published:
        draw = self.draw
        given = self.attributes()
        waited = self.span(0.5) if self.waits and draw.random() < 0.7 else 0.0
        return trace.Published(publisher, life, count, given, draw.randrange(2000), waited)

    def attributes(self) -> str:
        draw = self.draw
        attributes: dict[str, Any] = {
            "b": draw.random() < 0.5,
            "f": draw.random(),
            "k": draw.randrange(10),
            "s": draw.choice(("it's", "ü ö", "x")),
        }
        return json.dumps({name: value for name, value in attributes.items() if draw.random() < 0.8})

    def deliveries(self, publications: list[Line], changes: list[Line]) -> Iterable[Line]:
        """Most of what should come, and some of what should not."""
        draw = self.draw
        wanted = [(node, one) for _, node, one in changes if isinstance(one, trace.Subscribed)]
        share = draw.choice((0.0, 0.5, 0.8))
        apart = {(one, other) for one in self.publishers for other in self.clients if draw.random() < share}
        for at, _, sent in publications:
            assert isinstance(sent, trace.Published)
            attributes = json.loads(sent.attributes)
            for client, subscribed in wanted:
                if (sent.publisher, client) in apart:  # nothing comes through, so pairs are few among many names
                    continue
                if draw.random() < (0.9 if matches(subscribed.where, attributes) else 0.02):
                    number = subscribed.subscription if draw.random() < 0.99 else 9  # 9 was never made
                    came = at + (self.span(0.3) if draw.random() < 0.98 else -self.span(0.3))
                    for _ in range(1 if draw.random() < 0.95 else 2):
                        yield came, client, trace.Delivered(number, sent.publisher, sent.incarnation, sent.count)
                        came = came if draw.random() < 0.5 else came + self.span(0.3)
        for _ in range(draw.choice((0, 0, 3))):
            unheard = trace.Delivered(0, draw.choice(("nobody", *self.publishers)), 7, draw.randrange(9))
            yield self.time(), draw.choice(self.clients), unheard

    # What nodes do.

    def lives(self) -> list[Line]:
        lines: list[Line] = []
        for node in (*NODES, *self.clients):
            role = "broker" if node in NODES else "client"
            moments = sorted({self.time() for _ in range(self.draw.randint(1, 4))})
            for life, at in enumerate(moments, start=1):
                lines.append((at, node, trace.NodeStarted(role, life)))
                ends = moments[life] if life < len(moments) else self.begin + self.lasts + 1.0
                if self.draw.random() < 0.7:
                    stops = ends if self.draw.random() < 0.5 else (at + ends) / 2.0  # at the moment of the next life
                    lines.append((stops, node, trace.NodeStopped(self.draw.choice(("crash", "leave")))))
        return lines

    def network(self) -> list[Line]:
        draw = self.draw
        changes = self.many(
            lambda: overlay.NeighbourChanged(draw.randrange(4), draw.random() < 0.5, draw.choice(("hello", "silent"))),
            self.node,
        )
        return changes + self.many(
            lambda: trace.Dropped(
                draw.choice(("egress", "pipe")),
                draw.choice(("", " ", "queue full", "loss")),
                draw.choice(("", *NODES)),
                draw.randrange(5),
                draw.choice(("Publication", "Hello")),
                self.skewed(self.publishers),
                1,
                draw.randrange(50),
                draw.randrange(5),
            ),
            self.node,
        )

    def refusals(self) -> list[Line]:
        draw, client = self.draw, self.client
        return [
            *self.many(
                lambda: trace.InputRefused(draw.choice(PUBLISHERS), draw.choice(("too long", "it's bad"))), client
            ),
            *self.many(lambda: trace.LimitReached(draw.choice(("flows", "requests")), draw.randrange(100)), client),
            *self.many(lambda: overlay.ServiceSubscriptionRefused("TRUE", "full", self.span(1.0)), client),
        ]

    def counts(self) -> list[Line]:
        names = ("link packets", "link bytes", "queue packets", "cache entries", "flows")
        draw = self.draw
        lines = self.many(
            lambda: trace.Counted(draw.choice(names), draw.choice(NODES), draw.randrange(10**6)), self.node
        )
        return lines + [(self.begin + floor(at - self.begin), node, record) for at, node, record in lines[::2]]

    # What transports do.

    def recovery(self) -> list[Line]:
        draw, message, client = self.draw, self.message, self.client
        return [
            *self.many(lambda: transport.LossDetected(*message()), client),
            *self.many(lambda: transport.LossSuspected(*message()), client),
            *self.many(lambda: transport.RequestSent(*message(), draw.randint(1, 4)), client),
            *self.many(lambda: transport.RequestReceived(*message(), client(), draw.random() < 0.5), client),
            *self.many(lambda: transport.RepairSent(*message(), client()), client),
            *self.many(
                lambda: transport.Recovered(
                    *message(), draw.randrange(20), self.span(0.5), self.span(0.2) - 1.0, draw.randrange(3)
                ),
                client,
            ),
            *self.many(lambda: transport.GaveUp(*message(), 5), client),
        ]

    def flow(self) -> list[Line]:
        draw = self.draw
        lines: list[Line] = []
        for _ in range(draw.choice(RECORDS)):
            publisher = self.skewed(self.publishers)
            withheld = transport.MessageWithheld(publisher, 1, draw.randrange(99), draw.choice(("", *self.clients)))
            lines.append((self.time(), publisher, withheld))
            quota = 0.0 if draw.random() < 0.3 else draw.uniform(0.1, 100.0)
            limited = transport.FlowLimited(draw.choice([*PREDICATES]), self.skewed(self.clients), quota)
            lines.append((self.time(), publisher, limited))
        return lines

    def thinned(self) -> list[Line]:
        draw = self.draw
        few = (1, 2, 3)
        links = self.many(
            lambda: rates.Thinned(
                self.skewed(self.publishers),
                draw.choice(few),
                draw.choice(few),
                draw.choice(few),
                draw.randrange(50),
                draw.randrange(9_000),
                self.time(),
            ),
            self.node,
        )
        readers = self.many(
            lambda: rates.ReaderThinned(self.client(), draw.choice(few), draw.randrange(50), self.time()), self.node
        )
        return links + readers

    def retrieved(self) -> list[Line]:
        draw = self.draw
        began = self.many(
            lambda: retrieval.LifetimeBegan(
                draw.randrange(2), draw.randrange(4), draw.choice([*PREDICATES]), 5, 9.0, 0.0, 0.0, False
            ),
            self.client,
        )
        return began + self.many(
            lambda: retrieval.ItemRetrieved(draw.randrange(2), draw.randrange(4), *self.message()), self.client
        )

    def order(self) -> list[Line]:
        draw = self.draw
        return self.many(
            lambda: transport.Ordered(
                self.skewed(self.publishers),
                draw.randrange(100),
                draw.randrange(5),
                draw.randrange(9),
                self.span(2.0),
                self.span(1.0),
            ),
            self.client,
        )

    # What streams do.

    def streams(self) -> list[Line]:
        """Messages that are stored, some twice under one tick, and read under durable names, more than once too."""
        draw, pubends = self.draw, ("orders/0", "orders/1", "news/0")
        lines: list[Line] = []
        for number in range(draw.choice(RECORDS)):
            publisher, at, pubend = self.skewed(self.publishers), self.time(), draw.choice(pubends)
            message = (publisher, draw.randint(1, 2), number)
            lines += [(at, publisher, streams.StreamRequested("orders", "", *message, self.attributes(), 9))] * (
                draw.random() < 0.95
            )
            if draw.random() < 0.9:
                place = ("orders", pubend, draw.randint(1, 60), *message)
                lines.append((at + self.span(0.1), publisher, streams.StreamConfirmed(*place, 0.0, 1)))
        for _ in range(draw.choice((0, 3, 9))):
            client, number = draw.choice(self.clients), draw.randrange(2)
            name, pubend, where = draw.choice(("a", "it's")), draw.choice(pubends), draw.choice([*PREDICATES])
            began = streams.DurableBegan(number, "orders", name, pubend, 1, draw.choice((0, 0, 20)), where)
            lines.append((self.time(), client, began))
            for _ in range(draw.choice(RECORDS)):
                place = (number if draw.random() < 0.95 else 7, pubend, 1, draw.randint(1, 60))
                lines.append((self.time(), client, streams.StreamDelivered(*place, "p", 1, 1)))
        return lines
