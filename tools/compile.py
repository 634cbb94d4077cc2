"""A compiled copy of the package beside the sources: `python tools/compile.py DEST`, then `PYTHONPATH=DEST python ...`.

Copies src to a temporary folder, lets setup.py compile the hot modules there with mypyc (it keeps the list), and moves
the result to DEST. The source tree stays as it is; so does the installed package. Whatever runs with PYTHONPATH=DEST
does the same as before, faster, and a simulation gives the same digest (tests/unit/test_compiled.py).

With `--unless-current` nothing is done if DEST has a copy of these very sources already.

Needs a C compiler, the headers of Python, mypy and setuptools; exits with status 3 and a sentence if one is missing.
"""

from __future__ import annotations

import argparse
import filecmp
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]


def what_is_missing() -> str | None:
    """Why nothing can be compiled here, or None."""
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        return f"there is no C compiler ({compiler})"
    if not Path(sysconfig.get_paths()["include"], "Python.h").exists():
        return "the headers of Python (Python.h) are not installed"
    for module in ("mypyc", "setuptools"):
        if find_spec(module) is None:
            return f"{module} is not installed (pip install 'penstock[dev]')"
    return None


def compile_copy(destination: Path, *, modules: Sequence[str] = (), level: int = 2) -> None:
    """Put a compiled copy at `destination`; without `modules`, all that setup.py names."""
    environment = {
        **os.environ,
        "PENSTOCK_COMPILE": "1",
        "PENSTOCK_COMPILE_MODULES": " ".join(modules),
        "PENSTOCK_COMPILE_LEVEL": str(level),
    }
    with TemporaryDirectory() as scratch:
        work = Path(scratch)
        shutil.copytree(ROOT / "src", work / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so"))
        shutil.copy(ROOT / "setup.py", work)
        command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
        done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"compiling failed:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
        _remove_older(destination)
        shutil.copytree(work / "src", destination, dirs_exist_ok=True)


def is_current(destination: Path) -> bool:
    """Whether the copy there was compiled from the sources as they are, with this Python."""
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    sources = {path.relative_to(ROOT / "src") for path in (ROOT / "src").rglob("*.py")}
    copied = {path.relative_to(destination) for path in destination.rglob("*.py")}
    compiled = any(destination.glob(f"*__mypyc{suffix}"))
    return (
        compiled
        and sources == copied
        and all(filecmp.cmp(ROOT / "src" / one, destination / one, False) for one in sources)
    )


def _remove_older(destination: Path) -> None:
    """Take away what an earlier call put there, and nothing else."""
    shutil.rmtree(destination / "penstock", ignore_errors=True)
    for library in destination.glob("*__mypyc.*"):
        library.unlink()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("destination", type=Path, metavar="DEST")
    parser.add_argument("--level", type=int, choices=range(4), default=2, help="optimisation of the C compiler")
    parser.add_argument("--modules", nargs="*", default=(), help="fewer than all, such as sim/engine.py")
    parser.add_argument("--unless-current", action="store_true", help="not if the copy there is of these sources")
    arguments = parser.parse_args()
    if arguments.unless_current and is_current(arguments.destination):
        return 0
    missing = what_is_missing()
    if missing is not None:
        print(f"nothing compiled: {missing}", file=sys.stderr)
        return 3
    compile_copy(arguments.destination, modules=arguments.modules, level=arguments.level)
    print(f"compiled; use it with PYTHONPATH={arguments.destination}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
