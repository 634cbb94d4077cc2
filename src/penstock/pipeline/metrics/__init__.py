"""The measures that the papers report: one function each, `DataFrame -> DataFrame`.

Every result begins with the column `run`; columns and types stand in a line of DDL beside the function. A *client* is
the node that a message was delivered to. Seconds are whole seconds of the run's own time: second 3 is 3.0 <= t < 4.0.
"""

from penstock.pipeline.metrics.delay import delay_histogram, delay_percentiles, delays
from penstock.pipeline.metrics.fairness import jain_index
from penstock.pipeline.metrics.fates import fates, twin_delays
from penstock.pipeline.metrics.flow import flow_limits, readers_thinned, thinned, withheld
from penstock.pipeline.metrics.losses import (
    drops,
    duplicates,
    false_negatives,
    false_positives,
    missed,
)
from penstock.pipeline.metrics.nodes import counts, lives, neighbours
from penstock.pipeline.metrics.order import fifo_violations, fifo_violations_per_second, late_per_second, ordering
from penstock.pipeline.metrics.per_second import (
    delivered_per_second,
    link_use,
    missed_per_second,
    published_per_second,
    queue_lengths,
    rates,
    withheld_per_second,
)
from penstock.pipeline.metrics.recovery import (
    answers,
    cache_sizes,
    lost_messages,
    recoveries,
    recovery_totals,
    repair_totals,
    rounds,
)
from penstock.pipeline.metrics.retrieval import retrieved

__all__ = [
    "answers",
    "cache_sizes",
    "counts",
    "delay_histogram",
    "delay_percentiles",
    "delays",
    "delivered_per_second",
    "drops",
    "duplicates",
    "false_negatives",
    "false_positives",
    "fates",
    "fifo_violations",
    "fifo_violations_per_second",
    "flow_limits",
    "jain_index",
    "late_per_second",
    "link_use",
    "lives",
    "lost_messages",
    "missed",
    "missed_per_second",
    "neighbours",
    "ordering",
    "published_per_second",
    "queue_lengths",
    "rates",
    "readers_thinned",
    "recoveries",
    "recovery_totals",
    "repair_totals",
    "retrieved",
    "rounds",
    "thinned",
    "twin_delays",
    "withheld",
    "withheld_per_second",
]
