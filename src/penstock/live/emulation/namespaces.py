"""A dumbbell with a real bottleneck: three network namespaces in a row, and `tc tbf` on the way across.

    this process --- [left: broker, TCP sender] --- [middle] === bottleneck === [right: broker, TCP receiver] --- this
    process

Brokers and a kernel TCP run inside; the clients stay here and reach each broker over a pair of its own without a
limit. The middle forwards and does nothing else: a queue on the sender's own device would hold its TCP back before
anything is lost (the kernel lets a connection put only a few packets there). Only the way from left to right is shaped:
a token bucket that queues so many packets and drops the rest, as the simulated link does. There is no added delay (that
needs netem, which many kernels lack), so the round trip is that of the queue, for content and TCP alike.

Needs root and iproute2; `possible` says what is missing. Names carry this process's id. Everything is removed at the
end, and whoever comes next removes what a process left behind that was killed (`sweep`).
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
from pathlib import Path
from types import TracebackType

from penstock.errors import NotPossibleHere

PREFIX = "pnst"
LEFT, RIGHT, MIDDLE = "left", "right", "middle"
SIDES = (LEFT, RIGHT)
BURST_PACKETS = 4
_NAME = re.compile(rf"^{PREFIX}(\d+)[lrm]\b")


def possible() -> None:
    """Raises NotPossibleHere with the reason if this machine cannot do it."""
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if missing:
        raise NotPossibleHere(f"{' and '.join(missing)} not found", "install iproute2")
    if os.geteuid() != 0:
        raise NotPossibleHere("network namespaces need root", "run it as root, or in the simulator without --live")
    if not Path("/proc/self/ns/net").exists():
        raise NotPossibleHere("this kernel has no network namespaces", "run it in the simulator, without --live")


class Dumbbell:
    """The two namespaces; an asynchronous context manager."""

    def __init__(self, *, rate_bits_per_s: float, queue_packets: int, packet_bytes: int) -> None:
        self._rate = round(rate_bits_per_s)
        self._queue_packets = queue_packets
        self._burst_bytes = BURST_PACKETS * packet_bytes
        process = os.getpid()
        self.names = {place: f"{PREFIX}{process}{place[0]}" for place in (*SIDES, MIDDLE)}
        self._devices = {side: f"{PREFIX}{process}{side[0]}" for side in SIDES}  # towards this process
        self._net = 1 + process % 250

    async def __aenter__(self) -> Dumbbell:
        possible()
        await sweep()
        try:
            await self._make()
        except BaseException:
            await self._remove()
            raise
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._remove()

    def inside(self, place: str) -> tuple[str, ...]:
        """What to put before a command so that it runs there."""
        return ("ip", "netns", "exec", self.names[place])

    def from_here(self, side: str) -> str:
        """The address of a side for this process."""
        return f"10.{self._net}.{1 + SIDES.index(side)}.2"

    def across(self, side: str) -> str:
        """The address of a side for the other one."""
        return f"10.{self._net}.{3 + SIDES.index(side)}.2"

    async def carried_bytes(self) -> tuple[int, int]:
        """What the bottleneck has carried so far, in bytes, and how many packets it dropped."""
        found = json.loads(await _call(*self.inside(MIDDLE), "tc", "-s", "-j", "qdisc", "show", "dev", RIGHT))
        root = next(queue for queue in found if queue["kind"] == "tbf")
        return root["bytes"], root["drops"]

    async def set_rate(self, rate_bits_per_s: float) -> None:
        """The bottleneck has this rate from now on."""
        self._rate = round(rate_bits_per_s)
        await _call(*self.inside(MIDDLE), "tc", "qdisc", "change", "dev", RIGHT, *self._bucket())

    def _bucket(self) -> tuple[str, ...]:
        limits = ("burst", f"{self._burst_bytes}", "limit", "1000000")
        return ("root", "handle", "1:", "tbf", "rate", f"{self._rate}bit", *limits)

    async def _make(self) -> None:
        for name in self.names.values():
            await _call("ip", "netns", "add", name)
        forward = "echo 1 > /proc/sys/net/ipv4/ip_forward"
        await _call(*self.inside(MIDDLE), "sh", "-c", forward)
        for side in SIDES:
            await self._join(side)
        for side, other in (SIDES, SIDES[::-1]):
            gateway = self.across(side)[:-1] + "1"
            await _call(*self.inside(side), "ip", "route", "add", f"{self.across(other)}/32", "via", gateway)
        # The bucket's own queue counts bytes, and then the larger of two packets finds no room where the other does.
        add = (*self.inside(MIDDLE), "tc", "qdisc", "add", "dev", RIGHT)
        await _call(*add, *self._bucket())
        await _call(*add, "parent", "1:1", "pfifo", "limit", f"{self._queue_packets}")

    async def _join(self, side: str) -> None:
        """A side to this process, and to the middle."""
        device, name, middle = self._devices[side], self.names[side], self.names[MIDDLE]
        await _call("ip", "link", "add", device, "type", "veth", "peer", "name", "home", "netns", name)
        await _call("ip", "address", "add", self.from_here(side)[:-1] + "1/30", "dev", device)
        await _call("ip", "link", "set", device, "up")
        pair = ("across", "netns", name, "type", "veth", "peer", "name", side, "netns", middle)
        await _call("ip", "link", "add", *pair)
        gateway = self.across(side)[:-1] + "1"
        ends = ((side, "home", self.from_here(side)), (side, "across", self.across(side)), (MIDDLE, side, gateway))
        for place, what, address in ends:
            await _call(*self.inside(place), "ip", "address", "add", f"{address}/30", "dev", what)
            # One packet is one packet: no aggregates that the bucket would have to take apart.
            await _call(*self.inside(place), "ip", "link", "set", what, "gso_max_segs", "1", "up")
        await _call(*self.inside(side), "ip", "link", "set", "lo", "up")

    async def _remove(self) -> None:
        for device in self._devices.values():
            # They would go with their namespaces, but some time later, and the next run has the same names.
            await _quietly("ip", "link", "delete", device)
        for name in self.names.values():
            await _remove(name)


async def sweep() -> None:
    """Remove what processes left behind that are no more."""
    listed = await _call("ip", "netns", "list")
    for line in listed.splitlines():
        found = _NAME.match(line)
        if found and not Path(f"/proc/{found[1]}").exists():
            await _remove(line.split()[0])


async def _remove(name: str) -> None:
    """A namespace takes its devices with it, and with them their other ends."""
    await _quietly("ip", "netns", "delete", name)


async def _quietly(*command: str) -> None:
    """Whether it succeeds or not."""
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*command, stdout=quiet, stderr=quiet)
    await process.wait()


async def _call(*command: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, problem = await process.communicate()
    if process.returncode:
        words = problem.decode(errors="replace").strip().splitlines()
        raise NotPossibleHere(
            f"'{' '.join(command)}' failed: {words[0] if words else process.returncode}",
            "network namespaces need root and a kernel that has them",
        )
    return out.decode()
