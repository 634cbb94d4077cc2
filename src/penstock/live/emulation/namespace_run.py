"""A scenario with one bottleneck, run for real: brokers in network namespaces, and a TCP of the kernel beside them.

The scenario has two brokers, `left` and `right`, a datagram link between them with a rate and a queue, and perhaps a
TCP connection on it. Live, the rate and the queue are the kernel's (`namespaces`); the brokers send one message in a
datagram, as fast as they get them. The trace has what the simulator's has: publications and deliveries from the
clients, what the bottleneck carried as `link bytes` of the left broker, and `tcp delivered bytes`. Where brokers are
traced too, they say themselves what they sent, dropped and withheld; then the run begins LEAD_SECONDS after the brokers
are started, so that all agree on its beginning. The bottleneck's rate may change (`link_rate`).

Sizes. A message of `WIRE_BYTES` has `FRAME_BYTES` on a real wire, with the heads of datagram, UDP, IP and Ethernet. The
bottleneck's rate is raised by just that, TCP's packets have the same size, and all bytes are counted in units of the
scenario, so that shares can be compared with those of the simulator.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from msgspec.structs import replace

from penstock.errors import NotPossibleHere
from penstock.kernel.link import LinkKind
from penstock.kernel.trace import Counted, Trace
from penstock.live.broker.supervisor import Brokers
from penstock.live.emulation.actor import until_time
from penstock.live.emulation.namespaces import LEFT, RIGHT, Dumbbell
from penstock.live.emulation.scenario_run import LiveResult, drive_clients, outcome_of, settled
from penstock.live.event_loop import run
from penstock.live.host import CLOCK_OFFSET
from penstock.live.trace import LiveTrace
from penstock.live.wire.addresses import Address
from penstock.live.wire.udp import HEAD_BYTES
from penstock.scenario.runs import Run, RunOutcome, open_or_make, run_folder
from penstock.scenario.spec import Scenario, TcpSpec

BULK_TCP = "penstock.live.emulation.bulk_tcp"
WIRE_BYTES = 280  # of a message in the scenarios that are run here
ENCODED_BYTES = 263  # what it really takes, encoded; the scenarios reckon with a little more
FRAME_BYTES = ENCODED_BYTES + HEAD_BYTES + 1 + 8 + 20 + 14
TCP_HEAD_BYTES = 20 + 20 + 14
TCP_FRAME_BYTES = 1_514  # of the kernel's own choice, where the link is a connection
TIMESTAMP_BYTES = 12  # an option that the kernel adds, at the cost of the segment
PORT, TCP_PORT = 7420, 7421
UNSHAPED_BITS_PER_S = 50e6  # far above the bottleneck; with a rate, a datagram carries one message
UNSHAPED_PACKETS = 10_000
CONNECT_SECONDS = 1.0  # for the clients, before the run begins
LEAD_SECONDS = 10.0  # for the brokers as well, where they are traced
SAMPLE_EVERY = 0.2


def namespace_run(
    scenario: Scenario, seed: int, runs_root: Path, *, brokers_traced: bool = False, again: bool = False
) -> Run:
    """The run, from the cache or made now, under a name of its own."""
    renamed = replace(scenario, name=f"{scenario.name} in namespaces")
    folder = namespace_folder(scenario, seed, runs_root) if brokers_traced else None

    def make(trace: Trace) -> RunOutcome:
        return outcome_of(run(drive_in_namespaces(renamed, seed, trace=trace, folder=folder)))

    return open_or_make(renamed, seed, runs_root, make, also="live", again=again)


def namespace_folder(scenario: Scenario, seed: int, runs_root: Path) -> Path:
    """Where it is kept."""
    return run_folder(replace(scenario, name=f"{scenario.name} in namespaces"), seed, runs_root, "live")


async def drive_in_namespaces(
    scenario: Scenario,
    seed: int,
    *,
    trace: Trace | None = None,
    folder: Path | None = None,
    progress: Callable[[float], None] | None = None,
) -> LiveResult:
    """The whole run; with a folder, the brokers write their traces there. Raises NotPossibleHere without namespaces."""
    (link,) = scenario.link
    assert link.rate_bits_per_s is not None, "a bottleneck has a rate"
    own_rate = UNSHAPED_BITS_PER_S if link.link_kind is LinkKind.DATAGRAM else None  # a connection shows how fast it is
    unshaped = replace(link, rate_bits_per_s=own_rate, queue_packets=UNSHAPED_PACKETS, delay=0.0)
    inside = replace(scenario, link=(unshaped,), tcp=(), fault=())
    rate = link.rate_bits_per_s * FRAME_BYTES / WIRE_BYTES
    frame = FRAME_BYTES if link.link_kind is LinkKind.DATAGRAM else TCP_FRAME_BYTES
    async with AsyncExitStack() as stack:
        dumbbell = await stack.enter_async_context(
            Dumbbell(rate_bits_per_s=rate, queue_packets=link.queue_packets, packet_bytes=frame)
        )
        addresses = {side: Address(dumbbell.from_here(side), PORT) for side in (LEFT, RIGHT)}
        anywhere = Address("0.0.0.0", PORT)
        across = {(a, b): Address(dumbbell.across(b), PORT) for a, b in ((LEFT, RIGHT), (RIGHT, LEFT))}
        via = {(LEFT, LEFT): anywhere, (RIGHT, RIGHT): anywhere, **across}
        before = {side: dumbbell.inside(side) for side in (LEFT, RIGHT)}
        start = time.monotonic() + LEAD_SECONDS
        began = start + CLOCK_OFFSET
        brokers = Brokers(inside, addresses, via=via, before=before, restart=False, trace=folder, began=began)
        await stack.enter_async_context(brokers)
        await settled(addresses, inside)
        if folder is None:
            start = time.monotonic() + CONNECT_SECONDS
        elif time.monotonic() + CONNECT_SECONDS > start:
            raise NotPossibleHere(
                f"brokers take more than {LEAD_SECONDS:g} s to start", "try a machine with less to do"
            )
        written = LiveTrace(trace, began=start + CLOCK_OFFSET) if trace is not None else None
        if written is not None:
            stack.callback(written.close)
        beside = [_tcp(dumbbell, flow, written, start) for flow in scenario.tcp]
        beside += [_sample(dumbbell, written, start)] if folder is None else []
        beside += [_change_rates(dumbbell, scenario, start)]
        tasks = [asyncio.ensure_future(work) for work in beside]
        try:
            return await drive_clients(inside, seed, addresses, trace=written, progress=progress, start=start)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _sample(dumbbell: Dumbbell, trace: LiveTrace | None, start: float) -> None:
    """Write what the bottleneck carries."""
    await asyncio.sleep(max(0.0, start - time.monotonic()))
    carried, _ = await dumbbell.carried_bytes()
    while True:
        await asyncio.sleep(SAMPLE_EVERY)
        before, (carried, _) = carried, await dumbbell.carried_bytes()
        _count(trace, LEFT, "link bytes", RIGHT, (carried - before) * WIRE_BYTES // FRAME_BYTES, time.monotonic())


async def _change_rates(dumbbell: Dumbbell, scenario: Scenario, start: float) -> None:
    """The bottleneck becomes slower and faster, when the file says so."""
    for fault in sorted(scenario.fault, key=lambda fault: fault.at):
        if fault.kind == "link_rate" and fault.rate_bits_per_s is not None:
            await until_time(start + fault.at)
            await dumbbell.set_rate(fault.rate_bits_per_s * FRAME_BYTES / WIRE_BYTES)


async def _tcp(dumbbell: Dumbbell, flow: TcpSpec, trace: LiveTrace | None, start: float) -> None:
    """One bulk connection, from its start on."""
    payload = FRAME_BYTES - TCP_HEAD_BYTES - TIMESTAMP_BYTES
    where = (dumbbell.across(RIGHT), str(TCP_PORT))
    receiver = await _bulk(*dumbbell.inside(RIGHT), sys.executable, "-m", BULK_TCP, "receive", *where)
    sender = None
    try:
        assert receiver.stdout is not None
        await receiver.stdout.readline()
        await asyncio.sleep(max(0.0, start + flow.start - time.monotonic()))
        segment = str(payload + TIMESTAMP_BYTES)
        command = (sys.executable, "-m", BULK_TCP, "send", *where, segment)
        sender = await _bulk(*dumbbell.inside(LEFT), *command)
        got = 0
        while line := await receiver.stdout.readline():
            at, count = line.split()
            before, got = got, int(count)
            _count(trace, flow.name, "tcp delivered bytes", "", (got - before) * WIRE_BYTES // payload, float(at))
    finally:
        for process in (sender, receiver):
            if process is not None and process.returncode is None:
                process.kill()
                await process.wait()


async def _bulk(*command: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)


def _count(trace: LiveTrace | None, node: str, name: str, peer: str, value: int, at: float) -> None:
    if trace is not None and value > 0:
        trace.write(at + CLOCK_OFFSET, node, Counted(name, peer, value))
