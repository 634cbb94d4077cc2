"""002 chapter 4: lost messages are noticed, asked for, and sent again.

`effect` has the workload and what comes back, `speed` how long it takes, `traffic` what it costs and what the caches
do, `beyond` what goes further than the paper. `setting` names the runs, which most of them share.
"""

from penstock.lab.papers.recovery import beyond, effect, speed, traffic

EXPERIMENTS = (*effect.EXPERIMENTS, *speed.EXPERIMENTS, *traffic.EXPERIMENTS, *beyond.EXPERIMENTS)
