"""What the tables of one run say, in the rows that a person looks at: clients, links, drops, comparisons, checks.

The terminal of `penstock demo` and the run's page show these rows and nothing else, so they cannot disagree, neither
with each other nor with the tables under `metrics/`. Here tables are only looked up and added up.

    offered     calls of publish(): published and withheld together
    due         published while the subscription was certainly known everywhere; what was published within `settle`
                seconds of its beginning or end may or may not come, and is no miss if it does not
    delivered   all deliveries, also of what was not due
    delays      from publish(), as the application sees it, and after sending: from where the message left its publisher
    times       from the beginning of traffic, so that they are those of the network file; processes begin before it
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from penstock.content.envelope import CONTROL_MARK
from penstock.kernel.packet import Packet
from penstock.lab.pages.run_planned import without_planned
from penstock.lab.pages.run_results import Delays, Row, RunTables
from penstock.lab.pages.run_retrieved import RetrievedNumbers, listens, retrieved_numbers
from penstock.lab.pages.twins import Pair, bottleneck, narrow_ways, twins
from penstock.scenario.spec import Scenario
from penstock.services import services

Direction = tuple[str, str]  # from, to


@dataclass(frozen=True, kw_only=True)
class ClientNumbers:
    """One client: what it published and what it got."""

    name: str
    broker: str
    wants: tuple[str, ...]
    listens: bool  # to what comes as it comes; streams and what is retrieved have tables of their own
    publishes: bool
    published: int
    withheld: int
    delivered: int
    due: int
    missed: int
    late: int
    from_publish: Delays
    after_sending: Delays
    delivered_per_second: tuple[int, ...]
    missed_per_second: tuple[int, ...]

    @property
    def offered(self) -> int:
        """Calls of publish()."""
        return self.published + self.withheld


@dataclass(frozen=True, kw_only=True)
class DropNumbers:
    """Packets that ended at one place for one cause, and how many of them carried a message of an application."""

    node: str
    peer: str
    place: str
    cause: str
    packets: int
    messages: int


@dataclass(frozen=True, kw_only=True)
class LinkNumbers:
    """One direction of a link between brokers; `lost` counts copies of messages, not packets of control."""

    sender: str
    receiver: str
    packets: int
    carried_bytes: int
    lost: int
    rate_bits_per_s: float | None


class Narrowest(NamedTuple):
    """The narrowest link between a publisher and a client: from, to, and what it can carry."""

    sender: str
    receiver: str
    messages_per_s: float
    rate_bits_per_s: float


@dataclass(frozen=True, kw_only=True)
class SlowedNumbers:
    """A flow that a client slowed down at its publisher; quotas are in messages per second."""

    publisher: str
    flow: str
    by: str
    slowest: float
    last: float
    since: float
    until: float  # when it was free again, or another limited it, or publishing ended


@dataclass(frozen=True, kw_only=True)
class StreamNumbers:
    """A durable name of a stream: what was stored, what it was due, and what became of that."""

    stream: str
    durable: str
    stored: int
    due: int
    delivered: int
    missed: int  # passed over: a later one was delivered
    waiting: int  # not read yet when the run ended
    repeated: int
    disordered: int
    delay_median: float | None  # seconds, from publish(); of the pubend where it is largest
    delay_max: float | None


@dataclass(frozen=True, kw_only=True)
class PairNumbers:
    """How one client fared with the messages of one publisher."""

    publisher: str
    client: str
    careful: bool
    offered: int
    withheld: int  # by the publisher itself: they were not sent
    thinned: int  # by full links
    published: int
    due: int
    delivered: int
    missed: int
    late: int
    recovered: int
    from_publish: Delays
    after_sending: Delays
    held: float  # seconds for each delivery, on average, waiting for others
    published_per_second: tuple[int, ...]
    withheld_per_second: tuple[int, ...]
    delivered_per_second: tuple[int, ...]
    missed_per_second: tuple[int, ...]
    late_per_second: tuple[int, ...]
    publishing_ends: float
    narrowest: Narrowest | None
    quotas: tuple[tuple[str, float, float], ...]  # flow, time, messages/s; 0: free again

    @property
    def dropped(self) -> int:
        """What ended on the way, and nobody was told of."""
        return max(0, self.offered - self.withheld - self.thinned - self.delivered)

    def as_json(self) -> dict[str, Any]:
        """Its numbers without the curves."""
        names = ("publisher", "client", "offered", "withheld", "thinned", "published", "due", "delivered", "missed")
        return {
            **{name: getattr(self, name) for name in names},
            "dropped": self.dropped,
            "late": self.late,
            "with": self.careful,
            "recovered": self.recovered,
            "mean_delay": self.from_publish.mean,
            "mean_delay_after_sending": self.after_sending.mean,
            "mean_held": self.held,
        }


@dataclass(frozen=True, kw_only=True)
class ThinnedNumbers:
    """What a full link, or a slow reader, kept from somebody."""

    publisher: str  # empty: several
    link: tuple[str, str]  # the broker before it, and the broker or client behind it
    to: str  # who did not get it
    messages: int
    size_bytes: int | None
    since: float
    until: float


@dataclass(frozen=True, kw_only=True)
class RunNumbers:
    """Everything that is shown of a run."""

    scenario: Scenario
    seconds: int  # from the beginning of traffic to the last thing that happened in the run
    published: int
    withheld: int
    delivered: int
    due: int
    missed: int
    recovered: int  # deliveries of what had been lost and was sent again
    rates: dict[str, tuple[int, ...]]  # published, delivered, missed in each second
    clients: list[ClientNumbers]
    links: list[LinkNumbers]
    drops: list[DropNumbers]
    twins: list[PairNumbers]
    narrow: list[PairNumbers]
    slowed: list[SlowedNumbers]
    thinned: list[ThinnedNumbers]  # most first
    streams: list[StreamNumbers]
    retrieved: list[RetrievedNumbers]
    checks: list[Row]
    planned: list[str]  # what would be a warning, had the file not asked for it
    warnings: list[str] = field(default_factory=list)

    @property
    def dropped(self) -> int:
        """Packets that ended on the way."""
        return sum(drop.packets for drop in self.drops)

    @property
    def dropped_messages(self) -> int:
        """Those of them that carried a message."""
        return sum(drop.messages for drop in self.drops)


def read_numbers(folder: Path, scenario: Scenario, *, warnings: Iterable[str] = ()) -> RunNumbers:
    """The numbers of a run in whose folder the pipeline has been; raises InvalidRun where it has not."""
    tables = RunTables(folder, scenario)
    checks, planned = without_planned(tables.rows("checks"), scenario)
    return RunNumbers(
        scenario=scenario,
        seconds=tables.seconds,
        published=tables.total("published_per_second", "published"),
        withheld=tables.total("withheld", "withheld"),
        delivered=tables.total("delivered_per_second", "delivered"),
        due=tables.total("missed", "due"),
        missed=tables.total("missed", "missed"),
        recovered=tables.total("recovery", "recovered"),
        rates={name: tables.curve("rates", name) for name in ("published", "delivered", "missed")},
        clients=[_client(tables, scenario, client.name) for client in scenario.client],
        links=_links(tables, scenario),
        drops=_drops(tables),
        twins=[pair for pair in _pairs(tables, scenario, twins(scenario)) if pair.due],
        narrow=_pairs(tables, scenario, narrow_ways(scenario)),
        slowed=_slowed(tables),
        thinned=_thinned(tables, scenario),
        streams=_streams(tables),
        retrieved=[retrieved_numbers(row) for row in tables.rows("retrieved")],
        checks=checks,
        planned=planned,
        warnings=list(warnings),
    )


def _client(tables: RunTables, scenario: Scenario, name: str) -> ClientNumbers:
    spec = next(client for client in scenario.client if client.name == name)
    return ClientNumbers(
        name=name,
        broker=spec.broker,
        wants=tuple(subscription.where for subscription in spec.subscribe),
        listens=any(listens(subscription) for subscription in spec.subscribe),
        publishes=bool(spec.publish),
        published=tables.total("published_per_second", "published", publisher=name),
        withheld=tables.total("withheld", "withheld", publisher=name),
        delivered=tables.total("delivered_per_second", "delivered", client=name),
        due=tables.total("missed", "due", client=name),
        missed=tables.total("missed", "missed", client=name),
        late=tables.total("fifo_violations", "violations", client=name),
        from_publish=tables.delays("delay_percentiles_per_client", "publish", client=name),
        after_sending=tables.delays("delay_percentiles_per_client", "sent", client=name),
        delivered_per_second=tables.curve("delivered_per_second", "delivered", client=name),
        missed_per_second=tables.curve("missed_per_second", "missed", client=name),
    )


def _links(tables: RunTables, scenario: Scenario) -> list[LinkNumbers]:
    """Both directions of every link."""
    lost = Counter[Direction]()
    for drop in _drops(tables):
        lost[drop.node, drop.peer] += drop.messages
    found = []
    for link in scenario.link:
        for sender, receiver in (link.between, link.between[::-1]):
            found.append(
                LinkNumbers(
                    sender=sender,
                    receiver=receiver,
                    packets=tables.total("link_use", "packets", node=sender, peer=receiver),
                    carried_bytes=tables.total("link_use", "bytes", node=sender, peer=receiver),
                    lost=lost[sender, receiver],
                    rate_bits_per_s=link.rate_bits_per_s,
                )
            )
    return found


def _drops(tables: RunTables) -> list[DropNumbers]:
    carrying = message_kinds()
    found: dict[tuple[str, str, str, str], list[int]] = defaultdict(lambda: [0, 0])
    for row in tables.rows("drops"):
        numbers = found[row["node"], row["peer"], row["place"], row["cause"]]
        numbers[0] += row["packets"]
        # Requests, repairs and the like go between transports, and what streams tell each other may hold no message.
        control = not row["publisher"] or row["publisher"].startswith(CONTROL_MARK)
        numbers[1] += row["packets"] if row["kind"] in carrying and not control else 0
    return [
        DropNumbers(node=node, peer=peer, place=place, cause=cause, packets=packets, messages=messages)
        for (node, peer, place, cause), (packets, messages) in sorted(found.items())
    ]


def message_kinds() -> set[str]:
    """The names of the packets that carry a message; all others are control."""
    kinds = [kind for service in services() for kind in service.packets]
    return {kind.__name__ for kind in kinds if kind.carried is not Packet.carried}


def _pairs(tables: RunTables, scenario: Scenario, pairs: Iterable[Pair]) -> list[PairNumbers]:
    """Those without what is compared come first."""
    found = [_pair(tables, scenario, pair) for pair in pairs]
    return sorted(found, key=lambda pair: (pair.careful, pair.publisher, pair.client))


def _pair(tables: RunTables, scenario: Scenario, pair: Pair) -> PairNumbers:
    both = {"publisher": pair.publisher, "client": pair.client}
    published = tables.total("published_per_second", "published", publisher=pair.publisher)
    withheld = tables.total("withheld", "withheld", publisher=pair.publisher)
    ordered = tables.rows("order", **both)
    home = next(client.broker for client in scenario.client if client.name == pair.client)
    place = next(number for number, broker in enumerate(scenario.broker) if broker.name == home)
    at_link = sum(
        row["messages"]
        for row in tables.rows("thinned_by_link", publisher=pair.publisher)
        if row["destination"] == place
    )
    return PairNumbers(
        publisher=pair.publisher,
        client=pair.client,
        careful=pair.careful,
        offered=published + withheld,
        withheld=withheld,
        thinned=at_link,
        published=published,
        due=tables.total("missed", "due", **both),
        delivered=tables.total("fifo_violations", "received", **both),
        missed=tables.total("missed", "missed", **both),
        late=tables.total("fifo_violations", "violations", **both),
        recovered=tables.total("recovery", "recovered", **both),
        from_publish=tables.delays("delay_percentiles", "publish", **both),
        after_sending=tables.delays("delay_percentiles", "sent", **both),
        held=sum(row["held"] for row in ordered) / max(1, sum(row["delivered"] for row in ordered)),
        published_per_second=tables.curve("published_per_second", "published", publisher=pair.publisher),
        withheld_per_second=tables.curve("withheld_per_second", "withheld", publisher=pair.publisher),
        delivered_per_second=tables.curve("delivered_per_second", "delivered", client=pair.client),
        missed_per_second=tables.curve("missed_per_second", "missed", client=pair.client),
        late_per_second=tables.curve("late_per_second", "late", **both),
        publishing_ends=tables.publishing_ends(pair.publisher),
        narrowest=_narrowest(tables, scenario, pair),
        quotas=tuple((row["flow"], row["time"], row["quota"]) for row in _quotas(tables, pair.publisher)),
    )


def _quotas(tables: RunTables, publisher: str) -> list[Row]:
    """Each change of a quota while there was something to publish, in order; what comes after it limits nobody."""
    end = tables.publishing_ends(publisher)
    rows = [{**row, "time": row["time"] - tables.start} for row in tables.rows("flow_limits", publisher=publisher)]
    return sorted((row for row in rows if row["time"] < end), key=lambda row: row["time"])


def _thinned(tables: RunTables, scenario: Scenario) -> list[ThinnedNumbers]:
    """What fair rates withheld; a trace knows brokers by their numbers, which are their places in the file."""
    names = dict(enumerate(broker.name for broker in scenario.broker))
    found = [
        ThinnedNumbers(
            publisher=row["publisher"],
            link=(names.get(row["origin"], str(row["origin"])), names.get(row["neighbour"], str(row["neighbour"]))),
            to=names.get(row["destination"], str(row["destination"])),
            messages=row["messages"],
            size_bytes=row["size_bytes"],
            since=row["first"] - tables.start,
            until=row["last"] - tables.start,
        )
        for row in tables.rows("thinned_by_link")
    ]
    found += [
        ThinnedNumbers(
            publisher="",
            link=(row["broker"], row["client"]),
            to=row["client"],
            messages=row["messages"],
            size_bytes=None,
            since=row["first"] - tables.start,
            until=row["last"] - tables.start,
        )
        for row in tables.rows("readers_thinned")
    ]
    return sorted(found, key=lambda one: (-one.messages, one.publisher, one.link, one.to))


def _slowed(tables: RunTables) -> list[SlowedNumbers]:
    """For each flow those who limited it, in the order in which they began to."""
    found = []
    for publisher in dict.fromkeys(row["publisher"] for row in tables.rows("flow_limits")):
        rows = _quotas(tables, publisher)
        for flow in dict.fromkeys(row["flow"] for row in rows):
            changes = [row for row in rows if row["flow"] == flow]
            ends = [row["time"] for row in changes[1:]] + [tables.publishing_ends(publisher)]
            for by in dict.fromkeys(row["limiting_receiver"] for row in changes if row["quota"]):
                own = [
                    (row, end)
                    for row, end in zip(changes, ends, strict=True)
                    if row["limiting_receiver"] == by and row["quota"]
                ]
                found.append(
                    SlowedNumbers(
                        publisher=publisher,
                        flow=flow,
                        by=by,
                        slowest=min(row["quota"] for row, _ in own),
                        last=own[-1][0]["quota"],
                        since=own[0][0]["time"],
                        until=own[-1][1],
                    )
                )
    return found


def _streams(tables: RunTables) -> list[StreamNumbers]:
    """Each durable name, over all pubends of its stream."""
    found: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in tables.rows("streams"):
        found[row["pubend"].rpartition("/")[0], row["durable"]].append(row)
    counts = ("stored", "due", "delivered", "missed", "waiting", "repeated", "disordered")
    return [
        StreamNumbers(
            stream=stream,
            durable=durable,
            **{name: sum(row[name] for row in rows) for name in counts},
            delay_median=_largest(row["delay_median"] for row in rows),
            delay_max=_largest(row["delay_max"] for row in rows),
        )
        for (stream, durable), rows in sorted(found.items())
    ]


def _largest(seconds: Iterable[float | None]) -> float | None:
    return max((one for one in seconds if one is not None), default=None)


def _narrowest(tables: RunTables, scenario: Scenario, pair: Pair) -> Narrowest | None:
    """The narrowest link between the two, and how many of the pair's messages it can carry in a second."""
    found = bottleneck(scenario, pair)
    if found is None:
        return None
    sender, receiver, link = found
    delivered = {row["second"]: row["delivered"] for row in tables.rows("delivered_per_second", client=pair.client)}
    used = [row for row in tables.rows("link_use", node=sender, peer=receiver) if delivered.get(row["second"])]
    sizes = [row["bytes"] / delivered[row["second"]] for row in used if row["bytes"]]
    if not sizes or link.rate_bits_per_s is None:
        return None
    return Narrowest(sender, receiver, link.rate_bits_per_s / 8.0 / median(sizes), link.rate_bits_per_s)
