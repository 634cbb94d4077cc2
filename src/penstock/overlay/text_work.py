"""How much work, and room, the text of a predicate is: the unit is one short text."""

from __future__ import annotations

from penstock.content.language.parser import DEFAULT_PREDICATE_LIMITS

WORK_CHARACTERS = 100  # of a text: up to here it counts as one


def work_of_text(text: str) -> int:
    """As how many short ones it counts: alternatives multiply, so the work grows faster than the text.

    The worst texts known take a quarter of a millisecond for each. One that is too long to be parsed is refused at a
    glance.
    """
    length = len(text)
    return 1 + (length // WORK_CHARACTERS) ** 2 if length <= DEFAULT_PREDICATE_LIMITS.characters_max else 1
