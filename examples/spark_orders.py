"""A stream as a table: follow orders in Spark, be killed in between, and store what came of them in another stream.

The broker filters, so only orders of IBM reach Spark. The query is run twice, with a crash of the broker in between; it
goes on from its checkpoint. What it writes is a stream again, where each row is stored once.
"""

import sys
import tempfile

import penstock
from penstock.testing import embedded_network_blocking

try:
    from pyspark.sql import SparkSession

    from penstock.pipeline.session import spark_session
    from penstock.pipeline.source import register
except ImportError:
    sys.exit("this example needs Spark: pip install 'penstock[spark]'")


def follow(spark: SparkSession, url: str, checkpoint: str) -> None:
    """Take what is there, and end; without the trigger it would go on for ever."""
    orders = (
        spark.readStream.format("penstock")
        .options(servers=url, stream="orders", where="symbol = 'IBM'", startingOffsets="earliest")
        .schema("shares bigint, price double")
        .load()
    )
    amounts = orders.selectExpr("shares * price AS amount")
    query = amounts.writeStream.format("penstock").options(servers=url, stream="amounts", checkpointLocation=checkpoint)
    query.trigger(availableNow=True).start().awaitTermination()


def main() -> None:
    spark = spark_session("local[2]", fast=True)
    register(spark)
    with embedded_network_blocking(("bank",)) as brokers, tempfile.TemporaryDirectory() as checkpoint:
        with penstock.connect_blocking(brokers.url) as network:
            for name in ("orders", "amounts"):
                network.add_stream(name, at=["bank"])
            orders = network.stream("orders")
            orders.publish({"symbol": "IBM", "shares": 100, "price": 119.5})
            orders.publish({"symbol": "AMD", "shares": 30, "price": 80.25})
            follow(spark, brokers.url, checkpoint)
            brokers.crash("bank")
            brokers.start("bank")
            orders.publish({"symbol": "IBM", "shares": 7, "price": 120.0})
            follow(spark, brokers.url, checkpoint)
        amounts = spark.read.format("penstock").options(servers=brokers.url, stream="amounts")
        for row in amounts.schema("amount double, offset bigint").load().orderBy("offset").collect():
            print("an order of IBM for", row.amount)


if __name__ == "__main__":
    main()
