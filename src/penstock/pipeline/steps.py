"""The list of results: what the pipeline computes of every run, each with its name, its schema and the metric for it.

A name is a folder under `<run>/metrics/`. Adding a metric here adds a table to every run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.pipeline import checks, models
from penstock.pipeline.execution import compute
from penstock.pipeline.extent import UNWANTED
from penstock.pipeline.metrics import (
    delay,
    fairness,
    flow,
    losses,
    nodes,
    order,
    per_second,
    recovery,
    retrieval,
    streams,
)
from penstock.pipeline.truth import truth_metric

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from penstock.pipeline.read import Tables

HISTOGRAM_WIDTH = 0.001  # seconds
MODEL_PHASES = 3  # a trace does not say how many brokers lie between a pair; three is the paper's first example

STEPS = (
    losses.MISSED_METRIC,
    losses.FALSE_NEGATIVES_METRIC,
    losses.FALSE_POSITIVES_METRIC,
    losses.DUPLICATES_METRIC,
    order.VIOLATIONS_METRIC,
    order.LATE_PER_SECOND_METRIC,
    order.VIOLATIONS_PER_SECOND_METRIC,
    delay.percentiles("delay_percentiles"),
    delay.percentiles("delay_percentiles_per_client", ("client",)),
    delay.percentiles("delay_percentiles_per_run", ()),
    delay.histogram("delay_histogram", HISTOGRAM_WIDTH),
    per_second.RATES_METRIC,
    per_second.counted_per_second("published", ("publisher",)),
    per_second.counted_per_second("delivered", ("client",)),
    per_second.counted_per_second("missed", ("client",)),
    flow.WITHHELD_METRIC,
    per_second.counted_per_second("withheld", ("publisher",)),
    flow.FLOW_LIMITS_METRIC,
    flow.THINNED_METRIC,
    flow.READERS_THINNED_METRIC,
    order.ORDER_METRIC,
    recovery.RECOVERY_METRIC,
    recovery.REPAIRS_METRIC,
    retrieval.RETRIEVED_METRIC,
    nodes.LIVES_METRIC,
    nodes.NEIGHBOURS_METRIC,
    nodes.COUNTS_METRIC,
    losses.DROPS_METRIC,
    per_second.LINK_USE_METRIC,
    per_second.QUEUE_LENGTHS_METRIC,
    fairness.FAIRNESS_METRIC,
    models.DIFFERENCE_SCALES_METRIC,
    models.pair_models_metric(MODEL_PHASES),
    streams.streams_metric(()),
    checks.checks_metric(()),
)

# What several of them read, and nobody wants by itself.
_HELPERS = (*delay.HELPERS, models.samples(), streams.PLACES_METRIC)


def results_of(spark: SparkSession, tables: Tables, names: Sequence[str]) -> dict[str, pa.Table]:
    """These results over all runs that have been read, in order; the rows of each are sorted by all its columns."""
    wanted = [step for step in STEPS if step.name in names]
    judging = [streams.streams_metric(tables.runs), *checks.FINDINGS, checks.checks_metric(tables.runs)]
    metrics = [truth_metric(spark, tables), *_HELPERS, *STEPS[:-2], *judging]
    found = compute(spark, tables, metrics, [step.name for step in wanted])
    if "false_positives" in found:
        found["false_positives"] = _judged(found["false_positives"], tables)
    if "checks" in found:
        found["checks"] = _beside(found["checks"], checks.findings_table(tables.findings))
    return {step.name: _sorted(found[step.name]) for step in wanted}


def _judged(false_positives: pa.Table, tables: Tables) -> pa.Table:
    """Without runs whose publications or subscriptions are lost in part: a delivery may have had what is lost."""
    import pyarrow as pa
    import pyarrow.compute as pc

    unjudged = [run.run for run in tables.runs if UNWANTED in run.unjudged_checks]
    return false_positives.filter(pc.invert(pc.is_in(false_positives["run"], pa.array(unjudged, pa.string()))))


def _beside(one: pa.Table, other: pa.Table) -> pa.Table:
    import pyarrow as pa

    return pa.concat_tables([one, other])


def _sorted(table: pa.Table) -> pa.Table:
    """By all columns that have an order; the rows of a result differ in these already."""
    import pyarrow as pa

    keys = [(field.name, "ascending") for field in table.schema if not pa.types.is_list(field.type)]
    return table.sort_by(keys)
