"""LIKE: equal to its definition, and linear whatever the pattern."""

from __future__ import annotations

from typing import SupportsIndex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.content.language.like import compile_like
from penstock.errors import PredicateSyntaxError


def reference(text: str, pattern: str, escape: str) -> bool:
    """The definition as a table: reachable[j] says that the pattern read so far fits text[:j]."""
    reachable = [True] + [False] * len(text)
    position = 0
    while position < len(pattern):
        character = pattern[position]
        if character == escape:
            position += 1
            steps = [text[j] == pattern[position] for j in range(len(text))]
        elif character == "%":
            for j in range(len(text)):
                reachable[j + 1] |= reachable[j]
            position += 1
            continue
        else:
            steps = [character in ("_", text[j]) for j in range(len(text))]
        reachable = [False] + [reachable[j] and steps[j] for j in range(len(text))]
        position += 1
    return reachable[-1]


ESCAPED = st.sampled_from(["!%", "!_", "!!"])
PIECES = st.one_of(st.sampled_from(["%", "_", "a", "b", "ab", "%%", "é"]), ESCAPED)


@settings(deadline=None, derandomize=True, max_examples=1000)
@given(st.text(alphabet="ab%_!é", max_size=12), st.lists(PIECES, max_size=8).map("".join))
def test_like_is_its_definition(text: str, pattern: str) -> None:
    compiled = compile_like(pattern, "!")
    assert compiled.matches(text) is reference(text, pattern, "!")
    assert compile_like(*compiled.canonical).matches(text) is compiled.matches(text)
    if compiled.matches(text):
        assert text.startswith(compiled.literal_prefix)
    if compiled.literal is not None:
        assert compiled.matches(text) is (text == compiled.literal)


@pytest.mark.parametrize(
    ("pattern", "prefix", "literal", "is_prefix"),
    [
        ("abc%", "abc", None, True),
        ("abc", "abc", "abc", False),
        ("a_c%", "a", None, False),
        ("%abc", "", None, False),
        ("a\\%", "a\\", None, True),
        ("", "", "", False),
        ("%", "", None, True),
        ("ab%c", "ab", None, False),
    ],
)
def test_what_a_pattern_says_about_the_beginning(
    pattern: str, prefix: str, literal: str | None, is_prefix: bool
) -> None:
    compiled = compile_like(pattern)
    assert (compiled.literal_prefix, compiled.literal, compiled.is_prefix) == (prefix, literal, is_prefix)


@pytest.mark.parametrize(
    ("pattern", "escape", "position"),
    [("ab\\", "\\", 2), ("a\\b", "\\", 1), ("!x", "!", 0), ("a", "!!", 0)],
)
def test_a_wrong_escape_is_refused_with_its_place(pattern: str, escape: str, position: int) -> None:
    with pytest.raises(PredicateSyntaxError) as caught:
        compile_like(pattern, escape)
    assert caught.value.position == position


@pytest.mark.parametrize(
    ("pattern", "escape", "canonical"),
    [
        ("C:\\%%", "", ("C:\\%", "")),
        ("5!%", "!", ("5\\%", "\\")),
        ("5!%\\_", "!", ("5\\%\\\\_", "\\")),
        ("!!%", "!", ("!%", "")),
    ],
)
def test_one_way_to_write_a_pattern_and_an_escape_only_where_it_is_needed(
    pattern: str, escape: str, canonical: tuple[str, str]
) -> None:
    assert compile_like(pattern, escape).canonical == canonical


def test_without_escape_a_backslash_is_a_character_like_any_other() -> None:
    assert compile_like("C:\\temp\\%").matches("C:\\temp\\x")
    assert compile_like("50\\%").matches("50\\ and more")
    assert not compile_like("50\\%").matches("50%")
    assert compile_like("50\\%", "\\").matches("50%")


class CountingText(str):
    """A text that counts the characters that are looked at one by one."""

    looks = 0

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        self.looks += 1
        return super().__getitem__(key)


@pytest.mark.parametrize(
    "pattern", ["%a_a_a%b_b%", "%a_" * 300, "%_" * 500 + "%b_b%", "%a" * 500 + "%", "%" + "a_" * 300 + "b%", "%_%_%_%b"]
)
def test_no_character_is_looked_at_twice(pattern: str) -> None:
    text = CountingText("a" * 20_000)
    compile_like(pattern).matches(text)
    assert text.looks <= len(text)
    # The adversary of backtracking matchers: many ways to begin, none to end. It ends, that is the test.
    assert not compile_like("%a%a_a%a%a%a_a%a%a%a%b").matches("a" * 1_000_000)
