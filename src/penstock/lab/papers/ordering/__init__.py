"""002 section 3.5: what probabilistic ordering achieves, and what it costs.

`instances` names the ways to order that are compared. `violations` counts what they leave (Figures 3.11 and 3.13),
`extra_delay` what they cost (Figures 3.12 and 3.14), `trace` follows one pair through time (Figure 3.15), `multipath`
looks at the case that the paper leaves open (6.2), and `beyond` asks how near to an oracle one can come.
"""

from penstock.lab.papers.ordering import beyond, extra_delay, multipath, trace, violations

EXPERIMENTS = (
    violations.EIGHT_BROKERS,
    extra_delay.EIGHT_BROKERS,
    violations.FORTY_SIX_BROKERS,
    extra_delay.FORTY_SIX_BROKERS,
    trace.EXPERIMENT,
    multipath.EXPERIMENT,
    beyond.EXPERIMENT,
)
