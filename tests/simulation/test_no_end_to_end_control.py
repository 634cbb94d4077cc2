"""Over our own brokers end-to-end control is no part of the product's way: with its default nothing of it is sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from narrow_line import network
from penstock.content.envelope import DATA, FLAG, opened
from penstock.kernel.packet import Packet
from penstock.overlay.node import Node
from penstock.scenario.spec import Scenario, SubscriptionSpec
from penstock.sim.run import simulate
from penstock.transport.config import TransportConfig
from penstock.transport.ledgers.record import decode_data_header
from penstock.transport.wire.control_messages import FEEDBACK


def a_narrow_network(transport: TransportConfig | None) -> Scenario:
    """Readers with order and recovery, before and behind a link that is too narrow for all."""
    scenario = network(100_000.0)
    wanted = SubscriptionSpec(where="x < 2", options={"ordered": True, "recover": True})
    settings: dict[str, Any] = {} if transport is None else {"transport": transport}
    clients = tuple(
        replace(client, services=settings, subscribe=(wanted,) if client.subscribe else ())
        for client in scenario.client
    )
    return replace(scenario, client=clients)


class Wire:
    """What nodes send each other: messages of the transport by kind, and headers with fields of control."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.kinds: Counter[str] = Counter()
        self.with_fields = self.headers = 0
        receive = Node.receive

        def watched(node: Node, packets: Sequence[Packet], **how: Any) -> Any:
            for packet in packets:
                self._saw(packet)
            return receive(node, packets, **how)

        patch.setattr(Node, "receive", watched)

    def _saw(self, packet: Packet) -> None:
        message = packet.carried()
        if message is None or FLAG not in message.attributes:
            return
        self.kinds[str(message.attributes[FLAG])] += 1
        if message.attributes[FLAG] == DATA:
            header, _ = opened(message)
            self.headers += 1
            self.with_fields += decode_data_header(header).control is not None


@pytest.mark.parametrize("transport", [None, TransportConfig()], ids=["nothing said", "transport"])
def test_with_the_products_default_no_header_and_no_message_has_anything_of_it(
    transport: TransportConfig | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = Wire(monkeypatch)
    assert not simulate(a_narrow_network(transport), 1).problems
    assert bool(wire.headers) is (transport is not None), "who says nothing sends messages without any header"
    assert wire.with_fields == 0
    assert FEEDBACK not in wire.kinds


def test_who_asks_for_it_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    wire = Wire(monkeypatch)
    assert not simulate(a_narrow_network(TransportConfig(congestion=True)), 1).problems
    assert wire.with_fields > 0
    assert wire.kinds[FEEDBACK] > 0
