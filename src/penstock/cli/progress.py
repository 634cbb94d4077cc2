"""A progress bar on stderr, for whoever is there to watch; a pipe or a log file sees nothing of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Advance(Protocol):
    """Says that this share of the work is done, from 0 to 1, and what comes next if that has changed."""

    def __call__(self, share: float, what: str | None = None, /) -> None: ...


@contextmanager
def progress_bar(what: str) -> Iterator[Advance]:
    """A bar for one piece of work; yields the function that moves it."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(what, total=1.0)
        yield lambda share, now=None: bar.update(task, completed=share, description=now)
