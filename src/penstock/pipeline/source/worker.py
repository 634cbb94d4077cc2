"""What Spark's Python workers do between two tasks, made short.

A worker serves one task after the other, and after each it collects garbage: the whole of it (`gc.collect` in
`pyspark.daemon`), which means a look at every object that was ever imported. With pyarrow, pandas and our client that
takes some 40 ms of a processor, as long as reading 40,000 rows. So when a worker has served its first task that had
rows, and everything is imported, what is there then is set apart: nobody looks at it again, and later collections take
1 or 2 ms.
"""

from __future__ import annotations

import gc

from pyspark import TaskContext

_settled = False


def settle_worker() -> None:
    """A task of ours that had rows is done; what was imported for it is set apart, once, and only in workers."""
    global _settled
    if not _settled and TaskContext.get() is not None:
        _settled = True
        gc.collect()  # what is garbage now would never be collected
        gc.freeze()
