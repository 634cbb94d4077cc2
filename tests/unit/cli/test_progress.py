"""Whoever reads a log instead of a terminal sees what goes on: one line for each new piece of work."""

from __future__ import annotations

import pytest

from penstock.cli.progress import progress_bar


def test_a_log_has_a_line_for_each_description(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("starting Spark") as advance:
        advance(0.1, "measuring")
        advance(0.2)
        advance(0.3, "measuring")
        advance(0.9, "writing the report")
    said = capsys.readouterr()
    assert said.err == "starting Spark ...\nmeasuring ...\nwriting the report ...\n"
    assert said.out == ""
    with progress_bar("") as advance:
        assert capsys.readouterr().err == ""
        advance(0.0, "the first run")
    assert capsys.readouterr().err == "the first run ...\n"
