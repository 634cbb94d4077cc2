"""The parts of a run's page that compare: with and without the transport, with and without congestion control.

Who is compared with whom the network file says (`twins`); their numbers come from the pipeline's tables
(`run_numbers`). The sentences and the table of who slows whom stand in the terminal of `penstock demo` too.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from penstock.lab.pages.comparison import losses_figures, order_compared, quota_figures
from penstock.lab.pages.html import figures_html, table
from penstock.lab.pages.numbers import bit_rate, count, duration, size
from penstock.lab.pages.run_numbers import PairNumbers, SlowedNumbers, ThinnedNumbers


def transport_part(pairs: Sequence[PairNumbers]) -> list[str]:
    """What order and recovery do, and what they cost."""
    if not pairs:
        return []
    names = " and ".join(f"<b>{escape(name)}</b>" for name in dict.fromkeys(pair.client for pair in pairs))
    return [
        "<h2>With and without the transport</h2>",
        f"<p>{names} want the same. One of them asks for order and recovery: what is missing is requested and"
        " sent again, and what comes too early is held until its turn, which takes time.</p>",
        twins_table(pairs),
        *figures_html(order_compared(pairs)),
    ]


def rates_part(thinned: Sequence[ThinnedNumbers]) -> list[str]:
    """Which links, and which slow readers, kept what from whom."""
    if not thinned:
        return []
    rest = thinned[THINNED_SHOWN:]
    left = f"<p class=note>And {count(sum(one.messages for one in rest))} in {len(rest)} more rows.</p>" if rest else ""
    return ["<h2>What full links withheld</h2>", f"<p>{escape(THINNED)}</p>", thinned_table(thinned), left]


def congestion_part(pairs: Sequence[PairNumbers], slowed: Sequence[SlowedNumbers]) -> list[str]:
    """What congestion control does; who slows whom is said even where there is nothing to compare."""
    limits = [f"<h3>Who slows whom</h3><p>{escape(SLOWED)}</p>", slowed_table(slowed)] if slowed else []
    if not pairs:
        return ["<h2>Congestion control</h2>", *limits] if limits else []
    return [
        "<h2>With and without congestion control</h2>",
        "<p>Equally much is published over equally narrow ways. With congestion control the publisher learns from its"
        " reader what the way can carry, and does not send the rest. What is still too much for a full link is withheld"
        " there, and both ends are told."
        f" {escape(capacity_explained(pairs))}</p>",
        f"<p>{escape(losses_compared(pairs))}</p>",
        narrow_table(pairs),
        *figures_html(losses_figures(pairs)),
        *figures_html(quota_figures(pairs)),
        *limits,
    ]


SLOWED = (
    "A quota is how many messages of a flow its publisher may send in a second. The client behind the narrowest way"
    " sets it."
)


THINNED = (
    "A busy link gives each publisher the same share. What is more than that is withheld by the publisher's own broker"
    " from those behind the link, and from nobody else; both ends are told. A client that reads slowly is such a link"
    " too. A message that two brokers did not get counts for each."
)
THINNED_SHOWN = 30


def losses_compared(pairs: Sequence[PairNumbers]) -> str:
    """What became of all that was offered, without and with control."""
    sides = {careful: [pair for pair in pairs if pair.careful is careful] for careful in (False, True)}
    offered = {careful: sum(pair.offered for pair in side) for careful, side in sides.items()}
    told = []
    for careful, side in sides.items():
        who = "with control" if careful else "without control"
        of = "" if offered[True] == offered[False] else f", of {count(offered[careful])} offered,"
        arrived = f"{count(sum(pair.delivered for pair in side))} arrived"
        means = [pair.from_publish.mean for pair in side if pair.from_publish.mean is not None]
        took = f" after {duration(max(means))} on average" if means else ""
        parts = (
            (sum(pair.withheld for pair in side), "were not sent (the publisher was told)"),
            (sum(pair.thinned for pair in side), "were withheld at the link (both ends were told)"),
            (sum(pair.dropped for pair in side), "were dropped on the way"),
        )
        rest = ", ".join(f"{count(number)} {words}" for number, words in parts if number)
        told.append(f"{who}{of} {arrived}{took}{', ' if rest else ''}{rest or ' and nothing was dropped'}")
    text = "; ".join(told)
    text = f"Of {count(offered[True])} offered: {text}" if offered[True] == offered[False] else text.capitalize()
    return f"{text}."


def capacity_explained(pairs: Sequence[PairNumbers]) -> str:
    """How much fits through the narrowest links, in one sentence."""
    known = {pair.careful: pair.narrowest for pair in pairs if pair.narrowest}
    rates = {link.rate_bits_per_s for link in known.values()}
    fit = {careful: f"{link.messages_per_s:.0f}" for careful, link in known.items()}
    if len(known) == 2 and len(rates) == 1 and known[True].messages_per_s < known[False].messages_per_s:
        return (
            f"The narrowest links have the same {bit_rate(rates.pop())}; messages with control are longer, so"
            f" {fit[True]} instead of {fit[False]} fit in a second."
        )
    links = "; ".join(
        f"{link.sender} to {link.receiver} {bit_rate(link.rate_bits_per_s)}, {fit[careful]} messages/s"
        for careful, link in known.items()
    )
    return f"The narrowest links carry: {links}." if links else ""


def slowed_rows(slowed: Sequence[SlowedNumbers]) -> list[tuple[str, ...]]:
    """Publisher, flow, by whom, slowest and last quota, from when to when; for the terminal and the page."""
    return [
        (
            *(one.publisher, one.flow, one.by, f"{one.slowest:.1f}/s", f"{one.last:.1f}/s"),
            *(f"{one.since:.1f} s", f"{one.until:.1f} s"),
        )
        for one in slowed
    ]


def slowed_table(slowed: Sequence[SlowedNumbers]) -> str:
    """Who slows whom."""
    headings = ("publisher", "flow", "slowed by", "slowest", "last", "from", "to")
    rows = [(escape(row[0]), f"<code>{escape(row[1])}</code>", *map(escape, row[2:])) for row in slowed_rows(slowed)]
    return table(headings, rows, numbers=range(3, 7), styles="name - name")


def thinned_rows(thinned: Sequence[ThinnedNumbers]) -> list[tuple[str, ...]]:
    """Link, whose messages, who did not get them, how many, how large, from when to when; most first."""
    return [
        (
            *(" - ".join(one.link), one.publisher or "several", one.to, count(one.messages)),
            *(size(one.size_bytes) if one.size_bytes is not None else "", f"{one.since:.0f} s", f"{one.until:.0f} s"),
        )
        for one in thinned[:THINNED_SHOWN]
    ]


THINNED_HEADINGS = ("link", "messages of", "withheld from", "messages", "size", "from", "to")


def thinned_table(thinned: Sequence[ThinnedNumbers]) -> str:
    """What links withheld."""
    rows = [tuple(map(escape, row)) for row in thinned_rows(thinned)]
    return table(THINNED_HEADINGS, rows, numbers=range(3, 7), styles="name name name")


def twins_table(pairs: Sequence[PairNumbers]) -> str:
    """The transport's twins."""
    counted = ("missed", "recovered", "late", "due", "delivered")
    headings = ("client", "transport", *counted, "mean delay", "after sending", "held", "publisher")
    rows = [
        (
            escape(pair.client),
            "with" if pair.careful else "without",
            *map(count, (pair.missed, pair.recovered, pair.late, pair.due, pair.delivered)),
            duration(pair.from_publish.mean),
            duration(pair.after_sending.mean),
            duration(pair.held),
            escape(pair.publisher),
        )
        for pair in pairs
    ]
    note = "<p class=note>Late: came after a later one of the same publisher. Held: how long it waited for others.</p>"
    return table(headings, rows, numbers=range(2, 10), styles="name -") + note


def narrow_table(pairs: Sequence[PairNumbers]) -> str:
    """The twins of congestion control."""
    counted = ("offered", "not sent", "published", "withheld at links", "dropped", "delivered", "missed")
    headings = ("publisher", "client", "control", *counted, "mean delay", "after sending")
    rows = [
        (
            escape(pair.publisher),
            escape(pair.client),
            "with" if pair.careful else "without",
            *map(count, (pair.offered, pair.withheld, pair.published, pair.thinned, pair.dropped)),
            *map(count, (pair.delivered, pair.missed)),
            duration(pair.from_publish.mean),
            duration(pair.after_sending.mean),
        )
        for pair in pairs
    ]
    return table(headings, rows, numbers=range(3, 12), styles="name name -")
