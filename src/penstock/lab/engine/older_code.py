"""Which kept results are of code before a change that moves their numbers.

`penstock lab current` finds out for results that have digests of their runs (`still_current.py`). Older results have
none: whoever made a change that moved their numbers wrote it here, with the codes of the results that were kept before.
The summary marks both until they are run again.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.lab.engine.kept_results import UNKNOWN, KeptResult


class Change(NamedTuple):
    """Something that moves the numbers of some experiments."""

    names: tuple[str, ...]  # how their names begin
    before: tuple[str, ...]  # how the codes of results begin that were kept before it
    what: str
    product: bool = False  # it moves the product's column, and not the paper's


_MORNING = ("b594238b", "001d0a5a")  # codes of the 18th of November 2026, before ten o'clock
CHANGES = (
    Change(
        ("recovery-", "cacc-with-recovery", "fifo-violations-", "fifo-extra-delay-"),
        _MORNING,
        "each bit of an encoding was drawn by itself (decision 0008)",
    ),
    Change(("cacc-",), _MORNING, "the product's senders began slowly (its column alone)", product=True),
    Change(("cb-", "content-aware-pricing"), (UNKNOWN,), "results named the code that they are of"),
)


def changes_since(result: KeptResult) -> list[Change]:
    """What changed since this result was kept, and moves it."""
    codes = {False: result.code, True: result.product_code}
    found = [
        one for one in CHANGES if result.experiment.startswith(one.names) and codes[one.product].startswith(one.before)
    ]
    if result.moved:
        found.append(Change((result.experiment,), (), f"runs came out otherwise ({result.moved})"))
    return found
