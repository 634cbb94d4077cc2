"""The list of results: what the pipeline computes of every run, each with its name, its schema and the function for it.

A name is a folder under `<run>/metrics/`. Adding a line here adds a table to every run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from penstock.kernel.trace import Delivered, Published, Record
from penstock.kernel.trace_files import kind_name
from penstock.pipeline import metrics, models
from penstock.pipeline.checks import CHECKS, Evidence, checks
from penstock.pipeline.metrics import delay, fairness, flow, losses, nodes, order, per_second, recovery
from penstock.pipeline.metrics.shared import DELIVERY_KEYS, DELIVERY_LAYOUT, PUBLICATION_LAYOUT
from penstock.pipeline.pack_files import pack_files
from penstock.pipeline.read import Tables
from penstock.pipeline.truth import truth_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HISTOGRAM_WIDTH = 0.001  # seconds
MODEL_PHASES = 3  # a trace does not say how many brokers lie between a pair; three is the paper's first example


class Inputs:
    """What the metrics are made from. What several of them use is made when first asked for, and kept by Spark."""

    def __init__(self, tables: Tables, grace: float) -> None:
        self.tables = tables
        self._grace = grace
        self._kept: list[DataFrame] = []

    @cached_property
    def packs(self) -> DataFrame:
        """The deliveries, packed."""
        return self._keep(self._pack(Delivered, DELIVERY_KEYS, tuple(DELIVERY_LAYOUT)))

    @cached_property
    def publications(self) -> DataFrame:
        """The publications, packed."""
        return self._keep(self._pack(Published, DELIVERY_KEYS[:2], tuple(PUBLICATION_LAYOUT)))

    @cached_property
    def truth(self) -> DataFrame:
        """Who should have received what."""
        return self._keep(truth_of(self.tables, grace=self._grace))

    @cached_property
    def false_negatives(self) -> DataFrame:
        """The messages that were missed."""
        return self._keep(metrics.false_negatives(self.truth, self.packs))

    @cached_property
    def false_positives(self) -> DataFrame:
        """The deliveries that nobody had asked for."""
        return self._keep(metrics.false_positives(self.truth, self.packs))

    @cached_property
    def delays(self) -> DataFrame:
        """Every delivery with its delay."""
        return self._keep(metrics.delays(self.tables.delivered, self.tables.published))

    def release(self) -> None:
        """Give back what Spark keeps."""
        while self._kept:
            self._kept.pop().unpersist()

    def _pack(self, kind: type[Record], keys: tuple[str, ...], values: tuple[str, ...]) -> DataFrame:
        """Packs straight from the files: Spark's own reader takes twice the time."""
        spark = self.tables.published.sparkSession
        return pack_files(spark, self.tables.files[kind_name(kind)], kind, keys, values)

    def _keep(self, table: DataFrame) -> DataFrame:
        self._kept.append(table.persist())
        return table


@dataclass(frozen=True)
class MetricStep:
    """A metric: its name, the schema of its result, and how it is made."""

    name: str
    ddl: str
    make: Callable[[Inputs], DataFrame]


STEPS = (
    MetricStep("missed", losses.MISSED, lambda i: metrics.missed(i.truth, i.packs)),
    MetricStep("false_negatives", losses.FALSE_NEGATIVES, lambda i: i.false_negatives),
    MetricStep("false_positives", losses.FALSE_POSITIVES, lambda i: i.false_positives),
    MetricStep("duplicates", losses.DUPLICATES, lambda i: metrics.duplicates(i.packs)),
    MetricStep("fifo_violations", order.VIOLATIONS, lambda i: metrics.fifo_violations(i.packs)),
    MetricStep(
        "fifo_violations_per_second",
        order.VIOLATIONS_PER_SECOND,
        lambda i: metrics.fifo_violations_per_second(i.packs),
    ),
    MetricStep(
        "delay_percentiles",
        delay.percentiles_ddl(),
        lambda i: metrics.delay_percentiles(i.packs, i.publications),
    ),
    MetricStep(
        "delay_percentiles_per_client",
        delay.percentiles_ddl(("client",)),
        lambda i: metrics.delay_percentiles(i.packs, i.publications, ("client",)),
    ),
    MetricStep(
        "delay_percentiles_per_run",
        delay.percentiles_ddl(()),
        lambda i: metrics.delay_percentiles(i.packs, i.publications, ()),
    ),
    MetricStep(
        "delay_histogram",
        delay.histogram_ddl(),
        lambda i: metrics.delay_histogram(i.packs, i.publications, HISTOGRAM_WIDTH),
    ),
    MetricStep(
        "rates", per_second.RATES, lambda i: metrics.rates(i.tables.published, i.tables.delivered, i.false_negatives)
    ),
    MetricStep(
        "published_per_second",
        per_second.per_second_ddl(("publisher",), "published"),
        lambda i: metrics.published_per_second(i.tables.published),
    ),
    MetricStep(
        "delivered_per_second",
        per_second.per_second_ddl(("client",), "delivered"),
        lambda i: metrics.delivered_per_second(i.tables.delivered),
    ),
    MetricStep(
        "missed_per_second",
        per_second.per_second_ddl(("client",), "missed"),
        lambda i: metrics.missed_per_second(i.false_negatives),
    ),
    MetricStep("withheld", flow.WITHHELD, lambda i: metrics.withheld(i.tables.message_withheld)),
    MetricStep(
        "withheld_per_second",
        per_second.per_second_ddl(("publisher",), "withheld"),
        lambda i: metrics.withheld_per_second(i.tables.message_withheld),
    ),
    MetricStep("flow_limits", flow.FLOW_LIMITS, lambda i: metrics.flow_limits(i.tables.flow_limited)),
    MetricStep("order", order.ORDER, lambda i: metrics.ordering(i.tables.ordered)),
    MetricStep(
        "recovery",
        recovery.RECOVERY,
        lambda i: metrics.recovery_totals(
            i.tables.loss_detected, i.tables.request_sent, i.tables.recovered, i.tables.gave_up
        ),
    ),
    MetricStep(
        "repairs",
        recovery.REPAIRS,
        lambda i: metrics.repair_totals(i.tables.request_received, i.tables.repair_sent),
    ),
    MetricStep("lives", nodes.LIVES, lambda i: metrics.lives(i.tables.node_started, i.tables.node_stopped)),
    MetricStep("neighbours", nodes.NEIGHBOURS, lambda i: metrics.neighbours(i.tables.neighbour_changed)),
    MetricStep("counts", nodes.COUNTS, lambda i: metrics.counts(i.tables.counted)),
    MetricStep("drops", losses.DROPS, lambda i: metrics.drops(i.tables.dropped)),
    MetricStep("link_use", per_second.LINK_USE, lambda i: metrics.link_use(i.tables.counted)),
    MetricStep("queue_lengths", per_second.QUEUE_LENGTHS, lambda i: metrics.queue_lengths(i.tables.counted)),
    MetricStep(
        "fairness",
        fairness.JAIN_INDEX,
        lambda i: metrics.jain_index(metrics.fifo_violations(i.packs), "received"),
    ),
    MetricStep("difference_scales", models.DIFFERENCE_SCALE_SCHEMA, lambda i: models.difference_scales(i.delays)),
    MetricStep("pair_models", models.PAIR_MODEL_SCHEMA, lambda i: models.pair_models(i.delays, phases=MODEL_PHASES)),
    MetricStep(
        "checks",
        CHECKS,
        lambda i: checks(Evidence(i.tables, i.packs, i.publications, i.false_positives)),
    ),
)
