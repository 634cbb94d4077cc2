"""What can one hostile neighbour or client do to others? Run: `python bench/hostile.py [--attack NAME] [--json FILE]`.

Three brokers in a chain, a - b - c, each a process, on loopback. A healthy pair, two processes more, publishes at a and
subscribes at c. Then an attacker without any keys does one thing to b (`hostile_attacks.py`), for one phase, and goes.
Every attack meets new brokers.

    before    the pair alone
    during    the attacker is at work
    after     from SETTLE seconds after it has gone

A message counts as delivered if it arrived at most a second after it was due; the share is of those that were due, so
a publisher that is held up loses too. *Late*: it came later than that; *lost*: never, in all phases together.
*Newcomer*: how long another client at b takes in the middle of the attack to connect, subscribe and get a message of
its own, and the same afterwards. Processor time and peak memory are those of broker b; the first covers the attack and
the phase after it. *Answered*: what the attacker was told most often.

The attacker runs at a lower priority, because it would not share a machine with its victims. Exit code 1 if the pair
had less than 90 % during an attack or less than 99.5 % after it, if it was given forged messages, if a newcomer was not
served, or if a broker died or fell silent.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import penstock
from hostile_attacks import ATTACKS, CHAIN, Attack, chain, chain_with_spare
from penstock.live.broker.plan import assign_addresses
from penstock.live.broker.supervisor import Brokers
from penstock.live.emulation.scenario_run import broker_reports, settled
from penstock.live.wire.addresses import Address

ROLES = Path(__file__).with_name("hostile_roles.py")
BEFORE = 1.0  # seconds of the first phase
SETTLE = 2.0  # seconds between the end of an attack and the phase after it
LATE_AFTER = 1.0  # seconds after it was due; a message that is later does not count as delivered
STEP_WITHIN = 30.0  # seconds for any one answer; longer means that something hangs
NEWCOMER_WITHIN = 5.0
DISK_BYTES = 1 << 16  # of the disk that is full
SHARE_DURING, SHARE_AFTER = 0.9, 0.995


@dataclass
class Row:
    """What one attack did."""

    attack: str
    rate: dict[str, float] = field(default_factory=dict)  # phase -> messages/s that arrived in time
    share: dict[str, float] = field(default_factory=dict)  # phase -> of those that were due
    late: int = 0
    lost: int = 0
    forged: int = 0  # messages under the publisher's name that were none of its own
    newcomer: dict[str, str] = field(default_factory=dict)  # phase -> seconds, or why not
    cpu_seconds: float = 0.0
    calm_mb: float = 0.0  # before the attack
    peak_mb: float = 0.0
    log_lines: int = 0  # that all brokers together wrote
    heard: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    skipped: str = ""

    def judge(self) -> None:
        """Enter whatever must not happen among the problems."""
        if self.share.get("during", 0.0) < SHARE_DURING:
            self.problems.append("disturbed")
        if self.share.get("after", 0.0) < SHARE_AFTER:
            self.problems.append("did not recover")
        if self.forged:
            self.problems.append(f"{self.forged:,} forged messages delivered")
        self.problems += [f"newcomer {phase}: {told}" for phase, told in self.newcomer.items() if "ms" not in told]


# Processes.


async def role(stack: AsyncExitStack, kind: str, options: dict[str, Any]) -> asyncio.subprocess.Process:
    """Start one program; it is ended with the stack."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(ROLES), kind, json.dumps(options)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=1 << 26,
    )
    stack.push_async_callback(end, process)
    await heard(process)
    return process


async def end(process: asyncio.subprocess.Process) -> None:
    """Close its stdin and wait a little; whoever does not end is killed."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        async with asyncio.timeout(3):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


async def heard(process: asyncio.subprocess.Process) -> dict[str, Any]:
    """Its next answer; raises ChildProcessError if there is none."""
    assert process.stdout is not None
    try:
        async with asyncio.timeout(STEP_WITHIN):
            line = await process.stdout.readline()
    except TimeoutError:
        raise ChildProcessError("a program of the measurement hangs") from None
    if not line:
        raise ChildProcessError("a program of the measurement has ended; its own words are above")
    answer: dict[str, Any] = json.loads(line)
    return answer


def tell(process: asyncio.subprocess.Process, **order: Any) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(order).encode() + b"\n")


def cpu_seconds(process_id: int) -> float:
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mb(process_id: int, what: str) -> float:
    """VmRSS is what it holds now, VmHWM the most that it ever held."""
    lines = Path(f"/proc/{process_id}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what)) / 1024


# The network.


@contextmanager
def full_disk() -> Iterator[tuple[Path, list[str]]]:
    """A folder without room, and the words before the command of whoever writes there; needs Linux.

    As root it is a file system of its own. Otherwise the process may not make files longer than 512 bytes.
    """
    folder = Path(tempfile.mkdtemp(prefix="penstock-full-"))
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    try:
        if mounted:
            with suppress(OSError), (folder / "filler").open("wb", buffering=0) as filler:
                while filler.write(bytes(4096)):
                    pass
        yield folder, [] if mounted else ["prlimit", "--fsize=512"]
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(folder)], capture_output=True, check=False)
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def words_to(log: Path) -> Iterator[None]:
    """Processes that are started meanwhile write to this file what they would have written to our stderr."""
    kept = os.dup(2)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(file, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(file)


async def start_brokers(
    stack: AsyncExitStack, attack: Attack, log: Path
) -> tuple[dict[str, Address], Callable[[str], int]]:
    """Where the three brokers listen, and a function for their process ids."""
    scenario = chain_with_spare()
    addresses = assign_addresses(scenario, base_port=None)
    brokers = {name: Brokers(scenario, addresses, restart=False) for name in CHAIN}
    if attack.full_disk:
        folder, before = stack.enter_context(full_disk())
        brokers["b"] = Brokers(scenario, addresses, restart=False, trace=folder, before={"b": before})
    for started in brokers.values():
        stack.push_async_callback(started.stop)
    with words_to(log):
        await asyncio.gather(*(started.start(name) for name, started in brokers.items()))
    running = {name: addresses[name] for name in CHAIN}
    await settled(running, chain())
    return running, lambda name: brokers[name].pid(name)


# One attack.


async def newcomer(address: Address) -> str:
    """How long it takes to be served at b."""
    began = time.monotonic()
    try:
        async with (
            asyncio.timeout(NEWCOMER_WITHIN),
            penstock.connect(f"penstock://{address}", connect_within=NEWCOMER_WITHIN) as network,
            network.subscribe("newcomer = 1") as messages,
        ):
            await network.publish({"newcomer": 1})
            await anext(messages)
            return f"{(time.monotonic() - began) * 1000:.0f} ms"
    except TimeoutError:
        return f"not served within {NEWCOMER_WITHIN:g} s"
    except penstock.PenstockError as error:
        return str(error).splitlines()[0][:120]


async def until(at: float) -> None:
    await asyncio.sleep(max(0.0, at - time.monotonic()))


async def suffer(attack: Attack, seconds: float, rate: float) -> Row:
    """One attack, from new brokers to the row of the table; whatever fails stands in the row."""
    row = Row(attack.name)
    if attack.full_disk and not (sys.platform == "linux" and shutil.which("prlimit")):
        row.skipped = "needs Linux, for a disk that is full"
        return row
    with tempfile.TemporaryDirectory(prefix="penstock-hostile-") as folder:
        log = Path(folder) / "brokers.log"
        try:
            async with AsyncExitStack() as stack:
                await measure(stack, attack, seconds, rate, row, log)
        except (OSError, penstock.PenstockError) as error:
            row.problems.append(f"{type(error).__name__}: {error}")
        said = log.read_text(errors="replace").splitlines() if log.exists() else []
    row.log_lines = len(said)
    if any("died" in problem for problem in row.problems):
        row.problems += said[-1:]
    row.judge()
    return row


async def measure(stack: AsyncExitStack, attack: Attack, seconds: float, rate: float, row: Row, log: Path) -> None:
    addresses, pid = await start_brokers(stack, attack, log)
    token = os.urandom(8).hex()
    ends = {"publisher": "a", "subscriber": "c"}
    subscriber, publisher = [
        await role(stack, name, {"url": f"penstock://{addresses[ends[name]]}", "name": name, "token": token})
        for name in ("subscriber", "publisher")
    ]
    known = {
        "attack": attack.name,
        "addresses": {name: str(address) for name, address in addresses.items()},
        "numbers": {broker.name: number for number, broker in enumerate(chain_with_spare().broker)},
    }
    attacker = await role(stack, "attacker", known)
    await asyncio.sleep(0.5)  # for the subscription to get from c to a
    tell(publisher, rate=rate)
    began = (await heard(publisher))["began"]
    start = time.monotonic() + 0.5
    phases = {"before": (start, start + BEFORE)}
    phases["during"] = (start + BEFORE, start + BEFORE + seconds)
    phases["after"] = (phases["during"][1] + SETTLE, phases["during"][1] + SETTLE + seconds)

    await until(phases["during"][0])
    used, row.calm_mb = cpu_seconds(pid("b")), memory_mb(pid("b"), "VmRSS")
    tell(attacker, until=phases["during"][1])
    await until(phases["during"][0] + seconds / 2)
    first = asyncio.ensure_future(newcomer(addresses["b"]))
    answer = await heard(attacker)
    row.heard = answer["heard"]
    row.problems += [answer["problem"]] if answer["problem"] else []
    await end(attacker)  # the kernel closes whatever it still held
    row.newcomer["during"] = await first
    await until(phases["after"][0])
    row.newcomer["after"] = await newcomer(addresses["b"])
    await until(phases["after"][1] + LATE_AFTER)
    for name in CHAIN:
        if not Path(f"/proc/{pid(name)}").exists():
            row.problems.append(f"broker {name} died")
    if Path(f"/proc/{pid('b')}").exists():
        row.cpu_seconds, row.peak_mb = cpu_seconds(pid("b")) - used, memory_mb(pid("b"), "VmHWM")
    tell(publisher)
    await heard(publisher)
    tell(subscriber)
    count(row, await heard(subscriber), phases, began, rate)
    reports = await broker_reports(addresses)
    row.problems += [f"broker {name} does not answer" for name in CHAIN if name not in reports]


def count(row: Row, got: dict[str, Any], phases: dict[str, tuple[float, float]], began: float, rate: float) -> None:
    """What arrived, by the numbers that were due in each phase."""
    arrivals: dict[int, float] = {int(number): at for number, at in got["arrivals"]}
    row.forged = got["forged"]

    def due(phase: tuple[float, float]) -> range:
        return range(int((phase[0] - began) * rate), int((phase[1] - began) * rate))

    for name, phase in phases.items():
        wanted = due(phase)
        in_time = sum(
            number in arrivals and arrivals[number] <= began + number / rate + LATE_AFTER for number in wanted
        )
        row.share[name] = in_time / len(wanted)
        row.rate[name] = in_time / (phase[1] - phase[0])
    whole = due((phases["before"][0], phases["after"][1]))
    row.lost = sum(number not in arrivals for number in whole)
    row.late = len(whole) - row.lost
    row.late -= sum(n in arrivals and arrivals[n] <= began + n / rate + LATE_AFTER for n in whole)


# The table.


HEAD = ("attack", "before", "during", "after", "late", "lost", "newcomer", "b, processor s", "b, peak MB", "answered")


def line(row: Row) -> str:
    if row.skipped:
        return "| " + " | ".join([row.attack, *["-"] * (len(HEAD) - 2), f"skipped: {row.skipped}"]) + " |"
    shares = [f"{row.rate.get(p, 0.0):,.0f}/s ({row.share.get(p, 0.0):.1%})" for p in ("before", "during", "after")]
    guests = ", then ".join(row.newcomer.get(phase, "-") for phase in ("during", "after"))
    told = "; ".join([*row.heard, *(f"**{problem}**" for problem in row.problems)]).replace("|", "/")
    cells = [row.attack, *shares, f"{row.late:,}", f"{row.lost:,}", guests, f"{row.cpu_seconds:.1f}"]
    return "| " + " | ".join([*cells, f"{row.calm_mb:,.0f} -> {row.peak_mb:,.0f}", told]) + " |"


def beside(earlier: list[Row], rows: list[Row]) -> str:
    """Two versions side by side, as in docs/benchmarks.md; a cell that differed between repetitions has both ends."""
    head = ["attack", *(f"{what}, {when}" for what in COMPARED for when in ("then", "now"))]
    lines = ["| " + " | ".join(head) + " |", "|---|" + "--:|" * (len(head) - 1)]
    for name in dict.fromkeys(row.attack for row in [*earlier, *rows]):
        then, now = ([row for row in run if row.attack == name and row.share] for run in (earlier, rows))
        cells = zip(compared(then), compared(now), strict=True)
        lines.append("| " + " | ".join([name, *(cell for pair in cells for cell in pair)]) + " |")
    return "\n".join(lines)


COMPARED = ("during %", "after %", "newcomer ms", "processor s", "peak MB")


def compared(runs: list[Row]) -> list[str]:
    """One cell for each of COMPARED."""
    if not runs:
        return ["…"] * len(COMPARED)
    shares = [spread([100 * row.share[phase] for row in runs], ".1f") for phase in ("during", "after")]
    guests = [row.newcomer.get("during", "-") for row in runs]
    served = [float(guest.split()[0]) for guest in guests if guest.endswith(" ms")]
    refused = len(guests) - len(served)
    guest = ", ".join(([spread(served, ".0f")] if served else []) + ([f"{refused} x no"] if refused else []))
    return [*shares, guest, *(spread([getattr(row, w) for row in runs], f) for w, f in MEASURED)]


MEASURED = (("cpu_seconds", ".1f"), ("peak_mb", ",.0f"))


def spread(values: list[float], form: str) -> str:
    low, high = (format(value, form) for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def main() -> int:
    described = "\n".join(f"  {attack.name:<22} {attack.about}" for attack in ATTACKS.values())
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0],
        epilog=f"attacks:\n{described}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--attack", action="append", choices=ATTACKS, metavar="NAME", help="only this one; repeatable")
    parser.add_argument("--seconds", type=float, default=4.0, help="of the attack, and of the phase after it")
    parser.add_argument("--rate", type=float, default=1000.0, help="messages/s of the healthy pair")
    parser.add_argument("--repetitions", type=int, default=1, help="how often all of it")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there as well")
    parser.add_argument("--beside", type=Path, metavar="FILE", help="print what --json wrote earlier beside these")
    options = parser.parse_args()
    earlier = [Row(**row) for row in json.loads(options.beside.read_text())] if options.beside else []
    rows: list[Row] = []
    print("| " + " | ".join(HEAD) + " |\n|---|" + "--:|" * 5 + "---|" + "--:|" * 2 + "---|", flush=True)
    for _ in range(options.repetitions):
        for name in options.attack or ATTACKS:
            rows.append(asyncio.run(suffer(ATTACKS[name], options.seconds, options.rate)))
            print(line(rows[-1]), flush=True)
            if options.json:  # after each, so that a run that is broken off leaves its numbers
                options.json.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")
    if earlier:
        print("\n" + beside(earlier, rows))
    return 1 if any(row.problems for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
