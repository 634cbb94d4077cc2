"""Asking the whole network who slows whom, in real time.

The question is asked three times while we listen, because it, or an answer, may be lost. The first time is not at once:
a client that has just connected has an inbox that far brokers learn of a moment later than of the question (changes of
interest are gathered for a short while), and the answer would find no way.

A publisher answers the same asker once per second. So a lost answer comes again only if we listen for about three
seconds or longer; a lost question is made up for in any case.
"""

from __future__ import annotations

import asyncio

from penstock.live.host import LiveHost
from penstock.overlay.node import Node
from penstock.transport.client_service import TransportClient
from penstock.transport.flow_query import Slowdown

ASKED_AT = (0.1, 0.45, 0.8)  # shares of the time in which we listen


async def ask_slowed(host: LiveHost, node: Node, within: float) -> list[Slowdown]:
    """All flows that are limited, as far as their publishers answered within so many seconds."""
    service = node.machine(TransportClient)
    query, began, waited = service.transport.flow_query, host.now(), 0.0
    for share in ASKED_AT:
        await asyncio.sleep((share - waited) * within)
        waited = share
        host.apply(node.route(service.carried_out(query.ask(host.now()))))
    await asyncio.sleep((1.0 - waited) * within)
    return query.found(began)
