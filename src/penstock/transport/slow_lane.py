"""A receiver that is too slow for everybody else, or says so: how long a publisher follows it (beyond the papers).

Any subscriber may lower the quota of a flow, and the papers follow the slowest for ever. So one that is hopelessly
slow, or lies, holds up all who want the same. Two bounds are the publisher's own. `quota_floor`: nobody gets a flow
below it (the flow table sees to that). And, off by default, `slow_below` and `slow_after`: who alone holds a flow below
`slow_below` messages/s for longer than `slow_after` seconds is moved to the slow lane. Its word counts no longer, for
LANE_TIMES times as long; then it has another chance. It still gets what comes through, and loses the rest.

What a publisher can know is little. While it follows the slowest, nobody else has a reason to complain, so their
silence proves nothing. But when it stops following, whoever is short of the flow too says so at once. Hence the rule:
one alone may not hold a flow down for long, two may. If the next one asks for about the same while the first still does
(within AGREES times), both are right: the first comes out of the lane and the second stays where it is. Two names of
one liar pass for two; who can have many names is a question for the network below.

State: since when each flow is held down and by whom, who is in the lane until when, and their last words. Bounds:
LANE_MAX receivers; the oldest leaves first. Flows are as many as the table has. No messages, no timers: the gate asks
once per tick.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.kernel.trace import InputRefused, Record
from penstock.transport.config import TransportConfig
from penstock.transport.flow_table import Flow

LANE_TIMES = 10.0
LANE_MAX = 1_000
AGREES = 2.0


class SlowLane:
    """Who is not followed any more."""

    def __init__(self, config: TransportConfig) -> None:
        self._below = config.slow_below
        self._after = config.slow_after
        self._floor = config.quota_floor
        self._held: dict[int, tuple[str, float]] = {}  # by the number of the flow: by whom, and since when
        self._until: dict[str, float] = {}
        self._words: dict[str, tuple[int, float]] = {}  # of those in the lane: encoding and quota

    def __contains__(self, receiver: str) -> bool:
        return receiver in self._until

    def ignores(self, receiver: str, encoding: int, quota: float, now: float) -> bool:
        """Whether this word does not count; it is remembered all the same."""
        until = self._until.get(receiver)
        if until is None:
            return False
        if now >= until:
            self._free(receiver)
            return False
        self._words[receiver] = (encoding, quota)
        return True

    def judge(self, flows: Iterable[Flow], now: float) -> tuple[list[str], list[Record]]:
        """Once per tick: who is to be followed no longer."""
        if not self._below:
            return [], []
        held: dict[int, tuple[str, float]] = {}
        out: dict[str, Record] = {}
        for flow in flows:
            if flow.quota >= self._below:
                continue
            receiver, since = self._held.get(flow.number, (flow.limiting_receiver, now))
            since = min(since, now) if receiver == flow.limiting_receiver else now
            if now - since > self._after and not self._agreed(flow):
                problem = (
                    f"too slow: {flow.quota:.3g} messages/s of a flow for {now - since:.0f} s; not followed any more"
                )
                out[flow.limiting_receiver] = InputRefused(flow.limiting_receiver[:40], problem)
            else:
                held[flow.number] = (flow.limiting_receiver, since)
        self._held = held
        for receiver in out:
            self._until[receiver] = now + LANE_TIMES * self._after
        while len(self._until) > LANE_MAX:
            self._free(next(iter(self._until)))
        return list(out), list(out.values())

    def _agreed(self, flow: Flow) -> bool:
        """Whether somebody in the lane asks for about as little; then it was right."""
        for receiver, (encoding, quota) in self._words.items():
            agrees = flow.quota / AGREES <= max(self._floor, quota) <= flow.quota * AGREES
            if agrees and encoding == flow.wanted.encoding and receiver != flow.limiting_receiver:
                self._free(receiver)
                return True
        return False

    def _free(self, receiver: str) -> None:
        del self._until[receiver]
        self._words.pop(receiver, None)
