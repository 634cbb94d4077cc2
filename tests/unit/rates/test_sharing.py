"""Shares of links at a home broker: against random networks, nothing is lost, doubled or charged to the wrong link."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from penstock.content.message import Identity, Message
from penstock.kernel.link import Link
from penstock.kernel.packet import Lane
from penstock.overlay.packets import BrokerId
from penstock.overlay.spanning_tree import Hop
from penstock.rates.config import WhenFull
from penstock.rates.rate_table import RateTable
from penstock.rates.sharing import LINE_JOBS, LINGER, Copy, Sharing

CLIENT = 3


class Bench:
    """A home at broker 0 of a tree, with some limited links."""

    def __init__(self, parents: list[BrokerId], rates: dict[Hop, float], wait: float = 0.5) -> None:
        self.parents = parents  # of brokers 1, 2, ...
        self.table = RateTable(1e9)
        for hop, rate in rates.items():
            self.table.hear(hop, 1, 1, rate, 0.0)
        self.withheld: list[tuple[Hop, BrokerId]] = []
        self.sharing = Sharing(self.table, wait, self._withhold, Random(0))
        self.sent: list[tuple[float, int, tuple[BrokerId, ...]]] = []
        self.now = 0.0

    def _withhold(self, client: Link, hop: Hop, destination: BrokerId, message: Message, now: float) -> None:
        assert client == CLIENT
        assert hop in self.way(destination), "a destination is thinned only for a link on its way"
        self.withheld.append((hop, destination))

    def way(self, destination: BrokerId) -> tuple[Hop, ...]:
        hops: list[Hop] = []
        while destination:
            hops.insert(0, (self.parents[destination - 1], destination))
            destination = self.parents[destination - 1]
        return tuple(hops)

    def publish(self, number: int, destinations: tuple[BrokerId, ...], now: float, size: int = 100) -> None:
        self.serve(now)
        copy = Copy(Message(Identity("p", 1, number), {}, b"", size), Lane.BEST_EFFORT, destinations)
        self._left(self.sharing.admit(CLIENT, copy, self.way, now), now)

    def flip(self, hop: Hop, rate: float, now: float) -> None:
        """A link that was limited is so no longer, or the other way round."""
        self.serve(now)
        if hop in self.table:
            self.table.forget(hop)
            self.sharing.forget_link(hop)
        else:
            self.table.hear(hop, 1, 1, rate, now)

    def serve(self, until: float) -> None:
        while (at := self.sharing.ready_at(CLIENT, self.now)) is not None and at <= until:
            self.now = max(self.now, at)
            self._left(self.sharing.serve(CLIENT, self.now), self.now)
        self.now = max(self.now, until)

    def _left(self, copies: list[Copy], now: float) -> None:
        for copy in copies:
            assert copy.destinations
            self.sent.append((now, copy.message.identity.count, copy.destinations))


@pytest.mark.parametrize("seed", range(25))
def test_every_broker_gets_each_message_once_or_is_counted_once(seed: int) -> None:
    random = Random(seed)
    brokers = random.randint(1, 8)
    parents = [random.randrange(number) for number in range(1, brokers + 1)]
    links = [(parents[broker - 1], broker) for broker in range(1, brokers + 1)]
    limited = {hop: random.uniform(200.0, 5_000.0) for hop in links if random.random() < 0.5}
    bench = Bench(parents, limited)
    due: Counter[tuple[int, BrokerId]] = Counter()
    now = 0.0
    for number in range(300):
        now += random.expovariate(40.0)
        wanted = tuple(b for b in range(1, brokers + 1) if random.random() < 0.5)
        if wanted:
            due.update((number, broker) for broker in wanted)
            bench.publish(number, wanted, now)
    bench.serve(now + 10.0)
    got = Counter((number, broker) for _, number, some in bench.sent for broker in some)
    assert max(got.values(), default=1) == 1, f"seed {seed}"
    assert not got - due
    assert len(bench.withheld) == (due - got).total(), f"seed {seed}"
    for hop, rate in limited.items():
        crossing = [time for time, _, some in bench.sent if any(hop in bench.way(broker) for broker in some)]
        assert 100 * len(crossing) <= rate * (now + 0.5) + max(4 * 150, 0.1 * rate) + 150, f"seed {seed}"


@pytest.mark.parametrize("terms", ["thin", "wait"])
@pytest.mark.parametrize("seed", range(25))
def test_each_broker_gets_the_messages_of_a_publisher_in_order(seed: int, terms: WhenFull) -> None:
    """Also across lines of different links, and when links become limited or unlimited meanwhile."""
    random = Random(seed)
    brokers = random.randint(2, 8)
    parents = [random.randrange(number) for number in range(1, brokers + 1)]
    links = [(parents[broker - 1], broker) for broker in range(1, brokers + 1)]
    bench = Bench(parents, {hop: random.uniform(200.0, 5_000.0) for hop in links if random.random() < 0.7})
    bench.sharing.agree(CLIENT, terms)
    now = 0.0
    for number in range(400):
        now += random.expovariate(40.0)
        if random.random() < 0.05:
            bench.flip(random.choice(links), random.uniform(200.0, 5_000.0), now)
        wanted = tuple(b for b in range(1, brokers + 1) if random.random() < 0.5)
        if wanted:
            bench.publish(number, wanted, now)
    bench.serve(now + 1e4)
    assert not bench.sharing.jobs(), f"seed {seed}: something waits for ever"
    for broker in range(1, brokers + 1):
        numbers = [number for _, number, some in bench.sent if broker in some]
        assert numbers == sorted(numbers), f"seed {seed}, broker {broker}"


def test_what_no_limited_link_is_before_leaves_at_once() -> None:
    bench = Bench([0, 1, 0], {(1, 2): 1.0})
    for number in range(50):
        bench.publish(number, (1, 2, 3), 0.1 * number)
    assert [(time, some) for time, _, some in bench.sent if 1 in some] == [(0.1 * n, (1, 3)) for n in range(50)]


def test_a_link_is_used_whenever_somebody_waits_for_it() -> None:
    bench = Bench([0], {(0, 1): 12_300.0})  # 100 messages a second
    random, now, number = Random(1), 0.0, 0
    while now < 20.0:
        now += random.expovariate(150.0)
        number += 1
        bench.publish(number, (1,), now)
    assert len(bench.sent) == pytest.approx(2_000, rel=0.02)


def test_a_burst_waits_and_who_always_sends_too_much_does_not() -> None:
    bench = Bench([0], {(0, 1): 12_300.0})
    for number in range(35):
        bench.publish(number, (1,), 1.0)
    bench.serve(2.0)
    assert len(bench.sent) == 35
    assert bench.withheld == []
    bench = Bench([0], {(0, 1): 12_300.0})
    for number in range(3_000):
        bench.publish(number, (1,), number / 300.0)
    late = [time - number / 300.0 for time, number, _ in bench.sent if time > 5.0]
    assert max(late) <= (LINE_JOBS + 1) / 100.0


def test_without_waiting_what_cannot_be_paid_is_withheld_at_once() -> None:
    bench = Bench([0], {(0, 1): 123.0}, wait=0.0)
    for number in range(10):
        bench.publish(number, (1,), 0.0)
    assert (len(bench.sent), len(bench.withheld)) == (1, 9)


def test_lines_take_turns() -> None:
    bench = Bench([0, 1, 1], {(0, 1): 1_230.0, (1, 2): 1e6, (1, 3): 1e6})
    for number in range(200):
        bench.publish(number, (2,) if number % 2 else (3,), number / 100.0)
    bench.serve(5.0)
    counts = Counter(some for _, _, some in bench.sent)
    assert abs(counts[(2,)] - counts[(3,)]) <= 2


def test_a_link_that_nobody_limits_any_more_lets_go_what_waits() -> None:
    bench = Bench([0], {(0, 1): 1.0})
    for number in range(5):
        bench.publish(number, (1,), 0.0)
    bench.table.expire(1e12)
    bench.sharing.forget_link((0, 1))
    bench._left(bench.sharing.serve(CLIENT, 0.1), 0.1)
    assert len(bench.sent) == 5


def test_what_waits_for_a_client_that_leaves_is_counted_when_its_time_is_over() -> None:
    bench = Bench([0], {(0, 1): 1.0})
    for number in range(5):
        bench.publish(number, (1,), 0.0)
    bench.sharing.client_gone(CLIENT, 0.0)
    bench.serve(1.0)
    assert (len(bench.sent), len(bench.withheld)) == (1, 4)
    assert bench.sharing.ready_at(CLIENT, bench.now) is None


def test_who_closes_right_after_publishing_has_published() -> None:
    """As the command line does. A link that has room in a moment is no reason to withhold."""
    bench = Bench([0], {(0, 1): 1_230.0})
    for number in range(3):
        bench.publish(number, (1,), 0.0)
    bench.sharing.client_gone(CLIENT, 0.0)
    bench.serve(1.0)
    assert (len(bench.sent), len(bench.withheld)) == (3, 0)


@pytest.mark.parametrize("seed", range(10))
def test_who_waits_is_thinned_for_nobody_and_keeps_to_all_rates(seed: int) -> None:
    random = Random(seed)
    brokers = random.randint(1, 8)
    parents = [random.randrange(number) for number in range(1, brokers + 1)]
    links = [(parents[broker - 1], broker) for broker in range(1, brokers + 1)]
    limited = {hop: random.uniform(500.0, 5_000.0) for hop in links if random.random() < 0.5}
    bench = Bench(parents, limited)
    bench.sharing.agree(CLIENT, "wait")
    due: Counter[tuple[int, BrokerId]] = Counter()
    now = 0.0
    for number in range(200):
        now += random.expovariate(40.0)
        wanted = tuple(b for b in range(1, brokers + 1) if random.random() < 0.5)
        if wanted:
            due.update((number, broker) for broker in wanted)
            bench.publish(number, wanted, now)
    bench.serve(1e4)
    assert Counter((number, broker) for _, number, some in bench.sent for broker in some) == due, f"seed {seed}"
    assert bench.withheld == []
    for hop, rate in limited.items():
        crossing = [time for time, _, some in bench.sent if any(hop in bench.way(broker) for broker in some)]
        span = max(crossing, default=0.0)
        assert 100 * len(crossing) <= rate * span + max(4 * 150, 0.1 * rate) + 150, f"seed {seed}"


def test_who_drops_waits_for_nothing() -> None:
    bench = Bench([0], {(0, 1): 123.0})
    bench.sharing.agree(CLIENT, "drop")
    for number in range(10):
        bench.publish(number, (1,), 0.0)
        assert bench.sharing.ready_at(CLIENT, bench.now) is None
    assert (len(bench.sent), len(bench.withheld)) == (1, 9)


def test_what_waits_as_promised_outlives_its_client_for_a_while() -> None:
    bench = Bench([0], {(0, 1): 100.0})
    bench.sharing.agree(CLIENT, "wait")
    for number in range(50):
        bench.publish(number, (1,), 0.0)
    bench.sharing.client_gone(CLIENT, 0.0)
    assert bench.sharing.terms(CLIENT) == "thin", "nobody is held for it any more"
    bench.serve(1e4)
    assert len(bench.sent) + len(bench.withheld) == 50
    assert 5 < len(bench.sent) < 20
    assert max(time for time, _, _ in bench.sent) <= LINGER
    assert bench.sharing.ready_at(CLIENT, bench.now) is None
