"""003: priced sending, the cost-benefit flow control of Spread.

`tree` has scenarios 1 and 2 (Figures 4, 5, 7 to 12), `beside_tcp` scenario 3 (Figure 13) and a link that changes its
rate, `chain` scenarios 4 and 5 (Figures 14 to 16), `cairn` section 7 (Figures 17 to 24). `alternatives` tries what the
paper argues against, `beyond` has our own goals, `content_aware` prices by content, `overhead` tells what control
costs. `setting` says what all of them look at in a run.
"""

from penstock.lab.papers.spread import alternatives, beside_tcp, beyond, cairn, chain, content_aware, overhead, tree

EXPERIMENTS = (
    *alternatives.EXPERIMENTS,
    *tree.EXPERIMENTS,
    *beside_tcp.EXPERIMENTS,
    *chain.EXPERIMENTS,
    *cairn.EXPERIMENTS,
    *overhead.EXPERIMENTS,
    *beyond.EXPERIMENTS,
    *content_aware.EXPERIMENTS,
)
