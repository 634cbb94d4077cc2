"""What is said of an option that does not exist: the one that is really close, and where a WHERE text stands."""

from __future__ import annotations

from difflib import get_close_matches

import typer
from typer.core import TyperCommand

CLOSE = 0.65  # click names what is half alike, which helps nobody
MEANS_WHERE = ("--where", "--were", "--filter")


class CloseCommand(TyperCommand):
    """A command whose suggestions are close."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]  # typer's own
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            # click, or the copy of it that typer has: its class has no one name
            if type(error).__name__ != "NoSuchOption":
                raise
            given = getattr(error, "option_name", "")
            flags = [flag for one in self.params for flag in one.opts if flag.startswith("--")]
            positional = any(one.name == "where" for one in self.params)
            error.possibilities = get_close_matches(given, flags, n=1, cutoff=CLOSE)  # type: ignore[attr-defined]  # as above
            if given in MEANS_WHERE and positional:
                error.possibilities = []  # type: ignore[attr-defined]  # as above
                error.message += "; the WHERE text stands without an option"  # type: ignore[attr-defined]  # as above
            raise
