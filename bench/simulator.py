"""How fast is the simulator, and beside what? Run: `python bench/simulator.py [--quick] [--json FILE]`.

Three questions, a table each:

    engine    events per second of the bare event queue, beside SimPy (`pip install penstock[bench]`) in one process.
              1,000 activities, each of which waits for a drawn time and begins again ("timers"), or goes on at once
              ("at once"). SimPy is asked twice: with processes, its usual way, and with bare callbacks, its fastest.
    network   link packets per second of 46 brokers with the whole stack: brokers, routing, egress, pipes, trace digest;
              plain and compiled with mypyc, with the four default checkers and without any
    growth    the same network from 10 to 500 brokers: set-up, cost of a packet, memory

The network is a random tree of degree 3 at most, links of 100 Mbit/s and 1-10 ms. Every broker has 10 clients; each
wants one of 20 topics and half of the range of a price, so that a message finds one client in 40. One client of each
broker publishes 100 bytes at Poisson times (network: 20 per second each; growth: 400 per second in all).

A link packet is one packet put on one link, a client's access link included. `running` is the rate while messages
flow: the packets and the time of a run, less those of the same run without publishers (which is `set-up`: building the
network, learning the ways and the interest of all, Hellos). Times are of the processor, not of the clock on the wall:
everything is one thread, and the neighbours on a shared machine shall not count. Contenders take turns, in
one process (engine) or in processes of their own (plain and compiled); the median counts, the best stands beside.
Memory is the peak resident size of a process that ran nothing but this network; where the index of encodings is large
enough to import numba, that import is part of the memory (some 150 MB) but not of the time. Plain and compiled must
give the same digest, or the run ends.

The compiled copy is made by tools/compile.py in a temporary folder; `--compiled DIR` takes one that exists.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SEED = 7
ACTIVITIES = 1_000
CLIENTS_PER_BROKER = 10
TOPICS = tuple(f"topic-{number}" for number in range(20))
PUBLISHING_FROM = 1.0  # seconds; by then every broker knows every other
DEFAULT_CHECKERS = ("at-most-once", "only-wanted", "sets-split", "nothing-silent")
SIZES = (10, 20, 46, 100, 200, 500)

Row = dict[str, Any]


# Engine -----------------------------------------------------------------------------------------------------------


def penstock_engine(delays: list[float], events: int) -> None:
    from penstock.sim.engine import Engine

    engine = Engine()
    draw = cycle(delays).__next__

    def act(_: None) -> None:
        delay = draw()
        if delay:
            engine.at(engine.now + delay, act, None)
        else:
            engine.soon(act, None)

    for _ in range(ACTIVITIES):
        act(None)
    engine.run(1e12, events)
    assert engine.events == events


def simpy_processes(delays: list[float], events: int) -> None:
    import simpy

    environment = simpy.Environment()
    draw = cycle(delays).__next__

    def activity() -> Generator[Any, Any, Any]:
        while True:
            yield environment.timeout(draw())

    for _ in range(ACTIVITIES):
        environment.process(activity())
    for _ in range(events):
        environment.step()


def simpy_callbacks(delays: list[float], events: int) -> None:
    import simpy

    environment = simpy.Environment()
    draw = cycle(delays).__next__

    def act(_: Any) -> None:
        environment.timeout(draw()).callbacks.append(act)

    for _ in range(ACTIVITIES):
        act(None)
    for _ in range(events):
        environment.step()


ENGINES: dict[str, Callable[[list[float], int], None]] = {
    "Penstock": penstock_engine,
    "SimPy, callbacks": simpy_callbacks,
    "SimPy, processes": simpy_processes,
}


def measure_engines(events: int, repeats: int) -> list[Row]:
    """Each contender in turn, `repeats` times."""
    rng = random.Random(SEED)
    loads = {"timers": [rng.expovariate(1.0) + 1e-9 for _ in range(10_007)], "at once": [0.0]}
    rates: dict[tuple[str, str], list[float]] = {}
    for _ in range(repeats):
        for load, delays in loads.items():
            for name, contender in ENGINES.items():
                began = time.process_time()
                contender(delays, events)
                rates.setdefault((load, name), []).append(events / (time.process_time() - began))
    return [{"load": load, "engine": name, "rates": found} for (load, name), found in rates.items()]


# Network ----------------------------------------------------------------------------------------------------------


def network(brokers: int, rate_messages_per_s: float, seconds: float, checkers: bool) -> Any:
    """The scenario described above; a rate of 0 leaves out the publishers."""
    from penstock.scenario.spec import BrokerSpec, ClientSpec, LinkSpec, Scenario, SubscriptionSpec
    from penstock.scenario.workload import PublisherSpec, Recipe

    rng = random.Random(brokers)
    names = [f"broker-{number}" for number in range(brokers)]
    degree = [0] * brokers
    links = []
    for child in range(1, brokers):
        parent = rng.choice([number for number in range(child) if degree[number] < 3])
        degree[parent] += 1
        degree[child] += 1
        between, delay = (names[parent], names[child]), round(rng.uniform(0.001, 0.010), 6)
        links.append(LinkSpec(between=between, rate_bits_per_s=100e6, delay=delay))
    publisher = PublisherSpec(
        rate_messages_per_s=rate_messages_per_s or 1.0,
        arrivals="poisson",
        start=PUBLISHING_FROM,
        body_bytes=100,
        attributes={"topic": Recipe(choose=TOPICS), "price": Recipe(integer=(0, 99)), "urgent": Recipe(chance=0.1)},
    )
    clients = []
    for number in range(brokers * CLIENTS_PER_BROKER):
        low = rng.randrange(51)
        where = f"topic = '{rng.choice(TOPICS)}' AND price BETWEEN {low} AND {low + 49}"
        publishes = rate_messages_per_s > 0 and number % CLIENTS_PER_BROKER == 0
        clients.append(
            ClientSpec(
                name=f"client-{number}",
                broker=names[number // CLIENTS_PER_BROKER],
                subscribe=(SubscriptionSpec(where=where),),
                publish=(publisher,) if publishes else (),
            )
        )
    return Scenario(
        name=f"{brokers} brokers",
        duration=PUBLISHING_FROM + seconds,
        drain=0.5,
        broker=tuple(BrokerSpec(name=name) for name in names),
        link=tuple(links),
        client=tuple(clients),
        check=DEFAULT_CHECKERS if checkers else (),
    )


def measure_network(brokers: int, rate_messages_per_s: float, seconds: float, checkers: bool) -> Row:
    """One network in this process: quiet first, then busy."""
    from penstock.content.matching.compiled import warm_up
    from penstock.content.matching.encoded_index import COMPILED_ABOVE
    from penstock.sim import engine, run

    run.simulate(network(2, 10.0, 0.1, checkers), SEED)  # imports, caches
    if brokers * CLIENTS_PER_BROKER > COMPILED_ABOVE:
        warm_up()  # numba, which only larger networks import
    times, results = [], []
    for rate in (0.0, rate_messages_per_s):
        scenario = network(brokers, rate, seconds, checkers)
        began = time.process_time()
        results.append(run.simulate(scenario, SEED))
        times.append(time.process_time() - began)
    quiet, busy = results
    assert not busy.problems, busy.problems
    return {
        "brokers": brokers,
        "checkers": checkers,
        "compiled": not engine.__file__.endswith(".py"),
        "digest": busy.digest,
        "events": busy.events,
        "published": busy.records["Published"],
        "delivered": busy.records["Delivered"],
        "dropped": busy.records.get("Dropped", 0),
        "packets": busy.link_packets,
        "packets_quiet": quiet.link_packets,
        "setup_s": times[0],
        "total_s": times[1],
        "running_packets_per_s": (busy.link_packets - quiet.link_packets) / (times[1] - times[0]),
        "running_events_per_s": (busy.events - quiet.events) / (times[1] - times[0]),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


# Processes --------------------------------------------------------------------------------------------------------


def in_child(python_path: Path, task: str, *arguments: float) -> Any:
    """Run one measurement in a process of its own, with this copy of the package."""
    command = [sys.executable, __file__, "--child", task, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(python_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{task} {arguments} failed:\n{done.stderr}")
    return json.loads(done.stdout)


def child(task: str, arguments: list[float]) -> Any:
    if task == "engine":
        return measure_engines(int(arguments[0]), int(arguments[1]))
    brokers, rate, seconds, checkers = arguments
    return measure_network(int(brokers), rate, seconds, bool(checkers))


def compiled_copy(given: Path | None, scratch: Path) -> tuple[Path | None, str]:
    """Where the compiled package is; or None, and why."""
    if given is not None:
        return given, ""
    command = [sys.executable, str(ROOT / "tools" / "compile.py"), str(scratch)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (scratch, "") if done.returncode == 0 else (None, done.stderr.strip())


# Tables -----------------------------------------------------------------------------------------------------------


def table(heads: list[str], rows: list[list[str]]) -> None:
    print("| " + " | ".join(heads) + " |")
    print("|---" + "|--:" * (len(heads) - 1) + "|")
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print(flush=True)


def thousands(values: list[float]) -> str:
    """Median, and the best in brackets."""
    return f"{statistics.median(values) / 1e3:,.0f}k ({max(values) / 1e3:,.0f}k)"


def machine() -> str:
    cpu = platform.processor() or platform.machine()
    information = Path("/proc/cpuinfo")
    if information.exists():
        cpu = next((line.split(":")[1].strip() for line in information.open() if line.startswith("model name")), cpu)
    load = ", load " + " ".join(f"{value:.1f}" for value in os.getloadavg()) if hasattr(os, "getloadavg") else ""
    return f"{os.cpu_count()} cores ({cpu}), Python {platform.python_version()}, {platform.system()}{load}"


def engine_section(paths: dict[str, Path], events: int, repeats: int) -> Any:
    print(f"## Engine: events per second, {events:,} events, {ACTIVITIES:,} activities, median (best) of {repeats}\n")
    found = {name: in_child(path, "engine", events, repeats) for name, path in paths.items()}
    rows = []
    for number, row in enumerate(found["plain"]):
        rows.append([f"{row['load']}: {row['engine']}", *(thousands(found[name][number]["rates"]) for name in found)])
    table(["load and engine", *(f"beside Penstock {name}" for name in found)], rows)
    return found


def network_section(paths: dict[str, Path], seconds: float, repeats: int) -> list[Row]:
    print(f"## 46 brokers, 460 clients: link packets per second, median (best) of {repeats}\n")
    found: dict[tuple[str, bool], list[Row]] = {}
    for _ in range(repeats):
        for checkers in (False, True):
            for name, path in paths.items():
                row = in_child(path, "network", 46, 20.0, seconds, int(checkers))
                assert row["compiled"] == (name == "compiled"), f"the {name} copy is not {name}"
                found.setdefault((name, checkers), []).append(row)
    rows = []
    for (name, checkers), runs in found.items():
        rows.append(
            [
                f"{name}, {'four checkers' if checkers else 'no checkers'}",
                thousands([run["running_packets_per_s"] for run in runs]),
                thousands([run["running_events_per_s"] for run in runs]),
                thousands([run["packets"] / run["total_s"] for run in runs]),
                f"{statistics.median(run['setup_s'] for run in runs):.2f} s",
                f"{max(run['peak_bytes'] for run in runs) / 1e6:,.0f} MB",
            ]
        )
    table(["", "packets/s, running", "events/s, running", "packets/s, with set-up", "set-up", "peak memory"], rows)
    first = found["plain", False][0]
    digests = {run["digest"] for runs in found.values() for run in runs}
    print(
        f"One run: {first['published']:,} messages, {first['delivered']:,} deliveries, {first['packets']:,} link"
        f" packets, {first['dropped']} drops, {first['events']:,} events. Digests of all {len(paths) * 2 * repeats}"
        f" runs: {'the same' if len(digests) == 1 else 'DIFFERENT'} ({', '.join(sorted(digests))}).\n"
    )
    if len(digests) != 1:
        sys.exit("the digests differ")
    return [row for runs in found.values() for row in runs]


def growth_section(path: Path, sizes: tuple[int, ...], seconds: float, repeats: int) -> list[Row]:
    print(f"## Growth, plain, no checkers, median (best) of {repeats}\n")
    found: dict[int, list[Row]] = {size: [] for size in sizes}
    for _ in range(repeats):
        for size, runs in found.items():
            runs.append(in_child(path, "network", size, 400.0 / size, seconds, 0))
    rows = []
    for size, runs in found.items():
        first, costs = runs[0], [1e6 / run["running_packets_per_s"] for run in runs]
        rows.append(
            [
                f"{size}",
                f"{statistics.median(run['setup_s'] for run in runs):.2f} s",
                f"{first['packets_quiet']:,}",
                f"{(first['packets'] - first['packets_quiet']) / first['published']:.0f}",
                f"{statistics.median(costs):.1f} us ({min(costs):.1f} us)",
                f"{statistics.median(run['peak_bytes'] for run in runs) / 1e6:,.0f} MB",
            ]
        )
    heads = ["brokers", "set-up", "packets of set-up", "packets per message", "per packet, running", "peak memory"]
    table(heads, rows)
    return [row for runs in found.values() for row in runs]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer repetitions, up to 100 brokers")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the measurements to a file as well")
    parser.add_argument("--compiled", type=Path, metavar="DIR", help="a copy made by tools/compile.py")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(child(arguments.child[0], [float(text) for text in arguments.child[1:]])))
        return
    quick = arguments.quick
    print(f"# Simulator\n\n{machine()}\n", flush=True)
    with TemporaryDirectory() as scratch:
        compiled, why_not = compiled_copy(arguments.compiled, Path(scratch) / "compiled")
        paths = {"plain": ROOT / "src"} | ({"compiled": compiled} if compiled else {})
        if why_not:
            print(f"Plain only: {why_not}\n")
        results = {
            "machine": machine(),
            "engine": engine_section(paths, 50_000 if quick else 200_000, 3 if quick else 7),
            "network": network_section(paths, 2.0 if quick else 8.0, 1 if quick else 5),
            "growth": growth_section(
                paths["plain"], tuple(s for s in SIZES if not quick or s <= 100), 2.0, 1 if quick else 3
            ),
        }
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
