"""A running network, watched: the same tables from `_trace` as from its folder, and nothing that disturbs either."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

import penstock
from penstock.errors import Unreachable
from penstock.kernel.trace_files import TRACE_FOLDER
from penstock.live.emulation import scenario_run
from penstock.live.emulation.scenario_run import run_live
from penstock.live.trace import LiveTrace
from penstock.pipeline.results import read_result
from penstock.pipeline.run import run_pipeline
from penstock.pipeline.watch import query
from penstock.pipeline.watch.query import WATCHED, Lease, watching
from penstock.scenario.reader import parse_scenario
from penstock.testing import embedded_network_blocking
from penstock.transport.ledgers import scheme

SCENARIO = """
name = "watched"
duration = 4.0  # a limit needs a few losses, also on a busy machine
drain = 0.5
[[broker]]
name = "north"
[[broker]]
name = "south"
[[link]]
between = ["north", "south"]
kind = "datagram"
loss = 0.1
delay = 0.02
jitter = 0.02
repair = false
[[stream]]
name = "orders"
at = ["south"]
[[client]]
name = "exchange"
broker = "north"
[client.transport]
[[client.publish]]
rate_messages_per_s = 100.0
attributes = { topic = "ticks" }
start = 0.5
[[client]]
name = "trader"
broker = "south"
[[client.subscribe]]
where = "topic = 'ticks'"
[[client.publish]]
stream = "orders"
rate_messages_per_s = 20.0
attributes = { topic = "orders" }
start = 0.5
[[client]]
name = "near"
broker = "north"
[[client.subscribe]]
where = "topic = 'ticks'"
[[client.subscribe]]
where = "topic = 'orders'"
stream = "orders"
durable = "near"
start_at = "earliest"
[[client]]
name = "keeper"
broker = "south"
[client.transport]
[[client.subscribe]]
where = "topic = 'ticks'"
ordered = true
recover = true
[[client]]
name = "archive"
broker = "north"
[client.transport]
congestion = true
[[client.publish]]
rate_messages_per_s = 60.0
body_bytes = 800
attributes = { topic = "copy" }
start = 0.5
[[client]]
name = "depot"
broker = "south"
[client.transport]
congestion = true
[[client.subscribe]]
where = "topic = 'copy'"
"""
TRIES = 30
UNLIKE = {"link_use", "counts", "lives"}  # these are compared as far as a watch can know them, see below
LATE = {
    *("datagrams missing", "handed over, not known to have arrived"),  # brokers find out after tracing has ended
    *("feedback", "flows"),  # counted at intervals, once more if a client takes its time to leave
}
CLIENTS = {"archive", "depot", "exchange", "keeper", "near", "trader"}
EMPTY = {"drops", "duplicates", "withheld"}  # need not happen; all else must, and all is compared
NODES = {"north", "south", *CLIENTS}


class Watcher:
    """Switches tracing on when the brokers are up, and off when the clients have left; then takes all that there is."""

    def __init__(self, spark: SparkSession, folder: Path, began: list[float]) -> None:
        self._spark = spark
        self._folder = folder
        self._began = began
        self._servers = ""

    def begin(self, servers: str) -> None:
        self._servers = servers
        with penstock.connect_blocking(servers) as network:
            state = network.trace(60)
            assert (state["on"], state["one_in"]) == (True, 1)

    def end(self) -> None:
        with penstock.connect_blocking(self._servers) as network:
            assert not network.trace(0)["on"]
        for _ in range(TRIES):  # a new watch each time, which goes on where the one before ended
            with watching(self._spark, self._servers, self._folder, began=self._began[0], once=True) as watch:
                if watch.folder.state.writers.complete:
                    watch.measure()
                    return
        raise AssertionError(watch.folder.state)


def test_who_watches_keeps_the_network_tracing_until_somebody_ends_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(query, "RENEW", 0.01)
    with embedded_network_blocking(("a",)) as brokers, penstock.connect_blocking(brokers.url) as network:
        lease = Lease(brokers.url, one_in=7)
        began = lease.open()
        assert (began["on"], began["one_in"]) == (True, 7)
        lease.close()
        assert network.trace()["seconds_left"] > 30.0, "it goes on for a while, for whoever comes next"
        again = Lease(brokers.url)
        assert again.open()["one_in"] == 7, "another watch does not change it"
        network.trace(0)
        again._thread.join(TRIES)
        assert not network.trace()["on"], "a watch does not switch on what somebody has ended"
        assert "tracing was switched off" in caplog.text
        again.close()
    with pytest.raises(Unreachable):
        Lease("penstock://127.0.0.1:1").open()


def rows(folder: Path, name: str) -> list[dict[str, Any]]:
    """The rows of a result, without the name of their run, and without what the emulated wire lost: it is no node."""
    found = [{key: value for key, value in row.items() if key != "run"} for row in read_result(folder, name)]
    return [row for row in found if row.get("cause") != "lost on the wire"]


def the_rest_is_the_same_while_it_was_watched(watched: Path, run: Path) -> None:
    """A run's folder also has what came after tracing had ended, and the links to those who serve the trace."""
    lives, run_lives = ({row["node"]: row for row in rows(folder, "lives")} for folder in (watched, run))
    for node, there in run_lives.items():
        here = lives[node]
        assert [here[key] for key in ("role", "incarnation", "started")] == [
            there[key] for key in ("role", "incarnation", "started")
        ]
        if node in CLIENTS:  # it says that it leaves a moment before it does
            assert (here["cause"], here["stopped"] <= there["stopped"]) == (there["cause"], True)
        else:
            assert here["stopped"] is None, "nobody hears the last words of a broker: tracing had ended"
    assert not CLIENTS & {node for node, row in lives.items() if row["stopped"] is None}
    end = int(min(lives[node]["stopped"] for node in CLIENTS))  # in this second clients left, and then tracing ended
    use, run_use = rows(watched, "link_use"), rows(run, "link_use")
    assert [row for row in use if row["second"] < end and row not in run_use] == []
    in_all = {(row["node"], row["peer"], row["second"]): row["packets"] for row in run_use}
    for row in use:  # in the last second the run also has what a client's transport sent when it left
        assert row["packets"] <= in_all[row["node"], row["peer"], row["second"]]
    between = [row for row in run_use if {row["node"], row["peer"]} <= NODES and row["second"] < end]
    assert between
    assert [row for row in between if row not in use] == []
    plain, run_plain = (
        {
            (row["node"], row["name"], row["peer"]): row
            for row in rows(folder, "counts")
            if not row["name"].startswith("link ")  # of these there are the rows above, added up
        }
        for folder in (watched, run)
    )
    for key, row in plain.items():
        assert row == run_plain[key] or (key[1] in LATE and row["total"] <= run_plain[key]["total"]), row
    assert {name for _, name, _ in set(run_plain) - set(plain)} <= LATE


def test_a_watch_has_the_same_numbers_as_the_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began: list[float] = []

    class Noted(LiveTrace):
        def __init__(self, *given: Any, **named: Any) -> None:
            began.append(named["began"])
            super().__init__(*given, **named)

    monkeypatch.setattr(scenario_run, "LiveTrace", Noted)
    monkeypatch.setattr(scheme, "ORDER_REPORTED_EVERY", 1)  # the run is short
    run, watched = tmp_path / "runs" / "live", tmp_path / "watch" / "live"
    run_live(parse_scenario(SCENARIO.encode()), 7, folder=run, follower=Watcher(spark, watched, began))
    run_pipeline(spark, [run], only=WATCHED)
    for name in WATCHED:
        if name not in UNLIKE:
            assert rows(watched, name) == rows(run, name), name
        assert rows(watched, name) or name in EMPTY, name
    the_rest_is_the_same_while_it_was_watched(watched, run)
    assert sum(row["published"] for row in rows(watched, "rates")) > 100
    missed = {row["client"]: row["missed"] > 0 for row in rows(watched, "missed")}
    assert (missed["near"], missed["trader"]) == (False, True)
    assert sum(row["recovered"] for row in rows(watched, "recovery")) > 0
    assert [(row["durable"], row["stored"] > 20) for row in rows(watched, "streams")] == [("near", True)]
    assert {row["limiting_receiver"] for row in rows(watched, "flow_limits")} == {"depot"}
    # What was said of `_trace` itself was not said.
    for path in (watched / TRACE_FOLDER).rglob("*.parquet"):
        assert "_trace" not in str(parquet.read_table(path).to_pylist()), path
