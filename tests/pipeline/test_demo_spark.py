"""`penstock demo --spark`: the command lands the town's orders in a table while the network runs."""

from __future__ import annotations

import json
from pathlib import Path

from pyarrow import parquet
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from penstock.cli.main import app

VILLAGE = """
name = "village"
duration = 2.0
[[broker]]
name = "market"
[[broker]]
name = "bank"
[[link]]
between = ["market", "bank"]
[[stream]]
name = "orders"
at = ["bank"]
[[client]]
name = "trader"
broker = "market"
[[client.publish]]
stream = "orders"
rate_messages_per_s = 20.0
attributes = { symbol = "IBM", side = { choose = ["buy", "sell"] }, urgent = { chance = 0.2 } }
"""


def test_the_orders_of_a_network_are_in_a_table_when_it_ends(spark: SparkSession, tmp_path: Path) -> None:
    """The command as a user gives it, in a smaller place than the town; its session is that of all tests.

    The stream is a network's that has ended when the command returns, so what is in the table landed before.
    """
    file, runs = tmp_path / "village.toml", tmp_path / "runs"
    file.write_text(VILLAGE)
    done = CliRunner().invoke(app, ["demo", str(file), "--spark", "--runs", str(runs), "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    landed = parquet.read_table(found["landed"]["table"])
    assert landed.num_rows == found["landed"]["rows"] > 20
    assert found["landed"]["batches"] >= 1
    confirmed = parquet.read_table(runs / "demo" / "live" / "trace" / "stream_confirmed")
    assert sorted(landed["offset"].to_pylist()) == sorted(confirmed["tick"].to_pylist())
    assert set(landed["symbol"].to_pylist()) == {"IBM"}
    for wrong, words in ((["--sim"], "leave --sim out"), ([], "has no stream 'orders' to land")):
        if not wrong:
            file.write_text(VILLAGE.replace('"orders"', '"trades"'))
        refused = CliRunner().invoke(app, ["demo", str(file), "--spark", "--runs", str(runs), *wrong])
        assert (refused.exit_code, words in " ".join(refused.output.split())) == (2, True), refused.output
