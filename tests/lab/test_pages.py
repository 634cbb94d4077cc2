"""The parts of pages: papers by their titles, one scale for what is compared, small figures, maps without overlaps."""

from __future__ import annotations

import io
import json
import re
from itertools import combinations
from pathlib import Path
from random import Random

import pytest
from rich.console import Console

from penstock.cli.drawing import Canvas
from penstock.cli.run_tables import drops_table
from penstock.lab.engine.experiment import Criterion, Figure, Finding
from penstock.lab.engine.registry import experiments, families
from penstock.lab.pages import style
from penstock.lab.pages.card_layout import Box, place_cards
from penstock.lab.pages.experiment_page import comparable
from penstock.lab.pages.html import figures_html, legend, series_of
from penstock.lab.pages.index_page import index_page
from penstock.lab.pages.network_map import LABEL_GAP, label_spot
from penstock.lab.pages.papers import PAPERS, cited, with_names, with_titles
from penstock.lab.pages.thumbnail import best_thumbnail, thumbnail
from penstock.lab.pages.verdicts import verdict, verdict_style


def curve(values: list[float], compared: str = "") -> Figure:
    spec = style.over_time({"published": values, "delivered": [2 * value for value in values]}, "messages per second")
    return Figure(caption="A curve", spec=spec, compared=compared)


def test_papers_are_named_by_their_titles() -> None:
    assert with_titles("002 section 3.1, Figure 3.1") == f"<cite>{PAPERS['002'].title}</cite>, section 3.1, Figure 3.1"
    assert with_names("beyond 000 section IV") == "beyond Malekpour et al., section IV"
    assert with_names("a loss of 0.002 and 0.001") == "a loss of 0.002 and 0.001"
    for experiment in experiments().values():
        assert "<cite>" in with_titles(experiment.source)
        assert not re.search(r"\b00\d\b", with_titles(experiment.source))
    assert [paper.short for paper in cited(["002 section 1", "000 section II"])] == [
        "Malekpour et al.",
        "Malekpour 2012",
    ]


def test_every_experiment_belongs_to_a_family() -> None:
    assert [name for names in families().values() for name in names] == list(experiments())
    assert list(families()) == [
        *("throughput", "delays", "ordering", "detection", "recovery", "any_content", "congestion"),
        *("network_rates", "gryphon", "spread", "retrieval", "compared"),
    ]


def test_what_is_compared_has_one_scale_and_one_legend() -> None:
    alone, low, high = curve([5.0]), curve([1.0, 2.0], "rates"), curve([3.0, 10.0, 4.0], "rates")
    found = comparable([alone, low, high])
    scales = [[figure.spec["encoding"][axis]["scale"] for axis in "xy"] for figure in found[1:]]
    assert scales[0] == scales[1] == [{"domain": [0, 2]}, {"domain": [0.0, 21.0]}]
    assert found[0] == alone
    first, together = figures_html(found)
    assert (first.count("<ul class=legend>"), together.count("<ul class=legend>")) == (1, 1)
    assert together.count("<figure>") == 2


def test_three_that_are_compared_stand_in_one_row() -> None:
    assert "class='pair three'" in figures_html([curve([1.0], "rates")] * 3)[0]
    assert "class=pair>" in figures_html([curve([1.0], "rates")] * 2)[0]


@pytest.mark.parametrize(
    ("criterion", "value", "said", "colour"),
    [
        (Criterion(name="a", paper="", high=2.0), 1.0, "holds", "holds"),
        (Criterion(name="a", paper="", high=2.0, kind="goal"), 3.0, "fails (goal)", "fails"),
        (Criterion(name="a", paper="", kind="goal"), 1.0, "reported", "note"),
        (Criterion(name="a", paper="", kind="goal"), float("nan"), "fails (goal)", "fails"),
    ],
)
def test_what_has_no_bound_is_reported_and_does_not_hold(criterion, value: float, said: str, colour: str) -> None:
    finding = Finding(criterion=criterion, value=value, passed=criterion.holds(value), gated=True)
    assert (verdict(finding), verdict_style(finding)) == (said, colour)


def test_levels_and_steps_stand_in_the_plot_and_in_its_legend() -> None:
    level, steps = {"capacity of the link": 55.0}, {"quota": [("all", 1.0, 20.0), ("all", 2.0, None)]}
    spec = style.with_levels(curve([1.0, 2.0]).spec, level, steps)
    assert series_of(spec)["capacity of the link"] == (style.GREEN, True)
    assert not series_of(spec)["quota"][1]
    assert "dashed" in legend(series_of(spec))


@pytest.mark.parametrize(
    ("spec", "symbol"),
    [
        (curve([1.0, 2.0, 3.0]).spec, "polyline"),
        (style.bars([{"a": 0, "a_end": 1, "n": 5}], x="a", y="n", x_title="", y_title="", log=True), "path"),
        (style.named_bars([{"a": "x", "n": 5}, {"a": "y", "n": 1}], x="a", y="n", y_title=""), "path"),
        (style.points([{"a": 1, "n": 5}, {"a": 2, "n": 5}], x="a", y="n", x_title="", y_title=""), "path"),
    ],
)
def test_a_figure_has_a_small_one(spec, symbol: str) -> None:
    drawn = thumbnail(spec)
    assert f"<{symbol}" in drawn
    assert "var(--" in drawn
    assert "nan" not in drawn


def test_of_several_figures_the_last_that_is_not_flat_is_shown() -> None:
    rising, flat = curve([1.0, 2.0]).spec, curve([0.0, 0.0]).spec
    assert best_thumbnail([rising, flat]) == thumbnail(rising)
    assert best_thumbnail([flat]) == thumbnail(flat)
    assert best_thumbnail([]) == ""


def test_labels_of_links_that_cross_keep_apart_and_stay_on_their_own_line() -> None:
    cards = {"a": Box(0, 0, 20, 20), "b": Box(400, 300, 20, 20), "c": Box(0, 300, 20, 20), "d": Box(400, 0, 20, 20)}
    ways = [((0.0, 0.0), (400.0, 300.0)), ((0.0, 300.0), (400.0, 0.0))]
    taken = list(cards.values())
    for way, other in (ways, ways[::-1]):
        taken.append(label_spot(way, cards, taken, [other], [("carried", "2.15 MB"), ("lost", "36 lost")]))
        assert not taken[-1].hides(*other)
        assert taken[-1].hides(*way)
    assert not taken[-1].overlaps(taken[-2], LABEL_GAP)


def test_a_label_in_the_terminal_moves_along_its_line_until_it_is_free() -> None:
    canvas = Canvas()
    canvas.label((72.0, 34.0), "-451", "")
    assert canvas.free_place((2.0, 34.0), (142.0, 34.0), "-36") != (72.0, 34.0)
    assert canvas.free_place((72.0, 2.0), (72.0, 66.0), "-36")[0] == 72.0
    assert Canvas().free_place((2.0, 34.0), (142.0, 34.0), "-36") == (72.0, 34.0)


def test_no_two_cards_of_a_map_overlap_and_all_are_within_its_width() -> None:
    for seed in range(12):
        random = Random(seed)
        names = [f"b{n}" for n in range(random.randint(2, 12))]
        sizes = {name: (random.uniform(80, 260), random.uniform(40, 160)) for name in names}
        links = [(name, random.choice(names[:n])) for n, name in enumerate(names) if n]
        boxes, height = place_cards(sizes, links, width=1100.0, gap=(60.0, 50.0))
        assert not any(boxes[a].overlaps(boxes[b]) for a, b in combinations(names, 2)), seed
        for box in boxes.values():
            assert box.width / 2 - 1e-6 <= box.x <= 1100 - box.width / 2 + 1e-6
            assert box.height / 2 - 1e-6 <= box.y <= height - box.height / 2 + 1e-6


def test_the_index_leaves_out_what_it_cannot_read_and_says_so(tmp_path: Path) -> None:
    """Pages of many days lie in one folder; a file that was cut off must not cost the others their index."""
    good = {
        "experiment": "mine",
        "title": "T",
        "source": "002 figure 3.1",
        "scale": "smoke",
        "criteria": [],
        "not_gated": [],
    }
    bad = {"cut-off": '{"experi', "empty": "", "list": "[]", "foreign": '{"name": "x"}'}
    (tmp_path / "mine.json").write_text(json.dumps(good))
    for name, text in bad.items():
        (tmp_path / f"{name}.json").write_text(text)
    html = index_page(tmp_path)
    assert "mine.html" in html
    assert "cut-off.json, empty.json, foreign.json, list.json" in html


def test_names_in_a_terminal_are_no_markup() -> None:
    table = drops_table([(("b[/x]", "c[red]", "pipe", "lost"), (1,))], ("packets",))
    console = Console(record=True, width=80, file=io.StringIO())
    console.print(table)
    shown = console.export_text()
    assert "b[/x]" in shown
    assert "c[red]" in shown
