"""Reading our own pages: their code blocks, tables, headings and links.

Tests of the documentation read it with this, so that what they check is what a reader sees.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
_FENCE = re.compile(r"^(\s*)```(\w*)\s*$")
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)|<img[^>]*src=\"([^\"]+)\"")


class Block(NamedTuple):
    """A fenced block of a page."""

    page: str
    line: int
    language: str  # "" if it names none
    text: str

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """Everything that a user or a contributor reads; decisions and the changelog are history."""
    docs = [path for path in sorted((ROOT / "docs").rglob("*.md")) if "decisions" not in path.parts]
    more = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "examples" / "README.md"]
    return [path for path in more if path.exists()] + docs


def blocks(path: Path) -> Iterator[Block]:
    """The fenced blocks of a page, in order, without the indentation of the list that they may stand in."""
    page, opened, lines = path.relative_to(ROOT).as_posix(), None, []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        fence = _FENCE.match(line)
        if fence and opened is None:
            opened, lines = (number, len(fence[1]), fence[2]), []
        elif fence and opened is not None:
            yield Block(page, opened[0], opened[2], "\n".join(lines) + "\n")
            opened = None
        elif opened is not None:
            lines.append(line[opened[1] :])
    assert opened is None, f"{page}: a block that begins at line {opened} has no end"


def prose(path: Path) -> str:
    """A page without its blocks."""
    kept, inside = [], False
    for line in path.read_text(encoding="utf-8").splitlines():
        fence = _FENCE.match(line) is not None
        inside ^= fence
        if not inside and not fence:
            kept.append(line)
    return "\n".join(kept)


def table(path: Path, heading: str) -> list[dict[str, str]]:
    """The table whose first column has this heading: a row is its cells by heading. Code loses its backticks."""
    rows: list[dict[str, str]] = []
    headings: list[str] = []
    for line in prose(path).splitlines():
        cells = [_uncoded(cell.strip()) for cell in line.strip().strip("|").split(" | ")] if line[:1] == "|" else []
        if not cells:
            headings = []
        elif headings and not set(line) <= set("|-: "):
            rows.append(dict(zip(headings, cells + [""] * (len(headings) - len(cells)), strict=True)))
        elif not headings and cells[0] == heading:
            headings = cells
        elif not headings:
            headings = []
    assert rows, f"{path.name} has no table whose first column is '{heading}'"
    return rows


def _uncoded(cell: str) -> str:
    found = re.fullmatch(r"(`+)(.*)\1", cell)
    return found[2].strip() if found and found[1] not in found[2] else cell


def anchors(path: Path) -> set[str]:
    """What links to headings of a page may name, by the rules of GitHub."""
    found: list[str] = re.findall(r"^#+ (.*)$", prose(path), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()) for heading in found)
    return {words.replace(" ", "-") for words in plain}


def links(path: Path) -> list[str]:
    """Where a page points to."""
    return [first or second for first, second in _LINK.findall(prose(path))]
