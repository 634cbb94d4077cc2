"""12.10: real receivers are not disowned: an echo that drowns proves nothing, and a wrong verdict is soon undone."""

from __future__ import annotations

from random import Random

import pytest

from penstock.content.message import Identity, make_message
from penstock.kernel.timers import ServiceTimers, Timers
from penstock.kernel.trace import InputRefused
from penstock.transport.config import TransportConfig
from penstock.transport.sender.send_path import UNKNOWN_FOR, UNKNOWN_MAX
from penstock.transport.timers import TransportTimer
from penstock.transport.transport import Transport
from penstock.transport.wire import control_messages as control

CONFIG = TransportConfig(congestion=True)


class Bench:
    """A publisher that sends ten messages a second, and a receiver whose echoes all drown."""

    def __init__(self) -> None:
        timers = ServiceTimers("transport", Timers(), TransportTimer)
        self.transport = Transport("p", 1, CONFIG, timers, lambda purpose: Random(0), publishes=True)
        self.sent = 0
        self.refused: list[str] = []

    def second(self, now: float, *, received: int) -> None:
        """Ten messages, two feedbacks that name this number, a tick."""
        for tenth in range(10):
            self.sent += 1
            message = make_message(Identity("p", 1, self.sent), {"x": 1})
            self.transport.publish(message, now=now + tenth / 10)
        quotas = (control.FlowQuota(50.0, b"", "x = 1"),)
        for half in (0.0, 0.5):
            feedback = control.Feedback("r", now + half, quotas, received)
            message = control.feedback_message(control.ControlIdentities("r", 1), "p", feedback)
            effects = self.transport.arrived((1 << 30,), message, now=now + half)
            self.refused += [one.problem for one in effects if isinstance(one, InputRefused)]
        effects = self.transport.expired(TransportTimer.TICK, (), now=now + 0.9)
        self.refused += [one.problem for one in effects if isinstance(one, InputRefused)]

    @property
    def limited(self) -> bool:
        return bool(self.transport.flows())


def test_who_names_what_it_received_is_followed_though_no_echo_ever_comes_back() -> None:
    bench = Bench()
    for second in range(60):
        bench.second(float(second), received=max(1, bench.sent - 5))
        assert bench.limited
    assert bench.refused == []


@pytest.mark.parametrize("received", [0, 1, 10**9])
def test_who_shows_no_sign_of_receiving_anything_is_not_followed_for_long(received: int) -> None:
    bench = Bench()
    followed = []
    for second in range(60):
        bench.second(float(second), received=received)
        followed.append(bench.limited)
    assert not all(followed[int(UNKNOWN_MAX) + 2 :])
    assert any("no sign" in problem for problem in bench.refused)


def test_a_wrong_verdict_is_undone_by_the_next_sign() -> None:
    bench = Bench()
    second = 0.0
    while bench.limited or not second:
        bench.second(second, received=0)
        second += 1.0
    bench.second(second, received=bench.sent)
    assert bench.limited, f"at once, and not after {UNKNOWN_FOR} s"
    bench = Bench()
    second = 0.0
    while bench.limited or not second:
        bench.second(second, received=0)
        second += 1.0
    for _ in range(int(UNKNOWN_FOR) + 1):
        second += 1.0
        bench.second(second, received=0)
    assert bench.limited, "without a sign too it is heard again after a while"
