"""A program that makes a run and is killed in the middle of it, by a signal that nobody can catch.

    python killed_run.py sim|live SCENARIO FOLDER DELIVERIES

It dies with its DELIVERIES-th delivery. Parts are small and live traces reach the disk often, so that a short run
leaves what otherwise only a long one does: some kinds on disk, and others not.
"""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

from penstock.kernel.trace import Delivered, Record
from penstock.kernel.trace_files import TraceFiles
from penstock.lab.engine.simulated_runs import simulate_into
from penstock.live import trace as live_trace
from penstock.live.emulation.scenario_run import run_live
from penstock.scenario import runs
from penstock.scenario.reader import read_scenario

SEED = 7
ROWS_MAX = 300
FLUSH_INTERVAL = 0.25


class Deadly(TraceFiles):
    """A trace that ends its process."""

    def __init__(self, *given: Any, left: int, **more: Any) -> None:
        super().__init__(*given, **more)
        self._left = left

    def write(self, time: float, node: str, record: Record) -> None:
        super().write(time, node, record)
        self._left -= type(record) is Delivered
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def main(world: str, scenario: str, folder: str, deliveries: str) -> None:
    vars(runs)["TraceFiles"] = partial(Deadly, left=int(deliveries), rows_max=ROWS_MAX)
    live_trace.FLUSH_INTERVAL = FLUSH_INTERVAL
    if world == "sim":
        simulate_into(Path(folder), read_scenario(Path(scenario)), SEED)
    else:
        run_live(read_scenario(Path(scenario)), SEED, folder=Path(folder))


if __name__ == "__main__":
    main(*sys.argv[1:])
