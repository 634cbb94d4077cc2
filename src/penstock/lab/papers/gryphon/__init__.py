"""001: congestion control of streams, by the pubends (PDCC) and by the edges (SDCC).

`collapse` shows what happens without it (Figures 2 to 4). `link_failure` is E1 (Figures 7 and 8), `bandwidth` E2
(Figures 9 to 11), `topology` E3 (Figures 12 to 15), `threshold` E4 (Figure 16). `parts` has each of the two protocols
alone, `beyond` our own goals. `ablations`, `feedback` and `clocks` try what the paper says in words only,
`processor` congestion by processor time, `filtering` edges that want a part, `paths` several paths, `random_networks`
the product's defaults on networks that are drawn. `setting` says what all of them look at in a run, `outcome` what came
of one in any network.
"""

from penstock.lab.papers.gryphon import (
    ablations,
    bandwidth,
    beyond,
    clocks,
    collapse,
    feedback,
    filtering,
    link_failure,
    parts,
    paths,
    processor,
    random_networks,
    threshold,
    topology,
)

EXPERIMENTS = (
    *collapse.EXPERIMENTS,
    *link_failure.EXPERIMENTS,
    *bandwidth.EXPERIMENTS,
    *topology.EXPERIMENTS,
    *threshold.EXPERIMENTS,
    *parts.EXPERIMENTS,
    *beyond.EXPERIMENTS,
    *ablations.EXPERIMENTS,
    *feedback.EXPERIMENTS,
    *clocks.EXPERIMENTS,
    *processor.EXPERIMENTS,
    *filtering.EXPERIMENTS,
    *paths.EXPERIMENTS,
    *random_networks.EXPERIMENTS,
)
