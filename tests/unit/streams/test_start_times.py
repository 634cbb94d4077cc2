"""Where a durable subscription begins: what people write, and what travels."""

from __future__ import annotations

import pytest

from penstock.errors import InvalidOption
from penstock.streams.start_times import start_on_wire


@pytest.mark.parametrize(
    ("text", "wire"),
    [
        ("", "latest"),
        ("latest", "latest"),
        (" Earliest ", "earliest"),
        ("10m", "ago:600.0"),
        ("2h", "ago:7200.0"),
        ("1.5h", "ago:5400.0"),
        ("30s", "ago:30.0"),
        ("7 d", "ago:604800.0"),
        ("0", "tick:0"),
        ("1731738000000000", "tick:1731738000000000"),
        ("2026-11-16T06:00:00Z", "time:1794808800.0"),
        ("2026-11-16T07:00:00+01:00", "time:1794808800.0"),
        ("2026-11-16 06:00", "time:1794808800.0"),
        ("2026-11-16", "time:1794787200.0"),
    ],
)
def test_what_people_write(text: str, wire: str) -> None:
    assert start_on_wire(text) == wire


@pytest.mark.parametrize(
    "text",
    ["yesterday", "-5m", "10x", "m", "1e3s", "٣m", "1969-12-31", "2026-13-01", "9" * 30, "5" * 10_000, "10m ago"],
)
def test_what_means_nothing(text: str) -> None:
    with pytest.raises(InvalidOption, match="write earliest, latest, how long ago") as error:
        start_on_wire(text)
    assert len(str(error.value)) < 250
