"""Brokers that price content, pumped by hand, for tests."""

from __future__ import annotations

from typing import Any

from penstock.content.message import Attributes, Identity, make_message
from penstock.kernel.link import LinkInfo, LinkKind
from penstock.kernel.machine import Accepted, Done, Reported
from penstock.kernel.trace import Dropped
from penstock.overlay.assembly import Life, broker_node
from penstock.overlay.link_reports import ReportsConfig
from penstock.overlay.node import Node
from penstock.pricing.broker_service import PricedBroker
from penstock.pricing.client_service import PricedClient
from penstock.pricing.config import PricedClass, PricingConfig
from penstock.pricing.packets import Bought, PricedPublication
from penstock.pricing.records import MessageBought
from penstock.pricing.status import PriceReport
from penstock.scenario.node_config import broker_config
from penstock.scenario.spec import LaneSpec, Scenario
from penstock.services import services
from penstock.testing import ClientMachine, Flight, Pump, attach

FREIGHT = PricedClass(where="topic = 'freight'")
INTERVAL = 0.1
PRICES_TICKET = 9_001


class PricedNetwork:
    """A row of brokers b0, b1, ..., whose links are reliable."""

    def __init__(
        self,
        brokers: int = 3,
        *,
        classes: tuple[PricedClass, ...] = (FREIGHT,),
        lane_bytes: int = 1 << 18,
        pump: Pump | None = None,
        **config: Any,
    ) -> None:
        self.pump = pump or Pump()
        self.seen: list[Flight] = []
        self._counts: dict[str, int] = {}
        scenario = Scenario(
            name="priced",
            duration=1.0,
            broker=(),
            classes=classes,
            lanes={"priced": LaneSpec(bytes_max=lane_bytes, overflow="hold")} if classes else {},
            services={
                "pricing": PricingConfig(**{"randomised": False, **config}),
                "reports": ReportsConfig(interval=INTERVAL),
            },
        )
        self.config = broker_config(scenario)
        self.brokers = brokers
        for number in range(brokers):
            self.pump.add(f"b{number}", self.a_broker(number))
        for number in range(1, brokers):
            self.pump.connect(f"b{number - 1}", f"b{number}")
        self.pump.loses = self._watch
        self.pump.advance(3.0)

    def a_broker(self, number: int, incarnation: int = 1) -> Node:
        life = Life(name=f"b{number}", incarnation=incarnation, seed=100, number=number, storage=True, traced=True)
        peers = [other for other in (number - 1, number + 1) if 0 <= other < self.brokers]
        links = {link: LinkInfo(f"b{peer}", LinkKind.RELIABLE, 1, 1_000, peer) for link, peer in enumerate(peers)}
        return broker_node(services(), life, links, self.config)

    def _watch(self, flight: Flight) -> bool:
        self.seen.append(flight)
        return False

    def client(self, name: str, broker: str, *wheres: str) -> ClientMachine:
        """Attached, and long enough that everybody knows what it wants."""
        made = attach(self.pump, name, broker, *wheres)
        self.pump.advance(1.0)
        return made

    def publish(
        self, name: str, attributes: Attributes | None = None, body: bytes = b"", *, options: Any = None
    ) -> int:
        """Returns its count, which is also its ticket."""
        count = self._counts[name] = self._counts.get(name, 0) + 1
        message = make_message(Identity(name, 1, count), attributes or {"topic": "freight"}, body)
        client = self.pump.machines[name]
        assert isinstance(client, ClientMachine)
        self.pump.apply(name, client.publish_all((message,), options, tickets=(1_000 + count,), now=self.pump.now))
        return count

    def room(self, a: str, b: str, room_bytes: int) -> None:
        """So much the link takes now."""
        link = self.pump.link(a, b)
        self.pump.apply(a, self.pump.machines[a].link_ready(link, room_bytes=room_bytes, now=self.pump.now))

    def service(self, broker: str) -> PricedBroker:
        node = self.pump.machines[broker]
        assert isinstance(node, Node)
        return node.machine(PricedBroker)

    def sending(self, client: str) -> PricedClient:
        machine = self.pump.machines[client]
        assert isinstance(machine, ClientMachine)
        return machine.node.machine(PricedClient)

    def bought(self, broker: str = "b0") -> list[int]:
        """Counts of what a broker has bought, in order."""
        return [one.count for one in self.pump.records_of(broker, MessageBought)]  # type: ignore[attr-defined]

    def got(self, client: str) -> list[int]:
        return [message.identity.count for _, message in self.pump.got(client)]

    def answers(self, client: str) -> dict[int, Any]:
        """What became of its messages, by count."""
        done = [effect for owner, effect in self.pump.done if owner == client and isinstance(effect, Done)]
        return {one.ticket - 1_000: one.outcome for one in done if 1_000 < one.ticket < PRICES_TICKET}

    def accepted(self, client: str) -> list[int]:
        return [count for count, outcome in self.answers(client).items() if isinstance(outcome, Accepted)]

    def prices(self, client: str) -> list[PriceReport]:
        """What its broker says of its flows, when it is asked now."""
        self.pump.apply(client, self.sending(client).ask_prices(PRICES_TICKET))
        self.pump.run()
        *_, outcome = [done.outcome for _, done in self.pump.done if done.ticket == PRICES_TICKET]
        assert isinstance(outcome, Reported)
        flows: list[PriceReport] = outcome.report["flows"]
        return flows

    def drops(self, broker: str) -> list[str]:
        return [one.cause for one in self.pump.records_of(broker, Dropped)]  # type: ignore[attr-defined]

    def copies(self) -> list[PricedPublication]:
        return [flight.packet for flight in self.seen if isinstance(flight.packet, PricedPublication)]

    def told(self) -> list[int]:
        return [number for flight in self.seen if isinstance(flight.packet, Bought) for number in flight.packet.numbers]
