"""Link repair, both ends pumped by hand over a wire that loses, reorders and doubles."""

from __future__ import annotations

from heapq import heappop, heappush
from random import Random

import pytest

from penstock.errors import InvalidPacket
from penstock.overlay.repair.config import RepairConfig
from penstock.overlay.repair.controls import (
    RANGES_MAX,
    LinkControl,
    LinkNack,
    LinkTail,
    decode_control,
    encode_control,
    nack_of,
)
from penstock.overlay.repair.gap_detector import GapDetector
from penstock.overlay.repair.link_repair import LinkRepair
from penstock.overlay.repair.queue_delay import STAMP_MASK, QueueDelay, stamp_of
from penstock.overlay.repair.sent_ring import SentRing

SIZE = 200
GENEROUS = RepairConfig(share=0.9, share_min=0.9)  # what the wire loses is repaired, whatever it costs


class Pair:
    """Two ends, and a wire between them in virtual time. Only `near` sends data."""

    def __init__(self, random: Random, *, delay: float = 0.01, config: RepairConfig | None = None) -> None:
        self.near: LinkRepair[int] = LinkRepair(config)
        self.far: LinkRepair[int] = LinkRepair(config)
        self.now = 0.0
        self.loss = self.reorder = self.double = 0.0
        self.delivered: list[int] = []
        self.losses: dict[int, int] = {}  # how often each number was lost
        self.controls = 0
        self._random = random
        self._delay = delay
        self._flying: list[tuple[float, int, int, bool, LinkControl | None]] = []
        self._count = 0

    def send(self, number: int) -> None:
        assert self.near.sent(number, SIZE, self.now) == number
        self._fly(number, False, None)

    def pass_time(self, until: float) -> None:
        for _ in range(100_000):
            landing = self._flying[0][0] if self._flying else float("inf")
            at = min(landing, self.near.deadline(), self.far.deadline())
            if at > until:
                break
            self.now = max(self.now, at)
            if landing <= self.now:
                _, _, number, repeated, control = heappop(self._flying)
                self._land(number, repeated, control)
            for control in (*self.near.wake(self.now), *self.far.wake(self.now)):
                self.controls += 1
                self._fly(-1, False, control)
        else:
            raise AssertionError("it never rests")
        self.now = until

    def _fly(self, number: int, repeated: bool, control: LinkControl | None) -> None:
        draw = self._random.random
        if draw() < self.loss:
            if number >= 0:
                self.losses[number] = self.losses.get(number, 0) + 1
            return
        for _ in range(1 + (draw() < self.double)):
            aside = draw() * 4 * self._delay if draw() < self.reorder else 0.0
            self._count += 1
            heappush(self._flying, (self.now + self._delay + aside, self._count, number, repeated, control))

    def _land(self, number: int, repeated: bool, control: LinkControl | None) -> None:
        if control is None:
            if self.far.arrived(number, self.now, stamp=stamp_of(self.now), repeated=repeated):
                self.delivered.append(number)
            return
        control = decode_control(encode_control(control))
        end = self.far if isinstance(control, LinkTail) else self.near
        for resend in end.heard(control, self.now):
            assert resend.number == resend.item
            self._fly(resend.number, True, None)


@pytest.mark.parametrize("seed", range(60))
def test_nothing_comes_twice_and_what_was_lost_once_comes(seed: int) -> None:
    random = Random(seed)
    pair = Pair(random, delay=random.uniform(0.0005, 0.05), config=GENEROUS)
    pair.loss = loss = random.choice((0.01, 0.05, 0.15))
    pair.reorder = random.choice((0.0, 0.05))
    pair.double = random.choice((0.0, 0.05))
    gap = random.choice((0.0003, 0.002, 0.02))
    for number in range(600):
        pair.send(number)
        pair.pass_time(pair.now + gap * random.expovariate(1.0))
    pair.loss = 0.0  # requests of the last ones come through
    pair.send(600)
    pair.pass_time(pair.now + 2.0)
    got = set(pair.delivered)
    assert len(pair.delivered) == len(got)
    assert got <= set(range(601))
    missed = [number for number in range(601) if number not in got]
    assert len(missed) == pair.far.receiving.given_up
    # Each try fails with the request or with its answer.
    expected = 600 * loss * (1.0 - (1.0 - loss) ** 2) ** 2
    assert len(missed) <= 3.0 * expected + 3.0, f"seed {seed}: {missed}"


@pytest.mark.parametrize("seed", range(20))
def test_what_was_lost_at_most_twice_is_repaired_where_requests_come_through(seed: int) -> None:
    random = Random(1_000 + seed)
    pair = Pair(random, delay=0.005, config=GENEROUS)
    lost_on: dict[int, int] = {n: random.choice((1, 2)) for n in random.sample(range(400), 60)}

    def fly(number: int, repeated: bool, control: LinkControl | None) -> None:
        pair.loss = 1.0 if control is None and pair.losses.get(number, 0) < lost_on.get(number, 0) else 0.0
        Pair._fly(pair, number, repeated, control)

    pair._fly = fly  # type: ignore[method-assign]
    for number in range(401):
        pair.send(number)
        pair.pass_time(pair.now + 0.001)
    pair.pass_time(pair.now + 2.0)
    assert sorted(pair.delivered) == list(range(401)), f"seed {seed}"
    assert pair.far.receiving.given_up == 0
    assert pair.far.receiving.repaired == len(lost_on)
    assert pair.near.sending.resent == sum(lost_on.values())


def test_a_link_that_loses_nothing_carries_nothing_for_repair() -> None:
    pair = Pair(Random(1))
    for number in range(2_000):
        pair.send(number)
        assert pair.near.deadline() == pair.far.deadline() == float("inf")
        pair.pass_time(pair.now + 0.001)
    pair.pass_time(pair.now + 10.0)
    assert pair.delivered == list(range(2_000))
    assert pair.controls == 0


def test_a_tail_is_noticed_where_something_was_lost_before() -> None:
    pair = Pair(Random(1))
    for number in range(100):
        pair.loss = 1.0 if number in (50, 99) else 0.0
        pair.send(number)
        pair.loss = 0.0
        pair.pass_time(pair.now + 0.01)
    pair.pass_time(pair.now + 0.2)
    assert sorted(pair.delivered) == list(range(100))
    before = pair.controls
    pair.pass_time(pair.now + 20.0)
    assert pair.controls == before  # silence stays silent


def test_a_tail_is_told_with_what_goes_there_anyway_and_once() -> None:
    ring: SentRing[str] = SentRing(RepairConfig())
    assert ring.untold_tail() is None
    ring.sent("a", SIZE, 0.0)
    ring.sent("b", SIZE, 0.0)
    assert ring.untold_tail() == LinkTail(1)
    assert ring.untold_tail() is None
    ring.sent("c", SIZE, 0.0)
    ring.known(3)
    assert ring.untold_tail() is None


def test_late_is_not_lost_and_the_wait_grows_with_lateness() -> None:
    detector = GapDetector(RepairConfig())
    now = 0.0
    for first in range(0, 200, 2):
        now += 0.02
        assert detector.arrived(first + 1, now, stamp=0, repeated=False)
        late = now + 0.008
        asked = detector.requests(late)
        assert detector.arrived(first, late, stamp=0, repeated=False)
        if first:
            assert not asked
    assert (detector.given_up, detector.doubles, detector.missing()) == (0, 0, 0)


def test_four_tries_then_it_is_left_to_the_ends() -> None:
    detector = GapDetector(RepairConfig())
    detector.arrived(0, 0.0, stamp=0, repeated=False)
    detector.arrived(3, 0.0, stamp=0, repeated=False)
    asked, now = [], 0.0
    while detector.due < float("inf"):
        now = detector.due
        asked += [nack.ranges for nack in detector.requests(now)]
    assert asked == [[(1, 2)]] * 4
    assert detector.given_up == 2
    assert now < RepairConfig().keep_for
    assert detector.arrived(1, now + 5.0, stamp=0, repeated=False)  # it was only very late: better than never
    assert not detector.arrived(1, now + 5.0, stamp=0, repeated=False)
    assert (detector.given_up, detector.doubles) == (1, 1)


def test_what_a_former_life_asked_for_is_not_handed_on_again() -> None:
    detector = GapDetector(RepairConfig(), first=None)
    assert not detector.arrived(16, 1.0, stamp=0, repeated=True)
    assert detector.arrived(20, 1.1, stamp=0, repeated=False)
    assert not detector.arrived(17, 1.2, stamp=0, repeated=True)
    assert detector.arrived(18, 1.2, stamp=0, repeated=False)  # an original that was overtaken


def test_what_is_kept_is_bounded_by_age_count_and_bytes() -> None:
    config = RepairConfig(keep_datagrams=10, keep_bytes=5 * SIZE)
    ring: SentRing[int] = SentRing(config)
    for number in range(20):
        ring.sent(number, SIZE, 0.0)
    assert [one.number for one in ring.asked(nack_of([(0, 19)], False), 0.1)] == [15, 16, 17, 18, 19]
    assert ring.gone == 15
    assert ring.asked(nack_of([(19, 30)], False), 1.0) == []  # too old; and numbers that were never sent
    assert ring.gone == 16


def test_a_jump_leaves_a_bounded_number_missing() -> None:
    detector = GapDetector(RepairConfig(missing_max=100))
    detector.arrived(0, 0.0, stamp=0, repeated=False)
    detector.arrived(1 << 43, 0.0, stamp=0, repeated=False)
    assert detector.missing() == 100
    assert detector.given_up == (1 << 43) - 101
    for number in range(1, 2_000, 2):
        detector.arrived((1 << 43) + number, 0.0, stamp=0, repeated=False)
    assert detector.missing() == 100


def test_repairs_take_their_share_and_no_more() -> None:
    config = RepairConfig(burst_bytes=10 * SIZE)
    ring: SentRing[int] = SentRing(config)
    for number in range(1_000):
        ring.sent(number, SIZE, number * 1e-4)
        if number % 2:
            ring.asked(nack_of([(number - 1, number - 1)], False), number * 1e-4)
    assert ring.resent_bytes <= config.share * 1_000 * SIZE + config.burst_bytes
    assert ring.resent_bytes >= 0.9 * config.share * 1_000 * SIZE
    assert ring.resent + ring.withheld == 500


def test_on_a_congested_way_repairs_nearly_cease_and_come_back() -> None:
    config = RepairConfig()
    ring: SentRing[int] = SentRing(config)
    number, shares = 0, []
    for congested in (True, False):
        resent = 0
        for _ in range(2_000):
            ring.sent(number, SIZE, number * 1e-4)
            if number % 5 == 0:
                resent += len(ring.asked(nack_of([(number, number)], congested), number * 1e-4))
            number += 1
        shares.append(resent / 2_000)
    assert shares[0] < 0.03
    assert shares[1] > 0.15


def test_losses_that_go_with_long_waits_are_of_congestion() -> None:
    random = Random(3)
    for drop_tail in (True, False):
        delay, waited = QueueDelay(), 0.0
        for step in range(4_000):
            now = 100.0 + step * 0.005
            waited = min(max(waited + random.uniform(-5, 5.2), 0.0), 80.0)
            delay.arrived(stamp_of(now - waited / 1e3), now)
            if (waited > 79.0) if drop_tail else random.random() < 0.05:
                delay.lost()
        assert delay.congested == drop_tail


def test_the_stamp_may_begin_again() -> None:
    delay = QueueDelay()
    for step in range(100):
        now = STAMP_MASK / 1e3 - 0.5 + step * 0.01
        delay.arrived(stamp_of(now), now + 0.02)
        delay.lost()
    assert not delay.congested


def test_controls_are_as_they_were_after_the_wire() -> None:
    ranges = [(number * 5, number * 5 + number % 3) for number in range(RANGES_MAX)]
    nack = nack_of(ranges, True)
    assert decode_control(encode_control(nack)) == nack
    assert nack.ranges == ranges
    assert len(encode_control(nack_of([(7, 7)], False))) <= 8
    assert decode_control(encode_control(LinkTail(5))) == LinkTail(5)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x90",
        b"\xc1",
        encode_control(LinkNack(())),
        encode_control(LinkNack((1,))),
        encode_control(LinkNack((1, -1))),
        encode_control(LinkNack((1, 1 << 60))),
        encode_control(LinkNack((1, 1) * (RANGES_MAX + 1))),
        encode_control(LinkTail(-1)),
        encode_control(LinkTail(1 << 44)),
        encode_control(LinkTail(1)) + b"\x00",
        b"\x93" * 2_000,
    ],
)
def test_bad_controls_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidPacket):
        decode_control(data)


def test_settings_that_contradict_each_other_are_refused() -> None:
    for wrong in ({"late_min": 0.0}, {"keep_for": 0.1}, {"share": 1.0}, {"share_min": 0.5}, {"tries": 0}):
        with pytest.raises(ValueError, match="must"):
            RepairConfig(**wrong)  # type: ignore[arg-type]  # of a dictionary
