"""A map of a small network for the terminal: brokers, the links between them, and what was lost on each.

The brokers are placed by pulling linked ones together and pushing all apart, from fixed starting points, so the same
network always looks the same. Lines are drawn in braille dots, eight to a character. A link on which something was
dropped is red; the others are the greener the more bytes they carried.
"""

from __future__ import annotations

from math import cos, hypot, pi, sin
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

    from penstock.scenario.spec import Scenario
    from penstock.sim.run import RunResult

WIDTH, HEIGHT = 72, 17  # characters; a character is 2 by 4 dots
BROKERS_MAX = 16
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))

Point = tuple[float, float]


def draw_network(scenario: Scenario, result: RunResult) -> Text | None:
    """The map, or None if there are too many brokers for one."""
    names = [broker.name for broker in scenario.broker]
    if len(names) > BROKERS_MAX or not scenario.link:
        return None
    places = _scaled(_layout(names, [link.between for link in scenario.link]))
    canvas = _Canvas()
    busiest = max(result.links.values(), default=0) or 1
    labels = []
    for link in scenario.link:
        a, b = link.between
        lost = _lost(result, a, b) + _lost(result, b, a)
        carried = result.links[a, b] + result.links[b, a]
        style = "red" if lost else "bright_green" if carried > busiest / 3 else "green" if carried else "bright_black"
        canvas.line(places[a], places[b], style)
        if lost:
            middle = ((places[a][0] + places[b][0]) / 2, (places[a][1] + places[b][1]) / 2)
            labels.append((middle, f"-{lost}", "bold red"))
    for point, loss, style in labels:
        canvas.label(point, loss, style)
    for name in names:
        clients = sum(client.broker == name for client in scenario.client)
        canvas.label(places[name], f" {name} {'•' * min(clients, 5)} ".replace("  ", " "), "bold reverse")
    text = canvas.text()
    text.append("• a client   green: carried bytes   red: packets lost on the link\n", style="bright_black")
    return text


def _lost(result: RunResult, sender: str, receiver: str) -> int:
    return sum(packets for (node, peer, _, _), packets in result.drops.items() if node == sender and peer == receiver)


def _layout(names: list[str], pairs: list[tuple[str, str]]) -> dict[str, Point]:
    """Spring layout from a circle: 200 rounds with ever smaller steps."""
    count = len(names)
    at = {name: (cos(2 * pi * i / count), sin(2 * pi * i / count)) for i, name in enumerate(names)}
    linked = {frozenset(pair): None for pair in pairs}
    for round_number in range(200):
        step = 0.1 * (1 - round_number / 200)
        moves = {name: _force(name, names, at, linked) for name in names}
        for name, (dx, dy) in moves.items():
            size = hypot(dx, dy) or 1.0
            x, y = at[name]
            at[name] = (x + dx / size * min(size, step), y + dy / size * min(size, step))
    return at


def _force(name: str, names: list[str], at: dict[str, Point], linked: dict[frozenset[str], None]) -> Point:
    fx = fy = 0.0
    x, y = at[name]
    for other in names:
        if other == name:
            continue
        dx, dy = x - at[other][0], y - at[other][1]
        distance = max(hypot(dx, dy), 0.05)
        push = 0.3 / distance**2
        pull = distance if frozenset((name, other)) in linked else 0.1 * distance
        fx += dx / distance * (push - pull)
        fy += dy / distance * (push - pull)
    return fx, fy


def _scaled(at: dict[str, Point]) -> dict[str, Point]:
    """To dots of the canvas, with a margin for the names."""
    xs, ys = [x for x, _ in at.values()], [y for _, y in at.values()]
    wide, high = max(max(xs) - min(xs), 1e-9), max(max(ys) - min(ys), 1e-9)
    return {
        name: (16 + (x - min(xs)) / wide * (2 * WIDTH - 32), 4 + (y - min(ys)) / high * (4 * HEIGHT - 9))
        for name, (x, y) in at.items()
    }


class _Canvas:
    def __init__(self) -> None:
        self._dots = [[0] * WIDTH for _ in range(HEIGHT)]
        self._styles = [[""] * WIDTH for _ in range(HEIGHT)]
        self._letters: dict[tuple[int, int], tuple[str, str]] = {}

    def line(self, start: Point, end: Point, style: str) -> None:
        steps = int(max(abs(end[0] - start[0]), abs(end[1] - start[1]))) + 1
        for step in range(steps + 1):
            x = int(start[0] + (end[0] - start[0]) * step / steps)
            y = int(start[1] + (end[1] - start[1]) * step / steps)
            self._dots[y // 4][x // 2] |= _DOTS[y % 4][x % 2]
            self._styles[y // 4][x // 2] = style

    def label(self, middle: Point, text: str, style: str) -> None:
        row = int(middle[1]) // 4
        first = max(0, min(WIDTH - len(text), int(middle[0]) // 2 - len(text) // 2))
        for offset, letter in enumerate(text):
            self._letters[row, first + offset] = (letter, style)

    def text(self) -> Text:
        from rich.text import Text

        drawing = Text(no_wrap=True)
        for row in range(HEIGHT):
            for column in range(WIDTH):
                letter = self._letters.get((row, column))
                dots = self._dots[row][column]
                drawing.append(*(letter or (chr(0x2800 + dots) if dots else " ", self._styles[row][column])))
            drawing.append("\n")
        return drawing
