"""The experiments on retrieval (004), in the order of the paper."""

from penstock.lab.papers.retrieval import (
    against_exhaustive,
    beyond,
    dissemination,
    policies,
    requests,
    workload,
)

EXPERIMENTS = (
    *workload.EXPERIMENTS,
    *against_exhaustive.EXPERIMENTS,
    *dissemination.EXPERIMENTS,
    *policies.EXPERIMENTS,
    *requests.EXPERIMENTS,
    *beyond.EXPERIMENTS,
)
