"""From a network to a table: simulate one, keep its trace, and ask a question of it with pandas.

The network is described as in a file of `networks/`. What happens in it is written as Parquet, one table for each kind
of record (docs/data.md has them all), and the same tables come from a network on real sockets (`penstock live FILE
--trace FOLDER`). Virtual time: ten seconds take well under one, and the same seed gives the same table.
"""

import json
import sys
import tempfile
from pathlib import Path

from penstock.lab.engine.simulated_runs import simulate_into
from penstock.scenario.reader import parse_scenario

NETWORK = b"""
name = "to the island"
duration = 10.0
broker = [{name = "port"}, {name = "ferry"}, {name = "island"}]

[[link]]
between = ["port", "ferry"]
delay = 0.010

[[link]]
between = ["ferry", "island"]
delay = 0.040
loss = 0.03
repair = false

[[client]]
name = "shop"
broker = "port"
[[client.publish]]
start = 1.0  # by then all brokers know who wants what
rate_messages_per_s = 50.0
attributes = {item = {choose = ["fish", "rope"]}}

[[client]]
name = "captain"
broker = "ferry"
[[client.subscribe]]
where = "item = 'rope'"

[[client]]
name = "cook"
broker = "island"
[[client.subscribe]]
where = "item = 'fish'"
"""

try:
    import pandas as pd
    import pyarrow  # noqa: F401  # pandas reads Parquet with it
except ImportError:
    sys.exit("this example needs pandas and pyarrow: pip install 'penstock[spark]'")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        simulate_into(Path(folder) / "run", parse_scenario(NETWORK), seed=7)
        trace = Path(folder) / "run" / "trace"
        published, delivered = (pd.read_parquet(trace / kind) for kind in ("published", "delivered"))

    # A message has one identity everywhere. What was lost has no delivery, and so no delay.
    identity = ["publisher", "incarnation", "count"]
    joined = published.merge(delivered, on=identity, how="left", suffixes=("", "_delivered"))
    joined["item"] = [json.loads(text)["item"] for text in joined["attributes"]]
    joined["delay_ms"] = 1000 * (joined["time_delivered"] - joined["time"])
    columns = {"published": ("time", "count"), "delivered": ("delay_ms", "count"), "median_ms": ("delay_ms", "median")}
    print(joined.groupby("item").agg(**columns).round(1).to_string())


if __name__ == "__main__":
    main()
