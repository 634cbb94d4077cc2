"""A parser's complaint in words that the writer of the text knows.

The parser stops at a token and knows which terminals it would have taken instead. Here the terminals become words
("an attribute name", "the end"), always in one order, and the mistakes people make most are named outright: a keyword
used as a name, a quote that is never closed, a text that ends too early, a sign of another language.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.content.language.foreign_signs import DOUBLE_QUOTES, foreign_comparison, foreign_sign
from penstock.errors import PredicateSyntaxError

if TYPE_CHECKING:
    from collections.abc import Collection

    from lark import Lark, Token

_NAME_TERMINALS = frozenset(("NAME", "QUOTED_NAME"))
_LITERAL_TERMINALS = frozenset(("STRING", "INTEGER", "DECIMAL", "TRUE", "FALSE", "NULL"))
_WORDS = {
    "NAME": "an attribute name",
    "QUOTED_NAME": "an attribute name",
    "STRING": "a string in single quotes",
    "INTEGER": "a number",
    "DECIMAL": "a number",
    "COMPARISON": "a comparison (= <> < <= > >=)",
    "NOT": "NOT",
    "_IN": "IN",
    "_BETWEEN": "BETWEEN",
    "_LIKE": "LIKE",
    "_ESCAPE": "ESCAPE",
    "_IS": "IS",
    "NULL": "NULL",
    "_EXISTS": "EXISTS",
    "TRUE": "TRUE",
    "FALSE": "FALSE",
    "_AND": "AND",
    "_OR": "OR",
    "_LPAR": "(",
    "_COMMA": ",",
    "_RPAR": ")",
    "$END": "the end",
}
_QUOTES = {"'": "string", '"': "quoted name", "`": "quoted name"}


def unexpected_token(parser: Lark, text: str, token: Token) -> PredicateSyntaxError:
    """The error for a token that the grammar does not allow where it stands."""
    accepted = _accepted_before(parser, text, token)
    expected = f"expected {_listed(accepted)}"
    if token.type == "$END":
        if not text.strip():
            return PredicateSyntaxError(text, 0, f"the predicate is empty; {expected} (TRUE selects every message)")
        return PredicateSyntaxError(text, len(text.rstrip()), f"the text ends too early; {expected}")
    found = str(token)
    foreign = foreign_comparison(text, token.start_pos or 0)
    if foreign is not None:
        return PredicateSyntaxError(text, (token.start_pos or 0) - 1, foreign)
    shown = found if len(found) <= 40 else found[:40] + "..."
    hint = ""
    if found.isalpha() and token.type not in _NAME_TERMINALS and accepted & _NAME_TERMINALS:
        hint = f' ({found} is a keyword; an attribute of that name is written "{found}")'
    elif token.type == "QUOTED_NAME" and "STRING" in accepted:
        hint = DOUBLE_QUOTES
    return PredicateSyntaxError(text, token.start_pos or 0, f"unexpected {shown}; {expected}{hint}")


def _accepted_before(parser: Lark, text: str, offender: Token) -> set[str]:
    """The terminals that could have stood in the place of the offender.

    When the parser stops it has already closed what the offender could not continue, and has forgotten that AND would
    have been welcome. So the text is read again up to the offender, and asked there.
    """
    reader: Any = parser.parse_interactive(text)
    before: list[Token] = []
    for token in reader.lexer_thread.lex(reader.parser_state):
        if offender.type != "$END" and token.start_pos == offender.start_pos:
            break
        reader.feed_token(token)
        before.append(token)
    accepted = set(reader.accepts())
    if len(before) > 1 and before[-1].type == "COMPARISON":
        accepted -= _NAME_TERMINALS if before[-2].type in _NAME_TERMINALS else _LITERAL_TERMINALS
    return accepted


def unexpected_character(text: str, position: int) -> PredicateSyntaxError:
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


def _listed(terminals: Collection[str]) -> str:
    """The terminals in words: "AND, OR, ) or the end"."""
    remaining = set(terminals)
    words = []
    if remaining >= _LITERAL_TERMINALS:
        words = ["a literal"]
        remaining -= _LITERAL_TERMINALS
    words = [word for name, word in _WORDS.items() if name in remaining and name in _NAME_TERMINALS] + words
    words += [word for name, word in _WORDS.items() if name in remaining and name not in _NAME_TERMINALS]
    unique = list(dict.fromkeys(words))
    return unique[0] if len(unique) == 1 else f"{', '.join(unique[:-1])} or {unique[-1]}"
