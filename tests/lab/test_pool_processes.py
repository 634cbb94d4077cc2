"""Processes of a pool do not outlive who began them."""

from __future__ import annotations

import os
import select
import subprocess
import sys

import pytest

BOUND = 20.0  # seconds
LAB = """
import os, signal, sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from penstock.lab.engine.pool_processes import end_with_parent

if __name__ == "__main__":
    with ProcessPoolExecutor(2, mp_context=get_context(sys.argv[1]), initializer=end_with_parent) as pool:
        work = [pool.submit(signal.pause) for _ in range(2)]
        print(*pool._processes, flush=True)
        signal.pause()
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs a Linux that hands out processes as files")
@pytest.mark.parametrize("way", ["spawn", "fork"])
def test_they_end_when_it_is_killed(tmp_path, way):
    (tmp_path / "lab.py").write_text(LAB)
    with subprocess.Popen([sys.executable, tmp_path / "lab.py", way], stdout=subprocess.PIPE, text=True) as lab:
        assert lab.stdout is not None
        processes = [os.pidfd_open(int(pid)) for pid in lab.stdout.readline().split()]
        assert len(processes) == 2
        lab.kill()
    try:
        for process in processes:
            assert select.select([process], [], [], BOUND)[0], "it goes on"
    finally:
        for process in processes:
            os.close(process)
