"""Beyond 002: order and recovery for any content, on random trees with the product's defaults.

`setting` names the runs, `fates` says what became of every message that was due, `table` judges.
"""

from penstock.lab.papers.any_content import table

EXPERIMENTS = table.EXPERIMENTS
