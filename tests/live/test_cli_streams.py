"""Streams on the command line: what is printed where, exit codes, and what is asked before it is deleted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import penstock
from penstock.cli.main import app, exit_code
from penstock.errors import PenstockError

NETWORK = """
name = "pair"
[[broker]]
name = "east"
[[broker]]
name = "west"
[[link]]
between = ["east", "west"]
kind = "reliable"
[[stream]]
name = "orders"
at = ["east"]
"""


def start(*arguments: str, cwd: Path | None = None, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "penstock", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "200", **environment},
    )


def call(*arguments: str, given: str = "", **environment: str) -> tuple[int, str, str]:
    """The same without a process: exit code, stdout and stderr as `main` has them."""
    result = CliRunner().invoke(app, arguments, input=given, env={"NO_COLOR": "1", "COLUMNS": "200", **environment})
    if isinstance(result.exception, PenstockError):
        return exit_code(result.exception), result.stdout, f"{result.stderr}error: {result.exception}"
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


class Terminal:
    """Commands that use one network."""

    def __init__(self, urls: dict[str, str], folder: Path) -> None:
        self.urls = urls
        self.folder = folder

    def ok(self, *arguments: str, given: str = "", at: str = "west") -> str:
        code, out, err = call(*arguments, given=given, PENSTOCK_URL=self.urls[at])
        assert code == 0, err
        return out

    def objects(self, *arguments: str, given: str = "", at: str = "west") -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.ok(*arguments, "--json", given=given, at=at).splitlines()]

    def fails(self, *arguments: str, given: str = "") -> tuple[int, str]:
        code, _, err = call(*arguments, given=given, PENSTOCK_URL=self.urls["west"])
        return code, err


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """Two broker processes under `penstock up`, whose file declares a stream."""
    folder = tmp_path_factory.mktemp("network")
    (folder / "pair.toml").write_text(NETWORK)
    process = start("up", "pair.toml", "--base-port", "0", "--json", cwd=folder)
    assert process.stdout is not None
    assert process.stderr is not None
    assert "streams are stored in penstock-data/pair" in process.stderr.readline()
    found = [json.loads(process.stdout.readline()) for _ in range(2)]
    yield Terminal({one["broker"]: one["url"] for one in found}, folder)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 0
    process.communicate()
    code, out, err = call("stream", "verify", "--data", str(folder / "penstock-data" / "pair"), "--json")
    assert code == 0, err
    assert [pubend["pubend"] for pubend in json.loads(out)["pubends"]] == ["orders/0"]


def test_what_is_published_is_read_once_under_a_durable_name(terminal: Terminal) -> None:
    said = terminal.objects("pub", "--stream", "orders", "--key", "IBM", "-a", "n=1", "buy")
    assert (said[0]["published"], said[0]["pubend"]) == (1, "orders/0")
    again = ("pub", "--stream", "orders", "--publication-id", "two", "-a", "n=2", "sell")
    assert terminal.objects(*again)[0]["tick"] == terminal.objects(*again)[0]["tick"]
    lines = "".join(f'{{"attributes": {{"n": {n}}}}}\n' for n in range(3, 10))
    assert terminal.objects("pub", "--stream", "orders", "--jsonl", given=lines)[0]["published"] == 7
    reading = ("sub", "n > 1", "--stream", "orders", "--durable", "billing", "--start", "earliest", "--wait", "30")
    first = terminal.objects(*reading, "--count", "3", at="east")
    assert [message["attributes"]["n"] for message in first] == [2, 3, 4]
    assert (first[0]["body"], first[0]["stream"], first[0]["pubend"]) == ("sell", "orders", "orders/0")
    assert first[0]["tick"] > said[0]["tick"]
    looked = terminal.objects(*reading, "--count", "2", "--ack", "manual")
    then = terminal.objects(*reading, "--count", "5")
    assert [message["attributes"]["n"] for message in looked] == [5, 6]
    assert [message["attributes"]["n"] for message in then] == [5, 6, 7, 8, 9], "to look acknowledges nothing"
    code, err = terminal.fails(*reading[:-1], "0.2", "--report")
    assert code == 3
    assert "nothing received within 0.2 s" in err
    assert "messages that match and are not acknowledged" in err


def test_a_stream_is_made_listed_described_checked_and_deleted(terminal: Terminal) -> None:
    assert "2 pubends" in terminal.ok("stream", "add", "news", "--at", "west", "--at", "east")
    listed = {one["stream"]: one for one in terminal.objects("stream", "ls")}
    assert listed["news"] == {"stream": "news", "pubends": 2, "hosts": ["west", "east"], "declared": False}
    assert listed["orders"]["declared"]
    assert "west, east" in terminal.ok("stream", "ls")
    terminal.ok("pub", "--stream", "news", "-a", "n=1", "--count", "5")
    terminal.ok("sub", "TRUE", "--stream", "news", "--durable", "reader", "--start", "10m", "--count", "2")
    (info,) = terminal.objects("stream", "info", "news")
    assert sum(pubend["entries"] for pubend in info["pubends"]) == 5
    told = terminal.ok("stream", "info", "news")
    assert "reader" in told
    assert "ready" in told
    assert "whole" in terminal.ok("stream", "verify", "news")
    code, err = terminal.fails("stream", "trim", "news", "--upto", "0s")
    assert code == 2
    assert "5 messages" in err
    assert "--yes" in err
    assert "5 messages of news are deleted" in terminal.ok("stream", "trim", "news", "--upto", "0s", "--force", "--yes")
    assert terminal.fails("stream", "rm", "news")[0] == 2
    assert "is forgotten" in terminal.ok("stream", "rm", "news", "--durable", "reader", "--yes")
    assert "is deleted" in terminal.ok("stream", "rm", "news", "--yes")
    assert [one["stream"] for one in terminal.objects("stream", "ls")] == ["orders"]


def test_two_share_a_name_and_what_fails_is_listed(terminal: Terminal) -> None:
    terminal.ok("pub", "--stream", "orders", "--key", "IBM", "-a", "n=1", "-a", "shared=true", "body")
    asked = ("sub", "shared", "--stream", "orders", "--durable", "packers", "--share", "--start", "earliest")
    (first,) = terminal.objects(*asked, "--ack", "manual", "--count", "1", "--attempts-max", "2")
    (second,) = terminal.objects(*asked, "--ack", "manual", "--count", "1")
    assert [first.get("attempt", 1), second["attempt"]] == [1, 2]
    (name,) = terminal.objects("stream", "info", "orders", "--durable", "packers")[0]["pubends"][0]["names"]
    assert (name["share"]["failed"], name["share"]["members"]) == (1, [])
    assert "packers" in terminal.ok("stream", "info", "orders")
    assert str(first["tick"]) in terminal.ok("stream", "failed", "orders", "--durable", "packers")
    assert "1 redelivered" in terminal.ok("stream", "failed", "orders", "--durable", "packers", "--redeliver")
    (third,) = terminal.objects(*asked, "--count", "1")
    assert third["tick"] == first["tick"]
    assert "nothing has failed" in terminal.ok("stream", "failed", "orders", "--durable", "packers", "--drop", "--yes")
    code, _, err = call(
        "sub", "shared", "--stream", "orders", "--durable", "packers", PENSTOCK_URL=terminal.urls["west"]
    )
    assert code != 0
    assert "is shared" in err


def test_a_report_shows_what_is_stored_and_what_passes(terminal: Terminal) -> None:
    with penstock.connect_blocking(terminal.urls["west"]) as network, network.stream("orders").subscribe(durable="x"):
        stored, passing = (terminal.ok("report", "--listen", "0", at=at) for at in ("east", "west"))
    assert "streams stored here" in stored
    assert "orders/0" in stored
    assert "ready" in stored
    assert "streams that pass here" in passing
    assert "1 durable subscription of" in passing
    assert "streams stored here" not in passing


def test_mistakes_are_one_line_and_change_nothing(terminal: Terminal) -> None:
    for arguments, words in (
        (("pub", "--stream", "a b", "-a", "n=1"), "letters, digits"),
        (("pub", "--stream", "orders", "--transport", "-a", "n=1"), "needs no transport"),
        (("pub", "--stream", "orders", "--publication-id", "x", "--count", "2", "-a", "n=1"), "one message"),
        (("pub", "--key", "x", "-a", "n=1"), "stream"),
        (("sub", "TRUE", "--stream", "orders"), "durable"),
        (("sub", "TRUE", "--durable", "x"), "stream"),
        (("sub", "TRUE", "--stream", "orders", "--durable", "x" * 10_000), "128 bytes"),
        (("sub", "TRUE", "--stream", "orders", "--durable", "x", "--start", "soon"), "earliest"),
        (("stream", "add", "more", "--at", "nowhere"), "no broker 'nowhere'"),
        (("stream", "verify"), "--data"),
        (("stream", "verify", "--data", "here", "--store", "postgresql://here/x"), "name one of them"),
        (("stream", "verify", "--data", "postgresql://here/x"), "--store"),
    ):
        code, err = terminal.fails(*arguments)
        assert code == 2, arguments
        assert words in err, arguments
    code, err = terminal.fails("stream", "verify", "--data", str(terminal.folder / "elsewhere"))
    assert code == 4
    assert "no files of brokers" in err
    code, err = terminal.fails("stream", "verify", "--store", "mysql://somewhere/x")
    assert code == 4
    assert "postgresql://user@host/database" in err


@pytest.mark.parametrize("command", ["add", "ls", "info", "failed", "trim", "rm", "verify"])
def test_help_holds_an_example(command: str) -> None:
    code, out, _ = call("stream", command, "--help")
    assert code == 0
    assert "Example" in out
    assert "--json" in out
