"""Every promise of docs/guarantees.md names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "guarantees.md").read_text()


def test_every_promise_is_held_by_tests_that_exist() -> None:
    promises = re.findall(r"^(\d+)\. \*\*(.*?)(?=^\d+\. \*\*|^### )", PAGE, flags=re.MULTILINE | re.DOTALL)
    assert [int(number) for number, _ in promises] == list(range(1, len(promises) + 1))
    existing = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"def (test_\w+)\(", path.read_text())
    }
    for number, text in promises:
        named = re.findall(r"`(test_\w+)`", text)
        assert named, f"promise {number} names no test"
        assert set(named) <= existing, f"promise {number} names tests that are not there"
