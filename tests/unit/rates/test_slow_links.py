"""The link to a client that is slower than what it wants: thinned, shared by publishers, and both ends are told."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from penstock.content.message import Identity, Message
from penstock.kernel.link import LinkLoad
from penstock.kernel.packet import Lane
from penstock.kernel.trace import Delivered, Dropped, Record
from penstock.rates.config import Keep, RatesClientConfig, RatesConfig
from penstock.rates.packets import WithheldNotice
from penstock.rates.records import ReaderThinned, WithheldTold
from penstock.rates.slow_links import Getting, SlowLinks
from penstock.scenario.spec import BrokerSpec, ClientSpec, Scenario, SubscriptionSpec
from penstock.scenario.workload import PublisherSpec
from penstock.sim.host import Host
from penstock.sim.run import simulate

ACCESS = 6e4  # bits per second


class Notes:
    def __init__(self) -> None:
        self.got: Counter[tuple[str, str]] = Counter()  # by client and publisher
        self.late: Counter[str] = Counter()  # at the slow one, once all is settled, by publisher
        self.told: Counter[str] = Counter()  # by client
        self.dropped = self.withheld = 0
        self.last: dict[str, int] = {}  # of p, by client

    def write(self, time: float, node: str, record: Record) -> None:
        match record:
            case Delivered():
                self.got[node, record.publisher] += 1
                self.late[record.publisher] += node == "slow" and time > 7.0
                if record.publisher == "p":
                    assert record.count > self.last.get(node, 0), "in order"
                    self.last[node] = record.count
            case Dropped():
                self.dropped += 1
            case ReaderThinned():
                self.withheld += record.messages
            case WithheldTold():
                assert not record.slow_reader
                self.told[node] += record.messages


def run(keep: Keep, rates: dict[str, float], **options: Any) -> tuple[Notes, float]:
    """Publishers of these rates, a reader behind a slow link and a fast one; and the use of the slow link."""
    wanted = (SubscriptionSpec(where="x > 0", options=options),)
    flows = {
        name: PublisherSpec(rate_messages_per_s=rate, start=1.0, attributes={"x": 1}) for name, rate in rates.items()
    }
    slow = RatesClientConfig(keep=keep)
    notes = Notes()
    result = simulate(
        Scenario(
            name="slow link",
            duration=11.0,
            drain=6.0,
            broker=(BrokerSpec(name="a"),),
            client=(
                *(ClientSpec(name=name, broker="a", publish=(flow,)) for name, flow in flows.items()),
                ClientSpec(
                    name="slow", broker="a", subscribe=wanted, access_rate_bits_per_s=ACCESS, services={"rates": slow}
                ),
                ClientSpec(name="fast", broker="a", subscribe=wanted),
            ),
            check=("rates-readers",) if not options else (),
        ),
        1,
        trace=notes,
    )
    assert result.problems == []
    return notes, result.links["a", "slow"] / (10.0 * ACCESS / 8.0)


@pytest.mark.parametrize("keep", ["oldest", "newest"])
def test_nothing_is_dropped_and_what_does_not_fit_is_told_to_both_ends(keep: Keep) -> None:
    notes, use = run(keep, {"p": 400.0})
    assert notes.dropped == 0
    assert notes.got["fast", "p"] == 4_000
    assert notes.got["slow", "p"] + notes.withheld == 4_000
    assert notes.told["p"] == notes.told["slow"] == notes.withheld > 0
    assert use >= 0.97


def test_publishers_share_it_and_who_wants_less_than_its_share_gets_all() -> None:
    notes, use = run("oldest", {"small": 20.0, "p": 100.0, "q": 400.0})
    assert notes.got["slow", "small"] == pytest.approx(200, rel=0.05)
    assert notes.late["p"] == pytest.approx(notes.late["q"], rel=0.05)
    assert use >= 0.97


def test_the_newest_comes_though_the_link_was_full_when_it_came() -> None:
    notes, _ = run("newest", {"p": 400.0})
    assert notes.last["slow"] == notes.last["fast"]


def test_word_of_many_publishers_takes_little_of_the_link(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred publishers, and a reader that recovers what it misses."""
    words = 0
    sent = Host.note_sent

    def note_sent(self: Host, packet: Any, peer: str) -> None:
        nonlocal words
        words += packet.size_bytes() if peer == "slow" and isinstance(packet, WithheldNotice) else 0
        sent(self, packet, peer)

    monkeypatch.setattr(Host, "note_sent", note_sent)
    run("oldest", {f"p{number}": 4.0 for number in range(100)}, recover=True)
    one_word_of_all = 15_000  # bytes: the first is told at once, the next when there is room
    assert 0 < words <= one_word_of_all


def test_word_that_waited_for_room_is_told_when_the_link_is_slow_no_longer() -> None:
    notes, _ = run("oldest", {f"p{number}": 4.0 for number in range(100)})
    came = {client: sum(n for (who, _), n in notes.got.items() if who == client) for client in ("slow", "fast")}
    assert came["fast"] - came["slow"] == notes.withheld == notes.told["slow"] > 1_000


class ANode:
    """A node with one slow link, whose host says what it knows."""

    def __init__(self, *, measured: bool) -> None:
        self.measured, self.now = measured, 0.0

    def link_load(self, link: int) -> LinkLoad:
        left = int(1_000 * self.now)
        return LinkLoad(10_000 + left, left, 10_000, self.now) if self.measured else LinkLoad(waiting_bytes=10_000)

    def has_room(self, *about: Any) -> bool:
        return True


def looked_at(node: ANode) -> SlowLinks:
    """For a while."""
    links = SlowLinks(RatesConfig(), {}, node)  # type: ignore[arg-type]  # it asks for no more than that
    links.keep_newest(1)
    assert links.crowded(1)
    assert not links.crowded(1), "it is known already"
    for look in range(10):
        node.now = look * 0.05
        assert links.look(node.now) == []
    return links


def test_a_link_of_which_nothing_can_be_measured_is_not_slow() -> None:
    assert looked_at(ANode(measured=False)).find(1) is None


def test_a_repair_neither_waits_nor_takes_the_place_of_the_newest() -> None:
    links = looked_at(ANode(measured=True))
    slow = links.find(1)
    assert slow is not None
    newest, old = (Getting((0,), Message(Identity("p", 1, n), {}, b"", 100), Lane.TRANSPORT) for n in (9, 3))
    assert slow.admits(newest, False, 0.5) == (False, None)
    assert slow.admits(old, False, 0.5, repair=True) == (False, old)
    assert slow.admits(old, True, 0.5, repair=True) == (True, None)
    assert slow.left() == [newest]


def test_when_the_client_leaves_what_waited_for_it_is_counted() -> None:
    links = looked_at(ANode(measured=True))
    slow = links.find(1)
    assert slow is not None
    getting = Getting((0, 4), Message(Identity("p", 1, 1), {}, b"", 100), Lane.BEST_EFFORT)
    assert slow.admits(getting, False, 1.0) == (False, None)
    assert links.link_down(1) == 2
    assert links.find(1) is None
    assert not links.any_slow()
