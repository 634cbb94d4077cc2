"""`penstock report`: how a report is drawn, once or again and again."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from penstock.cli.report import WIDTH_MAX, Display, console

UP = "\x1b[1A"  # moves the cursor of a terminal one line up


def a_report(uptime: float) -> dict[str, Any]:
    return {
        "broker": "solo",
        "listen": "127.0.0.1:7420",
        "uptime": uptime,
        "brokers_reachable": 0,
        "clients_connected": 0,
        "refused": 0,
        "links": [],
        "clients": [],
        "drops": [],
        "services": {"routing": {"brokers": 1}},
        "slowed": [],
    }


def shown(*, terminal: bool, redraws: bool) -> str:
    file = StringIO()
    with Display(Console(file=file, force_terminal=terminal, width=200), redraws=redraws) as display:
        for uptime in (1.0, 2.0, 3.0):
            display.show(a_report(uptime))
    return file.getvalue()


def test_on_a_terminal_a_report_takes_the_place_of_the_one_before() -> None:
    said = shown(terminal=True, redraws=True)
    assert "up for 3 s" in said
    lines_of_one = 4
    assert said.count(UP) >= 2 * (lines_of_one - 1)


@pytest.mark.parametrize(("terminal", "redraws"), [(False, True), (False, False), (True, False)])
def test_what_is_piped_comes_in_blocks_with_an_empty_line_between(terminal: bool, redraws: bool) -> None:
    said = shown(terminal=terminal, redraws=redraws)
    assert UP not in said
    blocks = said.rstrip("\n").split("\n\n")
    assert len(blocks) == 3
    assert all("solo" in block and "nobody slows anybody" in block for block in blocks)
    if not terminal:
        assert "\x1b" not in said


def test_others_words_are_shown_without_what_a_terminal_obeys() -> None:
    file = StringIO()
    report = a_report(1.0) | {"broker": "[red]so\x1b[2Jlo", "services": {"x[/]": {"y": "[bold]z"}}}
    with Display(Console(file=file, width=200), redraws=False) as display:
        display.show(report)
    assert "[red]so·[2Jlo" in file.getvalue()
    assert 'x[/]: y "[bold]z"' in file.getvalue()


def test_streams_that_are_slowed_down_are_shown_with_their_limit_and_its_reason() -> None:
    limit = {"rate": 12.5, "since": 960.0, "told_at": 997.0, "reason": "broker '[edge]' cannot keep up"}
    pubend = {"pubend": "orders/0", "ready": True, "problem": "", "entries": 9, "log_bytes": 900, "names": 1}
    waits = {"readers": 1, "waiting": 80, "waiting_since": 993.6, "limit": limit}
    status = {"pubends": [{**pubend, **waits}], "relays": [], "readers": 1}
    file = StringIO()
    with Display(Console(file=file, width=200), redraws=False) as display:
        display.show(a_report(10.0) | {"incarnation": 990_000, "clients_connected": 1, "services": {"streams": status}})
    said = " ".join(file.getvalue().split())
    assert "orders/0 12.5/s 40 s 80 6.4 s 3 s ago broker '[edge]' cannot keep up" in said
    assert "; 1 client; input refused 0 times" in said
    assert "1 durable subscription of its clients" in said


def test_a_cache_is_a_sentence_of_what_is_not_0() -> None:
    none = dict.fromkeys(("pending", "overflowing", "disseminated", "interests", "own_interests", "refused"), 0)
    status = {**none, "cached": 779, "waiting": 279, "cache_size": 500, "evicted": 3, "unreceipted": 0, "resent": 0}
    file = StringIO()
    with Display(Console(file=file, width=200), redraws=False) as display:
        display.show(a_report(1.0) | {"services": {"retrieval": {**status, "stored": False, "counts": {"items": 7}}}})
        empty = status | {"cached": 0, "waiting": 0, "evicted": 0}
        display.show(a_report(1.0) | {"services": {"retrieval": {**empty, "stored": False, "counts": {}}}})
    said = " ".join(file.getvalue().split())
    line = "retrieval: cached 500 of 500 messages, in memory, and 279 more, sorted in when somebody asks"
    assert said.count(f"{line}; 3 evicted, 7 items") == said.count("retrieval:") == 1


def test_numbers_are_never_wrapped_at_80_columns() -> None:
    ports = {"queued": 0, "queue_max": 1000, "sent_packets": 12_345_678, "sent_bytes": 9_876_543_210}
    ports |= {"received_packets": 12_345_678}
    link = {"peer": "harbour", "kind": "datagram", "up": True, "missing_datagrams": 1234, "repaired_datagrams": 56}
    client = {"client": "client-813e1ffafc", "address": "127.0.0.1:54321", "subscriptions": 12}
    file = StringIO()
    with Display(Console(file=file, width=80), redraws=False) as display:
        display.show(a_report(1.0) | {"links": [{**link, **ports}], "clients": [{**client, **ports}]})
    said = file.getvalue()
    assert said.count("12,345,678") == 4
    assert said.count("9,876,543,210") == said.count("0/1000") == 2
    assert "1234" in said


def test_what_is_no_terminal_has_no_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr("sys.stdout", StringIO())
    assert console().width == WIDTH_MAX


def test_prices_of_links_and_who_waits_for_money_are_shown() -> None:
    flow = {"receivers": ["c"], "receivers_in_all": 3, "waiting": 4, "balance": 2.5, "price": 9.25}
    dear = {"dearest_link": ["b", "c"], "dearest_price": 8.25, "blocked_for": 1.5, "salary_period": 0.1}
    status = {
        "links": {"b": {"buffer": 3.2, "price": 1.25}},
        "waiting": {"[sender]": [{**flow, **dear}]},
        "waiting_in_all": 2,
    }
    file = StringIO()
    with Display(Console(file=file, width=200), redraws=False) as display:
        display.show(a_report(10.0) | {"services": {"pricing": status}})
        display.show(a_report(10.0) | {"services": {"pricing": {**status, "waiting": {}, "waiting_in_all": 0}}})
        display.show(a_report(10.0) | {"services": {"pricing": {"links": {}, "waiting": {}, "waiting_in_all": 0}}})
    said = " ".join(file.getvalue().split())
    assert "b 3.2 1.25" in said
    assert "[sender] c and 2 more 4 1.5 s 2.50 9.25 b - c 8.25" in said
    assert "and those of 1 more client" in said
    assert said.count("no priced message waits for money") == 1


def test_priced_messages_that_wait_are_shown_where_no_link_has_a_price() -> None:
    flow = {"receivers": [], "receivers_in_all": 0, "waiting": 5, "balance": 0.0, "price": 1.0}
    more = {"dearest_link": None, "dearest_price": 0.0, "blocked_for": 3.0, "salary_period": 0.1}
    status = {"links": {}, "waiting": {"alone": [{**flow, **more}]}, "waiting_in_all": 1}
    file = StringIO()
    with Display(Console(file=file, width=200), redraws=False) as display:
        display.show(a_report(10.0) | {"services": {"pricing": status}})
    assert "alone" in file.getvalue()


def test_busy_links_and_what_was_withheld_are_shown_and_nothing_where_there_is_nothing() -> None:
    link = {"rate": 2500.0, "capacity": 25000.0, "offered": 20000.0, "other": 2500.0, "backlog": 0.04, "publishers": 8}
    one = {"publisher": "[p]", "link": ["b", "c"], "rate": 2500.0, "destination": "d", "messages": 1234}
    withheld = [{**one, "size_bytes": 5678, "seconds": 12.0}]
    reader = {"client": "snail", "subscription": 0, "rate": 12.5, "messages": 7}
    counts = {"withheld_in_all": 1234, "waiting": 0, "slow_readers": [reader], "withheld_from_readers": 7}
    none = {
        "links": {},
        "withheld": [],
        "withheld_in_all": 0,
        "waiting": 0,
        "slow_readers": [],
        "withheld_from_readers": 0,
    }
    file = StringIO()
    with Display(Console(file=file, width=200), redraws=False) as display:
        display.show(a_report(10.0) | {"services": {"rates": {"links": {"c": link}, "withheld": withheld, **counts}}})
        display.show(a_report(10.0) | {"services": {"rates": none}})
    said = " ".join(file.getvalue().split())
    assert said.count("busy links") == 1
    assert "c 2.5 kB/s 8 90% 25.0 kB/s 0.04 s" in said
    assert "[p] b - c 2.5 kB/s d 1,234 12 s" in said
    assert "snail 0 12.5/s 7" in said
    assert said.count("nobody slows anybody") == 1, "not beside who does"
    assert "7 deliveries were withheld" in said
