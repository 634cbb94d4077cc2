"""The papers know nothing of links that repair themselves: no set-up of theirs has one."""

from __future__ import annotations

import ast

import pages

SETUPS = [
    *(pages.ROOT / "src/penstock/lab/setups").glob("*.py"),
    *(pages.ROOT / "src/penstock/lab/papers").rglob("*.py"),
]
LOSSLESS = ("reliable", "tcp")


def test_every_datagram_link_of_a_papers_set_up_is_without_repair() -> None:
    found = 0
    for path in SETUPS:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "LinkSpec":
                words = {word.arg: ast.unparse(word.value) for word in node.keywords}
                if words.get("kind", "").strip("'\"") in LOSSLESS or words.get("kind") == "link.kind":
                    continue
                found += 1
                if path.name not in ("any_content.py", "product.py"):  # no paper's; they say `repair` themselves
                    assert words.get("repair") == "False", f"{path.name}:{node.lineno}"
    assert found >= 6
