"""A receiver that is too slow for everybody else, or says so: how long a publisher follows it (beyond the papers).

Any subscriber may lower the quota of a flow, and the papers follow the slowest for ever. So one that is hopelessly
slow, or lies, holds up all who want the same. Two bounds are the publisher's own. `quota_floor`: nobody gets a flow
below it (the flow table sees to that). And `slow_below` and `slow_after`: who alone holds flows below `slow_below`
messages/s for longer than `slow_after` seconds is moved to the slow lane. Its word counts no longer, for LANE_TIMES
times as long; then it has another chance. It still gets what comes through, and loses the rest; both sides count that.

Time below adds up, over all flows of a receiver, and falls off half as fast while it holds none so low: whoever lets go
for a moment, or names the same flow in another way, does not begin anew.

What a publisher can know is little. While it follows the slowest, nobody else has a reason to complain, so their
silence proves nothing. But when it stops following, whoever is short of the flow too says so at once. Hence the rule:
one alone may not hold a flow down for long, two may. If the next one asks for about the same while the first still does
(within AGREES times), both are right: the first comes out of the lane and the second stays where it is. Two names of
one liar pass for two; who can have many names is a question for the network below. A name that nobody answers to is
sent to the lane by `sending`.

State: how long each receiver has held flows down, who is in the lane until when, and their last words. Bounds: LANE_MAX
receivers; the oldest leaves first. No messages, no timers: the gate asks once per tick.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.kernel.trace import InputRefused, Record
from penstock.transport.config import TransportConfig
from penstock.transport.sender.flow_table import Flow, Wanted, flow_covers

LANE_TIMES = 10.0
LANE_MAX = 1_000
AGREES = 2.0
FORGIVEN = 0.5  # seconds for each second without a flow held down
PASSED_MAX = 10.0  # seconds between two looks; the clock may leap


class SlowLane:
    """Who is not followed any more."""

    def __init__(self, config: TransportConfig) -> None:
        self._below = config.slow_below
        self._after = config.slow_after
        self._floor = config.quota_floor
        self._looked_at: float | None = None
        self._held: dict[str, float] = {}  # by receiver: seconds
        self._until: dict[str, float] = {}
        self._words: dict[str, tuple[Wanted, float]] = {}  # of those in the lane: flow and quota

    def __contains__(self, receiver: str) -> bool:
        return receiver in self._until

    def ignores(self, receiver: str, wanted: Wanted, quota: float, now: float) -> bool:
        """Whether this word does not count; it is remembered all the same."""
        until = self._until.get(receiver)
        if until is None:
            return False
        if now >= until:
            self._free(receiver)
            return False
        self._words[receiver] = (wanted, quota)
        return True

    def judge(self, flows: Iterable[Flow], now: float) -> tuple[list[str], list[Record]]:
        """Once per tick: who is to be followed no longer."""
        if not self._below:
            return [], []
        passed = min(PASSED_MAX, max(0.0, now - self._looked_at)) if self._looked_at is not None else 0.0
        self._looked_at = now
        low: dict[str, Flow] = {}  # of each receiver the slowest flow
        for flow in flows:
            slowest = low.get(flow.limiting_receiver)
            if flow.quota < self._below and (slowest is None or flow.quota < slowest.quota):
                low[flow.limiting_receiver] = flow
        less = {receiver: held - FORGIVEN * passed for receiver, held in self._held.items() if receiver not in low}
        more = {receiver: self._held.get(receiver, 0.0) + passed for receiver in low}
        self._held = {receiver: held for receiver, held in {**less, **more}.items() if held > 0.0 or receiver in low}
        out = [one for one, flow in low.items() if self._held[one] > self._after and not self._agreed(flow)]
        records: list[Record] = []
        for receiver in out:
            quota, held = low[receiver].quota, self._held.pop(receiver)
            problem = f"too slow: {quota:.3g} messages/s of a flow for {held:.0f} s; not followed any more"
            records.append(InputRefused(receiver[:40], problem))
            self.send(receiver, now)
        return out, records

    def send(self, receiver: str, now: float) -> None:
        """To the lane, for some time."""
        self._until[receiver] = now + LANE_TIMES * self._after
        while len(self._until) > LANE_MAX:
            self._free(next(iter(self._until)))

    def _agreed(self, flow: Flow) -> bool:
        """Whether somebody in the lane asks for about as little; then it was right."""
        for receiver, (wanted, quota) in self._words.items():
            agrees = flow.quota / AGREES <= max(self._floor, quota) <= flow.quota * AGREES
            alike = flow_covers(wanted, flow.wanted) or flow_covers(flow.wanted, wanted)
            if agrees and alike and receiver != flow.limiting_receiver:
                self._free(receiver)
                self._held[flow.limiting_receiver] = 0.0
                return True
        return False

    def _free(self, receiver: str) -> None:
        del self._until[receiver]
        self._words.pop(receiver, None)
