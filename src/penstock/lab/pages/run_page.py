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
from penstock.lab.pages.heat_map import heat_map
from penstock.lab.pages.html import BOTH_COUNTED, figure_html, page, table
from penstock.lab.pages.look import HEAT_CSS, MAP_CSS
from penstock.lab.pages.network_map import network_map
from penstock.lab.pages.numbers import bit_rate, count, duration, share, size, some
from penstock.lab.pages.run_comparisons import congestion_part, rates_part, transport_part
from penstock.lab.pages.run_misses import misses_explained
from penstock.lab.pages.run_numbers import ClientNumbers, RunNumbers
from penstock.lab.pages.run_retrieved import retrieved_part
from penstock.lab.pages.run_streams import streams_part
from penstock.scenario.spec import Scenario

DELAYS = (
    "Delays are measured from publish(), as the application sees it, and after sending: from where the message left its"
    " publisher."
)

ENDS = ("link down", "leave")  # causes of drops that every run has
BEGAN_AND_ENDED = "control packets when the run began and ended"


def write_run_report(
    folder: Path, numbers: RunNumbers, command: str, *, simulated: bool = False, left_out: Sequence[str] = ()
) -> Path:
    """Write `report.html` into the run's folder; returns its path."""
    path = folder / "report.html"
    path.write_text(run_page(numbers, command, simulated=simulated, left_out=left_out), encoding="utf-8")
    return path


def run_page(numbers: RunNumbers, command: str, *, simulated: bool = False, left_out: Sequence[str] = ()) -> str:
    """The whole page; what the file's faults did belongs to simulated runs alone.

    `left_out` is what the file asks for and the run did not do.
    """
    scenario = numbers.scenario
    title = f"{scenario.name.capitalize()}: what happened"
    faults = f" {_faults(scenario)}" if simulated and scenario.fault else ""
    parts = [
        f"<h1>{escape(title)}</h1>",
        f"<p class=source>{len(scenario.broker)} brokers, {len(scenario.client)} clients,"
        f" {scenario.duration:g} s of publishing. Made with <code>{escape(command)}</code></p>",
        _left_out(left_out),
        _tiles(numbers),
        "<h2>The network</h2>",
        "<p>Each card is a broker with its clients and what they want. The thicker a link, the more bytes it carried in"
        f" both directions. {lost_explained(numbers)}</p>",
        f"<figure>{network_map(numbers)}</figure>",
        *transport_part(numbers.twins),
        *rates_part(numbers.thinned),
        *congestion_part(numbers.narrow, numbers.slowed),
        "<h2>Over time</h2>",
        f"<p>{BOTH_COUNTED}{faults}</p>",
        figure_html(_rates_figure(numbers)),
        f"<figure><figcaption>Deliveries to each client</figcaption>{heat_map(numbers)}</figure>",
        "<h2>Who got what, and how fast</h2>",
        f"<p>{due_explained(scenario)} {DELAYS} All times on this page are from the beginning of traffic.</p>",
        clients_table(numbers.clients),
        *(f"<p class=note>{escape(told)}</p>" for told in misses_explained(numbers)),
        *retrieved_part(numbers.retrieved),
        *streams_part(numbers),
        "<h2>What the links carried</h2>",
        links_table(numbers),
        "<h2>What was dropped where</h2>",
        "<p>Every packet that ended on the way, with place and cause. Those without a message are control: what brokers"
        " tell each other, and tell again.</p>",
        drops_table(numbers, failed_in(scenario) if simulated else set())
        if numbers.drops
        else "<p>Nothing was dropped.</p>",
        "<h2>Checks</h2>",
        _checks(numbers),
        "<footer><p>The same numbers lie as Parquet in <code>metrics/</code> beside this page.</p></footer>",
    ]
    return page(title, parts, plots=True, css=f"{MAP_CSS}\n{HEAT_CSS}")


def due_explained(scenario: Scenario) -> str:
    """What counts as missed, in two sentences."""
    return (
        f"A message is due if it was published at least {scenario.settle:g} s after the subscription began and at least"
        f" {scenario.settle:g} s before it ended. Missed is what was due and never came; delivered is all that came,"
        " due or not."
    )


def lost_explained(numbers: RunNumbers) -> str:
    """What the labels of links count, and why that is not what clients missed."""
    lost = sum(link.lost for link in numbers.links)
    if not lost:
        return "No link lost a message."
    again = f"; {count(numbers.recovered)} came again" if numbers.recovered else ""
    return (
        f"Red links lost messages; the label says how many, together {count(lost)}. What a link loses is missed by"
        f" every client behind it that wants it, unless it is sent again on request{again}."
    )


def _left_out(settings: Sequence[str]) -> str:
    if not settings:
        return ""
    return (
        "<p class=note>Real time: rates, queues, delays and loss of links are as in the file."
        f" Not played: {escape(', '.join(settings))}.</p>"
    )


def _tiles(numbers: RunNumbers) -> str:
    failed = [check for check in numbers.checks if check["level"] == "fail"]
    verdict = f"{len(failed)} failed" if failed else "all hold"
    style_of = "fails" if failed else "holds"
    warned = len(numbers.checks) - len(failed) + len(numbers.warnings)
    tiles = [
        ("published", count(numbers.published), f"{count(numbers.withheld)} more were not sent"),
        ("withheld by links", count(sum(one.messages for one in numbers.thinned)), _by_links(numbers)),
        ("delivered", count(numbers.delivered), f"{count(numbers.due - numbers.missed)} of {count(numbers.due)} due"),
        ("missed", count(numbers.missed), f"{share(numbers.missed, numbers.due) or '0 %'} of {count(numbers.due)} due"),
        ("packets dropped", count(numbers.dropped), f"{count(numbers.dropped_messages)} of them with a message"),
        ("checks", f"<span class={style_of}>{verdict}</span>", f"{warned} warning{'s' if warned != 1 else ''}"),
    ]
    return (
        "<dl class=tiles>"
        + "".join(f"<div><dt>{name}</dt><dd>{value}<small>{note}</small></dd></div>" for name, value, note in tiles)
        + "</dl>"
    )


def _by_links(numbers: RunNumbers) -> str:
    links = len({one.link for one in numbers.thinned})
    return f"by {links} full link{'s' if links != 1 else ''} or slow readers" if links else "no link was full"


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
    counted = ("missed", "late", "due", "delivered", "offered", "not sent")
    headings = ("client", "at", *counted, "median", "99 %", "median", "99 %", "wants")
    above = (
        "<tr class=group><th colspan=8></th><th colspan=2 class=number>from publish()</th>"
        "<th colspan=2 class=number>after sending</th><th></th></tr>"
    )
    rows = [
        (
            escape(client.name),
            escape(client.broker),
            *((count(client.missed), count(client.late)) if client.due else ("", "")),
            *((count(client.due), count(client.delivered)) if client.listens else ("", "")),
            some(client.offered),
            some(client.withheld),
            duration(client.from_publish.median),
            duration(client.from_publish.p99),
            duration(client.after_sending.median),
            duration(client.after_sending.p99),
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


def failed_in(scenario: Scenario) -> set[str]:
    """Brokers that fail in the file, or of which a link or a whole part of the network does."""
    return {name for fault in scenario.fault for name in (*(fault.link or ()), *fault.group, fault.broker) if name}


def drops_table(numbers: RunNumbers, failed: set[str]) -> str:
    """Packets by place and cause.

    Links come up when a run begins and go down when it ends, and some control is always on its way then: one row for
    all of it. Where something `failed`, every row stays.
    """
    passing = [
        drop
        for drop in numbers.drops
        if not drop.messages and drop.cause in ENDS and not failed & {drop.node, drop.peer}
    ]
    rows = [
        (*map(escape, (drop.node, drop.peer, drop.place, drop.cause)), count(drop.packets), count(drop.messages))
        for drop in numbers.drops
        if drop not in passing
    ]
    if passing:
        rows.append(("", "", "", BEGAN_AND_ENDED, count(sum(drop.packets for drop in passing)), "0"))
    return table(("node", "towards", "place", "cause", "packets", "with a message"), rows, numbers=[4, 5])


def _checks(numbers: RunNumbers) -> str:
    warnings = "".join(f"<p><span class=warn>warning</span> {escape(warning)}</p>" for warning in numbers.warnings)
    warnings += "".join(f"<p>Planned: {escape(told)}.</p>" for told in numbers.planned)
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
