"""Quarantine for a receiver that is too slow for everybody else, or claims to be (beyond the papers).

Any subscriber may lower the quota of a flow, and the papers follow the slowest for ever. So one that is hopelessly
slow, or lies, holds up all who want the same. Two bounds are the publisher's own. `quota_floor`: nobody gets a flow
below it (the flow table sees to that). And `quarantine_below` and `quarantine_after`: a receiver that alone holds flows
below `quarantine_below` messages/s for longer than `quarantine_after` seconds is quarantined. Its feedback is ignored,
for QUARANTINE_TIMES times as long; then it has another chance. It still gets what comes through, and loses the rest;
both sides count that.

Time below adds up, over all flows of a receiver, and falls off half as fast while it holds none so low: whoever lets go
for a moment, or names the same flow in another way, does not begin anew.

What a publisher can know is little. While it follows the slowest, nobody else has a reason to complain, so the absence
of their feedback proves nothing. But when it stops following, whoever is short of the flow too sends feedback at once.
Hence the rule: one alone may not hold a flow down for long, two may. If the next one asks for about the same while the
first still does (within AGREES times), both are right: the first leaves the quarantine and the second is followed. Two
names of one liar pass for two; who can have many names is a question for the network below. Somebody who shows no sign
of receiving anything is quarantined by `send_path`, for a moment, and leaves the quarantine with the first sign.

State: how long each receiver has held flows down, who is quarantined until when, and what they last asked for. Bounds:
QUARANTINED_MAX receivers; the oldest leaves first. No messages, no timers: the rate limiter asks once per tick.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.kernel.rate_estimator import rate_text
from penstock.kernel.trace import InputRefused, Record
from penstock.transport.config import TransportConfig
from penstock.transport.sender.flow_table import Flow, WantedFlow, flow_covers

QUARANTINE_TIMES = 10.0
QUARANTINED_MAX = 1_000
AGREES = 2.0
FORGIVEN = 0.5  # seconds for each second without a flow held down
PASSED_MAX = 10.0  # seconds between two looks; the clock may leap


class ReceiverQuarantine:
    """Who is not followed any more."""

    def __init__(self, config: TransportConfig) -> None:
        self._below = config.quarantine_below
        self._after = config.quarantine_after
        self._floor = config.quota_floor
        self._looked_at: float | None = None
        self._held: dict[str, float] = {}  # by receiver: seconds
        self._until: dict[str, float] = {}
        self._requests: dict[str, tuple[WantedFlow, float]] = {}  # of those in quarantine: flow and quota

    def __contains__(self, receiver: str) -> bool:
        return receiver in self._until

    def ignores(self, receiver: str, wanted: WantedFlow, quota: float, now: float) -> bool:
        """Whether this request does not count; it is remembered all the same."""
        until = self._until.get(receiver)
        if until is None:
            return False
        if now >= until:
            self._free(receiver)
            return False
        self._requests[receiver] = (wanted, quota)
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
            problem = f"too slow: {rate_text(quota)} messages/s of a flow for {held:.0f} s; not followed any more"
            records.append(InputRefused(receiver[:40], problem))
            self.add(receiver, now)
        return out, records

    def add(self, receiver: str, now: float, seconds: float | None = None) -> None:
        """Quarantine this receiver for some time."""
        self._until[receiver] = now + (QUARANTINE_TIMES * self._after if seconds is None else seconds)
        while len(self._until) > QUARANTINED_MAX:
            self._free(next(iter(self._until)))

    def forgive(self, receiver: str) -> None:
        """The verdict was wrong."""
        self._free(receiver)

    def _agreed(self, flow: Flow) -> bool:
        """Whether somebody in quarantine asks for about as little; then it was right."""
        for receiver, (wanted, quota) in self._requests.items():
            agrees = flow.quota / AGREES <= max(self._floor, quota) <= flow.quota * AGREES
            alike = flow_covers(wanted, flow.wanted) or flow_covers(flow.wanted, wanted)
            if agrees and alike and receiver != flow.limiting_receiver:
                self._free(receiver)
                self._held[flow.limiting_receiver] = 0.0
                return True
        return False

    def _free(self, receiver: str) -> None:
        self._until.pop(receiver, None)
        self._requests.pop(receiver, None)
