"""When the compiled loops may be used: at once, or as soon as somebody has prepared them beside other work.

To import and compile them takes seconds. A simulation can wait for that; a live broker that stood still for two seconds
because one subscription more came in would be taken for dead. So whoever must not stand still calls `prepare_beside`
with a way to run something in the background. The indexes then go on without compiled loops until these are ready, and
the work begins only when an index has grown large enough to want them.
"""

from __future__ import annotations

from collections.abc import Callable

Job = Callable[[], None]

_in_background: Callable[[Job], None] | None = None
_begun = False
_ready = False


def prepare_beside(in_background: Callable[[Job], None] | None) -> None:
    """From now on compiled loops are prepared by this means; None prepares them at once, where they are wanted."""
    global _in_background, _begun
    _in_background, _begun = in_background, False


def usable() -> bool:
    """Whether an index that has become large may use compiled loops now; if they are not ready, they soon will be."""
    global _begun
    if _in_background is None or _ready:
        return True
    if not _begun:
        _begun = True
        _in_background(_prepare)
    return False


def warm_up() -> None:
    """Import and compile what large indexes need, now instead of at an inconvenient time."""
    from penstock.content.matching.encoded_table import KernelCover  # late: they import numba
    from penstock.content.matching.exact_table import KernelTable
    from penstock.content.matching.vocabulary import Vocabulary

    KernelTable(Vocabulary()).match(Vocabulary().translate([{}]))
    KernelCover(64).match([0])


def _prepare() -> None:
    global _ready
    warm_up()
    _ready = True
