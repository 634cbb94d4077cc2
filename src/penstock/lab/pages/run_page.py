"""The report of one run as a page that needs no network: who got what, how fast, what was lost where, who slows whom.

`penstock demo` writes it for the town; any run folder will do. Nothing is computed here: the numbers are those of
`run_numbers`, which come from the tables that the pipeline has written beside the run's traces.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from penstock.lab.engine.experiment import Figure
from penstock.lab.pages import style
from penstock.lab.pages.comparison import comparison
from penstock.lab.pages.heat_map import heat_map
from penstock.lab.pages.html import BOTH_COUNTED, figure_html, figures_html, page, table
from penstock.lab.pages.look import HEAT_CSS, MAP_CSS
from penstock.lab.pages.network_map import network_map
from penstock.lab.pages.numbers import bit_rate, count, duration, share, size, some
from penstock.lab.pages.run_numbers import ClientNumbers, PairNumbers, RunNumbers
from penstock.scenario.spec import Scenario

DELAYS = (
    "Delays are measured from publish(), as the application sees it, and from where the message left its publisher."
)


def write_run_report(folder: Path, numbers: RunNumbers, command: str, *, simulated: bool = False) -> Path:
    """Write `report.html` into the run's folder; returns its path."""
    path = folder / "report.html"
    path.write_text(run_page(numbers, command, simulated=simulated), encoding="utf-8")
    return path


def run_page(numbers: RunNumbers, command: str, *, simulated: bool = False) -> str:
    """The whole page; what the file's faults did belongs to simulated runs alone."""
    scenario = numbers.scenario
    title = f"{scenario.name.capitalize()}: what happened"
    faults = f" {_faults(scenario)}" if simulated and scenario.fault else ""
    parts = [
        f"<h1>{escape(title)}</h1>",
        f"<p class=source>{len(scenario.broker)} brokers, {len(scenario.client)} clients,"
        f" {scenario.duration:g} s of publishing. Made with <code>{escape(command)}</code></p>",
        _tiles(numbers),
        "<h2>The network</h2>",
        "<p>Each card is a broker with its clients and what they want. The thicker a link, the more bytes it carried in"
        " both directions; red ones lost as many messages as they say.</p>",
        f"<figure>{network_map(numbers)}</figure>",
        *_transport_part(numbers.twins),
        *_congestion_part(numbers.narrow),
        "<h2>Over time</h2>",
        f"<p>{BOTH_COUNTED}{faults}</p>",
        figure_html(_rates_figure(numbers)),
        f"<figure><figcaption>Deliveries to each client</figcaption>{heat_map(numbers)}</figure>",
        "<h2>Who got what, and how fast</h2>",
        f"<p>{due_explained(scenario)} {DELAYS}</p>",
        clients_table(numbers.clients),
        "<h2>What the links carried</h2>",
        links_table(numbers),
        "<h2>What was dropped where</h2>",
        "<p>Every packet that ended on the way, with place and cause. Those without a message are control: what brokers"
        " tell each other, and tell again.</p>",
        drops_table(numbers) if numbers.drops else "<p>Nothing was dropped.</p>",
        "<h2>Checks</h2>",
        _checks(numbers),
        "<footer><p>The same numbers lie as Parquet in <code>metrics/</code> beside this page.</p></footer>",
    ]
    return page(title, parts, plots=True, css=f"{MAP_CSS}\n{HEAT_CSS}")


def due_explained(scenario: Scenario) -> str:
    """What counts as missed, in two sentences."""
    return (
        f"Due is what was published while a subscription was known everywhere: not within {scenario.settle:g} s of its"
        " beginning or end. Missed is what was due and never came; delivered is all that came, due or not."
    )


def _tiles(numbers: RunNumbers) -> str:
    failed = [check for check in numbers.checks if check["level"] == "fail"]
    verdict = f"{len(failed)} failed" if failed else "all hold"
    style_of = "fails" if failed else "holds"
    warned = len(numbers.checks) - len(failed) + len(numbers.warnings)
    tiles = [
        ("published", count(numbers.published), f"{count(numbers.withheld)} more were withheld"),
        ("delivered", count(numbers.delivered), "once for each client that wanted it"),
        ("missed", count(numbers.missed), f"{share(numbers.missed, numbers.due) or '0 %'} of {count(numbers.due)} due"),
        ("packets dropped", count(numbers.dropped), f"{count(numbers.dropped_messages)} of them with a message"),
        ("checks", f"<span class={style_of}>{verdict}</span>", f"{warned} warning{'s' if warned != 1 else ''}"),
    ]
    return (
        "<dl class=tiles>"
        + "".join(f"<div><dt>{name}</dt><dd>{value}<small>{note}</small></dd></div>" for name, value, note in tiles)
        + "</dl>"
    )


# Comparisons.


def _transport_part(pairs: Sequence[PairNumbers]) -> list[str]:
    if not pairs:
        return []
    names = " and ".join(f"<b>{escape(name)}</b>" for name in dict.fromkeys(pair.client for pair in pairs))
    return [
        "<h2>With and without the transport</h2>",
        f"<p>{names} want the same. One of them asks for order and recovery: what is missing is requested and"
        " sent again, and what comes too early is held until its turn, which takes time.</p>",
        twins_table(pairs),
        *figures_html(comparison(pairs, "the transport", offered=False)),
    ]


def _congestion_part(pairs: Sequence[PairNumbers]) -> list[str]:
    if not pairs:
        return []
    return [
        "<h2>With and without congestion control</h2>",
        "<p>Equally much is published over equally narrow ways. With congestion control the publisher learns from its"
        " reader what the way can carry, and withholds the rest; without, the rest is lost on the way.</p>",
        f"<p><b>{escape(losses_compared(pairs))}.</b></p>",
        narrow_table(pairs),
        *figures_html(comparison(pairs, "congestion control", offered=True)),
        f"<p class=note>{escape(_capacity_explained(pairs))}</p>",
    ]


def losses_compared(pairs: Sequence[PairNumbers]) -> str:
    """By which factor losses fell."""
    lost = {careful: sum(pair.missed for pair in pairs if pair.careful is careful) for careful in (True, False)}
    return (
        f"With congestion control {lost[False] / max(1, lost[True]):.1f} times fewer messages were lost:"
        f" {count(lost[True])} instead of {count(lost[False])}"
    )


def _capacity_explained(pairs: Sequence[PairNumbers]) -> str:
    known = [(pair, *pair.narrowest) for pair in pairs if pair.narrowest]
    links = "; ".join(f"{a} to {b}: {rate:.0f} messages/s for {pair.client}" for pair, a, b, rate in known)
    return (
        f"The capacity is the link's rate over the mean size of the packets it carried ({links})."
        " The quota is what the publisher lets out; where the line ends, nothing limits it."
    )


def twins_table(pairs: Sequence[PairNumbers]) -> str:
    """The transport's twins."""
    counted = ("due", "delivered", "missed", "late", "recovered")
    headings = ("publisher", "client", "transport", *counted, "mean delay", "from leaving", "held")
    rows = [
        (
            escape(pair.publisher),
            escape(pair.client),
            "with" if pair.careful else "without",
            *map(count, (pair.due, pair.delivered, pair.missed, pair.late, pair.recovered)),
            duration(pair.from_publish.mean),
            duration(pair.from_leaving.mean),
            duration(pair.held),
        )
        for pair in pairs
    ]
    note = "<p class=note>Late: came after a later one of the same publisher. Held: how long it waited for others.</p>"
    return table(headings, rows, numbers=range(3, 11), styles="name name -") + note


def narrow_table(pairs: Sequence[PairNumbers]) -> str:
    """The twins of congestion control."""
    counted = ("offered", "withheld", "published", "delivered", "missed")
    headings = ("publisher", "client", "control", *counted, "mean delay", "from leaving")
    rows = [
        (
            escape(pair.publisher),
            escape(pair.client),
            "with" if pair.careful else "without",
            *map(count, (pair.offered, pair.withheld, pair.published, pair.delivered, pair.missed)),
            duration(pair.from_publish.mean),
            duration(pair.from_leaving.mean),
        )
        for pair in pairs
    ]
    return table(headings, rows, numbers=range(3, 10), styles="name name -")


# Over time.


def _rates_figure(numbers: RunNumbers) -> Figure:
    spec = style.over_time(numbers.rates, "messages per second")
    return Figure(caption="Publications, deliveries, and deliveries that were due and never came", spec=spec)


def _faults(scenario: Scenario) -> str:
    """What the file breaks and mends, as a sentence."""
    struck = [
        f"{fault.kind.replace('_', ' ')} at {fault.at:g} s ({' and '.join(fault.link or fault.group) or fault.broker})"
        for fault in scenario.fault
    ]
    return f"The file's faults: {escape('; '.join(struck))}."


# Tables.


def clients_table(clients: Sequence[ClientNumbers]) -> str:
    """Who got what."""
    counted = ("offered", "withheld", "due", "delivered", "missed", "late")
    headings = ("client", "at", *counted, "median", "99 %", "median", "99 %", "wants")
    above = (
        "<tr class=group><th colspan=8></th><th colspan=2 class=number>from publish()</th>"
        "<th colspan=2 class=number>from leaving</th><th></th></tr>"
    )
    rows = [
        (
            escape(client.name),
            escape(client.broker),
            some(client.offered),
            some(client.withheld),
            *((count(client.due), count(client.delivered)) if client.wants else ("", "")),
            some(client.missed),
            some(client.late),
            duration(client.from_publish.median),
            duration(client.from_publish.p99),
            duration(client.from_leaving.median),
            duration(client.from_leaving.p99),
            "".join(f"<code>{escape(where)}</code>" for where in client.wants),
        )
        for client in clients
    ]
    return table(headings, rows, numbers=range(2, 12), styles="name -" + " -" * 10 + " wide", above=above)


def links_table(numbers: RunNumbers) -> str:
    """Both directions of every link."""
    rows = [
        (
            escape(link.sender),
            escape(link.receiver),
            bit_rate(link.rate_bits_per_s) if link.rate_bits_per_s else "",
            count(link.packets),
            size(link.carried_bytes),
            some(link.lost),
        )
        for link in numbers.links
    ]
    return table(("from", "to", "rate", "packets", "carried", "messages lost"), rows, numbers=range(2, 6))


def drops_table(numbers: RunNumbers) -> str:
    """Packets by place and cause."""
    rows = [
        (*map(escape, (drop.node, drop.peer, drop.place, drop.cause)), count(drop.packets), count(drop.messages))
        for drop in numbers.drops
    ]
    return table(("node", "towards", "place", "cause", "packets", "with a message"), rows, numbers=[4, 5])


def _checks(numbers: RunNumbers) -> str:
    warnings = "".join(f"<p><span class=warn>warning</span> {escape(warning)}</p>" for warning in numbers.warnings)
    if not numbers.checks:
        return f"{warnings}<p class=holds>All checks of the pipeline hold.</p>"
    words = {"fail": "fails", "warn": "warn"}
    rows = [
        (
            f"<span class={words[check['level']]}>{escape(check['level'])}</span>",
            escape(check["check"]),
            count(check["count"]),
            escape(check["example"]),
        )
        for check in numbers.checks
    ]
    return warnings + table(("level", "check", "times", "example"), rows, numbers=[2], styles="- - - wide")
