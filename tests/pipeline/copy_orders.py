"""A query in a process of its own, to be killed; on a cluster, if one is named: copies `orders` to `copies`."""

from __future__ import annotations

import sys

from penstock.pipeline.session import spark_session
from penstock.pipeline.source import register


def main(servers: str, checkpoint: str, master: str = "local[2]") -> None:
    spark = spark_session(master, fast=True, settings={"spark.sql.shuffle.partitions": "2"})
    register(spark)
    orders = spark.readStream.format("penstock").option("servers", servers).option("stream", "orders")
    read = orders.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "400").schema("n bigint").load()
    sink = read.writeStream.format("penstock").option("servers", servers).option("stream", "copies")
    sink.option("checkpointLocation", checkpoint).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
