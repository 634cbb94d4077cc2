"""Which links of a scenario need a link emulator in real time, and those emulators.

A datagram link with `loss` or `jitter` gets one (`link_emulator`), in the process that runs the scenario. Loss is as in
the simulator. Jitter is not quite: there the delay wanders slowly and parallel workers in brokers put messages out of
order; here brokers have no parallel workers, so each datagram has a delay of its own within plus and minus the jitter,
and overtaking happens on the link. An emulator can only add to a delay, so the brokers add the link's delay less the
jitter, and the emulator up to twice the jitter; TCP gets the brokers' part alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from types import TracebackType

from msgspec.structs import replace

from penstock.live.emulation.link_emulator import Impairment, LinkEmulator
from penstock.live.wire.addresses import Address
from penstock.scenario.spec import LinkSpec, Scenario


def needs_emulator(link: LinkSpec) -> bool:
    """Whether real time cannot do what the file says without one."""
    return link.kind == "datagram" and (link.loss > 0.0 or link.jitter > 0.0)


class EmulatedLinks:
    """The link emulators of a scenario, all open or none; an asynchronous context manager.

    `scenario` is what the brokers must be given, and `via` says whom they dial instead: (dialer, dialled) -> address.
    """

    def __init__(self, scenario: Scenario, addresses: Mapping[str, Address], seed: int) -> None:
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
        for (dialer, dialled), emulator in self.emulators.items():
            for sender, receiver, path in ((dialer, dialled, emulator.forth), (dialled, dialer, emulator.back)):
                found[sender, receiver, "pipe", "lost on the wire"] = path.lost
                found[sender, receiver, "pipe", "emulator full"] = path.overflowed
                found[sender, receiver, "pipe", "nobody there yet"] = path.astray
        return {place: count for place, count in found.items() if count}


def _shortened(link: LinkSpec) -> LinkSpec:
    return replace(link, delay=link.delay - link.jitter) if needs_emulator(link) else link
