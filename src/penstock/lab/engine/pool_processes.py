"""A process of a pool ends with the one that began it, however that one ended.

A pool that is killed (SIGTERM, or for want of memory) cannot tell its processes: each would finish what it is at, for
minutes, and nobody would take the result. So each waits for the end of its parent, beside its work.
"""

from __future__ import annotations

import os
from multiprocessing import parent_process
from multiprocessing.connection import wait
from threading import Thread


def end_with_parent() -> None:
    """The `initializer` of a pool."""
    parent = parent_process()
    if parent is not None:
        Thread(target=_await_end, args=(parent.sentinel,), name="end with parent", daemon=True).start()


def _await_end(parent: int) -> None:
    wait([parent])
    os._exit(1)  # at once: there is nobody to whom anything could be told
