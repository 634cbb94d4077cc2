"""What a process is called in `ps` and `top`, so that one can tell brokers apart.

Linux keeps a name of 15 bytes for each process (`ps -o comm`, `pgrep`). Elsewhere, and where the C library does not let
us, a process keeps the name that it has: nothing depends on it.
"""

from __future__ import annotations

import sys
from contextlib import suppress

PR_SET_NAME = 15  # of prctl(2)
NAME_BYTES_MAX = 15


def call_process(name: str) -> None:
    """Call this process so, as far as there is room; to be called in its main thread."""
    if sys.platform != "linux":
        return
    import ctypes

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_NAME, process_name(name).encode(), 0, 0, 0)


def process_name(name: str) -> str:
    """A name without what a terminal would obey, and no longer than there is room for."""
    return visible(name).encode()[:NAME_BYTES_MAX].decode(errors="ignore").rstrip()


def visible(name: str) -> str:
    """A name as it may stand in a list of processes."""
    return "".join(letter if letter.isprintable() else "·" for letter in name)
