"""One broker as a process that a parent started: orders come on stdin, one line of JSON each way.

    parent -> child   what to run (Orders); when stdin ends, the parent is gone, and the broker stops too
    child -> parent   {"listen": "127.0.0.1:7420"} once it listens, or {"problem": ..., "remedy": ...}

So nothing is left running when a parent is killed, and no port or path has to fit a command line. That says `broker`
and the broker's name, for those who look at it in `ps`; nobody reads it here. SIGTERM stops the broker cleanly; SIGINT
is ignored, because Ctrl-C is the parent's to handle.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from penstock.errors import NotPossibleHere
from penstock.live.broker.plan import plan_for
from penstock.live.broker.server import BrokerServer
from penstock.live.broker.status import drops_status
from penstock.live.event_loop import run, warn_of_failed_accepts
from penstock.live.process_name import call_process
from penstock.live.store.place import place_of
from penstock.live.trace import open_trace
from penstock.live.wire.addresses import parse_address
from penstock.scenario.spec import Scenario

NOT_POSSIBLE = 4


class Orders(Struct, frozen=True, kw_only=True):
    """What a broker process is told to do."""

    name: str
    scenario: Scenario
    addresses: dict[str, str]
    trace: str | None = None  # the folder of the run
    data: str | None = None  # where services keep what must survive a crash: a folder, or a URL
    began: float = 0.0  # wall clock at the run's time 0
    verbose: bool = False


async def serve(orders: Orders, reader: asyncio.StreamReader) -> int:
    """Run a broker until SIGTERM, or until the parent is gone."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    warn_of_failed_accepts(logging.getLogger("penstock.broker"), orders.name)
    plan = plan_for(orders.scenario, orders.name, {name: parse_address(at) for name, at in orders.addresses.items()})
    try:
        trace = None
        if orders.trace is not None:
            trace = open_trace(Path(orders.trace), f"{orders.name}-{time.time_ns() // 1_000_000}", began=orders.began)
        data = place_of(orders.data) if orders.data is not None else None
        server = BrokerServer(plan, trace=trace, data=data)
        await server.start()
    except NotPossibleHere as error:
        _say({"problem": error.problem, "remedy": error.remedy})
        return NOT_POSSIBLE
    _say({"listen": str(server.address)})
    parent = loop.create_task(_until_end(reader))
    parent.add_done_callback(lambda _: stop.set())
    await stop.wait()
    parent.cancel()
    await server.stop()
    _say({"drops": drops_status(server.host)})
    return 0


async def main() -> int:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    reader = asyncio.StreamReader(limit=64 << 20)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    line = await reader.readline()
    if not line:
        return 0  # the parent has given up before it said anything
    orders = msgspec.json.decode(line, type=Orders)
    call_process(f"penstock {orders.name}")
    logging.basicConfig(level=logging.INFO if orders.verbose else logging.WARNING, format="%(message)s")
    return await serve(orders, reader)


async def _until_end(reader: asyncio.StreamReader) -> None:
    while await reader.read(4096):
        pass


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(run(main()))
