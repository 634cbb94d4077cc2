"""001: congestion control of streams, by the pubends (PDCC) and by the edges (SDCC).

`collapse` shows what happens without it (Figures 2 to 4). `link_failure` is E1 (Figures 7 and 8), `bandwidth` E2
(Figures 9 to 11), `topology` E3 (Figures 12 to 15), `threshold` E4 (Figure 16). `parts` has each of the two protocols
alone and what the paper argues with, `beyond` our own goals. `setting` says what all of them look at in a run.
"""

from penstock.lab.papers.gryphon import bandwidth, beyond, collapse, link_failure, parts, threshold, topology

EXPERIMENTS = (
    *collapse.EXPERIMENTS,
    *link_failure.EXPERIMENTS,
    *bandwidth.EXPERIMENTS,
    *topology.EXPERIMENTS,
    *threshold.EXPERIMENTS,
    *parts.EXPERIMENTS,
    *beyond.EXPERIMENTS,
)
