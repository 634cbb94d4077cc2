"""The pages in a real browser, as a reader sees them: light and dark, on a desk and on a phone.

Pages are made from real results: the simulated town, and experiments at smoke scale. Each is opened in Chromium; what
is wrong with it is found by `FAULTS`, a script that looks at every element. Screenshots stay in `runs/screenshots`.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from lab_help import SMOKE
from penstock.lab.pages.experiment_page import write_reports
from penstock.lab.pages.run_numbers import read_numbers
from penstock.lab.pages.run_page import write_run_report

SCREENSHOTS = Path(__file__).parents[2] / "runs" / "screenshots"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
LOOKS = (("light", 1280), ("dark", 1280), ("light", 400), ("dark", 400))
DRAWN = "document.querySelector('.plot') === null || document.body.dataset.drawn === 'yes'"

BAD = """<body data-drawn=yes style="color:#777;background:#888">pale
<div style="width:50px;overflow:hidden;white-space:nowrap">much too long for its box</div>
<p style="width:2000px;color:#000;background:#fff">wide</p><div class=plot><svg></svg></div>
<svg width=100 height=20><text x=90 y=15>outside</text></svg>
<svg class=map width=99 height=50><g><rect width=30 height=20 /><text y=15>a long name</text></g>
<rect x=20 width=30 height=20 /></svg><script>throw new Error("broken")</script>"""

FAULTS = """() => {
  const faults = [];
  const told = e => `${e.tagName}.${e.getAttribute("class") || ""} "${e.textContent.trim().slice(0, 40)}"`;
  const seen = e => { const box = e.getBoundingClientRect(); return box.width > 0 && box.height > 0; };
  const inside = (a, b, room) => a.left >= b.left - room && a.right <= b.right + room
    && a.top >= b.top - room && a.bottom <= b.bottom + room;
  const overlap = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1;

  if (document.documentElement.scrollWidth > innerWidth) faults.push("the page scrolls sideways");

  const words = [...document.querySelectorAll("body *")].filter(e => seen(e) && !e.closest("svg, script, style")
    && [...e.childNodes].some(node => node.nodeType === 3 && node.data.trim()));
  for (const e of words) {
    if (e.clientWidth && e.scrollWidth > e.clientWidth + 1 && !e.closest(".scroll")) faults.push(`cut off: ${told(e)}`);
    const box = e.getBoundingClientRect();
    if (!e.closest(".scroll") && (box.left < -1 || box.right > innerWidth + 1)) faults.push(`outside: ${told(e)}`);
  }

  for (const svg of [...document.querySelectorAll("svg")].filter(seen)) {
    const frame = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll("text")].filter(e => seen(e) && getComputedStyle(e).opacity !== "0");
    for (const e of texts)
      if (!inside(e.getBoundingClientRect(), frame, 1)) faults.push(`outside its drawing: ${told(e)}`);
    for (const axis of svg.querySelectorAll(".role-axis-label")) {
      const boxes = texts.filter(e => axis.contains(e)).map(e => e.getBoundingClientRect());
      boxes.forEach((a, n) => boxes.slice(n + 1).forEach(b => overlap(a, b) && faults.push("labels of an axis touch")));
    }
  }
  for (const map of [...document.querySelectorAll(".map")].filter(seen)) {
    for (const group of [...map.querySelectorAll("g")].filter(g => g.querySelector("rect"))) {
      const card = group.querySelector("rect").getBoundingClientRect();
      for (const e of group.querySelectorAll("text"))
        if (!inside(e.getBoundingClientRect(), card, 0)) faults.push(`outside its card: ${told(e)}`);
    }
    const cards = [...map.querySelectorAll("rect")].map(e => e.getBoundingClientRect());
    cards.forEach((a, n) => cards.slice(n + 1).forEach(b => overlap(a, b) && faults.push("cards or labels touch")));
  }
  for (const plot of document.querySelectorAll(".plot")) {
    const marks = plot.querySelectorAll("svg .mark-line path, svg .mark-rect path, svg .mark-symbol path");
    if (![...marks].some(e => (e.getAttribute("d") || "").length > 10)) faults.push("a plot is empty");
  }

  // Contrast of text with what lies below it, as WCAG counts it; 4.5 is its bound.
  const channels = colour => {
    const drawn = Object.assign(document.createElement("canvas"), {width: 1, height: 1}).getContext("2d");
    drawn.fillStyle = colour; drawn.fillRect(0, 0, 1, 1);
    return [...drawn.getImageData(0, 0, 1, 1).data];
  };
  const light = colour => channels(colour).slice(0, 3).map(c => c / 255)
    .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, n) => sum + c * [0.2126, 0.7152, 0.0722][n], 0);
  const pairs = new Map();
  for (const e of words) {
    let below = e;
    while (below && getComputedStyle(below).backgroundColor === "rgba(0, 0, 0, 0)") below = below.parentElement;
    const ground = below ? getComputedStyle(below).backgroundColor : "white";
    pairs.set(`${getComputedStyle(e).color} on ${ground}`, [getComputedStyle(e).color, ground, e]);
  }
  for (const [colours, [ink, ground, e]] of pairs) {
    const [a, b] = [light(ink), light(ground)].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) faults.push(`hard to read: ${colours}: ${told(e)}`);
  }
  return [...new Set(faults)];
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """The system's Chromium; where there is none, or no Playwright, its tests are skipped."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip("no Chromium on the path; install it, on Debian with: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="install it with: pip install playwright")
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=found, headless=True)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def pages(browser: Any, town_run, smoke_results, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The run's page, the index, and an experiment's page."""
    numbers = read_numbers(town_run.folder, town_run.scenario)
    index = write_reports(smoke_results, tmp_path_factory.mktemp("report"))
    return {
        "run": write_run_report(town_run.folder, numbers, "penstock demo networks/town.toml --sim", simulated=True),
        "index": index,
        "experiment": index.with_name(f"{SMOKE[1]}.html"),
    }


@pytest.mark.parametrize("name", ["run", "index", "experiment"])
def test_a_page_can_be_read(browser: Any, pages: dict[str, Path], name: str) -> None:
    faults, asked = look(browser, pages[name], SCREENSHOTS / name)
    assert faults == []
    assert asked == [pages[name].as_uri()], "a page needs no network"


def test_names_as_long_as_they_may_be_stay_on_the_page(browser: Any, town_run, tmp_path: Path) -> None:
    numbers = read_numbers(town_run.folder, town_run.scenario)
    names = [one.name for one in (*numbers.scenario.broker, *numbers.scenario.client)]
    page = write_run_report(tmp_path, renamed(numbers, {name: f"{name}-{'x' * 64}"[:64] for name in names}), "penstock")
    faults, _ = look(browser, page, tmp_path / "long", (LOOKS[0], LOOKS[3]))
    assert faults == []


def renamed(value: Any, names: dict[str, str]) -> Any:
    """The same numbers of nodes with other names."""
    if isinstance(value, Struct):
        return msgspec.convert(renamed(msgspec.to_builtins(value), names), type(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: renamed(getattr(value, field.name), names) for field in dataclasses.fields(value)}
        return dataclasses.replace(value, **fields)
    if isinstance(value, dict):
        return {key: renamed(one, names) for key, one in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(renamed(one, names) for one in value))
    if isinstance(value, list | tuple):
        return type(value)(renamed(one, names) for one in value)
    return names.get(value, value) if isinstance(value, str) else value


def test_what_is_wrong_with_a_page_is_found(browser: Any, tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    page.write_text(BAD)
    faults, _ = look(browser, page, tmp_path / "bad", LOOKS[:1])
    said = "\n".join(faults)
    for fault in ("scrolls sideways", 'cut off: DIV. "much', 'outside: P. "wide', "a plot is empty", "hard to read"):
        assert fault in said
    for fault in ('outside its drawing: text. "outside', 'outside its card: text. "a long', "labels touch", "broken"):
        assert fault in said


def look(
    browser: Any, page: Path, pictures: Path, looks: Sequence[tuple[str, int]] = LOOKS
) -> tuple[list[str], list[str]]:
    """What is wrong with a page in any of its looks, and what it asked for; leaves pictures of it.

    It is loaded once. Each look differs from the one before in light and dark, so the page draws all its plots anew.
    """
    faults: list[str] = []
    asked: list[str] = []
    pictures.parent.mkdir(parents=True, exist_ok=True)
    with browser.new_context() as context:
        tab = context.new_page()
        tab.on("console", lambda message: faults.append(f"console: {message.text}"))
        tab.on("pageerror", lambda error: faults.append(f"error: {error}"))
        tab.on("request", lambda request: asked.append(request.url))
        for number, (scheme, width) in enumerate(looks):
            tab.set_viewport_size({"width": width, "height": 900})
            tab.evaluate("delete document.body.dataset.drawn")
            tab.emulate_media(color_scheme=scheme)
            if number == 0:
                tab.goto(page.as_uri())
            tab.wait_for_function(DRAWN)
            faults += [f"{scheme}, {width} px: {fault}" for fault in tab.evaluate(FAULTS)]
            tab.screenshot(path=f"{pictures}-{scheme}-{width}.png", full_page=True)
    return faults, [url for url in asked if not url.startswith(("data:", "blob:"))]
