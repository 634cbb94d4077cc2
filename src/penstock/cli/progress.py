"""What goes on, on stderr: a progress bar for whoever is there to watch, one line for each piece of work in a log."""

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
    """A bar for one piece of work; yields the function that moves it, and says what comes next.

    `what` is empty where the first move of the bar says it.
    """
    if not sys.stderr.isatty():
        yield _lines(what)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=1.0)
        yield lambda share, now=None: bar.update(task, completed=share, description=now)


def _lines(what: str) -> Advance:
    """For a pipe or a file: a line for each description that was not said before, so that nobody waits in silence."""
    said: set[str] = set()

    def advance(share: float, now: str | None = None, /) -> None:
        if now and now not in said:
            said.add(now)
            print(f"{now} ...", file=sys.stderr, flush=True)

    advance(0.0, what)
    return advance
