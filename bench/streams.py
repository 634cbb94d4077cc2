"""Streams on disk, beside NATS JetStream. Run: `python bench/streams.py [--quick] [--only STAGE ...] [--json FILE]`.

One server each, a process with its own folder, and clients in processes of their own, all on loopback and in Python.
Messages have a body of 128 B (Penstock's have two attributes besides, JetStream's a subject).

    penstock            a broker with its embedded store; a message is acknowledged when it is on disk, with a full sync
    jetstream always    nats-server with file storage and `sync_interval: always`: the same promise. Only publishers
                        notice, so the other stages are without it: to fill its streams would take long
    jetstream           the same with its default, a sync every two minutes: what was acknowledged may be lost

Stages:
    publish    acknowledged publications per second; each publisher waits for its acknowledgement before the next one
    replay     a stream from its beginning to one new reader, messages per second
    catch-up   the delay of live messages to one reader, before and while another one replays the stream
    memory     of the server with a long stream, bytes on disk for each message; the server is then killed: how long
               until it listens again, and until it has stored one more message; and its memory after a whole replay
    names      publications per second, and memory, with 1, 100 and 1,000 durable readers that share the messages

All systems stay up for a stage and take turns within each repetition, so that a noisy neighbour hits all of them;
medians count, and their ratio to Penstock's. What is not installed is left out (`pip install penstock[bench]`), and
with `--alone` everything but Penstock is.
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
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from penstock.live.broker.plan import assign_addresses
from penstock.live.broker.supervisor import Brokers
from penstock.live.wire.addresses import free_ports
from penstock.scenario.spec import BrokerSpec, Scenario
from penstock.streams.config import StreamsConfig
from streams_roles import SYSTEMS
from throughput import STEP_WITHIN, cpu_seconds, end, heard, listening, tell

ROLES = Path(__file__).with_name("streams_roles.py")
PUBLISHERS = (1, 10, 100, 1_000)
READERS = (1, 100, 1_000)
LIVE_RATE = 200.0  # messages per second beside a replay
SLICE = 100_000  # messages of one order, where there are millions
REPLAY_MIN = 10_000  # messages per second: slower means that something hangs
RETAINED_BYTES = 1 << 40  # nothing is trimmed, however long a stream is


@dataclass(frozen=True)
class Size:
    """How long it all takes."""

    repetitions: int
    seconds: float  # of one measurement
    replayed: int  # messages
    kept: int  # messages, for the memory
    alone: bool  # without others beside Penstock


@dataclass
class Setup:
    """A server that is up."""

    name: str
    system: str
    address: str
    server: int  # its process
    folder: Path
    stack: AsyncExitStack
    reopen: Callable[[], Awaitable[int]]  # kills the server and starts it again: its process, when it listens
    client: asyncio.subprocess.Process | None = None  # that publishes

    async def role(self, name: str) -> asyncio.subprocess.Process:
        """One more client; it is ended with the stage."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(ROLES), self.system, self.address, name),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=1 << 26,
        )
        self.stack.push_async_callback(end, process)
        await heard(process)
        return process

    async def publisher(self) -> asyncio.subprocess.Process:
        """The client that made the stream."""
        if self.client is None:
            self.client = await self.role("publisher")
            await ask(self.client, do="make")
        return self.client

    def memory_bytes(self) -> int:
        return int(Path(f"/proc/{self.server}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def disk_bytes(self) -> int:
        return sum(file.stat().st_blocks * 512 for file in self.folder.rglob("*") if file.is_file())


Row = dict[str, Any]
Stage = Callable[[list[Setup], Size], Awaitable[list[Row]]]


async def ask(process: asyncio.subprocess.Process, **order: Any) -> dict[str, Any]:
    tell(process, **order)
    return await heard(process)


async def penstock_setup(stack: AsyncExitStack, folder: Path) -> Setup:
    settings = {"streams": StreamsConfig(retain_bytes=RETAINED_BYTES)}
    scenario = Scenario(name="bench", duration=1.0, broker=(BrokerSpec(name="broker"),), services=settings)
    addresses = assign_addresses(scenario, base_port=None)
    running = await stack.enter_async_context(Brokers(scenario, addresses, restart=False, data=folder))

    async def reopen() -> int:
        await running.kill("broker", restart=False)
        await running.start("broker")
        return running.pid("broker")

    return Setup("penstock", "penstock", running.url("broker"), running.pid("broker"), folder, stack, reopen)


async def jetstream_setup(stack: AsyncExitStack, folder: Path, name: str, sync: str) -> Setup:
    port = free_ports(1)[0]
    folder.mkdir()
    config = folder / "server.conf"
    store = f'store_dir: "{folder / "store"}"'
    config.write_text(f'listen: "127.0.0.1:{port}"\njetstream {{\n  {store}\n  {sync}\n}}\n')
    binary = Path(sys.executable).with_name("nats-server")
    servers: list[asyncio.subprocess.Process] = []

    async def start() -> int:
        command = (str(binary), "-c", str(config))
        servers.append(await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL))
        await listening(port)
        return servers[-1].pid

    async def stop() -> None:
        with suppress(ProcessLookupError):
            servers[-1].terminate()
        await servers[-1].wait()

    async def reopen() -> int:
        servers[-1].kill()
        await servers[-1].wait()
        return await start()

    stack.push_async_callback(stop)
    return Setup(name, "jetstream", f"nats://127.0.0.1:{port}", await start(), folder, stack, reopen)


async def setups(stack: AsyncExitStack, folder: Path, *, always: bool, alone: bool) -> list[Setup]:
    made = [await penstock_setup(stack, folder / "penstock")]
    if not alone and find_spec("nats") and Path(sys.executable).with_name("nats-server").exists():
        if always:
            made.append(await jetstream_setup(stack, folder / "always", "jetstream always", "sync_interval: always"))
        made.append(await jetstream_setup(stack, folder / "jetstream", "jetstream", ""))
    return made


# Stages.


async def publish(running: list[Setup], size: Size) -> list[Row]:
    rows = []
    for setup in running:
        await ask(await setup.publisher(), do="publish", publishers=100, seconds=0.3)  # to warm up
    for _ in range(size.repetitions):
        for publishers in PUBLISHERS:
            for setup in running:
                cpu = cpu_seconds(setup.server)
                found = await ask(await setup.publisher(), do="publish", publishers=publishers, seconds=size.seconds)
                rows.append(
                    {
                        "system": setup.name,
                        "case": f"{publishers:,} publishers",
                        "per_s": found["count"] / found["seconds"],
                        "server_us": (cpu_seconds(setup.server) - cpu) / found["count"] * 1e6,
                        "client_us": found["cpu"] / found["count"] * 1e6,
                    }
                )
    return rows


async def replay(running: list[Setup], size: Size) -> list[Row]:
    rows = []
    for setup in running:
        await ask(await setup.publisher(), do="fill", count=size.replayed)
    readers = [await setup.role("reader") for setup in running]
    for repetition in range(size.repetitions):
        for setup, reader in zip(running, readers, strict=True):
            cpu = cpu_seconds(setup.server)
            found = await ask(reader, do="replay", name=f"replay-{repetition}", count=size.replayed)
            rows.append(
                {
                    "system": setup.name,
                    "case": f"{size.replayed:,} messages",
                    "per_s": found["received"] / found["seconds"],
                    "server_us": (cpu_seconds(setup.server) - cpu) / found["received"] * 1e6,
                    "client_us": found["cpu"] / found["received"] * 1e6,
                }
            )
    return rows


async def catch_up(running: list[Setup], size: Size) -> list[Row]:
    rows = []
    ends = []
    for setup in running:
        await ask(await setup.publisher(), do="fill", count=size.replayed)
        ends.append((await setup.role("follower"), await setup.role("late")))
        await ask(ends[-1][0], do="follow", name="follower")
    for repetition in range(size.repetitions):
        for setup, (follower, late) in zip(running, ends, strict=True):
            row: Row = {"system": setup.name, "case": f"{LIVE_RATE:.0f} messages/s live"}
            for when in ("before", "during"):
                await ask(follower, do="delays")
                publisher = await setup.publisher()
                tell(publisher, do="trickle", rate=LIVE_RATE, seconds=size.seconds)
                replays, replayed = 0, 0.0
                trickled = asyncio.ensure_future(heard(publisher))
                while when == "during" and not trickled.done():
                    replays += 1
                    name = f"late-{repetition}-{replays}"
                    found = await ask(late, do="replay", name=name, count=size.replayed)
                    replayed = found["received"] / found["seconds"]
                await trickled
                delays = sorted((await ask(follower, do="delays"))["delays"])
                row[f"{when}_p50_ms"] = delays[len(delays) // 2] * 1e3
                row[f"{when}_p99_ms"] = delays[int(len(delays) * 0.99)] * 1e3
            rows.append(row | {"replayed_per_s": replayed})
    return rows


async def memory(running: list[Setup], size: Size) -> list[Row]:
    rows = []
    for setup in running:
        publisher = await setup.publisher()
        empty = setup.memory_bytes(), setup.disk_bytes()
        seconds, made = 0.0, 0
        while made < size.kept:
            count = min(SLICE, size.kept - made)
            seconds += (await ask(publisher, do="fill", count=count))["seconds"]
            made += count
            if made % (10 * SLICE) == 0:
                print(f"{setup.name}: {made:,} messages, {setup.memory_bytes() / 1e6:.0f} MB", file=sys.stderr)
        row: Row = {
            "system": setup.name,
            "case": f"{size.kept:,} messages",
            "per_s": size.kept / seconds,
            "empty_mb": empty[0] / 1e6,
            "full_mb": setup.memory_bytes() / 1e6,
            "disk_bytes_each": (setup.disk_bytes() - empty[1]) / size.kept,
        }
        await end(publisher)
        rows.append(row | await reopened(setup, size.kept))
    return rows


async def reopened(setup: Setup, count: int) -> Row:
    """A server that is killed and started again with a stream of so many messages, which one reader then reads."""
    began = time.monotonic()
    setup.server = await setup.reopen()
    listens = time.monotonic() - began
    client = SYSTEMS[setup.system]()
    await client.open(setup.address, "again")
    await client.publish(0, bytes(8))
    row: Row = {"listens_s": listens, "open_s": time.monotonic() - began, "open_mb": setup.memory_bytes() / 1e6}
    await client.close()
    reader = await setup.role("reader")
    tell(reader, do="replay", name="whole", count=count)
    found = await heard(reader, STEP_WITHIN + count / REPLAY_MIN)
    return row | {"replay_per_s": found["received"] / found["seconds"], "read_mb": setup.memory_bytes() / 1e6}


async def names(running: list[Setup], size: Size) -> list[Row]:
    rows = []
    readers = []
    for setup in running:
        await setup.publisher()
        readers.append(await setup.role("readers"))
    made = 0
    for count in READERS:
        seconds = [(await ask(reader, do="readers", first=made, last=count - 1))["seconds"] for reader in readers]
        each = [1e3 * one / (count - made) for one in seconds]
        made = count
        for _ in range(size.repetitions):
            for setup, open_ms in zip(running, each, strict=True):
                cpu = cpu_seconds(setup.server)
                found = await ask(await setup.publisher(), do="publish", publishers=100, seconds=size.seconds)
                rows.append(
                    {
                        "system": setup.name,
                        "case": f"{count:,} readers",
                        "per_s": found["count"] / found["seconds"],
                        "server_us": (cpu_seconds(setup.server) - cpu) / found["count"] * 1e6,
                        "open_ms": open_ms,
                        "full_mb": setup.memory_bytes() / 1e6,
                    }
                )
    return rows


STAGES: dict[str, Stage] = {
    "publish": publish,
    "replay": replay,
    "catch-up": catch_up,
    "memory": memory,
    "names": names,
}
COLUMNS = {
    "per_s": ("messages/s", ",.0f"),
    "server_us": ("server us", ".1f"),
    "client_us": ("client us", ".1f"),
    "before_p50_ms": ("before p50 ms", ".2f"),
    "before_p99_ms": ("before p99 ms", ".2f"),
    "during_p50_ms": ("during p50 ms", ".2f"),
    "during_p99_ms": ("during p99 ms", ".2f"),
    "replayed_per_s": ("replayed meanwhile/s", ",.0f"),
    "open_ms": ("ms to open one", ".2f"),
    "empty_mb": ("MB, empty", ".0f"),
    "full_mb": ("MB", ".0f"),
    "disk_bytes_each": ("bytes on disk each", ".0f"),
    "listens_s": ("s until it listens again", ".2f"),
    "open_s": ("s until it stores again", ".2f"),
    "open_mb": ("MB then", ".0f"),
    "replay_per_s": ("replayed/s", ",.0f"),
    "read_mb": ("MB after the replay", ".0f"),
}


async def measured(stage: Stage, size: Size) -> list[Row]:
    folder = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    try:
        async with AsyncExitStack() as stack:
            return await stage(await setups(stack, folder, always=stage is publish, alone=size.alone), size)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def medians(rows: list[Row]) -> list[Row]:
    """One row for each system and case, and how its rate compares with Penstock's."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["case"], row["system"]), []).append(row)
    found = []
    for (case, system), runs in groups.items():
        middle = {what: statistics.median(run[what] for run in runs) for what in COLUMNS if what in runs[0]}
        found.append({"system": system, "case": case, **middle})
    return found


def report(stage: str, rows: list[Row]) -> None:
    columns = [what for what in COLUMNS if what in rows[0]]
    head = ["system", stage, *(COLUMNS[what][0] for what in columns)]
    ours = {row["case"]: row.get("per_s") for row in rows if row["system"] == "penstock"}
    if "per_s" in columns:
        head.append("penstock is")
    print("\n| " + " | ".join(head) + " |\n|---|---|" + "---:|" * (len(head) - 2))
    for row in rows:
        cells = [row["system"], row["case"], *(format(row[what], COLUMNS[what][1]) for what in columns)]
        if "per_s" in columns:
            cells.append(f"{ours[row['case']] / row['per_s']:.2f} x")
        print("| " + " | ".join(cells) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one short repetition")
    parser.add_argument("--only", nargs="*", default=list(STAGES), choices=list(STAGES), metavar="STAGE")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of one measurement")
    parser.add_argument("--replayed", type=int, default=200_000, help="messages of `replay` and `catch-up`")
    parser.add_argument("--kept", type=int, default=1_000_000, help="messages of the stage `memory`")
    parser.add_argument("--alone", action="store_true", help="Penstock only")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there as well")
    options = parser.parse_args()
    size = Size(options.repetitions, options.seconds, options.replayed, options.kept, options.alone)
    if options.quick:
        size = Size(1, 0.5, 10_000, 20_000, options.alone)
    found: dict[str, list[Row]] = {}
    for name in options.only:
        load = os.getloadavg()[0]
        rows = asyncio.run(measured(STAGES[name], size))
        report(name, medians(rows))
        print(f"\nload {load:.1f} before, {os.getloadavg()[0]:.1f} after")
        found[name] = rows
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
