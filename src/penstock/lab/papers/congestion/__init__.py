"""000 and 002 chapter 5: congestion control that looks at content.

`theory` needs no network (002 Figure 5.1, 000 Figure 5). `load` has one flow and a changing load or link (000 Figures 7
and 8), `sharing` several flows and a TCP (Figures 9 and 10), `large_network` many subscribers (Figures 11 and 12),
`recovery` control and recovery together (002 section 5.3.6). `awareness` has the claims without a figure, `beyond` our
own goals. `setting` says what all of them look at in a run.
"""

from penstock.lab.papers.congestion import awareness, beyond, large_network, load, recovery, sharing, theory

EXPERIMENTS = (
    *theory.EXPERIMENTS,
    *load.EXPERIMENTS,
    *sharing.EXPERIMENTS,
    *large_network.EXPERIMENTS,
    *recovery.EXPERIMENTS,
    *awareness.EXPERIMENTS,
    *beyond.EXPERIMENTS,
)
