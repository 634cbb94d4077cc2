"""Terminal, page and tables of a run say the same, and where the tables are not there yet, how to make them."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest
from msgspec import structs

from lab_help import TOWN
from penstock.cli.demo import show_numbers
from penstock.errors import InvalidRun
from penstock.lab.pages.numbers import bit_rate, duration, share, size
from penstock.lab.pages.run_comparisons import capacity_explained, losses_compared
from penstock.lab.pages.run_misses import misses_explained
from penstock.lab.pages.run_numbers import DropNumbers, RunNumbers, message_kinds, read_numbers
from penstock.lab.pages.run_page import BEGAN_AND_ENDED, drops_table, failed_in, run_page
from penstock.lab.pages.run_planned import traffic_begins, without_planned
from penstock.lab.pages.twins import Pair, bottleneck
from penstock.pipeline.extent import CUT_OFF
from penstock.pipeline.results import read_result
from penstock.scenario.reader import read_scenario

# Which columns of which table of the page stand in which table of the terminal, in their order there.
IN_THE_TERMINAL = {
    "Who got what, and how fast": ("client", "at", "offered", "due", "delivered", "missed", "median", "99 %"),
    "With and without the transport": (
        *("client", "transport", "due", "delivered", "missed", "late", "recovered", "mean delay", "held"),
    ),
    "With and without congestion control": (
        *(
            "publisher",
            "client",
            "control",
            "not sent",
            "withheld at links",
            "dropped",
            "delivered",
            "mean delay",
            "after sending",
        ),
    ),
    "What late readers got": ("client", "lifetimes", "items", "twice"),
    "What streams delivered": (
        *("stream", "read as", "stored", "due", "delivered", "missed", "waiting", "repeated", "median", "longest"),
    ),
    "Who slows whom": ("publisher", "flow", "slowed by", "slowest", "last", "from", "to"),
    "What was dropped where": ("node", "towards", "place", "cause", "packets", "with a message"),
}


@pytest.fixture(scope="module")
def numbers(town_run) -> RunNumbers:
    return read_numbers(town_run.folder, town_run.scenario)


@pytest.fixture(scope="module")
def page(numbers: RunNumbers) -> dict[str, list[dict[str, str]]]:
    """The tables of the page under their headings; of two columns of one name the first counts."""
    found = {}
    body = run_page(numbers, "penstock demo").partition("<script")[0]
    for part in body.split("<h2>")[1:]:
        heading, _, rest = part.partition("</h2>")
        for before, table in re.findall(r"(.*?)(<table>.*?</table>)", rest, re.S):
            heading = (re.findall(r"<h3>(.*?)</h3>", before) or [heading])[-1]
            names = re.findall(r"<th[^>]*>([^<]*)</th>", re.findall(r"<tr>(<th.*?)</tr>", table, re.S)[0])
            rows = [re.findall(r"<td[^>]*>(.*?)</td>", row, re.S) for row in re.findall(r"<tr>(<td.*?)</tr>", table)]
            cells = [[unescape(re.sub(r"<[^>]+>", "", cell)) for cell in row] for row in rows]
            found[heading] = [dict(reversed(list(zip(names, row, strict=True)))) for row in cells]
    return found


def test_the_terminal_says_what_the_page_says(
    numbers: RunNumbers, page, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    show_numbers(numbers)
    text = capsys.readouterr().out
    said = [line.split() for line in text.splitlines()]
    for heading, columns in IN_THE_TERMINAL.items():
        assert page[heading]
        for row in page[heading]:
            if row.get("with a message") == "0":
                continue  # drops of control alone are summed up in the terminal
            words = " ".join(row[column] for column in columns).split()
            assert any(line[: len(words)] == words for line in said), (heading, words)
    control = sum(int(row["packets"]) for row in page["What was dropped where"] if row["with a message"] == "0")
    assert f"and elsewhere {control:,} packets of control" in text
    assert "…" not in text, "everything fits into 80 columns"


def test_the_page_says_what_the_tables_say(town_run, page) -> None:
    def total(name: str, column: str, **wanted: str) -> int:
        return sum(row[column] for row in read_result(town_run.folder, name, **wanted))

    def plain(text: str) -> int:
        return int(text.replace(",", "") or 0)

    clients = {row["client"]: row for row in page["Who got what, and how fast"]}
    assert list(clients) == [client.name for client in town_run.scenario.client]
    for name, row in clients.items():
        assert plain(row["delivered"]) == total("delivered_per_second", "delivered", client=name)
        assert plain(row["missed"]) == total("missed", "missed", client=name)
        assert plain(row["due"]) == total("missed", "due", client=name)
        withheld = total("withheld", "withheld", publisher=name)
        assert plain(row["offered"]) == withheld + total("published_per_second", "published", publisher=name)
        delays = read_result(town_run.folder, "delay_percentiles_per_client", client=name)
        assert row["median"] in [duration(one["p50"]) for one in delays] or not delays
    for row in page["What was dropped where"]:
        if row["cause"] == BEGAN_AND_ENDED:
            continue  # of several places
        where = {"node": row["node"], "peer": row["towards"], "place": row["place"], "cause": row["cause"]}
        assert plain(row["packets"]) == total("drops", "packets", **where)
    assert sum(plain(row["packets"]) for row in page["What was dropped where"]) == total("drops", "packets")
    for row in page["What the links carried"]:
        assert plain(row["packets"]) == total("link_use", "packets", node=row["from"], peer=row["to"])
        lost = read_result(town_run.folder, "drops", node=row["from"], peer=row["to"])
        carrying = [one for one in lost if one["kind"] in message_kinds() and one["publisher"]]
        assert plain(row["messages lost"]) == sum(
            one["packets"] for one in carrying if not one["publisher"].startswith("~")
        )
    for row in page["What streams delivered"]:
        for name in ("stored", "due", "delivered", "missed", "waiting", "repeated"):
            assert plain(row[name]) == total("streams", name, durable=row["read as"])
        assert plain(row["stored"]) > plain(row["missed"]) == plain(row["waiting"]) == 0, "the bank crashes meanwhile"
    summary = town_run.summary.runs[0]
    assert sum(plain(row["missed"]) for row in clients.values()) == summary["missed"]
    assert sum(plain(row["packets"]) for row in page["What was dropped where"]) == summary["dropped"]


def test_late_readers_have_rows_that_are_not_0(town_run, numbers: RunNumbers, page) -> None:
    """An item is no delivery, so a reader that only retrieves has no place among those."""
    rows = page["What late readers got"]
    assert [row["client"] for row in rows] == ["evening", "late-reader"]
    for row in rows:
        came = read_result(town_run.folder, "retrieved", client=row["client"])[0]
        assert int(row["items"]) == came["items"] > 0
        assert int(row["lifetimes"]) > 0 == int(row["twice"])
    clients = {row["client"]: row for row in page["Who got what, and how fast"]}
    assert {clients[row["client"]]["delivered"] for row in rows} == {""}


def test_times_begin_with_traffic_also_where_processes_begin_earlier(numbers: RunNumbers) -> None:
    town = numbers.scenario
    assert traffic_begins(town, [6, 7, 30]) == 6
    late = structs.replace(town, client=town.client[3:5])
    assert traffic_begins(late, [9, 10]) == 6, "the first publisher of these begins at 3 s"
    assert traffic_begins(town, []) == 0


def test_a_planned_kill_is_no_warning_and_its_misses_are_explained(numbers: RunNumbers) -> None:
    check = {"check": CUT_OFF, "level": "warn", "count": 1, "example": "the records of bank-1795036334691 end at 8.8 s"}
    assert without_planned([check], numbers.scenario) == (
        [],
        ["broker bank was killed at 10 s and started again at 12 s, as the file says; its last records are lost"],
    )
    another = check | {"example": "the records of north-1795036334691 end at 8.8 s"}
    assert without_planned([another], numbers.scenario) == ([another], [])
    assert without_planned([check | {"count": 2}], numbers.scenario)[1] == []
    told = " ".join(misses_explained(numbers))
    assert "clearing missed" in told
    assert "broker bank was killed at 10 s" in told
    assert "were withheld at a full link, and both ends were told" in told


def test_what_is_compared_has_one_scale_and_the_capacity_in_it(numbers: RunNumbers) -> None:
    text = run_page(numbers, "penstock demo")
    assert text.count("capacity of the link") >= 2
    assert "quota" in text
    for pair in numbers.narrow:
        assert pair.narrowest is not None
        assert pair.narrowest.sender == "south"
        assert pair.narrowest.receiver in ("harbour", "island")
        assert pair.narrowest.rate_bits_per_s == 500e3
        assert 47 < pair.narrowest.messages_per_s < 62, "500 kbit/s in messages of 1,000 bytes with their headers"
        assert all(time < pair.publishing_ends for _, time, _ in pair.quotas)
    assert [pair.careful for pair in numbers.narrow] == [False, True]
    assert {quota > 0 for pair in numbers.narrow if pair.careful for _, _, quota in pair.quotas} >= {True}


def test_what_became_of_all_that_was_offered_is_said_in_a_sentence(numbers: RunNumbers) -> None:
    without, controlled = numbers.narrow
    said = losses_compared(numbers.narrow)
    assert said.startswith(f"Of 1,260 offered: without control {without.delivered:,} arrived")
    assert f"{controlled.withheld:,} were not sent (the publisher was told)" in said
    assert f"{without.thinned:,} were withheld at the link (both ends were told)" in said
    assert "lost" not in said, "what was withheld is not called lost"
    for pair in numbers.narrow:
        told = pair.delivered + pair.withheld + pair.thinned + pair.dropped
        assert told == pair.offered, "nothing is left to be explained"
        assert pair.missed == pair.thinned + pair.dropped
    assert f"{without.dropped:,} were dropped on the way" in said, "in the simulator the link breaks, too"
    assert "the same 500 kbit/s" in capacity_explained(numbers.narrow)
    (slowed,) = numbers.slowed
    assert (slowed.publisher, slowed.flow, slowed.by) == ("annex", "topic = 'copy'", "depot")
    assert 0 < slowed.slowest <= slowed.last
    assert 3.0 < slowed.since < slowed.until <= 18.0, "what waits when publishing stops leaves a little later"


def test_a_page_of_a_live_run_says_what_of_the_file_was_not_applied(numbers: RunNumbers) -> None:
    page = run_page(numbers, "penstock demo", left_out=["clocks", "faults"])
    assert "as in the file. Not played: clocks, faults." in page
    assert "Not played" not in run_page(numbers, "penstock demo --sim", simulated=True)


def test_control_that_ends_with_the_run_is_one_row_unless_something_failed(numbers: RunNumbers) -> None:
    def drop(node: str, peer: str, cause: str, messages: int = 0) -> DropNumbers:
        return DropNumbers(node=node, peer=peer, place="pipe", cause=cause, packets=3, messages=messages)

    drops = [drop("island", "market", "link down"), drop("south", "harbour", "link down")]
    drops += [drop("island", "south", "leave")]
    drops += [drop("island", "north", "link down", messages=1), drop("island", "north", "lost on the wire")]
    shown = replace(numbers, drops=drops)
    assert failed_in(shown.scenario) == {"south", "harbour", "bank"}
    all_well, failed = drops_table(shown, set()), drops_table(shown, failed_in(shown.scenario))
    assert (all_well.count("<tr><td"), failed.count("<tr><td")) == (3, 5)
    assert f"<td>{BEGAN_AND_ENDED}</td><td class=number>9</td>" in all_well
    assert f"<td>{BEGAN_AND_ENDED}</td><td class=number>3</td>" in failed


def test_a_run_without_tables_says_how_to_make_them(tmp_path: Path) -> None:
    with pytest.raises(InvalidRun, match="penstock pipeline run"):
        read_numbers(tmp_path, read_scenario(TOWN))


def test_the_narrowest_link_is_on_the_cheapest_way() -> None:
    town = read_scenario(TOWN)
    found = bottleneck(town, Pair("archive", "warehouse", False))
    assert found is not None
    assert found[:2] == ("south", "harbour")
    assert bottleneck(town, Pair("trader", "apprentice", True)) is None, "they are at one broker"


def test_numbers_are_written_as_a_person_reads_them() -> None:
    assert [duration(s) for s in (None, 0.0, 0.01234, 0.99949, 0.9996, 1.3)] == [
        *("", "0 ms", "12.3 ms", "999 ms", "1.00 s", "1.30 s"),
    ]
    assert [size(n) for n in (0, 999, 1000, 1_530_000)] == ["0 B", "999 B", "1 kB", "1.53 MB"]
    assert [bit_rate(n) for n in (500, 500e3, 10e6)] == ["500 bit/s", "500 kbit/s", "10 Mbit/s"]
    assert [share(1, 3), share(0, 5), share(5, 5), share(1, 0)] == ["33 %", "0 %", "100 %", ""]
