"""A row of brokers with retrieval, a writer at one end and a reader at the other, driven by hand."""

from __future__ import annotations

from typing import Any

from penstock.content.message import Identity, make_message
from penstock.kernel.trace import Dropped
from penstock.overlay.assembly import NodeConfig
from penstock.overlay.node import Node
from penstock.retrieval.broker_service import RetrievalBroker
from penstock.retrieval.client_service import RetrievalClient
from penstock.retrieval.config import RetrievalConfig
from penstock.services import options
from penstock.testing import ClientMachine, Pump, attach, broker_network, publish

NEWS = {"topic": "news"}


def a_network(brokers: int = 2, **config: Any) -> Pump:
    """A row of brokers, a writer w at the first and a reader r at the last."""
    node = NodeConfig(services={"retrieval": RetrievalConfig(**config)})
    edges = [(number, number + 1) for number in range(brokers - 1)]
    pump = broker_network(edges, config=node, numbers=brokers)
    attach(pump, "w", "b0")
    attach(pump, "r", f"b{brokers - 1}")
    return pump


def write(pump: Pump, *counts: int, **attributes: Any) -> None:
    for count in counts:
        publish(pump, "w", make_message(Identity("w", 1, count), {**NEWS, **attributes}), ticket=1_000 + count)
        pump.run()


def ask(pump: Pump, number: int = 1, client: str = "r", where: str = "topic = 'news'", **terms: Any) -> None:
    node = pump.machines[client]
    assert isinstance(node, ClientMachine)
    pump.apply(client, node.subscribe(number, where, options(terms), ticket=number, now=pump.now))
    pump.run()


def got(pump: Pump, client: str = "r", number: int = 1) -> list[int]:
    return [message.identity.count for found, message in pump.got(client) if found == number]


def service(pump: Pump, broker: str) -> RetrievalBroker:
    node = pump.machines[broker]
    assert isinstance(node, Node)
    return node.machine(RetrievalBroker)


def retriever(pump: Pump, client: str = "r") -> RetrievalClient:
    node = pump.machines[client]
    assert isinstance(node, ClientMachine)
    return node.node.machine(RetrievalClient)


def outcome(pump: Pump, ticket: int, client: str = "r") -> Any:
    return next(done.outcome for owner, done in pump.done if owner == client and done.ticket == ticket)


def drops(pump: Pump, broker: str) -> list[str]:
    return [one.cause for one in pump.records_of(broker, Dropped)]  # type: ignore[attr-defined]
