"""`penstock pub`: what it says before it publishes, and what it waits for at its end."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from penstock.cli import pub
from penstock.cli.pub import BURST, FIRST_WORD, last_word, no_attributes_text
from penstock.rates.telling import PUBLISHER_EVERY


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


@pytest.mark.parametrize(
    ("told", "waits"),
    [
        ({}, FIRST_WORD),  # nothing is withheld
        ({0.3: 10}, FIRST_WORD + PUBLISHER_EVERY),  # the first notice: more may follow
        ({-1.0: 10, 3.0: 25}, 3.0),  # the last
        ({-1.0: 10, 0.5 * BURST: 12, 4.0: 25}, 4.0),  # what waited for its share was not told of yet
    ],
)
def test_a_report_waits_for_the_last_word_of_what_was_withheld(
    told: dict[float, int], waits: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(pub, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(asyncio, "sleep", sleep)
    work = last_word(lambda: max([0, *(count for at, count in told.items() if at <= now)]))
    with pytest.raises(StopIteration):
        work.send(None)  # it never really waits
    assert now == pytest.approx(waits, abs=0.11)
