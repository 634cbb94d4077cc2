"""The egress: datagrams pass straight through; elsewhere packets wait in lanes for room, and every drop is recorded."""

from __future__ import annotations

import pytest

from penstock.kernel.link import LinkInfo, LinkKind
from penstock.kernel.machine import Accepted, Done, Effect, Send, SendFor
from penstock.kernel.packet import Lane, Packet
from penstock.kernel.queue import QUANTUM_BYTES, LaneBounds, Overflow, QueueConfig
from penstock.kernel.trace import Dropped
from penstock.overlay.egress import KEPT, OURSELVES, PARKED, Egress, dropped
from penstock.overlay.packets import Answer, Delivery, Hello, Publication, Publish
from penstock.testing import a_message

DATAGRAM, SHAPED, RELIABLE = 0, 1, 2
LINKS = {
    DATAGRAM: LinkInfo("d", LinkKind.DATAGRAM),
    SHAPED: LinkInfo("s", LinkKind.SHAPED, queue_packets=3),
    RELIABLE: LinkInfo("t", LinkKind.RELIABLE),
}
HELLO = Hello(1, 1, "s", 0)


def an_egress(*up: int, config: QueueConfig | None = None) -> Egress:
    egress = Egress(LINKS, config or QueueConfig())
    for link in up or LINKS:
        egress.link_changed(link, up=True)
    return egress


def send(link: int, number: int = 1, lane: Lane = Lane.BEST_EFFORT) -> Send:
    return Send((link,), Publish(a_message(number)), lane)


def numbers(effects: list[Effect]) -> list[int]:
    messages = [effect.packet.carried() for effect in effects if isinstance(effect, Send)]
    return [message.identity.count for message in messages if message is not None]


def test_a_datagram_link_takes_everything_at_once() -> None:
    effects = [send(DATAGRAM, number) for number in range(5000)]
    egress = an_egress()
    assert egress.route(effects) == effects
    assert egress.waiting_packets(DATAGRAM) == 0


def test_other_effects_pass_unchanged_and_in_order() -> None:
    effects: list[Effect] = [Done(1, Accepted()), send(DATAGRAM), Done(2, Accepted())]
    assert an_egress().route(effects) == effects


@pytest.mark.parametrize("link", [SHAPED, RELIABLE])
def test_without_room_packets_wait(link: int) -> None:
    egress = an_egress()
    assert egress.route([send(link, 1), send(link, 2)]) == []
    assert egress.waiting_packets(link) == 2
    assert numbers(egress.link_ready(link, 10**6)) == [1, 2]


def test_room_that_is_left_is_used_by_the_next_packet() -> None:
    egress = an_egress()
    assert egress.link_ready(RELIABLE, 10**6) == []
    assert numbers(egress.route([send(RELIABLE, 1)])) == [1]


def test_a_room_of_one_byte_lets_one_packet_go() -> None:
    egress = an_egress()
    egress.route([send(SHAPED, 1), send(SHAPED, 2)])
    assert numbers(egress.link_ready(SHAPED, 1)) == [1]
    assert egress.route([send(SHAPED, 3)]) == []
    assert numbers(egress.link_ready(SHAPED, 1)) == [2]


def test_room_is_used_up_byte_by_byte_and_the_last_packet_may_be_larger() -> None:
    egress = an_egress()
    size = Publish(a_message(1)).size_bytes()
    egress.route([send(RELIABLE, number) for number in range(1, 6)])
    assert numbers(egress.link_ready(RELIABLE, 2 * size + 1)) == [1, 2, 3]


def test_no_room_lets_nothing_go() -> None:
    egress = an_egress()
    egress.route([send(RELIABLE, 1)])
    assert egress.link_ready(RELIABLE, 0) == []


def test_control_overtakes_data_that_waits() -> None:
    egress = an_egress()
    egress.route([send(RELIABLE, 1), Send((RELIABLE,), HELLO, Lane.CONTROL)])
    released = egress.link_ready(RELIABLE, 10**6)
    assert [type(effect.packet) for effect in released if isinstance(effect, Send)] == [Hello, Publish]


def test_lanes_share_a_link_by_weight() -> None:
    lanes = {**QueueConfig().lanes, Lane.TRANSPORT: LaneBounds(weight=2)}
    links = {RELIABLE: LinkInfo("t", LinkKind.RELIABLE, queue_packets=1000)}
    egress = Egress(links, QueueConfig(lanes=lanes))
    egress.link_changed(RELIABLE, up=True)
    for number in range(300):
        packet = Publish(a_message(number, body=bytes(1400)))
        egress.route([Send((RELIABLE,), packet, Lane.BEST_EFFORT), Send((RELIABLE,), packet, Lane.TRANSPORT)])
    released = egress.link_ready(RELIABLE, 300 * 1500)
    lanes_used = [effect.lane for effect in released if isinstance(effect, Send)]
    assert lanes_used.count(Lane.TRANSPORT) == pytest.approx(2 * lanes_used.count(Lane.BEST_EFFORT), rel=0.05)


def test_a_full_lane_drops_and_says_what_and_where() -> None:
    egress = an_egress()
    assert egress.route([send(SHAPED, number) for number in range(1, 4)]) == []
    assert egress.route([send(SHAPED, 4)]) == [
        Dropped("egress", "queue full", "s", Lane.BEST_EFFORT, "Publish", "p", 1, 4, 1)
    ]
    assert numbers(egress.link_ready(SHAPED, 10**6)) == [1, 2, 3]


def test_data_that_fills_its_lane_leaves_room_for_control() -> None:
    egress = an_egress()
    egress.route([send(SHAPED, number) for number in range(9)])
    assert egress.route([Send((SHAPED,), HELLO, Lane.CONTROL)]) == []
    (first, *_) = egress.link_ready(SHAPED, 1)
    assert isinstance(first, Send)
    assert first.packet == HELLO


def test_a_link_that_is_down_drops() -> None:
    egress = an_egress(DATAGRAM)
    assert egress.route([send(RELIABLE, 1), send(99, 2)]) == [
        Dropped("egress", "link down", "t", Lane.BEST_EFFORT, "Publish", "p", 1, 1, 1),
        Dropped("egress", "link down", "link 99", Lane.BEST_EFFORT, "Publish", "p", 1, 2, 1),
    ]


def test_a_link_that_goes_down_drops_what_waits_and_begins_empty() -> None:
    egress = an_egress()
    egress.route([send(RELIABLE, 1), send(RELIABLE, 2)])
    records = egress.link_changed(RELIABLE, up=False)
    assert [(record.cause, record.count) for record in records if isinstance(record, Dropped)] == [
        ("link down", 1),
        ("link down", 2),
    ]
    assert egress.link_changed(RELIABLE, up=True) == []
    assert egress.link_ready(RELIABLE, 10**6) == []


def test_room_of_an_old_connection_is_not_room_of_the_new_one() -> None:
    egress = an_egress()
    egress.link_ready(RELIABLE, 10**6)
    egress.link_changed(RELIABLE, up=False)
    egress.link_changed(RELIABLE, up=True)
    assert egress.route([send(RELIABLE, 1)]) == []


def test_one_packet_for_many_links_goes_as_each_allows() -> None:
    egress = an_egress(DATAGRAM, RELIABLE)
    packet = Publish(a_message(1))
    effects = egress.route([Send((DATAGRAM, SHAPED, RELIABLE), packet, Lane.BEST_EFFORT)])
    assert Send((DATAGRAM,), packet, Lane.BEST_EFFORT) in effects
    assert [record.peer for record in effects if isinstance(record, Dropped)] == ["s"]
    assert egress.waiting_packets(RELIABLE) == 1


def test_a_link_nobody_spoke_of_counts_as_a_stream() -> None:
    egress = Egress({}, QueueConfig())
    egress.link_changed(5, up=True)
    assert egress.route([send(5)]) == []
    assert egress.waiting_packets(5) == 1
    assert egress.peer(5) == "link 5"


def test_room_for_a_datagram_link_or_one_that_is_down_is_ignored() -> None:
    egress = an_egress(DATAGRAM)
    assert egress.link_ready(DATAGRAM, 10**6) == []
    assert egress.link_ready(RELIABLE, 10**6) == []


@pytest.mark.parametrize(
    ("packet", "kind", "identity", "destinations"),
    [
        (Publication((1, 2, 3), 4, a_message(7)), "Publication", ("p", 1, 7), 3),
        (Delivery((1, 2), a_message(7)), "Delivery", ("p", 1, 7), 1),
        (Answer(1), "Answer", ("", 0, 0), 1),
    ],
)
def test_the_record_of_a_drop_says_whose_message_it_was_and_for_how_many(
    packet: Packet, kind: str, identity: tuple[str, int, int], destinations: int
) -> None:
    record = dropped("pipe", "lost on the wire", "peer", Lane.STREAM, packet)
    assert record == Dropped("pipe", "lost on the wire", "peer", Lane.STREAM, kind, *identity, destinations)


@pytest.mark.parametrize("lane", [Lane.CONTROL, Lane.SERVICE_CONTROL])
@pytest.mark.parametrize("link", [SHAPED, RELIABLE])
def test_control_has_its_own_room_and_leaves_before_the_data_that_was_there_first(link: int, lane: Lane) -> None:
    egress = an_egress()
    data = egress.route(
        [send(link, number, other) for number in range(2000) for other in (Lane.TRANSPORT, Lane.PRICED)]
    )
    assert all(isinstance(effect, Dropped) for effect in data)  # the rest waits
    assert egress.route([send(link, 5000, lane)]) == []
    left = numbers(egress.link_ready(link, 4 * QUANTUM_BYTES))
    assert 5000 in left


def test_control_messages_of_services_cannot_starve_data() -> None:
    egress = an_egress()
    egress.route([send(RELIABLE, number, Lane.SERVICE_CONTROL) for number in range(1000)])
    egress.route([send(RELIABLE, 5000)])
    assert 5000 in numbers(egress.link_ready(RELIABLE, 8 * QUANTUM_BYTES))


def test_a_full_lane_of_control_messages_drops_with_a_record() -> None:
    egress = an_egress()
    effects = egress.route([send(RELIABLE, number, Lane.SERVICE_CONTROL) for number in range(1001)])
    assert [(effect.lane, effect.cause) for effect in effects if isinstance(effect, Dropped)] == [
        (Lane.SERVICE_CONTROL, "queue full")
    ]


def test_what_is_kept_when_its_link_goes_down_waits_on_the_same_account_until_it_is_recalled_or_all_ends() -> None:
    held = QueueConfig(lanes={**QueueConfig().lanes, Lane.PRICED: LaneBounds(bytes_max=1_000, overflow=Overflow.HOLD)})
    egress = an_egress(config=held)
    egress.parked_kinds[Publish] = None
    for source, number in ((SHAPED, 1), (RELIABLE, 2), (OURSELVES, 3)):
        assert egress.route([send(RELIABLE, number, Lane.PRICED)], source) == []
    before = egress.waiting_bytes_from(SHAPED, Lane.PRICED)
    assert egress.link_changed(RELIABLE, up=False) == []
    assert egress.waiting_bytes_from(SHAPED, Lane.PRICED) == before
    assert egress.waiting_bytes_from(RELIABLE, Lane.PRICED) == 0
    taken = egress.recall(PARKED, Lane.PRICED)
    assert [source for _, source in taken] == [SHAPED, KEPT, KEPT]
    assert egress.waiting_bytes_from(SHAPED, Lane.PRICED) == egress.waiting_bytes_from(KEPT, Lane.PRICED) == 0
    effects: list[Effect] = [SendFor(PARKED, packet, Lane.PRICED, source) for packet, source in taken]
    assert egress.route(effects) == []
    assert egress.waiting_bytes_from(SHAPED, Lane.PRICED) == before
    assert numbers(egress.route([SendFor(DATAGRAM, taken[0][0], Lane.PRICED, SHAPED)])) == [1]
    ended = egress.link_changed(PARKED, up=False)
    assert [record.cause for record in ended if isinstance(record, Dropped)] == ["link down"] * 3
