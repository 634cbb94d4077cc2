"""The commands in terminals of their own: what they print where, and their exit codes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.live.wire.addresses import free_ports

TWO_BROKERS = """
name = "pair"
[[broker]]
name = "east"
[[broker]]
name = "west"
[[link]]
between = ["east", "west"]
kind = "reliable"
"""


def start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    """As from a terminal: also where these tests were started in the background, by a shell that ignores Ctrl-C."""
    return subprocess.Popen(
        [sys.executable, "-m", "penstock", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "NO_COLOR": "1", **environment},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def finish(process: subprocess.Popen[str], given: str = "") -> tuple[int, str, str]:
    out, err = process.communicate(given, timeout=60)
    assert "Traceback" not in err, err
    return process.returncode, out, err


def call(*arguments: str, given: str = "", **environment: str) -> tuple[int, str, str]:
    return finish(start(*arguments, **environment), given)


def line(process: subprocess.Popen[str], words: str) -> str:
    """The line of stderr with these words; reading it is how we wait for it."""
    assert process.stderr is not None
    for found in process.stderr:
        if words in found:
            return found
    raise AssertionError(f"it ended without saying '{words}'")


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Two broker processes under `penstock up`; where each of them is."""
    file = tmp_path_factory.mktemp("network") / "pair.toml"
    file.write_text(TWO_BROKERS)
    process = start("up", str(file), "--base-port", "0", "--json")
    assert process.stdout is not None
    found = [json.loads(process.stdout.readline()) for _ in range(2)]
    line(process, "the network is up")
    yield {one["broker"]: one["url"] for one in found}
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 0, "Ctrl-C is how it is meant to end"
    for one in found:
        assert not Path(f"/proc/{one['pid']}").exists()
    process.communicate()


def test_pub_and_sub_in_two_terminals(network: dict[str, str]) -> None:
    where = "symbol = 'IBM' AND price < 120"
    sub = start("sub", where, "--count", "2", "--wait", "30", "--json", PENSTOCK_URL=network["west"])
    line(sub, "subscribed")
    east = json.loads(call("report", "--json", PENSTOCK_URL=network["east"])[1])
    assert [(link["peer"], link["up"]) for link in east["links"]] == [("west", True)]
    attributes = ["-a", "symbol=IBM", "-a", "price=101.5"]
    code, out, err = call("pub", *attributes, "the body", "--count", "2", PENSTOCK_URL=network["east"])
    assert (code, out) == (0, "")
    assert "published 2 messages" in err
    code, out, _ = finish(sub)
    messages = [json.loads(one) for one in out.splitlines()]
    assert code == 0
    assert [message["count"] for message in messages] == [1, 2]
    assert messages[0]["attributes"] == {"symbol": "IBM", "price": 101.5}
    assert messages[0]["body"] == "the body"


@pytest.mark.parametrize("form", ["--raw", "--json"])
def test_order_and_recovery_with_a_report_at_the_end(network: dict[str, str], form: str) -> None:
    wish = [f"form = '{form}'", "--ordered", "--recover", "--report"]
    sub = start("sub", *wish, form, "--count", "50", "--wait", "30", PENSTOCK_URL=network["west"])
    line(sub, "subscribed")
    lines = "".join(json.dumps({"attributes": {"form": form}, "body": str(n)}) + "\n" for n in range(50))
    arguments = ["--jsonl", "--transport", "--linger", "0.1", "--url", network["east"]]
    assert call("pub", *arguments, given=lines)[0] == 0
    code, out, err = finish(sub)
    assert code == 0
    bodies = out.splitlines() if form == "--raw" else [json.loads(one)["body"] for one in out.splitlines()]
    assert bodies == [str(n) for n in range(50)]
    if form == "--json":
        found = json.loads(err.splitlines()[-1])
        assert (found["delivered"], found["late"], found["publishers"], found["known_lost"]) == (50, 0, 1, 0)
        assert found["detection_probability"] > 0.99
    else:
        rows = [row.rsplit(maxsplit=1) for row in err.splitlines()]
        assert ["received", "50"] in rows
        assert ["publishers with the transport", "1"] in rows


def test_json_lines_go_in_as_they_come_out(network: dict[str, str]) -> None:
    raw = start("sub", "n >= 0", "--count", "3", "--wait", "30", "--raw", PENSTOCK_URL=network["east"])
    line(raw, "subscribed")
    lines = [{"attributes": {"n": n}, "body": f"line {n}"} for n in range(2)]
    lines.append({"attributes": {"n": 2}, "body_base64": "AAE=", "publisher": "ignored"})  # type: ignore[dict-item]
    given = "".join(json.dumps(one) + "\n" for one in lines)
    code, out, _ = call("pub", "--jsonl", "--json", given=given, PENSTOCK_URL=network["east"])
    assert (code, json.loads(out)["published"]) == (0, 3)
    code, out, _ = finish(raw)
    assert (code, out) == (0, "line 0\nline 1\n\x00\x01\n")


def test_a_body_from_stdin_and_the_plain_form(network: dict[str, str]) -> None:
    sub = start("sub", "kind = 'plain'", "--count", "1", "--wait", "30", "--url", network["east"])
    line(sub, "subscribed")
    assert call("pub", "-a", "kind=plain", "-a", "n=1", "-", given="from stdin", PENSTOCK_URL=network["east"])[0] == 0
    assert finish(sub)[1] == "kind='plain' n=1  from stdin\n"


def test_a_message_without_attributes_is_published_with_a_warning(network: dict[str, str]) -> None:
    code, _, err = call("pub", "symbol=IBM", "--url", network["east"])
    assert code == 0
    assert err.splitlines()[0] == "warning: no attributes; did you mean -a symbol=IBM?"
    assert "published 1 message" in err


def test_what_a_broker_sees(network: dict[str, str]) -> None:
    code, out, _ = call("report", "--url", network["east"])
    assert code == 0
    assert "east at 127.0.0.1:" in out
    assert "west" in out
    assert "\x1b[" not in out


def test_the_bench_measures(network: dict[str, str]) -> None:
    arguments = ["--messages", "2000", "--seconds", "0.3", "--rate", "200", "--to", network["west"], "--json"]
    code, out, err = call("bench", *arguments, "--url", network["east"])
    assert code == 0, err
    found = json.loads(out)
    assert 0 < found["received"] <= 2000
    assert 0 < found["latency_p50"] <= found["latency_p99"] <= found["latency_max"]


def test_nothing_received_in_time_is_3(network: dict[str, str]) -> None:
    code, out, err = call("sub", "never = 1", "--wait", "0.1", "--url", network["east"])
    assert (code, out) == (3, "")
    assert "nothing received within 0.1 s" in err


def test_ctrl_c_ends_a_publisher_with_130_and_its_report(network: dict[str, str]) -> None:
    sub = start("sub", "kind = 'endless'", "--count", "3", "--wait", "30", "--raw", PENSTOCK_URL=network["west"])
    line(sub, "subscribed")
    endless = ["--count", "1000000", "--rate", "100", "--congestion", "--report", "--json", "it goes on"]
    pub = start("pub", "-a", "kind=endless", *endless, PENSTOCK_URL=network["west"])
    assert finish(sub)[:2] == (0, "it goes on\n" * 3)
    pub.send_signal(signal.SIGINT)
    code, out, err = finish(pub)
    assert code == 130
    assert json.loads(out)["published"] >= 3
    assert json.loads(err.splitlines()[-1]) == {"flows": [], "withheld": [], "streams": [], "complete": False}


def test_ctrl_c_ends_a_subscriber_with_130(network: dict[str, str]) -> None:
    sub = start("sub", "TRUE", "--url", network["east"])
    line(sub, "subscribed")
    sub.send_signal(signal.SIGINT)
    assert finish(sub)[0] == 130


def test_an_unreachable_broker_is_5_and_says_what_to_do() -> None:
    (port,) = free_ports(1)
    code, _, err = call("pub", "-a", "x=1", "--url", f"penstock://127.0.0.1:{port}")
    assert code == 5
    assert "connection refused" in err
    assert "penstock up" in err
    assert len(err.splitlines()) == 1


def test_a_port_in_use_is_4(network: dict[str, str]) -> None:
    code, _, err = call("broker", "--listen", network["east"].removeprefix("penstock://"))
    assert code == 4
    assert "already; stop it, or choose another port" in err
    assert len(err.splitlines()) == 1


def test_a_second_network_at_the_same_ports_is_4_and_one_message(tmp_path: Path) -> None:
    port = free_ports(1)[0]
    file = tmp_path / "pair.toml"
    file.write_text(TWO_BROKERS)
    with socket.create_server(("127.0.0.1", port)):
        code, out, err = call("up", str(file), "--base-port", str(port))
    assert (code, out) == (4, "")
    mend = "stop what listens there, or start this one elsewhere with --base-port, such as 7520"
    assert err == f"error: the port of broker 'east', 127.0.0.1:{port}, is in use; {mend}\n"


# What `lab run --live` says where there can be no bottleneck of the kernel: the same for root and for others.

NOBODY = """
import os
os.geteuid = lambda: 65534
"""
LIVE_EXPERIMENT = ("lab", "run", "cacc-tcp-friendliness", "--live")


def refused(folder: Path, path: Path, **environment: str) -> str:
    """The one line with which it ends."""
    code, out, err = call(*LIVE_EXPERIMENT, "--runs", str(folder / "runs"), PATH=str(path), **environment)
    assert (code, out) == (4, "")
    assert not (folder / "runs").exists()
    (sentence,) = err.splitlines()
    return sentence


def test_a_live_experiment_without_iproute2_is_4_and_says_what_to_install(tmp_path: Path) -> None:
    nothing = tmp_path / "bin"
    nothing.mkdir()
    assert refused(tmp_path, nothing) == "error: ip and tc not found; install iproute2"


def test_a_live_experiment_without_root_is_4_and_says_how_it_can_be_run(tmp_path: Path) -> None:
    tools, start_up = tmp_path / "bin", tmp_path / "start"
    for folder in (tools, start_up):
        folder.mkdir()
    for tool in ("ip", "tc"):
        (tools / tool).write_text("#!/bin/sh\nexit 1\n")
        (tools / tool).chmod(0o755)
    (start_up / "sitecustomize.py").write_text(NOBODY)  # root, too, is nobody there
    paths = os.pathsep.join(filter(None, [str(start_up), os.environ.get("PYTHONPATH", "")]))
    sentence = refused(tmp_path, tools, PYTHONPATH=paths)
    assert sentence == "error: network namespaces need root; run it as root, or in the simulator without --live"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["up", "no-such-file.toml"], "cannot be read"),
        (["sub", "price <"], "expected"),
        (["sub", "TRUE", "--max", "0"], "greater than or equal to 1"),
        (["sub", "price <", "--url", "127.0.0.1:1"], "expected"),  # before a broker is looked for
        (["pub", "-a", "novalue"], "NAME=VALUE"),
        (["pub", "-a", "_to=1"], "reserved"),
        (["sub", "TRUE", "--url", "http://x"], "penstock://"),
        (["broker", "--listen", "x:y"], "host:port"),
    ],
)
def test_bad_usage_is_2_and_one_message(network: dict[str, str], arguments: list[str], words: str) -> None:
    code, out, err = call(*arguments, **({} if "--url" in arguments else {"PENSTOCK_URL": network["east"]}))
    assert (code, out) == (2, "")
    assert words in err
