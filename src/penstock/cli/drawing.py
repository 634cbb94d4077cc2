"""A map of a small network for the terminal: brokers, the links between them, and what was lost on each.

The brokers stand as `lab/pages/layout.py` places them for the page too. Lines are drawn in braille dots, eight to a
character. A link on which something was dropped is red; the others are the greener the more bytes they carried.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.lab.pages.layout import Point, spring_layout, stretched

if TYPE_CHECKING:
    from rich.text import Text

    from penstock.scenario.spec import Scenario

WIDTH, HEIGHT = 72, 17  # characters; a character is 2 by 4 dots
BROKERS_MAX = 16
NO_CLIENTS = (
    "nobody publishes or subscribes: the file has no clients; add a [[client]] with a name, a broker, and what it"
    " subscribes to or publishes, as in networks/town.toml"
)
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))

Direction = tuple[str, str]  # from, to


def draw_network(
    scenario: Scenario, carried_bytes: Mapping[Direction, int], lost_on: Mapping[Direction, int], what: str
) -> Text | None:
    """The map, or None if there are too many brokers for one. `what` is lost: packets, or messages.

    That a network has no clients is said here, with the map or in its place: all else will be empty.
    """
    from rich.text import Text

    names = [broker.name for broker in scenario.broker]
    if len(names) > BROKERS_MAX or not scenario.link:
        return None if scenario.client else Text(NO_CLIENTS)
    places = spring_layout(names, [link.between for link in scenario.link])
    places = stretched(places, 16, 4, 2 * WIDTH - 16, 4 * HEIGHT - 5)  # with a margin for the names
    canvas = Canvas()
    busiest = max(carried_bytes.values(), default=0) or 1
    labels = []
    for link in scenario.link:
        a, b = link.between
        lost = lost_on.get((a, b), 0) + lost_on.get((b, a), 0)
        carried = carried_bytes.get((a, b), 0) + carried_bytes.get((b, a), 0)
        style = "red" if lost else "bright_green" if carried > busiest / 3 else "green" if carried else "bright_black"
        canvas.line(places[a], places[b], style)
        if lost:
            labels.append((places[a], places[b], f"-{lost}"))
    for name in names:
        clients = sum(client.broker == name for client in scenario.client)
        canvas.label(places[name], f" {name} {'•' * min(clients, 5)} ".replace("  ", " "), "bold reverse")
    for start, end, loss in labels:
        canvas.label(canvas.free_place(start, end, loss), loss, "bold red")
    text = canvas.text()
    text.append(f"• a client   green: carried bytes   red: {what} lost on the link\n", style="bright_black")
    if not scenario.client:
        text.append(f"{NO_CLIENTS}\n")
    return text


class Canvas:
    """Dots and letters on a grid of characters."""

    def __init__(self) -> None:
        self._dots = [[0] * WIDTH for _ in range(HEIGHT)]
        self._styles = [[""] * WIDTH for _ in range(HEIGHT)]
        self._letters: dict[tuple[int, int], tuple[str, str]] = {}

    def line(self, start: Point, end: Point, style: str) -> None:
        """Draw dots from one point to another."""
        steps = int(max(abs(end[0] - start[0]), abs(end[1] - start[1]))) + 1
        for step in range(steps + 1):
            x = int(start[0] + (end[0] - start[0]) * step / steps)
            y = int(start[1] + (end[1] - start[1]) * step / steps)
            self._dots[y // 4][x // 2] |= _DOTS[y % 4][x % 2]
            self._styles[y // 4][x // 2] = style

    def free_place(self, start: Point, end: Point, text: str) -> Point:
        """Where on a line a label touches no other, as near to the middle as can be; the middle if there is none."""
        steps = sorted((n / 20 for n in range(2, 19)), key=lambda share: abs(share - 0.5))
        places = [(start[0] + (end[0] - start[0]) * far, start[1] + (end[1] - start[1]) * far) for far in steps]
        return next((place for place in places if self._is_free(place, text)), places[0])

    def _is_free(self, middle: Point, text: str) -> bool:
        row, first = self._first(middle, text)
        return not any((row, column) in self._letters for column in range(first - 1, first + len(text) + 1))

    def _first(self, middle: Point, text: str) -> tuple[int, int]:
        return int(middle[1]) // 4, max(0, min(WIDTH - len(text), int(middle[0]) // 2 - len(text) // 2))

    def label(self, middle: Point, text: str, style: str) -> None:
        """Write letters over the dots."""
        row, first = self._first(middle, text)
        for offset, letter in enumerate(text):
            self._letters[row, first + offset] = (letter, style)

    def text(self) -> Text:
        """All of it."""
        from rich.text import Text

        drawing = Text(no_wrap=True)
        for row in range(HEIGHT):
            for column in range(WIDTH):
                letter = self._letters.get((row, column))
                dots = self._dots[row][column]
                drawing.append(*(letter or (chr(0x2800 + dots) if dots else " ", self._styles[row][column])))
            drawing.append("\n")
        return drawing
