"""For tests: brokers in a row with a stream at the first, clients that publish and read, all pumped by hand."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from penstock.kernel.link import Link, LinkInfo
from penstock.kernel.machine import Outcome, Reported
from penstock.overlay.assembly import NodeConfig
from penstock.services import options, publication_options
from penstock.streams.client_service import StreamClient
from penstock.streams.config import StreamsClientConfig, StreamsConfig
from penstock.testing import ClientMachine, Pump, a_broker, a_client, a_message, broker_name

STREAM, PUBEND = "orders", "orders/0"


class StreamRow:
    """Brokers b0 (with the pubend), b1, ... in a row; the last one is the edge."""

    def __init__(self, brokers: int = 3, *, declared: bool = True, **settings: Any) -> None:
        self.pump = Pump()
        self.edge = broker_name(brokers - 1)
        streams = {STREAM: ("b0",)} if declared else {}
        self._config = NodeConfig(services={"streams": StreamsConfig(declared=streams, **settings)})
        self._links: dict[str, dict[Link, LinkInfo]] = {}
        self._lives: dict[str, int] = {}
        self._tickets = 100
        names = [broker_name(number) for number in range(brokers)]
        self._links.update({name: {} for name in names})
        for a, b in pairwise(names):
            self._describe(a, b)
        for name in names:
            self.start(name)
        for a, b in pairwise(names):
            self.pump.connect(a, b)
        self.pump.advance(4.0)

    # Nodes.

    def start(self, broker: str) -> None:
        """A new life of this broker, with the disk of the one before."""
        self._lives[broker] = self._lives.get(broker, 0) + 1
        number = int(broker.removeprefix("b"))
        node = a_broker(number, self._lives[broker], links=self._links[broker], config=self._config)
        self.pump.add(broker, node)

    def crash(self, broker: str) -> None:
        """The broker dies with everything under way to it and from it, and starts again at once."""
        self.pump.drop_where(lambda flight: broker in (flight.sender, flight.receiver))
        for neighbour in self.neighbours(broker):
            self.pump.link_changed(neighbour, self.pump.link(neighbour, broker), up=False)
        self.start(broker)
        for neighbour in self.neighbours(broker):
            self.pump.link_changed(neighbour, self.pump.link(neighbour, broker), up=True)

    def neighbours(self, node: str) -> list[str]:
        return [info.peer for info in self._links[node].values()]

    def client(self, name: str, broker: str, **settings: Any) -> ClientMachine:
        """A client at a broker; the settings are those of streams."""
        self._describe(name, broker)
        config = {"streams": StreamsClientConfig(**settings)}
        node = a_client(name, links=self._links[name], settings=config)
        self.pump.add(name, node)
        self.pump.connect(name, broker)
        self.pump.run()
        return node

    def _describe(self, a: str, b: str) -> None:
        """Each end gets a number for the link, as the pump will give it."""
        for node, peer in ((a, b), (b, a)):
            links = self._links.setdefault(node, {})
            links[len(links)] = LinkInfo(peer=peer)

    # Applications.

    def read(self, client: ClientMachine, name: str, where: str, *, durable: str = "billing", **more: Any) -> None:
        """Begin a durable subscription, number 1 of this client; nothing is handed over yet."""
        asked = options({"stream": STREAM, "durable": durable, **more})
        self.pump.apply(name, client.subscribe(1, where, asked, ticket=self._ticket(), now=self.pump.now))

    def publish(self, client: ClientMachine, name: str, count: int, **attributes: Any) -> int:
        """Publish a message; nothing is handed over yet. Returns the ticket."""
        asked = options({"stream": STREAM}, publication_options())
        message = a_message(count, {"n": count, **attributes}, publisher=name)
        ticket = self._ticket()
        self.pump.apply(name, client.publish_all((message,), asked, tickets=(ticket,), now=self.pump.now))
        return ticket

    def add(self, client: ClientMachine, name: str) -> None:
        """Make the stream by command; nothing is handed over yet."""
        machine = client.node.machine(StreamClient)
        made = machine.command("add", STREAM, {"at": ["b0"]}, ticket=self._ticket(), now=self.pump.now)
        self.pump.apply(name, client.node.route(made))

    def take(self, client: ClientMachine, name: str, count: int) -> None:
        """The application takes so many of the messages that came."""
        machine = client.node.machine(StreamClient)
        self.pump.apply(name, client.node.route(machine.taken(1, count, now=self.pump.now)))

    def _ticket(self) -> int:
        self._tickets += 1
        return self._tickets

    # What came of it.

    def outcome(self, ticket: int) -> Outcome | None:
        return next((done.outcome for _, done in self.pump.done if done.ticket == ticket), None)

    def stored(self, ticket: int) -> int:
        """The tick under which the message of this ticket is on disk; 0: the publisher was not answered."""
        outcome = self.outcome(ticket)
        return int(outcome.report["tick"]) if isinstance(outcome, Reported) else 0

    def got(self, name: str) -> list[Any]:
        """The numbers of the messages that an application got, in order."""
        return [message.attributes["n"] for _, message in self.pump.got(name)]
