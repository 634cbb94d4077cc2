"""Which links of a scenario need a link emulator in real time, and those emulators.

A datagram link with `loss` or `jitter` gets one (`link_emulator`), in the process that runs the scenario. Loss is as in
the simulator. Jitter is not quite: there the delay wanders slowly and parallel workers in brokers put messages out of
order; here brokers have no parallel workers, so each datagram has a delay of its own within plus and minus the jitter,
and overtaking happens on the link. An emulator can only add to a delay, so the brokers add the link's delay less the
jitter, and the emulator up to twice the jitter; TCP gets the brokers' part alone.

What an emulator drops goes into the trace as the simulator's wires would have it: a record for each packet, by the
broker that sent it. Otherwise the pipeline would know of fewer losses than there were.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from types import TracebackType

from msgspec.structs import replace

from penstock.errors import InvalidPacket
from penstock.kernel.packet import Lane
from penstock.kernel.trace import Trace, dropped_record
from penstock.live.emulation.link_emulator import ASTRAY, LOST, OVERFLOWED, EmulatedPath, Impairment, LinkEmulator
from penstock.live.host import CLOCK_OFFSET
from penstock.live.wire.addresses import Address
from penstock.live.wire.udp import HEAD_BYTES
from penstock.overlay.egress import dropped
from penstock.scenario.spec import LinkSpec, Scenario
from penstock.services import codec


def needs_emulator(link: LinkSpec) -> bool:
    """Whether real time cannot do what the file says without one."""
    return link.kind == "datagram" and (link.loss > 0.0 or link.jitter > 0.0)


class EmulatedLinks:
    """The link emulators of a scenario, all open or none; an asynchronous context manager.

    `scenario` is what the brokers must be given, and `via` says whom they dial instead: (dialer, dialled) -> address.
    With a `trace` every packet that is dropped leaves a record.
    """

    def __init__(
        self, scenario: Scenario, addresses: Mapping[str, Address], seed: int, *, trace: Trace | None = None
    ) -> None:
        self.scenario = replace(scenario, link=tuple(map(_shortened, scenario.link)))
        self.via: dict[tuple[str, str], Address] = {}
        self.emulators = {
            link.between: LinkEmulator(
                addresses[link.between[1]],
                Impairment(loss=link.loss, jitter=2.0 * link.jitter),
                seed=seed,
                name=f"{link.between[0]} {link.between[1]}",
            )
            for link in scenario.link
            if needs_emulator(link)
        }
        if trace is not None:
            for sender, receiver, path in self._paths():
                path.on_drop = _recorder(trace, sender, receiver)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> EmulatedLinks:
        async with AsyncExitStack() as stack:
            for pair, emulator in self.emulators.items():
                self.via[pair] = (await stack.enter_async_context(emulator)).address
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    def drops(self) -> dict[tuple[str, str, str, str], int]:
        """(sender, receiver, place, cause) -> datagrams that did not get through."""
        found = {}
        for sender, receiver, path in self._paths():
            for cause, count in ((LOST, path.lost), (OVERFLOWED, path.overflowed), (ASTRAY, path.astray)):
                found[sender, receiver, "pipe", cause] = count
        return {place: count for place, count in found.items() if count}

    def _paths(self) -> list[tuple[str, str, EmulatedPath]]:
        """(sender, receiver, the path between them)."""
        return [
            way
            for (dialer, dialled), emulator in self.emulators.items()
            for way in ((dialer, dialled, emulator.forth), (dialled, dialer, emulator.back))
        ]


def _recorder(trace: Trace, sender: str, receiver: str) -> Callable[[bytes, str], None]:
    """Writes what became of a datagram, a record for each of its packets."""
    decoder = codec()

    def record(data: bytes, cause: str) -> None:
        now = CLOCK_OFFSET + time.monotonic()
        try:
            packets = decoder.decode_batch(memoryview(data)[HEAD_BYTES:])
        except InvalidPacket:  # from somebody else; it is lost all the same
            trace.write(now, sender, dropped_record("pipe", cause, receiver, Lane.BEST_EFFORT, "datagram", None, 0))
            return
        for packet in packets:
            trace.write(now, sender, dropped("pipe", cause, receiver, packet.travels_in(), packet))

    return record


def _shortened(link: LinkSpec) -> LinkSpec:
    return replace(link, delay=link.delay - link.jitter) if needs_emulator(link) else link
