"""What each client got in each second, as rows of cells: the stronger the colour, the more; a red edge for misses.

The cells are HTML, so that they follow light and dark, and names stay readable on a phone. Colours go by the square
root of the rate: clients that get two messages a second are seen beside those that get a hundred.
"""

from __future__ import annotations

from html import escape
from math import ceil, sqrt

from penstock.lab.pages.numbers import count
from penstock.lab.pages.run_numbers import ClientNumbers, RunNumbers

TICKS = 5  # seconds between labels below the map, or a multiple of this in long runs
TICKS_MAX = 6
LAST_TICK = 2  # seconds before the end: a label needs the width of three cells on a phone


def heat_map(numbers: RunNumbers) -> str:
    """The map with its legend: those who want anything, who got most first."""
    rows = sorted((c for c in numbers.clients if c.listens), key=lambda client: (-client.delivered, client.name))
    top = _round(max((max(client.delivered_per_second) for client in rows), default=0), up=True)
    parts = ["<span class=head>client</span><span class=head>time (s)</span><span class='head sum'>delivered</span>"]
    parts += [_row(client, top) for client in rows]
    parts.append(f"<span></span>{_ticks(numbers.seconds)}<span></span>")
    return f'{_legend(top)}<div class=heat style="--columns:{numbers.seconds}">{"".join(parts)}</div>'


def _row(client: ClientNumbers, top: int) -> str:
    cells = "".join(
        _cell(second, delivered, missed, top)
        for second, (delivered, missed) in enumerate(
            zip(client.delivered_per_second, client.missed_per_second, strict=True)
        )
    )
    total = f"<span class=sum>{count(client.delivered)}</span>"
    return f"<span>{escape(client.name)}</span><span class=row>{cells}</span>{total}"


def _cell(second: int, delivered: int, missed: int, top: int) -> str:
    told = f"second {second}: {delivered} delivered" + (f", {missed} missed" if missed else "")
    style = f' style="--level:{_level(delivered, top)}"' if delivered else ""
    return f'<i title="{told}"{" class=missed" if missed else ""}{style}></i>'


def _level(rate: float, top: int) -> str:
    return f"{100 * sqrt(rate / top):.0f}%"


def _ticks(seconds: int) -> str:
    step = TICKS
    while seconds / step > TICKS_MAX:
        step *= 2
    labels = "".join(
        f'<span style="grid-column:{second + 1} / span {min(step, seconds - second)}">{second}</span>'
        for second in range(0, seconds - LAST_TICK, step)
    )
    return f"<span class=ticks>{labels}</span>"


def _round(rate: float, *, up: bool = False) -> int:
    """A number that is easy to read, and at least 1: whole tens from 5 on, whole hundreds from 500 on."""
    unit = 100 if rate >= 500 else 10 if rate >= 5 else 1
    return max(1, unit * (ceil(rate / unit) if up else round(rate / unit)))


def _legend(top: int) -> str:
    steps = sorted({0, top, *(_round(top * quarter * quarter / 16) for quarter in (1, 2, 3))})
    swatches = "".join(f'<li><i class="box shade" style="--level:{_level(n, top)}"></i>{n}</li>' for n in steps)
    missed = "<li><i class=box style='background:var(--cell);box-shadow:inset 0 -.3rem var(--bad)'></i>some missed</li>"
    return f"<ul class=legend><li>messages per second:</li>{swatches}{missed}</ul>"
