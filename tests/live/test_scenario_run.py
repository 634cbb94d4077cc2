"""The same scenario in both worlds: the same deliveries, message by message, and the same kind of trace."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from msgspec.structs import replace

from penstock.kernel.trace import Delivered, Published, Record
from penstock.live.broker.applied import not_applied
from penstock.live.emulation.scenario_run import run_live
from penstock.scenario.reader import parse_scenario, read_scenario
from penstock.scenario.retrieval_checkers import retrieves
from penstock.scenario.runs import open_run
from penstock.scenario.spec import Scenario
from penstock.sim.run import simulate
from penstock.streams.records import StreamDelivered, StreamRequested

SEED = 7
BEGIN = 1.5  # by then every subscription is known to every broker, in both worlds


@pytest.fixture(scope="module")
def calm_town() -> Scenario:
    """The town without loss, faults and overload: best effort then delivers everything, in either world.

    And without freight: how much of that leaves depends on when senders get their salaries. Nor does anybody retrieve
    anything: what is there depends on when it is asked for.
    """
    town = read_scenario(Path(__file__).parents[2] / "networks" / "town.toml")
    # Room for a burst as well: on a busy machine a process stands still for a while, and then all comes at once.
    calm = {"loss": 0.0, "jitter": 0.0, "delay": 0.001, "rate_bits_per_s": None, "queue_packets": 1_000}
    links = tuple(replace(link, **calm) for link in town.link)
    clients = tuple(
        replace(
            client,
            subscribe=tuple(
                replace(wish, start=0.0, stop=None) for wish in client.subscribe if not retrieves(wish.options)
            ),
            publish=tuple(replace(flow, start=BEGIN, stop=None) for flow in client.publish),
        )
        for client in town.client
        if not any(flow.attributes["topic"] == "freight" for flow in client.publish)
    )
    return replace(town, name="calm town", duration=3.5, drain=0.8, link=links, client=clients, classes=(), fault=())


def test_simulated_equals_live(calm_town: Scenario, tmp_path: Path) -> None:
    simulated: Counter[tuple[str, int, str, int]] = Counter()
    attributes: dict[tuple[str, int], str] = {}

    class Kept:
        def write(self, time: float, node: str, record: Record) -> None:
            if isinstance(record, Delivered | StreamDelivered):
                simulated[node, record.subscription, record.publisher, record.count] += 1
            elif isinstance(record, Published | StreamRequested):
                attributes[record.publisher, record.count] = record.attributes

    result = simulate(calm_town, SEED, trace=Kept())
    assert result.drops == {}
    folder = tmp_path / "run"
    live, run = run_live(calm_town, SEED, folder=folder)
    assert {name: report["drops"] for name, report in live.reports.items()} == {name: [] for name in live.reports}
    assert {cause for *_, cause in live.drops()} <= {"leave", "link down"}, "control packets, when all ends"
    delivered = Counter(
        (name, number, publisher, count)
        for name, tally in live.clients.items()
        for number, publisher, count in tally.deliveries
    )
    assert len(delivered) > 400
    assert delivered == simulated
    assert run is not None
    _trace_tells_the_same(folder, delivered, attributes)


def _trace_tells_the_same(
    folder: Path, delivered: Counter[tuple[str, int, str, int]], attributes: dict[tuple[str, int], str]
) -> None:
    """The run's folder is a run like any other: complete, with the records of all processes."""
    from pyarrow import parquet

    info = open_run(folder).info
    assert info.complete
    assert info.outcome is not None
    assert info.outcome.summary["delivered"] == sum(delivered.values())

    def rows(kind: str) -> list[dict[str, object]]:
        files = sorted((folder / "trace" / kind).glob("part-*.parquet"))
        return [row for file in files for row in parquet.read_table(file).to_pylist()]

    assert [row for row in rows("dropped") if row["publisher"]] == [], "no message"
    came = rows("delivered") + rows("stream_delivered")
    assert Counter((r["node"], r["subscription"], r["publisher"], r["count"]) for r in came) == delivered
    went = rows("published") + rows("stream_requested")
    assert {(r["publisher"], r["count"]): r["attributes"] for r in went} == attributes
    assert len(rows("stream_confirmed")) == len(rows("stream_requested")) == len(rows("pubend_committed")) > 0
    brokers = {broker.name for broker in info.scenario.broker}
    clients = {client.name for client in info.scenario.client}
    assert {row["node"] for row in rows("node_started")} == brokers | clients
    assert {row["node"] for row in rows("node_stopped")} == brokers | clients
    assert {row["node"] for row in rows("neighbour_changed")} == brokers
    assert brokers <= {row["node"] for row in rows("counted")}
    times = [row["time"] for kind in ("published", "delivered", "counted") for row in rows(kind)]
    assert all(isinstance(time, float) and 0.0 < time < 60.0 for time in times)


LOSSY = b"""
name = "lossy"
duration = 1.0
drain = 0.3
[services.rates]
enabled = false
[[broker]]
name = "a"
[[broker]]
name = "b"
[[link]]
between = ["a", "b"]
kind = "datagram"
delay = 0.02
jitter = 0.01
loss = 0.1
repair = false
rate_bits_per_s = 200e3
queue_packets = 10
[[client]]
name = "p"
broker = "a"
publish = [{ rate_messages_per_s = 300.0, body_bytes = 100, attributes = { x = 1 } }]
[[client]]
name = "s"
broker = "b"
subscribe = [{ where = "x = 1", queue_max = 5, reads_messages_per_s = 20.0 }]
"""


def test_the_counters_and_the_trace_agree_on_everything_that_was_dropped(tmp_path: Path) -> None:
    """On the wire, in a full queue, by a slow reader, with a link when all ends: the same places, the same counts."""
    from pyarrow import parquet

    live, run = run_live(parse_scenario(LOSSY), SEED, folder=tmp_path / "run")
    assert run is not None
    rows = [row for path in run.folder.glob("trace/dropped/*") for row in parquet.read_table(path).to_pylist()]
    drops = live.drops()
    assert Counter((row["node"], row["peer"], row["place"], row["cause"]) for row in rows) == drops
    wanted = {("a", "pipe", "lost on the wire"), ("a", "pipe", "queue full"), ("s", "reader", "queue full")}
    assert wanted <= {(node, place, cause) for node, _, place, cause in drops}
    assert run.info.outcome is not None
    assert run.info.outcome.summary["dropped"] == len(rows)
    assert run.info.records is not None
    assert run.info.records["dropped"] == len(rows)
    assert run.info.cut_off == ()
    lost = [row for row in rows if row["cause"] == "lost on the wire"]
    assert {row["publisher"] for row in lost if row["kind"] == "Publication"} == {"p"}, "which messages is known too"


CRASHING = b"""
name = "crashing"
duration = 2.0
drain = 2.5
[[broker]]
name = "a"
[[broker]]
name = "b"
[[link]]
between = ["a", "b"]
kind = "reliable"
[[stream]]
name = "orders"
at = ["a"]
[[client]]
name = "trader"
broker = "b"
[client.streams]
retry_min = 0.1
retry_max = 0.2
[[client.publish]]
stream = "orders"
rate_messages_per_s = 50
[client.publish.attributes]
n = { integer = [0, 9] }
[[client]]
name = "clearing"
broker = "b"
[[client.subscribe]]
where = "n >= 0"
stream = "orders"
durable = "clearing"
start_at = "earliest"
ack = "manual"
[[fault]]
at = 0.5
kind = "crash"
broker = "a"
[[fault]]
at = 1.0
kind = "restart"
broker = "a"
"""


def test_a_broker_crashes_as_the_file_says_and_its_stream_loses_nothing(tmp_path: Path) -> None:
    from pyarrow import parquet

    scenario, folder = parse_scenario(CRASHING), tmp_path / "run"
    assert not_applied(scenario, emulated=True) == []
    assert "faults" in not_applied(scenario)
    result, _ = run_live(scenario, SEED, folder=folder)
    assert result.clients["trader"].refused == 0
    assert result.reports["a"]["uptime"] < result.seconds < result.reports["b"]["uptime"], "it was started again"
    kinds = ("stream_confirmed", "stream_delivered")
    stored, read = (parquet.read_table(folder / "trace" / kind).column("tick").to_pylist() for kind in kinds)
    assert read == sorted(set(read))
    assert {tick for tick in stored if tick <= read[-1]} <= set(read), "whatever was not read yet when the run ended"
    assert len(read) > 10
