"""A run in the terminal: the map, who got what, what was dropped where, and twins beside each other.

`penstock sim` and `penstock live` show what they counted themselves; `penstock demo` shows what the pipeline's tables
say. Both use the same words: *offered* is a call of publish(), *delivered* a message that reached an application,
*dropped* a packet that ended on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.lab.pages.numbers import count, duration, some
from penstock.lab.pages.run_comparisons import THINNED_HEADINGS, slowed_rows, thinned_rows
from penstock.lab.pages.run_retrieved import RETRIEVED_HEADINGS, RetrievedNumbers, retrieved_rows

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from penstock.lab.pages.run_numbers import ClientNumbers, PairNumbers, SlowedNumbers, StreamNumbers, ThinnedNumbers
    from penstock.scenario.stream_tally import StreamTallies

BARS = " ▁▂▃▄▅▆▇█"


def grid(title: str, left: Sequence[str], right: Sequence[str], last: Sequence[str] = ()) -> Table:
    """An empty table with columns of text, of numbers, and of text again."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    class PlainTable(Table):
        """Cells are shown as they are: a name such as `b[red]` is no markup."""

        def add_row(self, *cells: RenderableType | None, **more: Any) -> None:
            super().add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells), **more)

    # All fit a terminal of 80 columns.
    table = PlainTable(title=Text(title), title_justify="left", box=SIMPLE_HEAD, padding=0)
    for heading in left:
        table.add_column(heading, no_wrap=True)
    for heading in right:
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in last:
        table.add_column(heading, no_wrap=True)
    return table


def drops_table(rows: Sequence[tuple[tuple[str, ...], tuple[int, ...]]], counted: Sequence[str]) -> Table | str:
    """(node, peer, place and cause) and what was `counted` there."""
    if not rows:
        return "nothing was dropped"
    table = grid("what was dropped where", ("node", "towards", "place", "cause"), counted)
    for place, numbers in rows:
        table.add_row(*place, *map(count, numbers))
    return table


def clients_table(clients: Sequence[ClientNumbers]) -> Table:
    """Who got what, by the pipeline's tables."""
    counted = ("offered", "due", "delivered", "missed", "median", "99 %")
    table = grid("who got what", ("client", "at"), counted, ("over time",))
    for client in clients:
        table.add_row(
            client.name,
            client.broker,
            some(client.offered),
            *((count(client.due), count(client.delivered)) if client.listens else ("", "")),
            count(client.missed) if client.due else "",
            duration(client.from_publish.median),
            duration(client.from_publish.p99),
            sparkline(client.delivered_per_second, 9) if client.delivered else "",
        )
    return table


def retrieved_table(retrieved: Sequence[RetrievedNumbers]) -> Table:
    """What late readers got."""
    table = grid("what late readers got", RETRIEVED_HEADINGS[:1], RETRIEVED_HEADINGS[1:])
    for row in retrieved_rows(retrieved):
        table.add_row(*row)
    return table


def streams_table(streams: Sequence[StreamNumbers]) -> Table:
    """What became of the messages of streams, under each durable name."""
    counted = ("stored", "due", "delivered", "missed", "waiting", "repeated", "median", "longest")
    table = grid("what streams delivered", ("stream", "read as"), counted)
    for name in streams:
        numbers = (name.stored, name.due, name.delivered, name.missed, name.waiting, name.repeated)
        delays = (duration(name.delay_median), duration(name.delay_max))
        table.add_row(name.stream, name.durable, *map(count, numbers), *delays)
    return table


def stream_tallies_table(
    clients: Mapping[str, StreamTallies], percentile: Callable[[list[float], float], float | None]
) -> Table:
    """What clients counted themselves: a row for each stream that one publishes to, and each name it reads under."""
    counted = ("offered", "stored", "failed", "read", "median", "99 %")
    table = grid("what streams did", ("client", "stream", "read as"), counted)
    for client, tallies in clients.items():
        for (stream, durable), tally in sorted(tallies.items()):
            numbers = (tally.offered, tally.stored, tally.not_stored, tally.read)
            delays = (percentile(tally.delays, 0.5), percentile(tally.delays, 0.99))
            table.add_row(client, stream, durable, *map(some, numbers), *map(duration, delays))
    return table


def twins_tables(pairs: Sequence[PairNumbers]) -> list[Table]:
    """With and without the transport, a table for each publisher."""
    found = []
    for publisher in dict.fromkeys(pair.publisher for pair in pairs):
        counted = ("due", "delivered", "missed", "late", "recovered", "delay", "held")
        table = grid(f"messages of {publisher}, with and without the transport", ("client", ""), counted)
        for pair in pairs:
            if pair.publisher == publisher:
                table.add_row(
                    pair.client,
                    _with(pair),
                    *map(count, (pair.due, pair.delivered, pair.missed, pair.late, pair.recovered)),
                    *map(duration, (pair.from_publish.mean, pair.held)),
                )
        found.append(table)
    return found


def narrow_table(pairs: Sequence[PairNumbers]) -> Table:
    """With and without congestion control."""
    counted = ("not sent", "withheld", "dropped", "delivered", "delay", "after\nsending")  # as the page calls them
    title = "two equally narrow ways, with and without congestion control"
    table = grid(title, ("publisher", "client", ""), counted)
    for pair in pairs:
        table.add_row(
            pair.publisher,
            pair.client,
            _with(pair),
            *map(count, (pair.withheld, pair.thinned, pair.dropped, pair.delivered)),
            *map(duration, (pair.from_publish.mean, pair.after_sending.mean)),
        )
    return table


def slowed_table(slowed: Sequence[SlowedNumbers]) -> Table:
    """Who slows whom; a flow is as long as it is, and wraps."""
    table = grid("who slows whom", ("publisher",), ())
    table.add_column("flow", overflow="fold", max_width=26)
    for heading in ("slowed by", "slowest", "last", "from", "to"):
        table.add_column(heading, no_wrap=True, justify="left" if heading == "slowed by" else "right")
    for row in slowed_rows(slowed):
        table.add_row(*row)
    return table


def thinned_table(thinned: Sequence[ThinnedNumbers]) -> Table:
    """What full links and slow readers kept from whom."""
    table = grid("what full links withheld", THINNED_HEADINGS[:3], THINNED_HEADINGS[3:])
    for row in thinned_rows(thinned):
        table.add_row(*row)
    return table


def _with(pair: PairNumbers) -> str:
    return "with" if pair.careful else "without"


def sparkline(counts: Sequence[int], width: int = 22) -> str:
    """A row of bars, the tallest for the largest count; long rows are summed up into `width` of them."""
    step = max(1, -(-len(counts) // width))
    sums = [sum(counts[start : start + step]) for start in range(0, len(counts), step)]
    top = max(sums, default=0)
    return "".join(BARS[-(-value * (len(BARS) - 1) // top)] if top else BARS[0] for value in sums)
