"""The package is plain Python; PENSTOCK_COMPILE=1 compiles its hot modules with mypyc. Everything else: pyproject.toml.

`PENSTOCK_COMPILE=1 pip install .` needs a C compiler and fetches mypy by itself (with --no-build-isolation: uses the
mypy and msgspec that are installed). `tools/compile.py` makes a compiled copy beside the sources instead.

What is compiled: every module of HOT that may be. That is one whose classes are its own: msgspec's Structs must stay in
plain modules, because mypyc ignores the options in their class lines (`frozen=True` would be lost without a word), and
so must classes that others derive from outside, and generic dataclasses. Nothing of HOT is sent to Spark's workers:
Spark wants functions with a signature, and a frozen dataclass that is compiled cannot be unpickled. In HOT a sum of
floats begins with 0.0: compiled code would begin with a whole number, and may refuse the rest. Two more variables serve
tests: PENSTOCK_COMPILE_MODULES, fewer modules, and PENSTOCK_COMPILE_LEVEL, the optimisation of the C compiler.
"""

import ast
import os
import sys
from pathlib import Path
from typing import Any

from setuptools import setup

SOURCES = Path(__file__).resolve().parent / "src" / "penstock"
HOT = [
    "content/bloom.py",
    "content/envelope.py",
    "content/language/evaluate.py",
    "content/matching/encoded_index.py",
    "content/matching/encoded_table.py",
    "content/matching/exact_index.py",
    "content/matching/vocabulary.py",
    "content/tags.py",
    "kernel/driver.py",
    "kernel/number_ranges.py",
    "kernel/paced_queue.py",
    "kernel/queue.py",
    "kernel/rate_estimator.py",
    "kernel/timers.py",
    "kernel/token_bucket.py",
    "kernel/trace_files.py",
    "lab/fast/exhaustive_network.py",
    "lab/fast/fast_network.py",
    "lab/fast/floods.py",
    "overlay/broker.py",
    "overlay/client.py",
    "overlay/egress.py",
    "overlay/interest.py",
    "overlay/interest_form.py",
    "overlay/node.py",
    "overlay/routing.py",
    "overlay/topology.py",
    "overlay/verbs.py",
    "pricing",
    "rates",
    "retrieval/asking.py",
    "retrieval/boxes.py",
    "retrieval/cache.py",
    "retrieval/forwarding.py",
    "retrieval/mediation.py",
    "retrieval/pending_interests.py",
    "retrieval/probing.py",
    "retrieval/recipients.py",
    "retrieval/selection.py",
    "sim",
    "streams",
    "transport",
]
PLAIN = {"sim/tcp/connection.py": "mypyc does not take its numbers that are an int here and a float there"}
OPEN_BASES = {"Enum", "Generic", "IntEnum", "NamedTuple", "Protocol"}


def hot_modules() -> list[str]:
    """Those of HOT that may be compiled, as paths below the package."""
    trees = {path.relative_to(SOURCES).as_posix(): ast.parse(path.read_text()) for path in SOURCES.rglob("*.py")}
    classes = {
        name: [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)] for name, tree in trees.items()
    }
    hot = {name for name in trees for place in HOT if name == place or name.startswith(f"{place}/")}
    hot -= {name for name in hot if name.endswith("__init__.py") or name in PLAIN}
    while True:  # a class and those that derive from it are compiled together or not at all
        own = {one.name for name in hot for one in classes[name]}
        elsewhere = {one.name for name in set(trees) - hot for one in classes[name]}
        derived = {base for name in set(trees) - hot for one in classes[name] for base in _bases(one)}
        plain = {name for name in hot if any(_stays_plain(one, own - elsewhere, derived) for one in classes[name])}
        if not plain:
            return sorted(hot)
        hot -= plain


def _stays_plain(one: ast.ClassDef, own: set[str], derived: set[str]) -> bool:
    bases = _bases(one)
    generic_dataclass = "Generic" in bases and any("dataclass" in ast.unparse(mark) for mark in one.decorator_list)
    return bool(one.keywords) or generic_dataclass or not bases <= OPEN_BASES | own or one.name in derived


def _bases(one: ast.ClassDef) -> set[str]:
    return {ast.unparse(base).split("[")[0].split(".")[-1] for base in one.bases}


def compiled() -> dict[str, Any]:
    """What setup needs to know in order to compile."""
    options: dict[str, Any] = {"setup_requires": ["mypy>=1.14", "msgspec>=0.19,<1"], "package_dir": {"": "src"}}
    if not {"egg_info", "dist_info"} & set(sys.argv):  # pip asks first what it must fetch, and builds later
        from mypyc.build import mypycify

        modules = os.environ.get("PENSTOCK_COMPILE_MODULES", "").split() or hot_modules()
        # The types are checked elsewhere, strictly; here only what the compiler needs to know counts.
        settings = ["--config-file=", "--ignore-missing-imports", "--follow-imports=silent"]
        options["ext_modules"] = mypycify(
            settings + [f"src/penstock/{module}" for module in modules],
            opt_level=os.environ.get("PENSTOCK_COMPILE_LEVEL", "2"),
            debug_level="0",
        )
    return options


if __name__ == "__main__":
    setup(**compiled() if os.environ.get("PENSTOCK_COMPILE") == "1" else {})
