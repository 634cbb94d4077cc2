"""`penstock sim` and `penstock storm`: what a person sees, what a program reads, and what a mistake looks like."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app, main
from penstock.cli.run_tables import sparkline
from penstock.cli.sim import percentile

TOWN = Path(__file__).parents[3] / "networks" / "town.toml"
SMALL = """
name = "pair"
duration = 1.0
[[broker]]
name = "a"
[[client]]
name = "talker"
broker = "a"
[[client.publish]]
rate_messages_per_s = 10
attributes = { topic = "news" }
[[client]]
name = "listener"
broker = "a"
[[client.subscribe]]
where = "topic = 'news'"
"""


@pytest.fixture
def small(tmp_path):
    file = tmp_path / "pair.toml"
    file.write_text(SMALL)
    return file


def test_json_is_one_object_on_one_line(small):
    shown = CliRunner().invoke(app, ["sim", str(small), "--seed", "3", "--json"])
    assert shown.exit_code == 0
    found = json.loads(shown.stdout)
    assert shown.stdout.count("\n") == 1
    assert found["clients"]["listener"]["delivered"] == found["clients"]["talker"]["offered"] == 10
    assert found["problems"] == []


def test_a_person_sees_who_got_what_and_what_was_dropped():
    shown = CliRunner().invoke(app, ["sim", str(TOWN)])
    assert shown.exit_code == 0
    for word in (
        "warehouse",
        "lost on the wire",
        "harbour",
        "what streams did",
        "clearing orders clearing",
        "all hold",
    ):
        assert word in " ".join(shown.stdout.split())


def test_the_same_seed_gives_the_same_digest_and_another_seed_another(small):
    def digest(seed):
        shown = CliRunner().invoke(app, ["sim", str(small), "--seed", seed, "--json"])
        return json.loads(shown.stdout)["digest"]

    assert digest("3") == digest("3")
    assert digest("3") != digest("4")


def test_a_misspelt_key_is_answered_with_the_right_one_and_no_traceback(tmp_path, monkeypatch, capsys):
    file = tmp_path / "bad.toml"
    file.write_text(SMALL.replace("duration", "duratoin"))
    monkeypatch.setattr("sys.argv", ["penstock", "sim", str(file)])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    complaint = capsys.readouterr().err
    assert "unknown key 'duratoin'; did you mean 'duration'?" in complaint
    assert "Traceback" not in complaint


def test_a_storm_says_that_it_kept_every_invariant():
    shown = CliRunner().invoke(app, ["storm", "--seed", "5", "--json"])
    assert shown.exit_code == 0
    found = json.loads(shown.stdout)
    assert found["problems"] == []
    assert found["replay"] == "penstock storm --seed 5"


def test_a_storm_of_streams_that_breaks_an_invariant_says_how_to_replay_it(monkeypatch):
    monkeypatch.setattr("penstock.streams.publication_ids.PublicationIds.find", lambda self, publication_id: None)
    shown = CliRunner().invoke(app, ["storm", "--streams", "--seeds", "2"])
    assert shown.exit_code == 1
    assert "publication_id" in shown.stderr or "stands at" in shown.stderr
    assert "replay: penstock storm --streams --seed " in shown.stderr
    assert "storms kept every invariant" in shown.stdout


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [([], 0.5, None), ([3.0], 0.99, 3.0), ([1.0, 2.0, 3.0, 4.0], 0.5, 2.0), (list(range(1, 101)), 0.99, 99)],
)
def test_percentile_is_the_least_value_with_that_share_at_or_below(values, share, expected):
    assert percentile(values, share) == expected


def test_a_sparkline_has_its_tallest_bar_at_the_largest_count_and_nothing_at_zero():
    assert sparkline([0, 1, 8]) == " ▁█"
    assert sparkline([0, 0]) == "  "
    assert len(sparkline(list(range(1000)), width=22)) <= 22


@pytest.mark.parametrize("link", ["", '[[broker]]\nname = "b"\n[[link]]\nbetween = ["a", "b"]\n'])
def test_a_file_without_clients_and_duration_runs_and_says_that_nobody_is_there(tmp_path, link):
    file = tmp_path / "smallest.toml"
    file.write_text(f'name = "smallest"\n[[broker]]\nname = "a"\n{link}')
    result = CliRunner().invoke(app, ["sim", str(file)])
    assert result.exit_code == 0
    said = " ".join(result.stdout.split())
    assert said.count("nobody publishes or subscribes: the file has no clients; add a [[client]]") == 1
    assert "12 s of the network's time" in said
