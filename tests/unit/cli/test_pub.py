"""`penstock pub`: what it says before it publishes."""

from __future__ import annotations

import pytest

from penstock.cli.pub import no_attributes_text


@pytest.mark.parametrize(
    ("body", "meant"),
    [
        ("symbol=IBM", "did you mean -a symbol=IBM?"),
        ("note=two words", "did you mean -a 'note=two words'?"),
        ("", "give some with -a NAME=VALUE"),
        ("a body", "give some with -a NAME=VALUE"),
        ("1 + 1 = 2", "give some with -a NAME=VALUE"),
        ("=", "give some with -a NAME=VALUE"),
    ],
)
def test_a_message_without_attributes_is_probably_a_mistake(body: str, meant: str) -> None:
    assert no_attributes_text(body) == f"no attributes; {meant}"
