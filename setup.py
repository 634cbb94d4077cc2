"""The package is plain Python; PENSTOCK_COMPILE=1 compiles its hot modules with mypyc. Everything else: pyproject.toml.

`PENSTOCK_COMPILE=1 pip install .` needs a C compiler and fetches mypy by itself (with --no-build-isolation: uses the
mypy and msgspec that are installed). `tools/compile.py` makes a compiled copy beside the sources instead.

What may be compiled: a module whose classes are its own. msgspec's Structs must stay in plain modules, because mypyc
ignores the options in their class lines (`frozen=True` would be lost without a word), and so must classes that others
derive from outside (scenario.checkers). Two more variables serve tests: PENSTOCK_COMPILE_MODULES, fewer modules, and
PENSTOCK_COMPILE_LEVEL, the optimisation of the C compiler.
"""

import os
import sys
from typing import Any

from setuptools import setup

HOT_MODULES = [
    "content/matching/encoded_index.py",
    "content/matching/exact_index.py",
    "content/matching/vocabulary.py",
    "kernel/driver.py",
    "kernel/queue.py",
    "kernel/timers.py",
    "lab/fast/exhaustive_network.py",
    "lab/fast/fast_network.py",
    "lab/fast/floods.py",
    "overlay/broker.py",
    "overlay/client.py",
    "overlay/egress.py",
    "overlay/interest.py",
    "overlay/node.py",
    "overlay/routing.py",
    "overlay/topology.py",
    "overlay/verbs.py",
    "retrieval/asking.py",
    "retrieval/boxes.py",
    "retrieval/cache.py",
    "retrieval/forwarding.py",
    "retrieval/mediation.py",
    "retrieval/pending_interests.py",
    "retrieval/probing.py",
    "retrieval/recipients.py",
    "retrieval/selection.py",
    "sim/application.py",
    "sim/engine.py",
    "sim/host.py",
    "sim/pipes.py",
    "sim/run.py",
]


def compiled() -> dict[str, Any]:
    """What setup needs to know in order to compile."""
    options: dict[str, Any] = {"setup_requires": ["mypy>=1.14", "msgspec>=0.19,<1"], "package_dir": {"": "src"}}
    if not {"egg_info", "dist_info"} & set(sys.argv):  # pip asks first what it must fetch, and builds later
        from mypyc.build import mypycify

        modules = os.environ.get("PENSTOCK_COMPILE_MODULES", "").split() or HOT_MODULES
        # The types are checked elsewhere, strictly; here only what the compiler needs to know counts.
        settings = ["--config-file=", "--ignore-missing-imports", "--follow-imports=silent"]
        options["ext_modules"] = mypycify(
            settings + [f"src/penstock/{module}" for module in modules],
            opt_level=os.environ.get("PENSTOCK_COMPILE_LEVEL", "2"),
            debug_level="0",
        )
    return options


setup(**compiled() if os.environ.get("PENSTOCK_COMPILE") == "1" else {})
