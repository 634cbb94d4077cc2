"""What link repair does to a way that is congested where no broker sees it. Run: `python bench/congested_link.py`.

One datagram link between two ends. In the middle of the way there is a drop-tail queue before 1 Mbit/s, then 10 ms; the
way back takes 10 ms. Poisson messages of 250 bytes for 30 s of virtual time, at a rate `offered` as a share of the
bottleneck; in bursts: half a second at twice what is offered on average, half a second of nothing. A wire behind the
bottleneck loses `loss`.

Each row is run without repair, with repair that does not look at delay (`blind`), and with repair as it is. Of each:
goodput (each message once, over the bottleneck's capacity in 30 s), messages that never came, copies and requests for
repair as shares of the messages, and the delay of what came. Means of SEEDS seeds; nothing depends on the machine.
"""

from __future__ import annotations

from heapq import heappop, heappush
from random import Random
from statistics import fmean

from penstock.overlay.repair.controls import encode_control
from penstock.overlay.repair.link_repair import LinkRepair
from penstock.overlay.repair.queue_delay import QueueDelay, stamp_of

RATE, DELAY, SIZE = 1e6 / 8.0, 0.010, 250  # bytes/s, seconds, bytes
DURATION, DRAIN, SEEDS = 30.0, 2.0, 3
ROWS = (  # offered, packets in the queue, loss on the wire, in bursts
    (0.5, 100, 0.0, False),
    (0.95, 20, 0.0, False),
    (1.05, 20, 0.0, False),
    (1.05, 100, 0.0, False),
    (1.3, 100, 0.0, False),
    (2.0, 100, 0.0, False),
    (0.7, 100, 0.0, True),
    (0.5, 100, 0.05, False),
    (0.9, 100, 0.05, False),
)
WAYS = ("off", "blind", "on")


class Blind(QueueDelay):
    """Never takes a loss for one of a full queue."""

    @property
    def congested(self) -> bool:
        return False


class Way:
    """The link in virtual time."""

    def __init__(self, way: str, queue: int, loss: float, random: Random) -> None:
        self.now = 0.0
        self._way, self._queue, self._loss, self._random = way, queue, loss, random
        self._here: LinkRepair[tuple[int, float]] = LinkRepair()
        self._there: LinkRepair[tuple[int, float]] = LinkRepair()
        if way == "blind":
            self._there.receiving._delay = Blind()
        self._events: list[tuple[float, int, str, tuple[float, ...] | object]] = []
        self._count = 0
        self._idle_at = 0.0
        self._armed = {"here": 0.0, "there": 0.0}  # when somebody looks again
        self.delays: dict[int, float] = {}
        self.offered = self.repeated = self.asked = 0

    def at(self, time: float, kind: str, what: object) -> None:
        self._count += 1
        heappush(self._events, (time, self._count, kind, what))

    def run(self) -> None:
        while self._events and self._events[0][0] <= DURATION + DRAIN:
            self.now, _, kind, what = heappop(self._events)
            getattr(self, f"_{kind}")(what)
            if self._way != "off":
                self._tend()

    def _tend(self) -> None:
        for name, end in (("here", self._here), ("there", self._there)):
            for control in end.wake(self.now) if end.deadline() <= self.now else ():
                self.asked += name == "there"
                if name == "there" and self._random.random() >= self._loss:
                    self.at(self.now + DELAY, "heard", control)
                elif name == "here":
                    self._wire(len(encode_control(control)), "tail", control)
            due = max(end.deadline(), self.now + 1e-4)
            if due < self._armed[name] or self._armed[name] <= self.now:
                self._armed[name] = due
                self.at(due, "nothing", None)

    def _nothing(self, what: object) -> None:
        """Time has passed."""

    def _publish(self, number: int) -> None:
        self.offered += 1
        item = (number, self.now)
        sent = self._here.sent(item, SIZE, self.now) if self._way != "off" else -1
        self._wire(SIZE, "arrive", (item, sent, stamp_of(self.now), False))

    def _wire(self, size: int, kind: str, what: object) -> None:
        """Through the queue, if it has room."""
        if self._idle_at - self.now > self._queue * SIZE / RATE:
            return
        self._idle_at = max(self._idle_at, self.now) + size / RATE
        if self._random.random() >= self._loss:
            self.at(self._idle_at + DELAY, kind, what)

    def _arrive(self, what: tuple[tuple[int, float], int, int, bool]) -> None:
        (number, left), sent, stamp, repeated = what
        if self._way == "off" or self._there.arrived(sent, self.now, stamp=stamp, repeated=repeated):
            self.delays.setdefault(number, self.now - left)

    def _tail(self, control: object) -> None:
        self._there.heard(control, self.now)  # type: ignore[arg-type]  # what `wake` gave

    def _heard(self, control: object) -> None:
        for again in self._here.heard(control, self.now):  # type: ignore[arg-type]  # the same
            self.repeated += 1
            self._wire(SIZE, "arrive", (again.item, again.number, stamp_of(self.now), True))


def measured(way: str, offered: float, queue: int, loss: float, bursts: bool, seed: int) -> tuple[float, ...]:
    """Goodput, lost, copies, requests, p50 and p99 of the delay."""
    random = Random(seed)
    link = Way(way, queue, loss, Random(seed + 1_000))
    time, number, rate = 0.0, 0, offered * RATE / SIZE * (2.0 if bursts else 1.0)
    while (time := time + random.expovariate(rate)) < DURATION:
        if not bursts or time % 1.0 < 0.5:
            link.at(time, "publish", number)
            number += 1
    link.run()
    delays = sorted(link.delays.values())
    goodput = len(delays) * SIZE / (RATE * DURATION)
    shares = [1.0 - len(delays) / number, link.repeated / number, link.asked / number]
    return goodput, *shares, delays[len(delays) // 2], delays[int(len(delays) * 0.99)]


def main() -> None:
    """The table of decision 0018."""
    print("| offered, queue | goodput | never came | copies, requests | delay p50 | p99 |\n|---|---|---|---|---|---|")
    for offered, queue, loss, bursts in ROWS:
        found = []
        for way in WAYS:
            runs = [measured(way, offered, queue, loss, bursts, seed) for seed in range(1, SEEDS + 1)]
            found.append([fmean(values) for values in zip(*runs, strict=True)])
        what = f"{offered:g}{' in bursts' if bursts else ''}, {queue}" + (f", {loss:.0%} lost" if loss else "")
        goodput, lost, copies, requests, p50, p99 = zip(*found, strict=True)
        cells = [
            ", ".join(f"{one:.3f}" for one in goodput),
            ", ".join(f"{one:.1%}" for one in lost),
            ", ".join(f"{one:.1%}+{more:.1%}" for one, more in zip(copies[1:], requests[1:], strict=True)),
            ", ".join(f"{one * 1e3:.0f}" for one in p50) + " ms",
            ", ".join(f"{one * 1e3:.0f}" for one in p99) + " ms",
        ]
        print(f"| {what} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
