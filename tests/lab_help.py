"""Which experiments and which network the tests of the lab look at; `tests/lab/conftest.py` makes them once."""

from __future__ import annotations

from pathlib import Path

TOWN = Path(__file__).parents[1] / "networks" / "town.toml"
SMOKE = ("delay-cdf-hypoexponential-fit", "bdrp-fifo-violations-over-time", "delay-histogram-all-deliveries")
