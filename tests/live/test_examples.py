"""The programs in examples/ run as they stand, each in a process of its own, and print what their page shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import penstock
from penstock.testing import embedded_network_blocking, received_blocking

EXAMPLES = Path(__file__).parents[2] / "examples"
PAGE = (EXAMPLES / "README.md").read_text(encoding="utf-8")
SHOWN = dict(re.findall(r"^\[(\w+)\.py\].*?```text\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL))
VARY = ("in_order", "slow_reader")  # their numbers differ from run to run
LINES_MAX = 80


def started(name: str, *options: str, **environment: str) -> subprocess.Popen[str]:
    """One example in its process, with warnings of things left open."""
    inherited = {key: value for key, value in os.environ.items() if key != "PENSTOCK_URL"}
    return subprocess.Popen(
        [sys.executable, "-W", "always::ResourceWarning", *options, str(EXAMPLES / f"{name}.py")],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**inherited, **environment},
    )


def ended(process: subprocess.Popen[str]) -> str:
    """What it printed; it must have ended well."""
    out, problems = process.communicate(timeout=180)
    assert process.returncode == 0, problems
    assert "Warning" not in problems
    assert "Traceback" not in problems
    return out


def lines(text: str, *, numbers: bool = True) -> list[str]:
    """Without the spaces that align columns, and perhaps without the numbers."""
    kept = text if numbers else re.sub(r"\d+(\.\d+)?", "0", text)
    return [" ".join(line.split()) for line in kept.splitlines() if line.strip()]


def test_every_example_prints_what_its_page_shows() -> None:
    names = sorted(path.stem for path in EXAMPLES.glob("*.py"))
    assert sorted(SHOWN) == names
    printed = {}
    for pair in (names[place : place + 2] for place in range(0, len(names), 2)):  # there are two cores
        running = {name: started(name) for name in pair}
        printed.update({name: ended(process) for name, process in running.items()})
    for name, out in printed.items():
        numbers = name not in VARY
        assert lines(out, numbers=numbers) == lines(SHOWN[name], numbers=numbers), name
        assert len((EXAMPLES / f"{name}.py").read_text(encoding="utf-8").splitlines()) < LINES_MAX
    careful, plain, recovered, _ = [list(map(int, re.findall(r"\d+", line))) for line in lines(printed["in_order"])]
    assert 290 <= careful[0] <= 300
    assert careful[0] > plain[0]
    assert careful[2] < plain[2]
    assert recovered[0] > 0
    _, prices, details = [list(map(int, re.findall(r"\d+", line))) for line in lines(printed["slow_reader"])]
    assert prices[0] == prices[1]
    assert details[0] < prices[0]


def test_an_example_uses_the_network_that_it_is_given() -> None:
    with (
        embedded_network_blocking() as brokers,
        penstock.connect_blocking(brokers.url) as beside,
        beside.subscribe("EXISTS kind") as readings,
    ):
        out = ended(started("alerts", PENSTOCK_URL=brokers.url))
        assert len(received_blocking(readings, 5)) == 5
    assert lines(out) == lines(SHOWN["alerts"])


def test_without_pandas_the_last_one_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "pandas.py").write_text("raise ImportError\n")
    inherited = os.environ.get("PYTHONPATH", "")
    found = started("trace_to_table", PYTHONPATH=f"{tmp_path}{os.pathsep}{inherited}")
    out, problems = found.communicate(timeout=60)
    assert (found.returncode, out) == (1, "")
    assert "pip install 'penstock[spark]'" in problems
