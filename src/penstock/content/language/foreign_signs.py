"""What people bring along from other languages (`==`, `&&`, "..."), and what is written here instead.

`syntax_errors` asks when the parser has stopped; nothing here decides what parses.
"""

from __future__ import annotations

_COMPARISONS = {"==": "=", "=>": ">=", "=<": "<=", "><": "<>"}
_SIGNS = {
    "&&": "use AND",
    "||": "use OR",
    "&": "use AND",
    "|": "use OR",
    "!": "use NOT, or <> for unequal",
    "~": "use LIKE",
    **dict.fromkeys("‘’“”´", "strings stand in straight single quotes, '...'"),
}
DOUBLE_QUOTES = " (double quotes are for names; a string stands in single quotes, '...')"


def foreign_comparison(text: str, at: int) -> str | None:
    """The problem, if the token at this place is the second half of a comparison that we write otherwise."""
    pair = text[max(0, at - 1) : at + 1]
    if pair not in _COMPARISONS or text[max(0, at - 2)] in "<>!":
        return None
    return f"{pair} is no comparison; use {_COMPARISONS[pair]}"


def foreign_sign(text: str, at: int) -> str | None:
    """The problem, if a sign of another language stands here."""
    for sign in (text[at : at + 2], text[at]):
        if sign in _SIGNS:
            return f"unexpected {sign}; {_SIGNS[sign]}"
    return None
