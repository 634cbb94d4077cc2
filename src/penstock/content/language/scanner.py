"""Text -> tokens of the WHERE language, in one pass of one regular expression that never tries a character twice.

A token is its kind, its text and its place, kept in three lists: a long text has thousands of them, and most are looked
at once. Keywords are their own kinds (`AND`, `NULL`), read in any case; so are the marks `(`, `)` and `,`. What begins
no token is one of kind BAD, which the parser meets like any other that does not fit. The last token is END.
"""

from __future__ import annotations

import re

from penstock.content.language.expression import KEYWORDS

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<NAME>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*)
    | (?P<MARK>[(),])
    | (?P<COMPARISON><=|>=|<>|!=|=|<|>)
    | (?P<STRING>'[^']*(?:''[^']*)*')
    | (?P<DECIMAL>[+-]?(?:[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+))
    | (?P<INTEGER>[+-]?[0-9]+)
    | (?P<QUOTED_NAME>"[^"]*(?:""[^"]*)*"|`[^`]*(?:``[^`]*)*`)
    | (?P<END>\Z)
    | (?P<BAD>.)
    )""",
    re.VERBOSE | re.DOTALL,
)
_KEYWORD_LENGTH_MAX = max(map(len, KEYWORDS))


class Tokens:
    """The tokens of a text, by their place among them."""

    __slots__ = ("kinds", "starts", "texts")

    def __init__(self, text: str) -> None:
        self.kinds: list[str] = []
        self.texts: list[str] = []
        self.starts: list[int] = []
        for found in _TOKEN.finditer(text):
            kind = found.lastgroup
            assert kind is not None, "each alternative has a name"
            token = found[kind]
            if kind == "NAME":
                if len(token) <= _KEYWORD_LENGTH_MAX and token.upper() in KEYWORDS:
                    kind = token.upper()
            elif kind == "MARK":
                kind = token
            self.kinds.append(kind)
            self.texts.append(token)
            self.starts.append(found.end() - len(token))
            if kind == "END":
                break
