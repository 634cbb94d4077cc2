"""How fast is a simulation of retrieval, and how does it grow? Run: `python bench/retrieval.py [--quick] [--json F]`.

One table: networks of 50 to 1,000 routers with the default workload of 004 (100,000 interests, 50,000 publications, 100
time units; a tenth of both with --quick). For each: messages (interests, notifications, publications on links), seconds
of the processor, messages per second, the largest memory of the process. Each size has a process of its own.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from penstock.lab.fast.fast_network import FastNetwork
from penstock.lab.fast.setting import NewsSetting

Row = dict[str, Any]
ROUTERS = (50, 100, 300, 1_000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the interests and publications")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    share = 10 if arguments.quick else 1
    rows = []
    for routers in ROUTERS:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            row = pool.submit(simulated, routers, share).result()
        print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
        rows.append(row)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))


def simulated(routers: int, share: int) -> Row:
    """One run."""
    setting = NewsSetting(routers=routers, interests=100_000 // share, publications=50_000 // share)
    began = time.process_time()
    tally = FastNetwork(setting, 1).run()
    seconds = time.process_time() - began
    messages = tally.publication_messages + tally.control_messages
    return {
        "routers": routers,
        "messages": messages,
        "seconds": round(seconds, 1),
        "messages/s": round(messages / seconds),
        "MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "given twice": tally.twice,
    }


if __name__ == "__main__":
    main()
