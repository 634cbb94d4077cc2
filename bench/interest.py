"""What does telling interest cost, exact and encoded? Run: `python bench/interest.py [--quick] [--section NAME]`.

Three sections, a table each:

    unwanted  copies that cross a link although nobody behind it wants them, for each copy that somebody wants: one
              filter on two brokers (a range, an inequality, a prefix ...), the town, and 46 brokers with ranges. The
              same messages in both forms; what is wanted is decided by the predicates themselves.
    large     100,000 filters over 50 brokers: what one broker does and keeps for all of them. Processor seconds until
              it knows them (`converge`), memory, bytes on a link for all of them and for one change, and how fast it
              then finds who wants a message. A network is as fast as its slowest broker, and each has to do this once;
              the way of the packets comes on top.
    ready     how long a subscriber waits until all brokers know, how many packets that takes on all links together, and
              what churn costs: a random tree of 50 and of 500 brokers with links of 1 to 10 ms, one subscription on an
              idle network, then `churn` subscriptions per second spread over all brokers.

Times are of the processor, except the waiting times of `ready`, which are of the simulated network (brokers take no
time there). Each measurement of `large` has a process of its own.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import resource
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

FORMS = ("exact", "encoded")
SEED = 7
BROKERS = 50
FILTERS = 100_000
TOWN = Path(__file__).resolve().parents[1] / "networks" / "town.toml"

Row = dict[str, Any]


# Unwanted copies --------------------------------------------------------------------------------------------------

SINGLE = ["v < 50", "v >= 70.5", "w <> 3 AND v < 10", "s LIKE 'ab%'", "v BETWEEN 20 AND 21", "t = 'one'"]


def two_brokers(where: str) -> Any:
    """A publisher of random values at one end of a link, one subscriber at the other."""
    from penstock.scenario.spec import BrokerSpec, ClientSpec, LinkSpec, Scenario, SubscriptionSpec
    from penstock.scenario.workload import PublisherSpec, Recipe

    values = {
        "v": Recipe(uniform=(0.0, 100.0)),
        "w": Recipe(integer=(0, 9)),
        "s": Recipe(choose=("abc", "abd", "axy", "bcd")),
        "t": Recipe(choose=("one", "two", "three")),
    }
    publisher = PublisherSpec(rate_messages_per_s=500.0, start=1.0, attributes=values)
    return Scenario(
        name=where,
        duration=11.0,
        broker=(BrokerSpec(name="a"), BrokerSpec(name="b")),
        link=(LinkSpec(between=("a", "b")),),
        client=(
            ClientSpec(name="p", broker="a", publish=(publisher,)),
            ClientSpec(name="c", broker="b", subscribe=(SubscriptionSpec(where=where),)),
        ),
    )


def unwanted_section(quick: bool) -> list[Row]:
    from msgspec.structs import replace

    from penstock.scenario.reader import read_scenario
    from simulator import network  # the network of bench/simulator.py: topics, and half the range of a price

    cases: dict[str, Any] = {f"2 brokers, `{where}`": two_brokers(where) for where in SINGLE}
    town = read_scenario(TOWN)
    cases["the town"] = replace(town, duration=6.0) if quick else town
    cases["46 brokers, topics and ranges"] = network(46, 20.0, 0.5 if quick else 2.0, False)
    rows = []
    for name, scenario in cases.items():
        row: Row = {"case": name}
        for form in FORMS:
            services = {**scenario.services, "routing": {**scenario.services.get("routing", {}), "interest": form}}
            row[form] = copies(replace(scenario, services=services, check=()))
        rows.append(row)
    heads = ["", *(f"{form}: {what}" for form in FORMS for what in ("wanted", "unwanted", "unwanted/wanted"))]
    print("## Copies that cross a link\n")
    table(heads, [[row["case"], *(text for form in FORMS for text in copies_texts(row[form]))] for row in rows])
    return rows


def copies_texts(found: Row) -> list[str]:
    wanted, unwanted = found["wanted"], found["unwanted"]
    return [f"{wanted:,}", f"{unwanted:,}", f"{unwanted / wanted:.3f}" if wanted else "-"]


def copies(scenario: Any) -> Row:
    """Run it, and judge each copy where it arrives: does one of the brokers that it names want the message?"""
    from penstock.overlay import broker as forwarding
    from penstock.sim.run import simulate

    brokers: dict[int, Any] = {}
    counts: Counter[bool] = Counter()
    verdicts: dict[tuple[Any, int], bool] = {}
    made, passing = forwarding.Broker.__init__, forwarding.Broker._passing

    def init(self: Any, context: Any) -> None:
        made(self, context)
        brokers[context.number] = self

    def wants(number: int, message: Any) -> bool:
        key = (message.identity, number)
        if key not in verdicts:
            verdicts[key] = bool(brokers[number]._index.match([message.attributes])[0])
        return verdicts[key]

    def watched(self: Any, packets: list[Any], sender: int) -> Any:
        for packet in packets:
            counts[any(wants(number, packet.message) for number in packet.destinations)] += 1
        return passing(self, packets, sender)

    forwarding.Broker.__init__, forwarding.Broker._passing = init, watched  # type: ignore[method-assign]
    try:
        simulate(scenario, SEED)
    finally:
        forwarding.Broker.__init__, forwarding.Broker._passing = made, passing  # type: ignore[method-assign]
    return {"wanted": counts[True], "unwanted": counts[False]}


# Many filters -----------------------------------------------------------------------------------------------------


def a_where(rng: random.Random) -> str:
    """What one client wants: two equalities, or an equality and a range, or a range alone, or a prefix."""
    symbol, low = f"S{rng.randrange(5_000):04d}", rng.randrange(1_000)
    return rng.choice(
        (
            f"symbol = '{symbol}' AND venue = 'V{rng.randrange(20)}'",
            f"symbol = '{symbol}' AND price < {low}",
            f"price BETWEEN {low} AND {low + rng.randrange(1, 20)} AND size > {rng.randrange(100)}",
            f"symbol LIKE '{symbol[:4]}%' AND size < {rng.randrange(100)}",
        )
    )


def measure_large(form: str, filters: int) -> Row:
    """One broker that learns the interest of all others, from their packets."""
    from penstock.content.language.parser import parse_predicate
    from penstock.content.matching.compiled import warm_up
    from penstock.overlay.assembly import NodeConfig
    from penstock.overlay.codec import encode
    from penstock.overlay.config import RoutingConfig
    from penstock.overlay.interest import OwnInterest, read_entries
    from penstock.overlay.packets import Hello, LinkState
    from penstock.overlay.routing import Routing
    from penstock.testing import a_broker

    warm_up()
    rng = random.Random(SEED)
    config = NodeConfig(services={"routing": RoutingConfig(interest=form)})  # type: ignore[arg-type]
    owners = [a_broker(number, config=config).machine(Routing) for number in range(1, BROKERS)]
    packets, sizes, told = [], [], 0
    began = time.process_time()
    for number, routing in enumerate(owners, start=1):
        own = OwnInterest(number, 1, routing.form)
        for _ in range(filters // (BROKERS - 1)):
            own.want(read_entries(routing.form.entries(parse_predicate(a_where(rng))), routing.form))
        changes = list(own.changes())
        told += len(own.announced())
        packets += changes
        changed = parse_predicate(f"symbol = 'NEW' AND price < {number}")
        own.want(read_entries(routing.form.entries(changed), routing.form))
        sizes += [len(encode(packet)) for packet in own.changes()]
    advertise_s = time.process_time() - began
    node = a_broker(0, config=config)
    routing = node.machine(Routing)
    routing.link_changed(0, up=True, now=0.0)
    routing.receive([Hello(1, 1, routing.form.fingerprint, 0)], sender=0, now=0.0)
    routing.receive([LinkState(1, 1, 1, tuple((number, 1) for number in range(2, BROKERS)))], sender=0, now=0.0)
    del owners
    before = resident_bytes()
    began = time.process_time()
    for number, packet in enumerate(packets):
        routing.receive([packet], sender=0, now=float(number))  # as slowly as the budget of a neighbour allows
    routing.form.wanting([{"symbol": "S0001"}])
    converge_s = time.process_time() - began
    kept = resident_bytes() - before
    messages = [
        {"symbol": f"S{rng.randrange(5_000):04d}", "venue": f"V{rng.randrange(20)}", "price": rng.randrange(1_000),
         "size": rng.randrange(100)}
        for _ in range(2_048)
    ]  # fmt: skip
    began = time.process_time()
    reached = 0
    for start in range(0, len(messages), 64):
        reached += sum(map(len, routing.form.wanting(messages[start : start + 64])[0]))
    match_s = time.process_time() - began
    return {
        "form": form,
        "wanted": filters,
        "told": told,
        "known": len(routing.form),
        "advertise_us": advertise_s / filters * 1e6,
        "converge_s": converge_s,
        "kept_bytes": kept,
        "wire_bytes": sum(len(encode(packet)) for packet in packets),
        "change_bytes": statistics.mean(sizes),
        "messages_per_s": len(messages) / match_s,
        "brokers_per_message": reached / len(messages),
    }


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def large_section(quick: bool) -> list[Row]:
    filters = FILTERS // 10 if quick else FILTERS
    rows = []
    for form in FORMS:
        command = [sys.executable, __file__, "--child", form, str(filters)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{form} failed:\n{done.stderr}")
        rows.append(json.loads(done.stdout))
    print(f"## {filters:,} filters over {BROKERS} brokers: what each broker learns and keeps\n")
    heads = ["", "told", "us to admit each", "converge", "memory", "bytes on a link", "bytes per change",
             "messages/s", "brokers per message"]  # fmt: skip
    texts = [
        [
            row["form"],
            f"{row['told']:,}",
            f"{row['advertise_us']:.0f}",
            f"{row['converge_s']:.1f} s",
            f"{row['kept_bytes'] / 1e6:.0f} MB",
            f"{row['wire_bytes'] / 1e6:.1f} MB",
            f"{row['change_bytes']:.0f}",
            f"{row['messages_per_s']:,.0f}",
            f"{row['brokers_per_message']:.1f}",
        ]
        for row in rows
    ]
    table(heads, texts)
    return rows


# Readiness --------------------------------------------------------------------------------------------------------


class Tree:
    """Brokers on a random tree with delays, driven by a heap of events: control packets only."""

    def __init__(self, brokers: int) -> None:
        from penstock.testing import AMPLE_BYTES, a_broker, a_client

        rng = random.Random(brokers)
        self.now = 0.0
        self.packets: Counter[str] = Counter()
        self.ready: list[float] = []
        self._asked: dict[tuple[str, int], float] = {}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self._woken: dict[str, float] = {}
        self._ends: dict[tuple[str, int], tuple[str, int, float]] = {}
        self.nodes: dict[str, Any] = {f"b{number}": a_broker(number) for number in range(brokers)}
        for child in range(1, brokers):
            self._join(f"b{child}", f"b{rng.randrange(max(0, child - 20), child)}", rng.uniform(0.001, 0.010))
        for number in range(brokers):
            self.nodes[f"c{number}"] = a_client(f"c{number}")
            self._join(f"c{number}", f"b{number}", 0.0005)
        for name, link in list(self._ends):
            self.apply(name, self.nodes[name].link_changed(link, up=True, now=0.0))
            self.apply(name, self.nodes[name].link_ready(link, room_bytes=AMPLE_BYTES, now=0.0))

    def _join(self, a: str, b: str, delay: float) -> None:
        here = sum(name == a for name, _ in self._ends)
        there = sum(name == b for name, _ in self._ends)
        self._ends[a, here] = (b, there, delay)
        self._ends[b, there] = (a, here, delay)

    def _at(self, moment: float, call: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._events, (moment, self._number, call))

    def apply(self, name: str, effects: list[Any]) -> None:
        from penstock.kernel.machine import Done, Send

        for effect in effects:
            if isinstance(effect, Send):
                for link in effect.to:
                    to, there, delay = self._ends[name, link]
                    packet = effect.packet
                    self.packets[type(packet).__name__] += 1
                    self._at(self.now + delay, lambda to=to, there=there, packet=packet: self._take(to, there, packet))
            elif isinstance(effect, Done) and (name, effect.ticket) in self._asked:
                self.ready.append(self.now - self._asked.pop((name, effect.ticket)))
        deadline = self.nodes[name].deadline()
        if deadline is not None and self._woken.get(name) != deadline:
            self._woken[name] = deadline
            self._at(deadline, lambda: self._wake(name))

    def _take(self, name: str, link: int, packet: Any) -> None:
        self.apply(name, self.nodes[name].receive([packet], sender=link, now=self.now))

    def _wake(self, name: str) -> None:
        self._woken.pop(name, None)
        self.apply(name, self.nodes[name].wake(now=self.now))

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self._events and self._events[0][0] <= until:
            self.now, _, call = heapq.heappop(self._events)
            call()
        self.now = until

    def subscribe(self, broker: int, number: int, where: str) -> None:
        name, ticket = f"c{broker}", 1_000_000 + number
        client = self.nodes[name]
        self._asked[name, ticket] = self.now
        self.apply(name, client.subscribe(number, where, ticket=number, now=self.now))
        self.apply(name, client.await_ready(20.0, ticket=ticket))


def measure_ready(brokers: int, churn: list[int], seconds: float) -> list[Row]:
    from penstock.overlay.routing import Routing

    rng = random.Random(SEED)
    tree = Tree(brokers)
    tree.run(8.0)
    known = len(tree.nodes["b0"].machine(Routing).exits())
    assert known == brokers - 1, f"{known} of {brokers - 1} brokers are known"
    rows = []
    number = 0
    for rate in [0, *churn]:
        tree.ready, before, began = [], Counter(tree.packets), time.process_time()
        count = 1 if rate == 0 else int(rate * seconds)
        for _ in range(count):
            number += 1
            where = f"symbol = 'S{number}' AND price < {rng.randrange(100)}"
            tree.subscribe(rng.randrange(brokers), number, where)
            if rate:
                tree.run(rng.expovariate(rate))
        tree.run(5.0)
        assert len(tree.ready) == count, f"{len(tree.ready)} of {count} were answered"
        sent = tree.packets - before
        waits = sorted(tree.ready)
        rows.append(
            {
                "brokers": brokers,
                "churn_per_s": rate,
                "subscriptions": count,
                "median_ms": statistics.median(waits) * 1e3,
                "p99_ms": waits[int(0.99 * (len(waits) - 1))] * 1e3,
                "interest_packets": sent["Interest"] / count,
                "confirmation_packets": (sent["ConfirmRequest"] + sent["Confirmation"]) / count,
                "cpu_us_per_broker": (time.process_time() - began) / count / brokers * 1e6,
            }
        )
    return rows


def ready_section(quick: bool) -> list[Row]:
    rows = measure_ready(50, [10, 100, 1_000], 1.0 if quick else 3.0)
    if not quick:
        rows += measure_ready(500, [10, 100], 1.0)
    print("## Until all brokers know a subscription\n")
    heads = ["brokers", "churn", "median wait", "p99", "Interest packets each", "confirmation packets each",
             "us per broker each"]  # fmt: skip
    texts = [
        [
            f"{row['brokers']}",
            f"{row['churn_per_s']}/s" if row["churn_per_s"] else "one alone",
            f"{row['median_ms']:.0f} ms",
            f"{row['p99_ms']:.0f} ms",
            f"{row['interest_packets']:.0f}",
            f"{row['confirmation_packets']:.0f}",
            f"{row['cpu_us_per_broker']:.0f}",
        ]
        for row in rows
    ]
    table(heads, texts)
    return rows


# Tables -----------------------------------------------------------------------------------------------------------


def table(heads: list[str], rows: list[list[str]]) -> None:
    print("| " + " | ".join(heads) + " |")
    print("|---" + "|--:" * (len(heads) - 1) + "|")
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print(flush=True)


SECTIONS: dict[str, Callable[[bool], list[Row]]] = {
    "unwanted": unwanted_section,
    "large": large_section,
    "ready": ready_section,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Example: python bench/interest.py --section ready --quick",
    )
    parser.add_argument("--section", choices=SECTIONS, action="append", help="only this one; may be repeated")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers here as well")
    parser.add_argument("--child", nargs=2, metavar=("FORM", "FILTERS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(measure_large(arguments.child[0], int(arguments.child[1]))))
        return
    found = {name: SECTIONS[name](arguments.quick) for name in arguments.section or SECTIONS}
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
