"""What does an application see of a link that loses packets? Run as root: `python bench/lossy_link.py [--quick]`.

Two network namespaces with a TUN device each; this process carries IP packets between the two, loses some of them at
random, and delivers the rest 10 ms later. All systems cross the same wire: TCP's segments are lost as datagrams are.
A publisher on the left sends 100 messages/s of 200 B; a subscriber on the right receives them. What stands between:

    penstock           a broker on each side, joined by a datagram link that repairs itself, as all do; no transport
    penstock recover   the same with `recover=True`; both are product defaults
    penstock ordered   the same with `ordered=True` besides
    bare link          as the first, with a link that does not repair itself
    ends alone         as the second, over such a link
    nats               nats-server on the left, the subscriber's connection crosses the link (core, at most once)
    zenoh              two peers over TCP, reliable, blocking when congested
    mqtt               amqtt on the left, paho clients with quality of service 1

"Lost" is the share of messages that the subscriber never got, QUIET seconds after the last one came; "delay" runs from
publish() to the application, of what came. Systems take turns; medians of the rounds count. A system that is not
installed is left out (`pip install penstock[bench]`). Needs root, iproute2 and /dev/net/tun.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import fcntl
import json
import os
import shutil
import statistics
import struct
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

from throughput import STEP_WITHIN, end, heard, tell

ROLES = Path(__file__).with_name("lossy_roles.py")
SIDES = {"left": "10.77.0.1", "right": "10.77.0.2"}
DEVICE = "lossy"
DELAY, RATE, SIZE, QUIET = 0.010, 100.0, 200, 5.0
SYSTEMS: dict[str, tuple[str, dict[str, Any], str]] = {  # name -> role's system, options, module that it needs
    "penstock": ("penstock", {}, "penstock"),
    "penstock recover": ("penstock", {"recover": True}, "penstock"),
    "penstock ordered": ("penstock", {"recover": True, "ordered": True}, "penstock"),
    "bare link": ("penstock", {"repair": False}, "penstock"),
    "ends alone": ("penstock", {"recover": True, "repair": False}, "penstock"),
    "nats": ("nats", {"filters": 1}, "nats"),
    "zenoh": ("zenoh", {"filters": 1}, "zenoh"),
    "mqtt": ("mqtt", {}, "paho"),
}
NETWORK = """
name = "lossy"
[[broker]]
name = "left"
listen = "10.77.0.1:7420"
[[broker]]
name = "right"
listen = "10.77.0.2:7420"
[[link]]
between = ["left", "right"]
kind = "datagram"
"""
AMQTT = """
listeners: {default: {type: tcp, bind: 10.77.0.1:1883}}
plugins: {amqtt.plugins.authentication.AnonymousAuthPlugin: {allow_anonymous: true}}
"""


class LossyWire:
    """Both namespaces and the relay between their TUN devices; an asynchronous context manager."""

    def __init__(self, loss: float, seed: int) -> None:
        self.names = {side: f"pnst{os.getpid()}{side[0]}" for side in SIDES}
        self.packets = self.lost = 0
        self._loss = loss
        self._random = Random(seed)
        self._devices: dict[str, int] = {}

    def inside(self, side: str) -> tuple[str, ...]:
        """What to put before a command so that it runs there."""
        return ("ip", "netns", "exec", self.names[side])

    async def __aenter__(self) -> LossyWire:
        try:
            for side, address in SIDES.items():
                await call("ip", "netns", "add", self.names[side])
                self._devices[side] = _tun(self.names[side])
                await call(*self.inside(side), "ip", "address", "add", f"{address}/24", "dev", DEVICE)
                for device in (DEVICE, "lo"):
                    await call(*self.inside(side), "ip", "link", "set", device, "up")
        except BaseException:
            await self.__aexit__()
            raise
        loop = asyncio.get_running_loop()
        for side, other in (("left", "right"), ("right", "left")):
            loop.add_reader(self._devices[side], self._carry, self._devices[side], self._devices[other])
        return self

    async def __aexit__(self, *_: object) -> None:
        for device in self._devices.values():
            asyncio.get_running_loop().remove_reader(device)
            os.close(device)
        for name in self.names.values():
            await call("ip", "netns", "delete", name)

    def _carry(self, source: int, target: int) -> None:
        packet = os.read(source, 65_536)
        self.packets += 1
        if self._random.random() < self._loss:
            self.lost += 1
        else:
            asyncio.get_running_loop().call_later(DELAY, _put, target, packet)


def _put(device: int, packet: bytes) -> None:
    with suppress(OSError):  # the measurement is over
        os.write(device, packet)


def _tun(namespace: str) -> int:
    """A TUN device in this namespace, as a file."""
    with _in_namespace(namespace):
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        tun_without_header = 0x1001
        fcntl.ioctl(device, 0x400454CA, struct.pack("16sH22x", DEVICE.encode(), tun_without_header))
    return device


@contextmanager
def _in_namespace(name: str) -> Iterator[None]:
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/thread-self/ns/net") as here, open(f"/run/netns/{name}") as there:
        if libc.setns(there.fileno(), 0):
            raise OSError(ctypes.get_errno(), f"cannot enter the namespace {name}")
        try:
            yield
        finally:
            libc.setns(here.fileno(), 0)


async def call(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(*command)
    if await process.wait():
        raise SystemExit(f"failed: {' '.join(command)}")


async def started(stack: AsyncExitStack, wire: LossyWire, side: str, *command: str) -> asyncio.subprocess.Process:
    """A process on one side of the wire, which is ended with the stack."""
    quiet = None if "-v" in sys.argv else asyncio.subprocess.DEVNULL
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *wire.inside(side), *command, stdin=pipe, stdout=pipe if str(ROLES) in command else quiet, stderr=quiet
    )
    stack.push_async_callback(_ended, process, str(ROLES) in command)
    return process


async def _ended(process: asyncio.subprocess.Process, by_stdin: bool) -> None:
    if by_stdin:
        await end(process)
    elif process.returncode is None:
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), 10)
        except TimeoutError:
            process.kill()
            await process.wait()


async def between(
    stack: AsyncExitStack, wire: LossyWire, system: str, options: dict[str, Any], folder: Path
) -> dict[str, str]:
    """What stands between the ends, if anything; says where each end finds it."""
    left = SIDES["left"]
    if system == "zenoh":
        return dict.fromkeys(SIDES, f"tcp/{left}:7447")
    if system == "penstock":
        network = folder / "lossy.toml"
        network.write_text(NETWORK if options.get("repair", True) else NETWORK + "repair = false\n")
        for side in SIDES:
            await started(
                stack, wire, side, sys.executable, "-P", "-m", "penstock", "broker", side, "--network", str(network)
            )
        found = {side: f"penstock://{address}:7420" for side, address in SIDES.items()}
    elif system == "nats":
        server = str(Path(sys.executable).with_name("nats-server"))
        if not Path(server).exists():
            server = shutil.which("nats-server") or server
        await started(stack, wire, "left", server, "-a", left, "-p", "4222")
        found = dict.fromkeys(SIDES, f"nats://{left}:4222")
    else:
        config = folder / "amqtt.yaml"
        config.write_text(AMQTT)
        await started(stack, wire, "left", str(Path(sys.executable).with_name("amqtt")), "-c", str(config))
        found = dict.fromkeys(SIDES, f"{left}:1883")
    await asyncio.sleep(4.0)  # until it listens, and brokers know each other
    return found


async def measured(name: str, loss: float, count: int, seed: int) -> dict[str, Any]:
    """One system over one wire."""
    system, options, _ = SYSTEMS[name]
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        wire = await stack.enter_async_context(LossyWire(loss, seed))
        where = await between(stack, wire, system, options, folder)
        ends = {}
        for role, side in (("publisher", "left"), ("subscriber", "right")):
            command = (sys.executable, str(ROLES), role, system, where[side], json.dumps(options))
            ends[role] = await started(stack, wire, side, *command)
            await heard(ends[role])
        await asyncio.sleep(3.0)  # until the subscription is known
        tell(ends["publisher"], count=count, rate=RATE, size=SIZE)
        sent = (await heard(ends["publisher"]))["sent"]
        tell(ends["subscriber"], quiet=QUIET)
        got = await heard(ends["subscriber"])
    delays = sorted(got["delays"]) or [float("nan")]
    return {
        "lost_percent": 100.0 * (1.0 - got["received"] / sent),
        "delay_p50_ms": 1e3 * delays[len(delays) // 2],
        "delay_p99_ms": 1e3 * delays[len(delays) * 99 // 100],
        "delay_max_ms": 1e3 * delays[-1],
        "wire_packets_per_message": wire.packets / sent,
    }


async def main_async(losses: list[float], count: int, rounds: int, chosen: list[str]) -> list[dict[str, Any]]:
    rows = []
    for loss in losses:
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in chosen}
        for number in range(rounds):
            for name in chosen:
                try:
                    async with asyncio.timeout(STEP_WITHIN + count / RATE):
                        found[name].append(await measured(name, loss, count, number))
                except TimeoutError:
                    print(f"{name} did not finish at {100 * loss:g} % loss", file=sys.stderr)
        for name, runs in found.items():
            if runs:
                row = {what: round(statistics.median(run[what] for run in runs), 2) for what in runs[0]}
                rows.append({"loss_percent": 100 * loss, "system": name, **row})
                print(rows[-1], file=sys.stderr, flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short round at one loss, to see whether it runs")
    parser.add_argument("--only", choices=SYSTEMS, action="append", help="these systems alone")
    parser.add_argument("--rounds", type=int, help="how often each is measured")
    parser.add_argument("--count", type=int, help="messages in each measurement")
    parser.add_argument("--json", type=Path, help="also write all rows to this file")
    parser.add_argument("-v", action="store_true", help="let servers and roles say what they say")
    options = parser.parse_args()
    chosen = [name for name in options.only or SYSTEMS if find_spec(SYSTEMS[name][2]) is not None]
    losses, count, rounds = ([0.05], 500, 1) if options.quick else ([0.0, 0.01, 0.05, 0.15], 2_000, 3)
    rows = asyncio.run(main_async(losses, options.count or count, options.rounds or rounds, chosen))
    if not rows:
        raise SystemExit("nothing could be measured")
    print("| " + " | ".join(rows[0]) + " |\n|" + "---|" * len(rows[0]))
    for row in rows:
        print("| " + " | ".join(str(value) for value in row.values()) + " |")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
