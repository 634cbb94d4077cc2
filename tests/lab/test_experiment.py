"""Criteria, verdicts and the objects that the lab prints."""

import math

import pytest

from penstock.errors import UnknownExperiment
from penstock.lab.engine.experiment import Criterion, Experiment, Finding, Result
from penstock.lab.engine.registry import experiments, find
from penstock.lab.pages.experiment_page import write_reports
from penstock.lab.pages.verdicts import bound_text, shown, verdict


def finding(value, *, gated=True, **fields):
    criterion = Criterion(name="delay (s)", paper="about 1", **fields)
    return Finding(criterion=criterion, value=value, passed=criterion.holds(value), gated=gated)


def result(*findings):
    experiment = Experiment(
        name="example",
        title="An <example>",
        source="002 section 0",
        about="None & nothing.",
        plans=lambda scale: {},
        measure=lambda views: {},
        draw=lambda views: (),
        criteria=tuple(f.criterion for f in findings),
    )
    return Result(
        experiment=experiment,
        scale="smoke",
        seeds=(1,),
        runs=("example/1",),
        values={},
        findings=findings,
        figures=(),
        command="penstock lab run example",
    )


@pytest.mark.parametrize(
    ("low", "high", "value", "holds"),
    [(1, 2, 1, True), (1, 2, 2, True), (1, 2, 2.1, False), (None, 2, -9, True), (1, None, 0.9, False)],
)
def test_a_criterion_holds_within_its_bounds_ends_included(low, high, value, holds):
    assert Criterion(name="x", paper="", low=low, high=high).holds(value) is holds


def test_where_a_mean_says_nothing_the_worst_seed_is_judged():
    mean, worst = (Criterion(name="p", paper="", low=0.01, high=0.9, judged=how) for how in ("mean", "every seed"))
    assert mean.judge([0.001, 0.5]) == pytest.approx(0.2505)
    assert worst.judge([0.001, 0.5]) == 0.001
    assert worst.judge([0.5, 0.95]) == 0.95
    assert math.isnan(worst.judge([0.5, math.nan]))
    assert math.isnan(worst.judge([]))


def test_what_could_not_be_measured_never_holds():
    assert not Criterion(name="x", paper="").holds(math.nan)


def test_only_gated_criteria_of_the_paper_decide():
    assert result(finding(0.5, low=1, kind="goal"), finding(0.5, low=1, gated=False)).holds()
    assert result(finding(0.5, low=1, kind="illustration")).holds()
    assert not result(finding(2, low=1), finding(0.5, low=1)).holds()


def test_the_json_object_is_the_one_that_the_architecture_names():
    found = result(finding(2.0, low=1, high=3), finding(math.nan, gated=False)).as_json()
    assert found["criteria"] == [
        {
            "name": "delay (s)",
            "kind": "paper",
            "paper": "about 1",
            "value": 2.0,
            "values": [],
            "bound": [1, 3],
            "pass": True,
            "note": "",
        }
    ]
    assert found["not_gated"][0]["value"] is None
    assert (found["experiment"], found["scale"], found["seeds"]) == ("example", "smoke", [1])


def test_verdicts_and_numbers_are_said_as_a_person_says_them():
    assert verdict(finding(2, low=1)) == "holds"
    assert verdict(finding(0, low=1, kind="goal")) == "fails (goal)"
    assert verdict(finding(2, low=1, kind="illustration")) == "holds (illustration)"
    assert verdict(finding(0, low=1, gated=False, scales=("paper",))) == "only at paper scale"
    assert bound_text(1, 3) == "1 to 3"
    assert (shown(31234.5), shown(0.012345), shown(math.nan)) == ("31,234", "0.01235", "not measured")


def test_a_page_escapes_what_it_shows_and_the_index_counts_what_holds(tmp_path):
    index = write_reports([result(finding(2, low=1), finding(0, low=1))], tmp_path)
    page = (tmp_path / "example.html").read_text()
    assert "An &lt;example&gt;" in page
    assert "None &amp; nothing." in page
    assert "1 of 2" in index.read_text()


def test_every_experiment_of_the_issue_is_registered_and_every_criterion_is_measured_under_its_own_name():
    found = experiments()
    assert list(found) == [
        "bdrp-vs-activemq-throughput",
        "bdrp-fifo-violations-over-time",
        "delay-distribution-three-brokers",
        "delay-cdf-hypoexponential-fit",
        "delay-difference-two-laplace-fit",
        "delay-histogram-all-deliveries",
        "delay-scatter-consecutive-messages",
        "delay-variation-independent-of-delay",
        "fifo-violations-8-brokers",
        "fifo-extra-delay-8-brokers",
        "fifo-violations-46-brokers",
        "fifo-extra-delay-46-brokers",
        "fifo-adaptivity-trace",
        "fifo-multipath",
        "order-beyond",
        "loss-detection-probability-single",
        "loss-detection-probability-shared",
        "recovery-workload-characterisation",
        "recovery-vs-record-size",
        "recovery-low-loss",
        "recovery-false-negatives-over-time",
        "recovery-delay-cdf",
        "recovery-delivery-delay-overhead",
        "recovery-control-traffic",
        "recovery-cache-hit-ratio",
        "recovery-cache-size",
        "recovery-digest",
        "recovery-beyond",
        "transport-any-content",
        "tcp-response-curves",
        "loss-estimator-record-size",
        "cacc-variable-load",
        "cacc-variable-bandwidth",
        "cacc-fairness-three-flows",
        "cacc-tcp-friendliness",
        "cacc-large-scale",
        "cacc-publisher-overhead",
        "cacc-with-recovery",
        "cacc-with-recovery-overhead",
        "cacc-content-awareness",
        "cacc-covered-receiver",
        "cacc-state-sublinear",
        "cacc-beyond",
        "network-rates",
        "gryphon-collapse-slow-edge-link",
        "gryphon-collapse-queue",
        "gryphon-collapse-after-link-failure",
        "pdcc-link-failure-recovery",
        "sdcc-nack-window",
        "pdcc-bandwidth-steps",
        "pdcc-queue-bound",
        "pdcc-uca-trace",
        "pdcc-complex-topology-rates",
        "pdcc-doubt-horizon-rate",
        "pdcc-uca-classes",
        "pdcc-recovery-time-vs-threshold",
        "pdcc-recovery-time-afar",
        "pdcc-without-sdcc",
        "sdcc-without-pdcc",
        "pdcc-beyond",
        "pdcc-additive-decrease",
        "pdcc-additive-increase",
        "pdcc-first-come-first-served",
        "pdcc-recovering-by-nacks",
        "pdcc-feedback-edges",
        "pdcc-clock-drift",
        "pdcc-slow-relay",
        "pdcc-slow-edge",
        "pdcc-slow-pubend",
        "pdcc-filtering",
        "pdcc-path-change",
        "pdcc-separate-trees",
        "pdcc-random-networks",
        "cb-randomisation-effect",
        "cb-cost-function-alternatives",
        "cb-fee-alternatives",
        "cb-s1-buffers",
        "cb-s1-throughput",
        "cb-s2-buffers",
        "cb-s2-throughput",
        "cb-s2-client-fairness",
        "cb-s2-clients-vs-buffers",
        "cb-s2-delayed-group-buffers",
        "cb-s2-delayed-group-throughput",
        "cb-s3-competing-tcp",
        "cb-changing-capacity",
        "cb-s4-chain",
        "cb-s5-chain-tcp",
        "cb-cairn-links",
        "cb-cairn-s1",
        "cb-cairn-s2",
        "cb-cairn-s3",
        "cb-cairn-s4",
        "cb-control-overhead",
        "cb-beyond",
        "content-aware-pricing",
        "ecbn-news-trace-statistics",
        "ecbn-workload-matching-distribution",
        "ecbn-workload-recipient-density",
        "ecbn-workload-popularity-series",
        "ecbn-workload-gap",
        "ecbn-vs-ef-selectivity",
        "ecbn-vs-ef-cache-size",
        "ecbn-vs-ef-network-size",
        "ecbn-eon-vs-pdp",
        "ecbn-cbf-vs-fifo",
        "ecbn-idd-pdd",
        "ecbn-selection-replacement-policies",
        "ecbn-enroute-caching",
        "ecbn-freshness",
        "ecbn-background-traffic",
        "ecbn-refresh-probability",
        "ecbn-req1-at-most-once",
        "ecbn-one-shot",
        "ecbn-exhaustive-requests",
        "ecbn-exponent",
        "ecbn-provider-fairness",
        "ecbn-interest-tables",
        "ecbn-beyond",
        "ecbn-readings",
        "controllers-compared",
    ]
    for experiment in found.values():
        names = [criterion.name for criterion in experiment.criteria]
        assert len(names) == len(set(names))


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(UnknownExperiment, match="did you mean 'delay-cdf-hypoexponential-fit'"):
        find("delay-cdf-hypoexponental-fit")


def test_names_that_begin_with_what_was_typed_are_answered_first():
    known = ["delay-cdf-hypoexponential-fit", "delay", "delay-of-two", "recovery-delay-cdf"]
    assert str(UnknownExperiment("delay-cdf", known)).endswith("did you mean 'delay-cdf-hypoexponential-fit'?")
    assert str(UnknownExperiment("delay-", known)).endswith(
        "did you mean 'delay-cdf-hypoexponential-fit' or 'delay-of-two'?"
    )
    assert str(UnknownExperiment("", known)).endswith("shows them all")
