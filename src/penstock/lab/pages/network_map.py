"""The network as a drawing: brokers as cards with their clients in them, links with what they carried and lost.

Two drawings are made, one for wide screens with the clients' filters, one for phones without; the style sheet shows one
of them. A link is the thicker the more bytes it carried, and red if packets were lost on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import hypot, sqrt
from typing import NamedTuple

from penstock.lab.pages.card_layout import Box, place_cards, points_on
from penstock.lab.pages.layout import Point
from penstock.lab.pages.numbers import count, size
from penstock.lab.pages.run_numbers import ClientNumbers, RunNumbers

BROKERS_MAX = 16
FILTER_CHARACTERS = 36  # to a line
FILTER_LINES = 6
NAME_CHARACTERS, NAME_CHARACTERS_NARROW = 32, 16  # of a name, on a desk and on a phone
ROLE = 7.2  # the width of a letter in what stands after a client's name
EDGE = 8.0  # around everything
LABEL_GAP = 10.0  # between two labels
ASIDE_MAX = 12  # steps of 8 that a label may stand beside its line

Way = tuple[Point, Point]  # from where to where a line goes


class CardLine(NamedTuple):
    """A line of a card: its class, its text, what stands fainter after it, and its height."""

    kind: str
    text: str
    height: float
    role: str = ""


def network_map(numbers: RunNumbers) -> str:
    """Both drawings; says so where there are too many brokers for one."""
    brokers = [broker.name for broker in numbers.scenario.broker]
    if len(brokers) > BROKERS_MAX:
        return (
            f"<p class=note>{len(brokers)} brokers are too many for a map; the table of links below has them all.</p>"
        )
    wide = _drawing(numbers, brokers, "wide", width=1100.0, gap=(104.0, 76.0), filters=True)
    narrow = _drawing(numbers, brokers, "narrow", width=344.0, gap=(40.0, 50.0), filters=False)
    return wide + narrow


def _drawing(
    numbers: RunNumbers, brokers: Sequence[str], style: str, *, width: float, gap: Point, filters: bool
) -> str:
    cards = {name: _card_lines(numbers, name, filters=filters) for name in brokers}
    sizes = {name: _card_size(lines) for name, lines in cards.items()}
    links = [link.between for link in numbers.scenario.link]
    boxes, height = place_cards(sizes, links, width=width, gap=gap)
    boxes = {name: box._replace(x=box.x + EDGE, y=box.y + EDGE) for name, box in boxes.items()}
    parts = _links(numbers, boxes, carried=filters)
    parts[1:1] = [_card(boxes[name], lines) for name, lines in cards.items()]
    what = f"Map of {len(brokers)} brokers and what the links between them carried and lost"
    return (
        f'<svg class="map {style}" viewBox="0 0 {width + 2 * EDGE:.0f} {height + 2 * EDGE:.0f}" role=img'
        f' aria-label="{escape(what)}">{"".join(parts)}</svg>'
    )


# Cards.


def _card_lines(numbers: RunNumbers, broker: str, *, filters: bool) -> list[CardLine]:
    most = NAME_CHARACTERS if filters else NAME_CHARACTERS_NARROW
    lines = [CardLine("name", _short(broker, most), 24.0)]
    for client in numbers.clients:
        if client.broker == broker:
            lines.append(CardLine("client", _short(client.name, most), 19.0, _role(client) if filters else ""))
            for where in client.wants if filters else ():
                lines += [CardLine("filter", part, 14.5) for part in _wrapped(where)]
    return lines


def _role(client: ClientNumbers) -> str:
    parts = []
    if client.publishes:
        withheld = f", withheld {count(client.withheld)}" if client.withheld else ""
        parts.append(f"offered {count(client.offered)}{withheld}")
    if client.wants:
        missed = f", missed {count(client.missed)}" if client.due else ""
        parts.append(f"delivered {count(client.delivered)}{missed}")
    return " · ".join(parts)


def _short(text: str, most: int) -> str:
    """What does not fit a card is cut off with a mark; the tables below the map have all of it."""
    return text if len(text) <= most else text[: most - 1] + "…"


def _wrapped(where: str) -> list[str]:
    """A filter in lines, as many as a card has room for."""
    lines = [""]
    for word in (_short(word, FILTER_CHARACTERS) for word in where.split(" ")):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > FILTER_CHARACTERS:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".strip()
    return lines if len(lines) <= FILTER_LINES else [*lines[: FILTER_LINES - 1], "…"]


def _card_size(lines: Sequence[CardLine]) -> Point:
    """Estimated from the number of characters: the widest letters that a system font is likely to have."""
    per_letter = {"name": 9.6, "client": 7.9, "filter": 6.75}
    width = max(per_letter[line.kind] * len(line.text) + ROLE * len(line.role) for line in lines) + 28.0
    return max(76.0, width), sum(line.height for line in lines) + 12.0


def _card(box: Box, lines: Sequence[CardLine]) -> str:
    left, top = box.x - box.width / 2, box.y - box.height / 2
    parts = [
        f'<rect class=broker x="{left:.1f}" y="{top:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" rx="8"/>',
    ]
    y = top + 4.0
    for line in lines:
        y += line.height
        role = f"<tspan class=role> {escape(line.role)}</tspan>" if line.role else ""
        parts.append(f'<text class={line.kind} x="{left + 12:.1f}" y="{y - 4:.1f}">{escape(line.text)}{role}</text>')
    return f"<g>{''.join(parts)}</g>"


# Links.


def _links(numbers: RunNumbers, boxes: Mapping[str, Box], *, carried: bool) -> list[str]:
    """First all lines, which lie below the cards, then their labels, which lie above."""
    both = {
        link.between: [n for n in numbers.links if {n.sender, n.receiver} == set(link.between)]
        for link in numbers.scenario.link
    }
    bytes_of = {pair: sum(n.carried_bytes for n in directions) for pair, directions in both.items()}
    lost_of = {pair: sum(n.lost for n in directions) for pair, directions in both.items()}
    busiest = max(bytes_of.values(), default=0) or 1
    lines, labels, taken = [], [], list(boxes.values())
    ways = {(a, b): ((boxes[a].x, boxes[a].y), (boxes[b].x, boxes[b].y)) for a, b in both}
    for (a, b), directions in both.items():
        ends = ways[a, b]
        thick = 1.5 + 7.0 * sqrt(bytes_of[a, b] / busiest)
        lossy = " lossy" if lost_of[a, b] else ""
        told = "; ".join(f"{n.sender} to {n.receiver}: {size(n.carried_bytes)}, {n.lost:,} lost" for n in directions)
        lines.append(
            f'<line class="link{lossy}" x1="{ends[0][0]:.1f}" y1="{ends[0][1]:.1f}" x2="{ends[1][0]:.1f}"'
            f' y2="{ends[1][1]:.1f}" stroke-width="{thick:.1f}"><title>{escape(told)}</title></line>'
        )
        texts = [("carried", size(bytes_of[a, b]))] if carried else []
        texts += [("lost", f"{count(lost_of[a, b])} lost" if carried else f"−{count(lost_of[a, b])}")] if lossy else []
        if texts:
            others = [way for pair, way in ways.items() if pair != (a, b)]
            spot = label_spot(ends, boxes, taken, others, texts)
            taken.append(spot)
            labels.append(_label(spot, texts))
    return ["<g>" + "".join(lines) + "</g>", *labels]


def label_spot(
    ends: Way, boxes: Mapping[str, Box], taken: list[Box], others: Sequence[Way], texts: list[tuple[str, str]]
) -> Box:
    """Where a label has room on its line, as near to the middle of what is seen of it as can be.

    Best is where it is clear of other labels and hides no other line, so that nobody asks which link it belongs to.
    """
    wide, high = max(7.0 * len(text) for _, text in texts) + 14.0, 16.0 * len(texts) + 6.0
    seen = [
        (x, y) for x, y in points_on(*ends) if not any(Box(x, y, 0.0, 0.0).overlaps(box) for box in boxes.values())
    ] or points_on(*ends)
    middle = len(seen) / 2
    ordered = sorted(range(len(seen)), key=lambda place: abs(place - middle))
    long = hypot(ends[1][0] - ends[0][0], ends[1][1] - ends[0][1]) or 1.0
    aside = (ends[0][1] - ends[1][1]) / long, (ends[1][0] - ends[0][0]) / long  # at a right angle to the line
    spots = [  # first along the line, then beside it
        Box(seen[place][0] + far * aside[0], seen[place][1] + far * aside[1], wide, high)
        for far in (0.0, *(8.0 * step * side for step in range(1, ASIDE_MAX) for side in (1.0, -1.0)))
        for place in ordered
    ]
    free = [spot for spot in spots if not any(spot.overlaps(box, 2.0) for box in taken)]
    labels = taken[len(boxes) :]
    clear = [spot for spot in free if not any(spot.overlaps(box, LABEL_GAP) for box in labels)]
    own = [spot for spot in clear if spot.hides(*ends)]
    alone = [spot for spot in own if not any(spot.hides(*way) for way in others)]
    afar = [spot for spot in alone if not any(_wider(spot).hides(*way) for way in others)]
    return next(iter(afar or alone or clear or free or spots))


def _wider(spot: Box) -> Box:
    """With room for the thickness of a line beside it."""
    return spot._replace(width=spot.width + 2 * LABEL_GAP, height=spot.height + 2 * LABEL_GAP)


def _label(spot: Box, texts: list[tuple[str, str]]) -> str:
    left, top = spot.x - spot.width / 2, spot.y - spot.height / 2
    rows = "".join(
        f'<text class={kind} x="{spot.x:.1f}" y="{top + 15 + 16 * number:.1f}">{escape(text)}</text>'
        for number, (kind, text) in enumerate(texts)
    )
    return (
        f'<g><rect class=label x="{left:.1f}" y="{top:.1f}" width="{spot.width:.1f}" height="{spot.height:.1f}"'
        f' rx="6"/>{rows}</g>'
    )
