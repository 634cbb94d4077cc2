"""Settings of the transport are refused when they are made, with the name of the one that is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.transport.config import TransportConfig


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"hold_max": -1}, "hold_max is -1; times and constants must be finite and not negative"),
        ({"hold_max": -0.5}, "hold_max is -0.5; times"),
        ({"latch_max": float("nan")}, "latch_max is nan; times"),
        ({"latch_max": "5"}, "latch_max is '5'; it must be a number"),
        ({"echo_interval": None}, "echo_interval is None; it must be a number"),
        ({"flow_timeout": True}, "flow_timeout is True; it must be a number"),
        ({"record_entries": 2.5}, r"record_entries is 2\.5; it must be a whole number"),
        ({"flow_queue": True}, "flow_queue is True; it must be a whole number"),
        ({"congestion": 1}, "congestion is 1; it must be True or False"),
        ({"domain": 5}, "domain is 5; it must be text"),
        ({"late": "never"}, "late is 'never'; choose one of"),
        ({"record_entries": 1000}, "record_entries must be from 0"),
    ],
)
def test_a_wrong_setting_is_refused_by_its_name(wrong: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        TransportConfig(**wrong)


def test_a_whole_number_will_do_for_a_time() -> None:
    assert TransportConfig(hold_max=1).hold_max == 1.0
