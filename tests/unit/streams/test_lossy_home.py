"""A durable reader against a broker whose packets are lost, doubled and overtake each other, and whose links break.

The broker here is a model: it keeps logs, sends what follows the place it is at within the credit, tells how far it
is, and goes back when it is asked to. Whatever happens on the way, the application gets every message once and in
order, no more waits for it than the bound, and when all heals everything comes.
"""

from __future__ import annotations

from random import Random

import pytest

from penstock.kernel.packet import Packet
from penstock.streams.packets import (
    Acknowledge,
    Acknowledged,
    DurableAnswer,
    DurableSubscribe,
    Resume,
    StreamDelivery,
    Take,
)
from scripted_home import ScriptedHome, a_message

WINDOW = 8
PUBENDS = ("orders/0", "orders/1")
SEEDS = 60


class ModelBroker:
    """Serves one durable subscription to one client, over links that the test breaks."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.logs: dict[str, list[int]] = {pubend: [] for pubend in PUBENDS}  # ticks of messages
        self.horizon = 100
        self.done = dict.fromkeys(PUBENDS, 100)
        self.told: dict[str, int] | None = None  # None: nobody has subscribed over this link
        self.credit = self.sent = 0
        self.way: list[Packet] = []  # to the client

    def publish(self) -> None:
        self.horizon += self.random.randint(1, 5)
        self.logs[self.random.choice(PUBENDS)].append(self.horizon)

    def link_broken(self) -> None:
        self.told = None
        self.way.clear()

    def receive(self, packet: Packet) -> None:
        if isinstance(packet, DurableSubscribe):
            kept = {pubend: tick for pubend, _, tick in packet.positions}
            self.told = {pubend: kept.get(pubend, self.done[pubend]) for pubend in PUBENDS}
            self.credit, self.sent = packet.credit, 0
            self.way.append(DurableAnswer(packet.request, 1, tuple((p, 7, tick) for p, tick in self.told.items())))
        elif self.told is None:
            return
        elif isinstance(packet, Take):
            self.credit = max(self.credit, packet.messages_in_all)
        elif isinstance(packet, Resume):
            self.sent = min(self.sent, packet.messages_received)
            self.told[packet.pubend] = min(self.told[packet.pubend], packet.tick)
        elif isinstance(packet, Acknowledge) and packet.tick <= self.told[packet.pubend]:
            self.done[packet.pubend] = max(self.done[packet.pubend], packet.tick)
            self.way.append(Acknowledged(1, packet.pubend, 7, self.done[packet.pubend]))

    def serve(self) -> None:
        """Send a slice of what is next, and how far we are."""
        if self.told is None:
            return
        for pubend, after in list(self.told.items()):
            room = min(self.credit - self.sent, self.random.randint(1, 4))
            ticks = [tick for tick in self.logs[pubend] if tick > after]
            chosen = ticks[: max(0, room)]
            upto = self.horizon if len(chosen) == len(ticks) else (chosen[-1] if chosen else after)
            items = tuple((tick, a_message(tick, publisher="p")) for tick in chosen)
            self.way.append(StreamDelivery(1, pubend, 7, after, upto, items))
            self.told[pubend] = upto
            self.sent += len(items)

    def next_packet(self, trouble: float) -> Packet | None:
        """What arrives next: lost, doubled or out of its turn, if there is trouble."""
        if not self.way:
            return None
        place = 0
        if self.random.random() < trouble:
            place = self.random.randrange(min(3, len(self.way)))
        packet = self.way[place] if self.random.random() < trouble else self.way.pop(place)
        return None if self.random.random() < trouble else packet


def step(home: ScriptedHome, broker: ModelBroker, random: Random, trouble: float) -> None:
    if random.random() < 0.3:
        broker.publish()
    if random.random() < 0.5:
        broker.serve()
    for _ in range(random.randint(0, 4)):
        packet = broker.next_packet(trouble)
        if packet is not None:
            home.say(packet)
    asked, home.sent = home.sent, []
    for packet in asked:
        if random.random() >= trouble:
            broker.receive(packet)
    if random.random() < 0.5:
        home.take(random.randint(0, WINDOW))
    if home.messages and random.random() < 0.3:
        last = random.choice(home.messages)
        home.acknowledge(last.tick, pubend=last.pubend)
    home.wait(random.choice([0.0, 0.01, 0.3, 2.0]))


def check(home: ScriptedHome, broker: ModelBroker) -> None:
    for pubend, log in broker.logs.items():
        got = [message.tick for message in home.messages if message.pubend == pubend]
        assert got == log[: len(got)]
    found = home.machine.report(1)
    assert found is not None
    assert found.waiting <= 3 * WINDOW + 4


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_message_comes_once_and_in_order_whatever_happens_on_the_way(seed: int) -> None:
    random = Random(seed)
    broker, home = ModelBroker(random), ScriptedHome(window=WINDOW)
    trouble = random.choice([0.0, 0.05, 0.2, 0.4])
    home.up()
    home.subscribe()
    connected = True
    for _ in range(400):
        if random.random() < 0.02:
            connected = not connected
            if connected:
                home.up()
            else:
                home.down()
                home.sent.clear()
                broker.link_broken()
        step(home, broker, random, trouble)
        check(home, broker)
    if not connected:
        home.up()
    for _ in range(200):
        broker.serve()
        while broker.way:
            home.say(broker.way.pop(0))
        asked, home.sent = home.sent, []
        for packet in asked:
            broker.receive(packet)
        home.take(WINDOW)
        home.wait(0.5)
    check(home, broker)
    assert len(home.messages) == sum(map(len, broker.logs.values()))
    for pubend, log in broker.logs.items():
        if log:
            ticket = home.acknowledge(log[-1], pubend=pubend)
            for packet in home.take_sent(Acknowledge):
                broker.receive(packet)
            home.say(*broker.way)
            assert ticket in home.done
            assert broker.done[pubend] == log[-1]
