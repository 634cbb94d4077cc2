"""The pages under docs/protocols name every packet, every timer and every control message that there is.

A name counts if it stands in a page as code: `Hello`. So a new packet without a line in a page is a failed test.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.services import services
from penstock.transport.wire import control_messages

PAGES = Path(__file__).parents[3] / "docs" / "protocols"
NAMED = {name for page in PAGES.glob("*.md") for name in re.findall(r"`([^`\n]+)`", page.read_text(encoding="utf-8"))}


def names() -> Iterator[str]:
    """What must be named, as `service: name`."""
    for service in services():
        yield from (f"{service.name}: {kind.__name__}" for kind in service.packets)
        yield from (f"{service.name}: {timer.name}" for timer in service.timers or ())
    yield from (f"control message: {kind}" for kind in control_kinds())
    yield from (f"control message: {kind.__name__}" for kind in control_messages._Kind.__constraints__)


def control_kinds() -> list[str]:
    """The values of the flag that control messages travel under; names of attributes begin with an underscore."""
    constants = [value for name, value in vars(control_messages).items() if name.isupper() and isinstance(value, str)]
    return [value for value in constants if not value.startswith("_")]


@pytest.mark.parametrize("name", list(names()))
def test_every_packet_timer_and_control_message_is_in_a_page(name: str) -> None:
    assert name.partition(": ")[2] in NAMED, f"describe it in a page of {PAGES}"


def test_there_is_something_to_name() -> None:
    assert {"request", "ask", "repair", "heartbeat", "echo", "answer", "feedback", "slow?", "slowed"} == set(
        control_kinds()
    )
    assert len(list(names())) > 30


def test_the_index_names_every_page() -> None:
    linked = re.findall(r"^\| \[(.+?)\]\(\1\)", (PAGES / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted([*linked, "README.md"]) == sorted(page.name for page in PAGES.glob("*.md"))
