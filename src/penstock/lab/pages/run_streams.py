"""What streams delivered, on the page of a run: a table of durable names, and what brokers went through meanwhile."""

from __future__ import annotations

from html import escape

from penstock.lab.pages.html import table
from penstock.lab.pages.numbers import count, duration
from penstock.lab.pages.run_numbers import RunNumbers


def streams_part(numbers: RunNumbers) -> list[str]:
    """Nothing if no stream was read."""
    if not numbers.streams:
        return []
    heads = ("stream", "read as", "stored", "due", "delivered", "missed", "waiting", "repeated", "median", "longest")
    rows = []
    for name in numbers.streams:
        counts = (name.stored, name.due, name.delivered, name.missed, name.waiting, name.repeated)
        delays = (duration(name.delay_median), duration(name.delay_max))
        rows.append([escape(name.stream), escape(name.durable), *map(count, counts), *delays])
    drawn = table(heads, rows, numbers=range(2, len(heads)), styles="name name")
    return ["<h2>What streams delivered</h2>", f"<p>{escape(streams_explained(numbers))}</p>", drawn]


def streams_explained(numbers: RunNumbers) -> str:
    """What the columns mean, and what happened to the brokers that store the streams."""
    scenario = numbers.scenario
    hosts = dict.fromkeys(broker for stream in scenario.stream for broker in stream.at)
    crashes = [fault for fault in scenario.fault if fault.kind == "crash" and fault.broker in hosts]
    struck = [f"broker {fault.broker}, which stores streams, was killed after {fault.at:g} s" for fault in crashes]
    lost = sum(name.missed + name.waiting for name in numbers.streams)
    missing = f"{count(lost)} are missing" if lost else "nothing was lost"
    told = f" {', '.join(struck).capitalize()}; {missing}." if struck else ""
    return (
        "Stored: the publisher was told that it is on disk. Due: it matches, and came after the durable name began."
        " Missed: passed over. Waiting: not read when the run ended. Delays from publish() to the first delivery."
        f"{told}"
    )
