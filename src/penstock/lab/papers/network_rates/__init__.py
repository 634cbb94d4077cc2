"""Beyond 000: fair rates of links, on networks drawn anew by each seed.

`outcome` says what became of every message that was due, `rows` what is measured in each row, `table` judges.
"""

from penstock.lab.papers.network_rates import table

EXPERIMENTS = table.EXPERIMENTS
