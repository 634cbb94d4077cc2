"""Which links of a scenario need a link emulator in real time, and those emulators.

A datagram link with `loss` or `jitter` gets one (`link_emulator`), in the process that runs the scenario. Loss is as in
the simulator. Jitter is not quite: there the delay wanders slowly and parallel workers in brokers put messages out of
order; here brokers have no parallel workers, so each datagram has a delay of its own within plus and minus the jitter,
and overtaking happens on the link. An emulator can only add to a delay, so the brokers add the link's delay less the
jitter, and the emulator up to twice the jitter; TCP gets the brokers' part alone.

What a link loses is counted and written to the trace packet by packet, as the simulator does it, in the name of the
broker that sent it: no broker sees it. On links that repair themselves a loss is written when no copy has got through
in time (`AwaitedCopies`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from types import TracebackType

from msgspec.structs import replace

from penstock.errors import InvalidPacket
from penstock.kernel.trace import Dropped, Trace, dropped_record
from penstock.live.emulation.awaited_copies import AwaitedCopies
from penstock.live.emulation.link_emulator import EmulatedPath, Impairment, LinkEmulator
from penstock.live.host import node_time
from penstock.live.wire.addresses import Address
from penstock.live.wire.udp import CONTROL_BIT, HEAD_BYTES
from penstock.overlay.egress import dropped
from penstock.scenario.spec import LinkSpec, Scenario
from penstock.services import codec


def needs_emulator(link: LinkSpec) -> bool:
    """Whether real time cannot do what the file says without one."""
    return link.kind == "datagram" and (link.loss > 0.0 or link.jitter > 0.0)


class EmulatedLinks:
    """The link emulators of a scenario, all open or none; an asynchronous context manager.

    `scenario` is what the brokers must be given, and `via` says whom they dial instead: (dialer, dialled) -> address.
    """

    def __init__(
        self, scenario: Scenario, addresses: Mapping[str, Address], seed: int, *, trace: Trace | None = None
    ) -> None:
        self.scenario = replace(scenario, link=tuple(map(_shortened, scenario.link)))
        self.via: dict[tuple[str, str], Address] = {}
        self.emulators = {
            link.between: LinkEmulator(
                addresses[link.between[1]],
                Impairment(loss=link.loss, loss_burst=link.loss_burst, jitter=2.0 * link.jitter),
                seed=seed,
                name=f"{link.between[0]} {link.between[1]}",
            )
            for link in scenario.link
            if needs_emulator(link)
        }
        self._awaited: list[AwaitedCopies] = []
        repaired = {link.between: link.repair for link in scenario.link}
        for (dialer, dialled), emulator in self.emulators.items():
            self._watch(emulator.forth, partial(self._dropped, dialer, dialled), repaired[dialer, dialled])
            self._watch(emulator.back, partial(self._dropped, dialled, dialer), repaired[dialer, dialled])
        self.messages_lost: Counter[tuple[str, str]] = Counter()  # by sender and receiver
        self._drops: Counter[tuple[str, str, str, str]] = Counter()
        self._trace = trace
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
        for awaited in self._awaited:
            awaited.close()

    def drops(self) -> dict[tuple[str, str, str, str], int]:
        """(sender, receiver, place, cause) -> packets that did not get through."""
        return dict(self._drops)

    def _watch(self, path: EmulatedPath, dropped: Callable[[str, bytes], None], repaired: bool) -> None:
        """Hear what does not get through."""
        if repaired:
            awaited = AwaitedCopies(dropped)
            self._awaited.append(awaited)
            path.on_drop, path.on_pass = awaited.dropped, awaited.passed
        else:
            path.on_drop = dropped

    def _dropped(self, sender: str, receiver: str, cause: str, data: bytes) -> None:
        """A datagram that this broker sent ended on the wire."""
        for record in _records(receiver, cause, data):
            self._drops[sender, record.peer, record.place, record.cause] += 1
            if record.destinations:  # and not link control, which nobody misses
                self.messages_lost[sender, receiver] += 1
            if self._trace is not None:
                self._trace.write(node_time(), sender, record)


def _records(receiver: str, cause: str, data: bytes) -> list[Dropped]:
    """A record for each packet in a datagram."""
    head = int.from_bytes(data[8:HEAD_BYTES], "big")
    if head & CONTROL_BIT:
        return [dropped_record("pipe", cause, receiver, 0, "LinkControl", None, 0)]
    try:
        packets = codec().decode_batch(memoryview(data)[HEAD_BYTES:])
    except InvalidPacket:
        return [dropped_record("pipe", cause, receiver, 0, "datagram", None, 1)]
    return [dropped("pipe", cause, receiver, packet.travels_in(), packet) for packet in packets]


def _shortened(link: LinkSpec) -> LinkSpec:
    return replace(link, delay=link.delay - link.jitter) if needs_emulator(link) else link
