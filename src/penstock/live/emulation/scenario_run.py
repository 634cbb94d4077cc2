"""A scenario in real time: its brokers as processes, its clients here, doing what the file says.

The counterpart of the simulator: the same scenario and seed publish the same messages (`scenario.script`), the records
are the same, and a run leaves the same folder behind, so the pipeline reads both. Loss and jitter of datagram links are
made by link emulators in this process (`emulated_links`). A broker that the file lets crash is killed, and started
again when the file says so. What belongs to the simulator alone (workers, other faults, clocks) is not applied;
`applied.not_applied` says what that is for a given file.

Time 0 of the run is when all brokers agree on the map and all clients are connected.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from msgspec.structs import replace

from penstock.content.message import Identity
from penstock.errors import Unreachable
from penstock.kernel.packet import CLIENT
from penstock.kernel.trace import Trace
from penstock.live.broker.applied import BROKER_FAULTS_APPLIED
from penstock.live.broker.plan import assign_addresses
from penstock.live.broker.supervisor import Brokers
from penstock.live.client.network import connect
from penstock.live.emulation.actor import Actor, Notebook, Tally, until_time
from penstock.live.emulation.emulated_links import EmulatedLinks
from penstock.live.event_loop import run
from penstock.live.trace import LiveTrace
from penstock.live.wire.addresses import Address
from penstock.scenario.runs import Run, RunOutcome, make_run, open_or_make, run_folder
from penstock.scenario.spec import Scenario
from penstock.services import typed_settings

SETTLE_WITHIN = 30.0
POLL_INTERVAL = 0.05


@dataclass
class LiveResult:
    """What a live run amounts to."""

    clients: dict[str, Tally]
    reports: dict[str, dict[str, Any]]  # what each broker saw at the end
    seconds: float
    wires: dict[tuple[str, str, str, str], int] = field(default_factory=dict)  # what the link emulators dropped
    ended: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # what each broker had dropped when it ended

    def drops(self) -> dict[tuple[str, str, str, str], int]:
        """(node, peer, place, cause) -> packets, to the end of each node: the same as the records of a trace."""
        found = Counter(self.wires)
        for name, tally in self.clients.items():
            found.update({(name, *place): packets for place, packets in tally.drops.items()})
        for name, report in self.reports.items():
            for drop in self.ended.get(name, report["drops"]):
                found[name, drop["peer"], drop["place"], drop["cause"]] += drop["packets"]
        return dict(sorted(found.items()))

    def links(self) -> dict[tuple[str, str], int]:
        """(sender, receiver) -> bytes carried between brokers."""
        return {
            (name, link["peer"]): link["sent_bytes"]
            for name, report in self.reports.items()
            for link in report["links"]
        }


class Follower(Protocol):
    """Something that uses the network while the scenario runs, in threads of its own."""

    def begin(self, servers: str) -> None:
        """The brokers are up, and the clients are about to begin."""

    def end(self) -> None:
        """The clients are done, and the brokers are still up."""


def run_live(
    scenario: Scenario,
    seed: int,
    *,
    folder: Path | None = None,
    progress: Callable[[float], None] | None = None,
    follower: Follower | None = None,
) -> tuple[LiveResult, Run | None]:
    """Start the brokers, drive the clients, stop everything; with a folder, leave a run that the pipeline can read."""
    if folder is None:
        return run(drive(scenario, seed, progress=progress, follower=follower)), None
    results = []

    def make(trace: Trace) -> RunOutcome:
        driven = drive(scenario, seed, trace=trace, folder=folder, progress=progress, follower=follower)
        results.append(run(driven))
        return outcome_of(results[0])

    made = make_run(folder, scenario, seed, make)
    return results[0], made


def live_run(
    scenario: Scenario,
    seed: int,
    runs_root: Path,
    *,
    progress: Callable[[float], None] | None = None,
    again: bool = False,
) -> Run:
    """The live counterpart of a simulated run, from the cache or made now, under a name of its own."""
    renamed = replace(scenario, name=f"{scenario.name} live")
    folder = run_folder(renamed, seed, runs_root, "live")

    def make(trace: Trace) -> RunOutcome:
        return outcome_of(run(drive(renamed, seed, trace=trace, folder=folder, progress=progress)))

    return open_or_make(renamed, seed, runs_root, make, also="live", again=again)


async def drive(
    scenario: Scenario,
    seed: int,
    *,
    trace: Trace | None = None,
    folder: Path | None = None,
    progress: Callable[[float], None] | None = None,
    follower: Follower | None = None,
) -> LiveResult:
    """The whole run on free ports of this machine."""
    began = time.time()
    clients_trace = LiveTrace(trace, began=began) if trace is not None else None
    addresses = assign_addresses(scenario, base_port=None)
    try:
        async with AsyncExitStack() as stack:
            data = Path(stack.enter_context(TemporaryDirectory(prefix="penstock-")))  # as the simulator's disks: new
            emulated = await stack.enter_async_context(EmulatedLinks(scenario, addresses, seed, trace=clients_trace))
            via, network = emulated.via, emulated.scenario
            brokers = Brokers(network, addresses, via=via, trace=folder, data=data, began=began)
            await stack.enter_async_context(brokers)
            await settled(brokers.addresses, scenario)
            if follower is not None:
                urls = ",".join(map(str, brokers.addresses.values()))
                await asyncio.to_thread(follower.begin, f"penstock://{urls}")
                stack.push_async_callback(asyncio.to_thread, follower.end)
            result = await drive_clients(
                scenario, seed, brokers.addresses, trace=clients_trace, progress=progress, brokers=brokers
            )
        result.wires, result.ended = emulated.drops(), brokers.drops
        return result
    finally:
        if clients_trace is not None:
            clients_trace.close()


async def drive_clients(
    scenario: Scenario,
    seed: int,
    addresses: Mapping[str, Address],
    *,
    trace: LiveTrace | None = None,
    progress: Callable[[float], None] | None = None,
    start: float | None = None,
    brokers: Brokers | None = None,
) -> LiveResult:
    """Let the scenario's clients do their work on a running network, from `start` on (monotonic) or at once.

    With `brokers`, those that the file lets crash do.
    """
    began = time.monotonic()
    sent_at: dict[Identity, float] = {}
    notebook: Notebook = {}
    async with AsyncExitStack() as stack:
        actors = []
        for spec in scenario.client:
            url, settings = f"penstock://{addresses[spec.broker]}", typed_settings(CLIENT, spec.services)
            network = await stack.enter_async_context(
                connect(url, name=spec.name, trace=trace, connect_within=10.0, **settings)
            )
            actors.append(Actor(spec, scenario, seed, network, sent_at, notebook))
        start = max(start or 0.0, time.monotonic() + 0.05)
        end = start + scenario.duration + scenario.drain
        async with asyncio.TaskGroup() as group:
            readers = [group.create_task(actor.read(start, number)) for actor in actors for number in actor.numbers]
            workers = [group.create_task(actor.publish(start)) for actor in actors]
            if brokers is not None:
                workers.append(group.create_task(strike(scenario, brokers, start)))
            while (now := time.monotonic()) < end:
                if progress is not None:
                    progress(max(0.0, (now - start) / (end - start)))
                if trace is not None:
                    trace.tick()
                await asyncio.sleep(min(0.1, end - now))
            for actor in actors:
                actor.report()
                actor.end()
            for task in (*workers, *readers):
                task.cancel()
        reports = await broker_reports(addresses)
    for actor in actors:
        actor.tally.drops = actor.drops()
    return LiveResult({actor.spec.name: actor.tally for actor in actors}, reports, time.monotonic() - began)


async def strike(scenario: Scenario, brokers: Brokers, start: float) -> None:
    """Let brokers crash, and come back, when the file says so."""
    for fault in sorted(scenario.fault, key=lambda fault: fault.at):
        if fault.kind not in BROKER_FAULTS_APPLIED or fault.broker is None:
            continue
        await until_time(start + fault.at)
        if fault.kind == "crash":
            await brokers.kill(fault.broker, restart=False)
        elif not brokers.is_up(fault.broker):
            await brokers.start(fault.broker)


async def settled(addresses: Mapping[str, Address], scenario: Scenario) -> None:
    """Return when every link is up and linked brokers know the same; raises Unreachable if that takes too long."""
    until = time.monotonic() + SETTLE_WITHIN
    async with AsyncExitStack() as stack:
        networks = {}
        for name, address in addresses.items():
            networks[name] = await stack.enter_async_context(connect(f"penstock://{address}", connect_within=10.0))
        while True:
            reports = {name: await network.broker_report() for name, network in networks.items()}
            apart = link_apart(reports, scenario)
            if not apart:
                return
            if time.monotonic() > until:
                raise Unreachable(f"the link between {apart[0]} and {apart[1]} does not come up; look at their logs")
            await asyncio.sleep(POLL_INTERVAL)


def link_apart(reports: Mapping[str, dict[str, Any]], scenario: Scenario) -> tuple[str, str] | None:
    """A link that is down at one end, or whose ends know different things."""
    for link in scenario.link:
        a, b = link.between
        up = all(
            found["up"]
            for name, other in ((a, b), (b, a))
            for found in reports[name]["links"]
            if found["peer"] == other
        )
        if not up or reports[a]["versions_hash"] != reports[b]["versions_hash"]:
            return a, b
    return None


async def broker_reports(addresses: Mapping[str, Address]) -> dict[str, dict[str, Any]]:
    """What each broker sees now; a broker that is not there is left out."""
    reports = {}
    for name, address in addresses.items():
        try:
            async with connect(f"penstock://{address}", connect_within=2.0) as network:
                reports[name] = await network.broker_report()
        except Unreachable:
            continue
    return reports


def outcome_of(result: LiveResult) -> RunOutcome:
    """What is kept of a live run in `run.json`. There is no digest: real time never repeats itself."""
    tallies = result.clients.values()
    traces = {name: (report.get("trace") or {}).get("problem", "") for name, report in result.reports.items()}
    problems = tuple(
        f"the trace of broker {name} has stopped: {problem}" for name, problem in traces.items() if problem
    )
    return RunOutcome(
        complete=not problems,
        problems=problems,
        digest="",
        events=0,
        virtual_seconds=result.seconds,
        summary={
            "live": True,
            "published": sum(tally.published for tally in tallies),
            "refused": sum(tally.refused for tally in tallies),
            "delivered": sum(tally.delivered for tally in tallies),
            "dropped": sum(result.drops().values()),
        },
    )
