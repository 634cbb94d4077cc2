"""`penstock filter`: what it prints, where, and with which exit code."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner, Result

from penstock.cli.filter import app

ISSUE_TEXT = "symbol = 'IBM' AND (price < 120 OR price BETWEEN 200 AND 250) AND note LIKE 'urgent%' AND EXISTS urgent"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "120"})


def test_explain_shows_the_filters_by_which_brokers_route() -> None:
    result = run("explain", ISSUE_TEXT)
    assert result.exit_code == 0
    assert "filter 2 of 2" in result.stdout
    assert "price < 120" in result.stdout
    assert "they route by it exactly" in result.stdout
    found = json.loads(run("explain", "x = 1 AND y < 2", "--json").stdout)
    assert (found["interest"], found["filters"]) == ("exact", [{"constraints": ["x = 1", "y < 2"], "bytes": 14}])


def test_explain_for_encodings_shows_what_each_place_decides() -> None:
    result = run("explain", ISSUE_TEXT, "--encoded")
    assert result.exit_code == 0
    assert "filter 2 of 2" in result.stdout
    assert "price from 0 to below 256" in result.stdout
    assert "note begins with urge" in result.stdout
    assert "announced as 2 encodings of 512 bits" in result.stdout


def test_explain_as_json_is_one_object_on_one_line() -> None:
    result = run("explain", "x = 1 AND y < 2 AND z IN (1, 2)", "--encoded", "--json", "--bits", "256")
    assert result.stdout.count("\n") == 1
    found = json.loads(result.stdout)
    constraints = found["filters"][0]["constraints"]
    assert [(c["constraint"], c["decided"]) for c in constraints] == [
        ("x = 1", "network"),
        ("y < 2", "edge"),
        ("z IN (1, 2)", "network"),
    ]
    assert (found["encodings"], found["encoding_bits"]) == (2, 256)


def test_explain_warns_of_a_number_and_a_string_at_once() -> None:
    result = run("explain", "price < 5 AND price = 'x'")
    assert result.exit_code == 0
    assert "warning: price < 5 compares price with a number and price = 'x' with a string" in result.stdout
    assert "warning: no message can match" in result.stdout
    found = json.loads(run("explain", "price < 5 AND price = 'x'", "--json").stdout)
    assert len(found["warnings"]) == 2
    assert json.loads(run("explain", "price < 5", "--json").stdout)["warnings"] == []


@pytest.mark.parametrize(
    ("text", "said"), [("TRUE", "every message matches"), ("FALSE", "no message can match"), ("[b]", "unexpected [")]
)
def test_explain_says_so_at_the_extremes(text: str, said: str) -> None:
    result = run("explain", text)
    assert said in result.stdout + result.stderr


@pytest.mark.parametrize(
    ("text", "attributes", "code", "said"),
    [
        ("symbol = 'IBM' AND price < 120", ["symbol=IBM", "price=110"], 0, "price < 120 is true: price is 110"),
        ("symbol = 'IBM' AND price < 120", ["symbol=IBM", "price=130"], 1, "price < 120 is false: price is 130"),
        ("price < 120", [], 1, "price < 120 is unknown: price is missing"),
        ("price < 120", ["price=119,5"], 1, "is unknown: price is '119,5', a string, compared with a number\n"),
        ("price = 120", ["price='120'"], 1, "price is '120', a string, compared with a number"),
        ("x IN (1, 'a')", ["x=true"], 1, "x is TRUE, a boolean, compared with a number or a string"),
        ("x <> 'a'", ["x=1"], 1, "x is 1, a number, compared with a string"),
        ("note LIKE 'a%'", ["note=5"], 1, "note is 5, a number, compared with a string"),
        ("urgent", ["urgent=1"], 1, "urgent is 1, a number, compared with a boolean"),
        ("urgent", ["urgent=true"], 0, "matches"),
        ("x = 1.5", ["x=15e-1"], 0, "matches"),
        ("x = 'a=b'", ["x=a=b"], 0, "matches"),
        ("x = ''", ["x="], 0, "matches"),
        ("_to = 'me'", ["_to=me"], 0, "matches"),
        ("TRUE", [], 0, "a constant decided"),
    ],
)
def test_test_says_what_decided(text: str, attributes: list[str], code: int, said: str) -> None:
    result = run("test", text, *(part for attribute in attributes for part in ("-a", attribute)))
    assert result.exit_code == code
    assert said in result.stdout


def test_test_as_json() -> None:
    result = run("test", "NOT x < 5", "-a", "x=7", "--json")
    assert json.loads(result.stdout) == {
        "matches": True,
        "truth": "true",
        "decided_by": [{"constraint": "x < 5", "truth": "false", "value": 7}],
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["explain", "x = "], "    x ="),
        (["test", "x = NULL", "--json"], "use IS NULL"),
        (["test", "x = 1", "-a", "x"], "write NAME=VALUE"),
        (["test", "x = 1", "-a", "x=1", "-a", "x=2"], "given twice"),
        (["test", "x = 1", "-a", "x=1e999"], "finite"),
        (["test", "x = 1", "-a", "x=99999999999999999999"], "64-bit"),
        (["test", "x = 1", "-a", "x=" + "9" * 5000], "64-bit"),
        (["explain", "x = 1", "--bits", "7"], "multiple of 64"),
        (["explain"], "PREDICATE"),
    ],
)
def test_bad_input_gives_one_complaint_and_code_2(arguments: list[str], said: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert said.strip() in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("command", ["explain", "test"])
def test_help_holds_an_example(command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"penstock filter {command}" in result.stdout


def test_the_module_alone_imports_nothing_heavy() -> None:
    script = "import sys, penstock.cli.filter; sys.exit(bool({'lark', 'numpy', 'numba'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
