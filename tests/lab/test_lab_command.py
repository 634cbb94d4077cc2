"""`penstock lab run` goes from family to family, so that what one has measured is kept before the next begins."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.errors import CheckFailed

CHOSEN = ("cacc-content-awareness", "tcp-response-curves", "loss-detection-probability-single")


def test_families_come_one_after_the_other_and_one_that_fails_does_not_stop_the_rest(
    monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    asked: list[list[str]] = []

    def run_experiments(chosen, **more):
        asked.append(sorted(one.name for one in chosen))
        if len(asked) == 1:
            raise CheckFailed("2 of 3 experiments failed", "run them again")

    monkeypatch.setattr("penstock.lab.engine.runner.run_experiments", run_experiments)
    shown = CliRunner().invoke(app, ["lab", "run", *CHOSEN, "--runs", str(tmp_path)])
    assert asked == [["loss-detection-probability-single"], ["cacc-content-awareness", "tcp-response-curves"]]
    assert isinstance(shown.exception, CheckFailed)
