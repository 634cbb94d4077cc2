"""A parser's complaint in words that the writer of the text knows.

The parser stops at a token and knows which kinds it would have taken instead. Here the kinds become words ("an
attribute name", "the end"), always in one order, and the mistakes people make most are named outright: a keyword used
as a name, a quote that is never closed, a text that ends too early, a sign of
another language.
"""

from __future__ import annotations

from collections.abc import Collection

from penstock.content.language.foreign_signs import DOUBLE_QUOTES, foreign_comparison, foreign_sign
from penstock.errors import PredicateSyntaxError

NAMES = frozenset(("NAME", "QUOTED_NAME"))
LITERALS = frozenset(("STRING", "INTEGER", "DECIMAL", "TRUE", "FALSE", "NULL"))
_WORDS = {
    "NAME": "an attribute name",
    "QUOTED_NAME": "an attribute name",
    "STRING": "a string in single quotes",
    "INTEGER": "a number",
    "DECIMAL": "a number",
    "COMPARISON": "a comparison (= <> < <= > >=)",
    "NOT": "NOT",
    "IN": "IN",
    "BETWEEN": "BETWEEN",
    "LIKE": "LIKE",
    "ESCAPE": "ESCAPE",
    "IS": "IS",
    "NULL": "NULL",
    "EXISTS": "EXISTS",
    "TRUE": "TRUE",
    "FALSE": "FALSE",
    "AND": "AND",
    "OR": "OR",
    "(": "(",
    ",": ",",
    ")": ")",
    "END": "the end",
}
_QUOTES = {"'": "string", '"': "quoted name", "`": "quoted name"}


def unexpected_token(text: str, kind: str, found: str, start: int, accepted: frozenset[str]) -> PredicateSyntaxError:
    """The error for a token that the grammar does not allow where it stands, and what it would have taken."""
    if kind == "BAD":
        return _unexpected_character(text, start)
    expected = f"expected {_listed(accepted)}"
    if kind == "END":
        if not text.strip():
            return PredicateSyntaxError(text, 0, f"the predicate is empty; {expected} (TRUE selects every message)")
        return PredicateSyntaxError(text, len(text.rstrip()), f"the text ends too early; {expected}")
    foreign = foreign_comparison(text, start)
    if foreign is not None:
        return PredicateSyntaxError(text, start - 1, foreign)
    shown = found if len(found) <= 40 else found[:40] + "..."
    hint = ""
    if found.isalpha() and kind not in NAMES and accepted & NAMES:
        hint = f' ({found} is a keyword; an attribute of that name is written "{found}")'
    elif kind == "QUOTED_NAME" and "STRING" in accepted:
        hint = DOUBLE_QUOTES
    return PredicateSyntaxError(text, start, f"unexpected {shown}; {expected}{hint}")


def _unexpected_character(text: str, position: int) -> PredicateSyntaxError:
    """The error for a character with which no token begins."""
    character = text[position]
    foreign = foreign_sign(text, position)
    if foreign is not None:
        return PredicateSyntaxError(text, position, foreign)
    if character in _QUOTES:
        problem = f"this {_QUOTES[character]} is never closed; a quote inside one is doubled"
    else:
        shown = character if character.isprintable() else f"U+{ord(character):04X}"
        problem = (
            f"unexpected {shown}; strings stand in single quotes, names that are no plain words in double quotes,"
            f" and comparisons are = <> < <= > >="
        )
    return PredicateSyntaxError(text, position, problem)


def _listed(kinds: Collection[str]) -> str:
    """The kinds in words: "AND, OR, ) or the end"."""
    remaining = set(kinds)
    words = []
    if remaining >= LITERALS:
        words = ["a literal"]
        remaining -= LITERALS
    words = [word for name, word in _WORDS.items() if name in remaining and name in NAMES] + words
    words += [word for name, word in _WORDS.items() if name in remaining and name not in NAMES]
    unique = list(dict.fromkeys(words))
    return unique[0] if len(unique) == 1 else f"{', '.join(unique[:-1])} or {unique[-1]}"
