"""Our own network behind the same few verbs as `foreign_bus`, so that one test can run over both.

Three brokers in a line, with several workers whose service takes a random time, so that messages overtake each other,
and links that lose what they are told to. Clients are spread over the brokers in the order in which they are added. All
of them must be there before time passes; time begins, as far as the caller can see, when the brokers know each other.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from foreign_bus import Carried, RecordKind
from penstock import services
from penstock.content.language.parser import parse_predicate
from penstock.content.message import Attributes, Identity, Message, make_message
from penstock.kernel.packet import Packet
from penstock.kernel.storage import Ask, Operation
from penstock.kernel.trace import Record
from penstock.lab.setups.paper_network import NO_RATES
from penstock.overlay.packets import Publish
from penstock.overlay.verbs import Verbs
from penstock.scenario.spec import BrokerSpec, ClientSpec, LinkSpec, Scenario
from penstock.sim.engine import Engine
from penstock.sim.host import Host
from penstock.sim.network import SimulatedNetwork
from penstock.transport.client_service import TransportClient
from penstock.transport.config import TransportConfig
from penstock.transport.receiver.feedback_scheduler import ControlReport
from penstock.transport.report import TransportReport
from penstock.transport.sender.rate_limiter import FlowReport
from penstock.transport.transport import Transport

BROKERS = ("b0", "b1", "b2")
SETTLED = 4.0  # when brokers and first subscriptions are known everywhere


class OverlayBus:
    """Looks like a `Bus`, and is the simulator."""

    watches_packets = True

    def __init__(self, seed: int = 0, *, loss: float = 0.0, delay: float = 0.010, stage: float = 0.0) -> None:
        self.random = Random(seed)
        self.published: list[tuple[float, Message]] = []
        self.carried: list[Carried] = []
        self._seed = seed
        self._loss, self._delay, self._stage = loss, delay, stage
        self._engine = Engine()
        self._clients: dict[str, ClientSpec] = {}
        self._wheres: dict[tuple[str, int], str] = {}
        self._waiting: list[Callable[[], None]] = []
        self._network: SimulatedNetwork | None = None
        self._delivered: list[tuple[str, int, Message]] = []
        self._records: list[tuple[str, Record]] = []
        self._counts: dict[str, int] = {}
        self._ticket = 0

    @property
    def now(self) -> float:
        """Seconds since the network is there."""
        return self._engine.now - SETTLED

    def add(self, name: str, config: TransportConfig | None, *, publishes: bool = False) -> None:
        """A new client; whether it publishes with headers depends on its configuration alone."""
        random = Random(f"{self._seed}-{name}-clock")
        self._clients[name] = ClientSpec(
            name=name,
            broker=BROKERS[len(self._clients) % len(BROKERS)],
            clock_offset=random.uniform(-1e4, 1e4),
            clock_drift=random.uniform(-1e-4, 1e-4),
            services={} if config is None else {"transport": config},
        )

    def subscribe(self, name: str, number: int, where: str, *, ordered: bool = False, recover: bool = False) -> None:
        """The client wants this from now on."""

        def do() -> None:
            host, verbs = self._host(name)
            options = services.options({"ordered": ordered, "recover": recover})
            host.apply(verbs.subscribe(number, where, options, ticket=self._next(), now=host.now()))

        self._wheres[name, number] = where
        self._waiting.append(do) if self._network is None else do()

    def publish(self, name: str, attributes: Attributes, body: bytes = b"", *, at: float) -> None:
        """The client publishes."""
        self._engine.at(SETTLED + at, lambda _: self._publish(name, attributes, body), None)

    def at(self, time: float, action: Callable[[], None]) -> None:
        """Do something at this time."""
        self._engine.at(SETTLED + time, lambda _: action(), None)

    def reader_takes(self, name: str, rate: float, number: int = 1) -> None:
        """The application of a client's subscription is behind and takes so many messages/s; infinity: it keeps up."""
        host, _ = self._host(name)
        self._transport(name).reader_takes(number, rate, now=host.now())
        host.apply([])

    def run(self, until: float) -> None:
        """Let time pass."""
        if self._network is None:
            self._build()
        self._engine.run(SETTLED + until)

    def got(self, name: str, number: int) -> list[Message]:
        """What the application received for this subscription, in order."""
        return [m for client, subscription, m in self._delivered if (client, subscription) == (name, number)]

    def due(self, name: str, number: int) -> list[Message]:
        """What was published and matches."""
        where = parse_predicate(self._wheres[name, number])
        return [message for _, message in self.published if where.matches(message.attributes)]

    def report(self, name: str, number: int) -> TransportReport:
        """The transport's own account."""
        report = self._host(name)[1].reports(number)["transport"]
        assert isinstance(report, TransportReport)
        return report

    def flows(self) -> list[FlowReport]:
        """What the publisher `p` is asked to send more slowly."""
        return self._transport("p").flows()

    def control(self, name: str) -> ControlReport:
        """What a subscriber's congestion control knows."""
        return self._transport(name).control()

    def records_of(self, name: str, kind: type[RecordKind]) -> list[RecordKind]:
        """A client's records of one kind, in order."""
        return [record for node, record in self._records if node == name and isinstance(record, kind)]

    def control_messages(self, kind: str) -> list[Carried]:
        """What clients handed to their brokers of this kind."""
        return [carried for carried in self.carried if carried.kind == kind]

    # Building and driving.

    def _build(self) -> None:
        scenario = Scenario(
            name="overlay-bus",
            duration=1.0,
            services=NO_RATES,  # the ends by themselves
            broker=tuple(BrokerSpec(name=name, workers=4, service_mean=self._stage) for name in BROKERS),
            link=tuple(
                LinkSpec(between=pair, delay=self._delay / 2, loss=self._loss, repair=False)
                for pair in (BROKERS[:2], BROKERS[1:])
            ),
            client=tuple(self._clients.values()),
        )
        self._network = SimulatedNetwork(scenario, self._seed, self._engine, self)
        self._network.start(scenario)
        self._engine.run(1.0)
        for do in self._waiting:
            do()

    def _publish(self, name: str, attributes: Attributes, body: bytes) -> None:
        host, verbs = self._host(name)
        self._counts[name] = self._counts.get(name, 0) + 1
        message = make_message(Identity(name, host.incarnation, self._counts[name]), attributes, body)
        self.published.append((self.now, message))
        host.apply(verbs.publish((message,), tickets=(self._next(),), now=host.now()))

    def _host(self, name: str) -> tuple[Host, Verbs]:
        assert self._network is not None, "nothing has begun yet"
        return self._network.hosts[name], self._network.verbs[name]

    def _transport(self, name: str) -> Transport:
        node = self._host(name)[0].machine
        assert node is not None
        return node.machine(TransportClient).transport

    def _next(self) -> int:
        self._ticket += 1
        return self._ticket

    # The simulator tells us everything.

    def record(self, node: str, record: Record) -> None:
        self._records.append((node, record))

    def delivered(self, node: str, subscription: int, message: Message) -> None:
        self._delivered.append((node, subscription, message))

    def sent(self, packet: Packet, *, node: str, peer: str) -> None:
        pass

    def changed(self, area: str, operation: Operation) -> None:
        """No disk is of interest here."""

    def asked(self, asked: Ask) -> None:
        """Nor what is asked of it."""

    def handled(self, node: str, packet: Packet) -> None:
        if isinstance(packet, Publish):
            self.carried.append(Carried(self.now, packet.message.identity.publisher, packet.message))
