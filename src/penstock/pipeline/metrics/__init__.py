"""The measures that the papers report: one function each, `DataFrame -> DataFrame`.

Every result begins with the column `run`; columns and types stand in a line of DDL beside the function. A *client* is
the node that a message was delivered to. Seconds are whole seconds of the run's own time: second 3 is 3.0 <= t < 4.0.
"""

from penstock.pipeline.metrics.delay import delay_histogram, delay_percentiles, delays
from penstock.pipeline.metrics.fairness import jain_index
from penstock.pipeline.metrics.losses import (
    drops,
    duplicates,
    false_negatives,
    false_positives,
    missed,
)
from penstock.pipeline.metrics.order import fifo_violations, fifo_violations_per_second, held
from penstock.pipeline.metrics.per_second import (
    delivered_per_second,
    link_use,
    missed_per_second,
    published_per_second,
    queue_lengths,
    rates,
)
from penstock.pipeline.metrics.recovery import answers, cache_sizes, lost_messages, recovered, recoveries, rounds
from penstock.pipeline.metrics.shared import pack_deliveries

__all__ = [
    "answers",
    "cache_sizes",
    "delay_histogram",
    "delay_percentiles",
    "delays",
    "delivered_per_second",
    "drops",
    "duplicates",
    "false_negatives",
    "false_positives",
    "fifo_violations",
    "fifo_violations_per_second",
    "held",
    "jain_index",
    "link_use",
    "lost_messages",
    "missed",
    "missed_per_second",
    "pack_deliveries",
    "published_per_second",
    "queue_lengths",
    "rates",
    "recovered",
    "recoveries",
    "rounds",
]
