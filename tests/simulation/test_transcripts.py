"""Transcripts: short conversations of nodes, as files that a person can read (`tests/simulation/transcripts`).

A protocol that changes what it sends changes a file here, and the difference shows how. After a change that is
meant, write them anew with `pytest tests/simulation/test_transcripts.py --rewrite-transcripts` and read the difference.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import services
from penstock.content.message import Attributes, Identity, make_message
from penstock.kernel.machine import Hold, Release
from penstock.kernel.packet import Lane
from penstock.kernel.queue import LaneBounds, Overflow, QueueConfig
from penstock.overlay.assembly import NodeConfig
from penstock.overlay.client import Client
from penstock.overlay.node import Node
from penstock.overlay.packets import Publication
from penstock.testing import ClientMachine, Flight, a_broker, a_client, broker_name
from penstock.transport.config import TransportConfig
from priced_network import PricedNetwork
from transcript import Transcript

FOLDER = Path(__file__).parent / "transcripts"
LINES_MAX = 60


def brokers(transcript: Transcript, *edges: tuple[int, int], config: NodeConfig | None = None) -> None:
    """Brokers b0, b1, ... and their links, in this order."""
    for number in range(1 + max(max(edge) for edge in edges)):
        transcript.add(broker_name(number), a_broker(number, config=config))
    for a, b in edges:
        transcript.connect(broker_name(a), broker_name(b))


def client(transcript: Transcript, name: str, broker: str, **settings: TransportConfig) -> ClientMachine:
    machine = a_client(name, settings=settings)
    transcript.add(name, machine)
    transcript.connect(name, broker)
    return machine


def subscribe(transcript: Transcript, name: str, where: str, **options: bool) -> None:
    machine = transcript.machines[name]
    assert isinstance(machine, ClientMachine)
    transcript.note(f"{name} subscribes: {where}")
    effects = machine.subscribe(1, where, services.options(options), ticket=1, now=transcript.now)
    transcript.apply(name, effects)


def publish(transcript: Transcript, name: str, count: int, attributes: Attributes) -> None:
    machine = transcript.machines[name]
    assert isinstance(machine, ClientMachine)
    message = make_message(Identity(name, 1, count), attributes)
    transcript.note(f"{name} publishes {name}#{count}")
    transcript.apply(name, machine.publish_all((message,), now=transcript.now))


def two_brokers_meet() -> Transcript:
    transcript = Transcript("Two brokers meet, agree on their versions, and learn what each other's clients want.")
    transcript.add("b0", a_broker(0))
    transcript.add("b1", a_broker(1))
    client(transcript, "reader", "b1")
    transcript.advance(0.1)
    transcript.begin()
    transcript.note("the link of b0 and b1 comes up")
    transcript.connect("b0", "b1")
    transcript.advance(0.25)
    subscribe(transcript, "reader", "symbol = 'IBM' AND price < 120")
    transcript.advance(0.5)
    return transcript


def across_three_brokers() -> Transcript:
    transcript = Transcript(
        "A message crosses three brokers; what nobody wants ends where it began. (No Hellos shown.)",
        hide=("Hello",),
    )
    brokers(transcript, (0, 1), (1, 2))
    client(transcript, "reader", "b2")
    client(transcript, "writer", "b0")
    transcript.advance(1.0)
    subscribe(transcript, "reader", "symbol = 'IBM' AND price < 120")
    transcript.advance(1.0)
    transcript.begin()
    publish(transcript, "writer", 1, {"symbol": "IBM", "price": 119.5})
    transcript.advance(0.1)
    transcript.note("too dear for the only reader: it ends at its home broker")
    publish(transcript, "writer", 2, {"symbol": "IBM", "price": 130.0})
    transcript.advance(0.1)
    transcript.note("nobody wants this one: it ends at its home broker")
    publish(transcript, "writer", 3, {"symbol": "HAL", "price": 10.0})
    transcript.advance(0.1)
    return transcript


def a_link_fails() -> Transcript:
    transcript = Transcript(
        "A link dies in silence; its brokers notice after dead_after and send around it. (No Hellos shown.)",
        hide=("Hello",),
    )
    brokers(transcript, (0, 1), (1, 2), (0, 2))
    client(transcript, "reader", "b2")
    client(transcript, "writer", "b0")
    transcript.advance(1.0)
    subscribe(transcript, "reader", "TRUE")
    transcript.advance(1.0)
    transcript.begin()
    publish(transcript, "writer", 1, {"n": 1})
    transcript.advance(0.2)
    transcript.note("from now on the link of b0 and b2 loses everything, without notice")
    transcript.loses = lambda flight: {flight.sender, flight.receiver} == {"b0", "b2"}
    publish(transcript, "writer", 2, {"n": 2})
    transcript.advance(3.0)
    publish(transcript, "writer", 3, {"n": 3})
    transcript.advance(0.2)
    transcript.note("the link works again")
    transcript.loses = lambda flight: False
    transcript.advance(1.0)
    publish(transcript, "writer", 4, {"n": 4})
    transcript.advance(0.2)
    return transcript


def a_loss_is_repaired() -> Transcript:
    transcript = Transcript(
        "A lost message is revealed by the record of the next, requested and repaired. (No Hellos shown.)",
        hide=("Hello", "Answer"),
    )
    brokers(transcript, (0, 1))
    client(transcript, "reader", "b1")
    client(transcript, "writer", "b0", transport=TransportConfig())
    transcript.advance(1.0)
    subscribe(transcript, "reader", "symbol = 'IBM'", ordered=True, recover=True)
    transcript.advance(1.0)
    for count in (1, 2):  # the reader's session begins, and the distance to the writer is measured
        publish(transcript, "writer", count, {"symbol": "IBM", "n": count})
        transcript.advance(1.0)
    transcript.begin()

    def is_third(flight: Flight) -> bool:
        packet = flight.packet
        return isinstance(packet, Publication) and packet.message.identity == Identity("writer", 1, 3)

    transcript.loses = is_third
    for count in (3, 4):
        publish(transcript, "writer", count, {"symbol": "IBM", "n": count})
        transcript.advance(0.05)
    transcript.advance(0.5)
    return transcript


def a_lane_is_held() -> Transcript:
    transcript = Transcript(
        "A lane is held by credit, and released; best effort goes on over the same link. (No Hellos shown.)",
        hide=("Hello",),
    )
    lanes = {**QueueConfig().lanes, Lane.PRICED: LaneBounds(overflow=Overflow.HOLD, bytes_max=1 << 18)}
    brokers(transcript, (0, 1), config=NodeConfig(queues=QueueConfig(lanes=lanes)))
    client(transcript, "reader", "b1")
    writer = client(transcript, "writer", "b0")
    transcript.advance(1.0)
    subscribe(transcript, "reader", "TRUE")
    transcript.advance(1.0)
    transcript.begin()

    def priced(count: int) -> None:
        message = make_message(Identity("writer", 1, count), {"priced": count}, bytes(100_000))
        transcript.note(f"writer publishes writer#{count} in lane PRICED")
        effects = writer.node.machine(Client).sent([message], Lane.PRICED)
        transcript.apply("writer", writer.node.route(effects))
        transcript.advance(0.1)

    node, link = transcript.machines["b1"], transcript.link("b1", "b0")
    assert isinstance(node, Node)
    transcript.note("a service of b1 holds lane PRICED of its link to b0")
    transcript.apply("b1", node.route([Hold(link, Lane.PRICED)]))
    for count in range(1, 5):
        priced(count)
    publish(transcript, "writer", 5, {"plain": True})
    transcript.advance(0.1)
    sender = transcript.machines["b0"]
    assert isinstance(sender, Node)
    assert sender.egress.waiting_packets(transcript.link("b0", "b1")) == 1
    transcript.note("writer#4 waits at b0; b1 releases the lane")
    transcript.apply("b1", node.route([Release(link, Lane.PRICED)]))
    transcript.advance(0.1)
    return transcript


def a_message_is_bought() -> Transcript:
    transcript = Transcript(
        "What is priced waits at its home until it is paid: at once, or with the next salary. A link that fills becomes"
        " dear, and everybody hears of it. (No Hellos and no prices of each interval shown.)",
        hide=("Hello", "LinkPriced"),
    )
    network = PricedNetwork(2, pump=transcript, first_balance=1.0, salary=1.0, first_period=0.5, soft_limit=2.0)
    network.client("reader", "b1", "topic = 'freight'")
    network.client("writer", "b0")
    transcript.advance(0.35)
    transcript.begin()
    transcript.note("writer publishes two messages; it has one dollar, and each costs one")
    network.publish("writer")
    network.publish("writer")
    transcript.advance(0.5)
    transcript.note("the link of b0 and b1 takes nothing more, and writer publishes again")
    network.room("b0", "b1", 0)
    network.publish("writer")
    transcript.advance(0.5)
    transcript.note("the buffer has made the link dear: the next message takes more than one salary")
    network.publish("writer")
    transcript.advance(0.3)
    transcript.note("the link goes on")
    network.room("b0", "b1", 1 << 30)
    transcript.advance(0.8)
    return transcript


SHOWN = {
    "two-brokers-meet": two_brokers_meet,
    "across-three-brokers": across_three_brokers,
    "a-link-fails": a_link_fails,
    "a-loss-is-repaired": a_loss_is_repaired,
    "a-lane-is-held": a_lane_is_held,
    "a-message-is-bought": a_message_is_bought,
}


@pytest.mark.parametrize("name", SHOWN)
def test_the_conversation_is_as_written_down(name: str, request: pytest.FixtureRequest) -> None:
    text, file = SHOWN[name]().text(), FOLDER / f"{name}.txt"
    if request.config.getoption("--rewrite-transcripts"):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8"), "if the change is meant: --rewrite-transcripts"
    assert text.count("\n") < LINES_MAX


def test_there_is_no_other_transcript() -> None:
    assert sorted(path.stem for path in FOLDER.iterdir()) == sorted(SHOWN)
