"""Every snippet and command of README and docs is run, every link leads somewhere, every file that is named is there.

Python runs as it stands; only the address of the broker is replaced. A block `text` right after it is what it prints.
Commands begin with `$`; lines below one are what it prints. `penstock up networks/town.toml` really runs, once, on free
ports, for all who need a network. The other replacements are in `smaller`: they make work shorter, never another.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer
from typer.testing import CliRunner

import pages
from pages import ROOT, Block
from penstock.cli.main import app
from penstock.content.language.parser import parse_predicate
from penstock.errors import PenstockError
from penstock.scenario.reader import parse_scenario

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGES = pages.pages()
BLOCKS = [block for path in PAGES for block in pages.blocks(path)]
NETWORK = pytest.mark.xdist_group("pages")  # one worker starts the brokers
FIRST_PORT = 7420
RAILWAY_PORT = 7520  # of the second network in README
TOWN = ROOT / "networks" / "town.toml"

# Pages whose programs need more than a network, such as a run on disk: another test reads and runs them.
RUN_ELSEWHERE = ("docs/data.md", "docs/testing.md", "examples/README.md")
# Commands that are not run here, and why. That they exist, and take these options, is checked all the same.
NOT_RUN = {
    "make": "whole suites, and set-up; `penstock demo`, which `make demo` calls, has tests of its own",
    "penstock demo": "half a minute of traffic",
    "penstock live": "as long as its file says; tests/live/test_scenario_run.py runs shorter ones",
    "penstock lab run": "tests/lab/test_smoke.py runs every experiment",
    "penstock pipeline watch": "tests/pipeline/test_watch.py watches a network",
    "pytest": "is what runs here",
}
LANGUAGES = ("", "python", "text", "toml", "json", "sql")
OURS = [block for block in BLOCKS if block.page not in RUN_ELSEWHERE]


def of(language: str) -> list[Any]:
    return [pytest.param(block, id=block.name) for block in OURS if block.language == language]


def printed_after(block: Block) -> str | None:
    """The block `text` that follows a program."""
    place = BLOCKS.index(block) + 1
    follower = BLOCKS[place] if place < len(BLOCKS) else None
    return follower.text if follower and follower.page == block.page and follower.language == "text" else None


def commands(block: Block) -> list[tuple[str, str]]:
    """Each command of a block without its comment, and what the page says that it prints."""
    found: list[tuple[str, str]] = []
    for line in block.text.splitlines(keepends=True):
        if line.startswith("$ "):
            found.append((shlex.join(shlex.split(line[2:], comments=True)).replace(".venv/bin/", ""), ""))
        elif found:
            found[-1] = found[-1][0], found[-1][1] + line
    return found


SHELL = [block for block in BLOCKS if re.search(r"^\$ ", block.text, re.MULTILINE)]
COMMANDS = [(block, *command) for block in SHELL for command in commands(block)]


def begins(command: str, *beginnings: str) -> bool:
    return any(command == one or command.startswith(one + " ") for one in beginnings)


# A network for all.


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """`penstock up networks/town.toml` on free ports: for each address that a page may name, the one in use here.

    And the railway beside it, as README has it.
    """
    railway = tmp_path_factory.mktemp("railway") / "railway.toml"
    (text,) = (block.text for block in BLOCKS if block.language == "toml" and 'name = "railway"' in block.text)
    railway.write_text(text)
    found: dict[str, str] = {}
    networks = []
    for file, first in ((TOWN, FIRST_PORT), (railway, RAILWAY_PORT)):
        up = start("up", str(file), "--base-port", "0", "--json", "--data", str(tmp_path_factory.mktemp("data")))
        networks.append(up)
        assert up.stdout is not None
        for number, _ in enumerate(parse_scenario(file.read_bytes()).broker):
            url = json.loads(up.stdout.readline())["url"]
            found[f"127.0.0.1:{first + number}"] = url.removeprefix("penstock://")
        said(up, "the network is up")
    yield found
    for up in networks:
        up.send_signal(signal.SIGINT)
        up.communicate(timeout=60)
        assert up.returncode == 0


def start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "penstock", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "NO_COLOR": "1", **environment},
    )


def said(process: subprocess.Popen[str], words: str) -> None:
    """Read until it says so; that is how we wait for it."""
    assert process.stderr is not None
    assert any(words in line for line in process.stderr), f"it ended without saying '{words}'"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder like the one that a reader stands in, with a town that lives for a second; things may be left in it."""
    (tmp_path / "networks").mkdir()
    (tmp_path / "networks" / "town.toml").write_text(TOWN.read_text().replace("duration = 20.0", "duration = 1.0"))
    monkeypatch.chdir(tmp_path)
    handlers, level = logging.root.handlers[:], logging.root.level
    yield tmp_path
    logging.root.handlers[:], logging.root.level = handlers, level


# Programs and files.


@NETWORK
@pytest.mark.parametrize("block", of("python"))
def test_programs_run_as_pasted(
    block: Block, ports: dict[str, str], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exec(compile(with_ports(block.text, ports), block.name, "exec"), {"__name__": "__main__"})
    expected = printed_after(block)
    assert expected is None or capsys.readouterr().out == expected


def with_ports(text: str, ports: dict[str, str]) -> str:
    return re.sub(r"127\.0\.0\.1:\d+", lambda found: ports.get(found[0], found[0]), text)


@pytest.mark.parametrize("page", [page for page in RUN_ELSEWHERE if (ROOT / page).exists()])
def test_pages_that_are_run_elsewhere_are(page: str) -> None:
    others = [path for path in (ROOT / "tests").rglob("test_*.py") if path != Path(__file__)]
    assert any(re.search(rf"\b{Path(page).name}\b", path.read_text(encoding="utf-8")) for path in others)


READERS: dict[str, Callable[[str], object]] = {
    "toml": lambda text: parse_scenario(text.encode()),
    "json": json.loads,
    "sql": parse_predicate,
}


@pytest.mark.parametrize("block", [one for language in READERS for one in of(language)])
def test_files_and_predicates_can_be_read(block: Block) -> None:
    READERS[block.language](block.text)


def test_blocks_are_of_a_kind_that_is_tested() -> None:
    assert [block.name for block in OURS if block.language not in LANGUAGES] == []
    assert len(of("python")) >= 4
    assert len(COMMANDS) >= 15


# Commands.


def smaller(command: str) -> list[str]:
    """The words of a command; what would take long is made shorter, and what would never end ends."""
    words = shlex.split(command)[1:]
    for option, most in (("--count", 20), ("--seeds", 1)):
        if option in words:
            place = words.index(option) + 1
            words[place] = str(min(most, int(words[place])))
    if "--rate" in words:
        words[words.index("--rate") + 1] = "1000"
    if words[0] == "pub" and {"--transport", "--congestion"} & set(words):
        words += ["--linger", "0.1"]
    if words[0] == "sub":
        words += ["--count", "1", "--wait", "30"]
    if words[0] == "report":
        words += ["--listen", "0.2"]
    if words[:2] == ["pipeline", "run"]:
        words += ["--only", "rates"]
    return words


def call(words: list[str], ports: dict[str, str]) -> tuple[int, str]:
    """Run a command in this process; its exit code and what it printed."""
    environment = {"PENSTOCK_URL": ports.get(f"127.0.0.1:{FIRST_PORT}", ""), "COLUMNS": "100", "NO_COLOR": "1"}
    answer = CliRunner().invoke(app, words, env=environment)
    if isinstance(answer.exception, PenstockError):
        raise answer.exception
    return answer.exit_code, answer.stdout


@NETWORK
@pytest.mark.parametrize("block", [pytest.param(block, id=block.name) for block in SHELL if block in OURS])
def test_commands_run(block: Block, ports: dict[str, str], here: Path) -> None:
    """In their order; subscribers stay in terminals of their own until they have printed a message."""
    subscribers = []
    for command, expected in commands(block):
        assert begins(command, "penstock", *NOT_RUN), f"{block.name}: {command}: teach this test what to do with it"
        if begins(command, "penstock up", "penstock pipeline", *NOT_RUN):
            continue  # `up` is the fixture; the pipeline has a test below
        words = [with_ports(word, ports) for word in smaller(command)]
        if words[0] == "sub":
            subscribers.append(start(*words, PENSTOCK_URL=ports[f"127.0.0.1:{FIRST_PORT}"]))
            said(subscribers[-1], "subscribed")
        else:
            code, out = call(words, ports)
            assert code == (1 if expected.startswith("does not match") else 0), f"{command}: {out}"
            assert not expected or out == expected
    for subscriber in subscribers:
        out, err = subscriber.communicate(timeout=60)
        assert subscriber.returncode == 0, err
        assert out.count("\n") == 1


PIPELINE = [command for block, command, _ in COMMANDS if block in OURS and begins(command, "penstock pipeline run")]


@pytest.mark.parametrize("command", dict.fromkeys(PIPELINE))
def test_the_pipeline_runs_over_a_run(command: str, spark: SparkSession, here: Path) -> None:
    words = smaller(command)
    for folder in words[2 : words.index("--only")]:
        assert call(["sim", "networks/town.toml", "--trace", folder], {})[0] == 0
    code, out = call(words, {})
    assert code == 0, out


def test_what_is_not_run_exists_and_takes_these_options() -> None:
    for block, command, _ in COMMANDS:
        check_exists(command, block.name)


def check_exists(command: str, where: str) -> None:
    words = shlex.split(command)
    if words[0] == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert words[1] in targets, f"{where}: {command}"
    elif words[0] == "penstock":
        check_parses(words[1:], where)
    elif words[0] == "python" and words[1:] and not words[1].startswith("-"):
        assert (ROOT / words[1]).exists(), f"{where}: {command}"


def check_parses(words: list[str], where: str) -> None:
    """The command line would take these words; an argument may be left out in passing."""
    found: Any = typer.main.get_command(app)
    while words and hasattr(found, "commands"):
        assert words[0].startswith("-") or words[0] in found.commands, f"{where}: no command {words[0]}"
        if words[0].startswith("-"):
            break
        found = found.commands[words.pop(0)]
    options = {name: one for one in found.params for name in (*one.opts, *one.secondary_opts)}
    for word in words:
        if word.startswith("--"):
            assert word in options or word == "--help", f"{where}: {found.name} has no option {word}"


def helps(found: Any) -> Iterator[str]:
    """The help of a command and of all commands in it, on one line."""
    yield " ".join(f"{found.help or ''} {found.epilog or ''}".split())
    for inner in getattr(found, "commands", {}).values():
        yield from helps(inner)


def test_every_command_has_an_example_in_its_help_that_it_would_take() -> None:
    for words in helps(typer.main.get_command(app)):
        _, example, rest = words.partition("xample")
        assert example, words
        plain = re.sub(r" \([a-z ]+\)(?=;|$)", "", rest)  # a remark in parentheses
        for part in re.split(r"; | && |(?<=\S) (?=penstock )|, or ", plain):
            found = re.search(r"penstock [a-z].*", part)
            if found:
                check_exists(found[0], words)


# What is named in passing.

CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
FILES = {path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*") if ".git" not in path.parts and path.is_file()}


def in_passing(path: Path) -> list[str]:
    return CODE.findall(pages.prose(path))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_commands_and_files_named_in_passing_exist(path: Path) -> None:
    for words in in_passing(path):
        plain = words.removeprefix(".venv/bin/").replace("…", "").replace("...", "")
        if re.fullmatch(r"(penstock|make) [a-z].*", plain) and "|" not in plain:
            check_exists(plain, path.name)
        elif re.fullmatch(r"[\w./-]+/[\w.-]+\.(py|toml|md|svg|lark)", words):
            assert any(f"/{name}".endswith(f"/{words}") for name in FILES), f"{path.name} names {words}"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(path: Path) -> None:
    for link in pages.links(path):
        if link.startswith(("http:", "https:")):
            continue
        place, _, anchor = link.partition("#")
        target = (path.parent / place).resolve() if place else path
        assert target.exists(), f"{path.name} links to {link}, which is not there"
        assert not anchor or anchor in pages.anchors(target), f"{path.name} links to {link}: no such heading"
