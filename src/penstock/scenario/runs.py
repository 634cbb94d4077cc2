"""A run is a folder, and a folder that is there need not be made again.

    runs/<name>/<seed>-<hash>/
        run.json       what was run, with which code, when, and what came of it
        trace/         one folder of Parquet files for each kind of record
        metrics/       what the pipeline makes of them
        report.html

The hash covers the scenario, the code that decides what happens in it, and the environment (Python, numba, compiled or
not), so a run is found again exactly when it would come out the same. `run.json` is written when the run begins, with
`complete` false, and again when it ends: a run that crashed or is still going can be read and is known for what it is.
A lock keeps two processes from making one run at the same time; the second waits, and finds it made.

This file does not know the simulator: whoever makes a run passes the function that does it.
"""

from __future__ import annotations

import os
import platform
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

import penstock
from penstock.errors import InvalidRun, NotPossibleHere
from penstock.kernel import queue
from penstock.kernel.trace import Trace
from penstock.kernel.trace_files import TRACE_FOLDER, TraceFiles
from penstock.kernel.trace_marks import read_marks
from penstock.scenario.spec import Scenario
from penstock.scenario.validate import validate
from penstock.services import services

RUN_FILE = "run.json"
CODE_THAT_DECIDES = (
    "content",
    "kernel",
    "overlay",
    "transport",
    "streams",
    "pricing",
    "rates",
    "retrieval",
    "scenario",
    "sim",
)


class RunOutcome(Struct, frozen=True, kw_only=True):
    """What the maker of a run says when it is over."""

    digest: str
    events: int
    virtual_seconds: float
    complete: bool = True  # False: stopped before its end, for example by a limit on events
    problems: tuple[str, ...] = ()  # of the checkers
    summary: dict[str, Any] = {}  # anything else worth keeping, as plain data


class RunInfo(Struct, frozen=True, kw_only=True):
    """The content of `run.json`."""

    name: str
    seed: int
    scenario: Scenario
    version: str  # of Penstock
    code: str  # hash of the sources that decide what happens
    environment: str = ""  # what else decides: Python, compiled or not, libraries that compute
    started: str  # UTC
    finished: str | None = None
    complete: bool = False
    outcome: RunOutcome | None = None
    records: dict[str, int] | None = None  # in the trace, of each kind: whoever reads fewer knows that some are lost
    cut_off: tuple[str, ...] = ()  # writers of the trace that were killed: how many records they had nobody knows


class Run(Struct, frozen=True):
    """A run on disk."""

    folder: Path
    info: RunInfo


def open_or_make(
    scenario: Scenario,
    seed: int,
    runs_root: Path,
    make: Callable[[Trace], RunOutcome],
    *,
    also: str = "",
    again: bool = False,
) -> Run:
    """The complete run of this scenario and seed, made now if it is not there, or if it is wanted `again`.

    `also` is the package of the maker, if it is none of those that decide in every run.
    """
    folder = run_folder(scenario, seed, runs_root, also)
    with _locked(folder):
        run = None if again else complete_run(folder)
        return run or make_run(folder, scenario, seed, make)


def make_run(folder: Path, scenario: Scenario, seed: int, make: Callable[[Trace], RunOutcome]) -> Run:
    """Make a run in this very folder. What an earlier run left there goes; anything else is refused."""
    validate(scenario)
    _clear(folder)
    info = RunInfo(
        name=scenario.name,
        seed=seed,
        scenario=scenario,
        version=version("penstock"),
        code=code_hash(),
        environment=environment(),
        started=_now(),
    )
    _write_info(folder, info)
    with TraceFiles(folder) as trace:
        outcome = make(trace)
    marks = read_marks(folder / TRACE_FOLDER)
    info = msgspec.structs.replace(
        info,
        finished=_now(),
        complete=outcome.complete,
        outcome=outcome,
        records=dict(sorted(sum((Counter(mark.rows) for mark in marks), Counter()).items())),
        cut_off=tuple(mark.writer for mark in marks if not mark.closed),
    )
    _write_info(folder, info)
    return Run(folder, info)


def open_run(folder: Path) -> Run:
    """The run in this folder, complete or not; raises InvalidRun."""
    try:
        data = (folder / RUN_FILE).read_bytes()
    except OSError as error:
        raise InvalidRun(str(folder), f"is no run: {RUN_FILE} cannot be read ({error.strerror})") from None
    try:
        return Run(folder, msgspec.json.decode(data, type=RunInfo))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRun(str(folder / RUN_FILE), f"was not written by this version of Penstock: {error}") from None


def run_folder(scenario: Scenario, seed: int, runs_root: Path, also: str = "") -> Path:
    """Where the run of this scenario and seed, by this code in this environment, belongs; see `open_or_make`."""
    digest = blake2b(msgspec.json.encode(scenario, order="sorted"), digest_size=6, person=b"penstock-runs")
    digest.update(f"{code_hash(also)}\n{environment()}".encode())
    return runs_root / _as_file_name(scenario.name) / f"{seed}-{digest.hexdigest()}"


@cache
def code_hash(also: str = "") -> str:
    """A hash over all sources that decide what happens in a run; read once, because a process runs what it loaded."""
    digest = blake2b(digest_size=8, person=b"penstock-code")
    root = Path(penstock.__file__).parent
    packages = (*CODE_THAT_DECIDES, also) if also else CODE_THAT_DECIDES
    sources = [path for package in packages for path in (root / package).rglob("*")]
    sources.append(root / "services.py")
    for path in sorted(path for path in sources if path.suffix == ".py"):
        digest.update(f"{path.relative_to(root).as_posix()}\n".encode())
        digest.update(path.read_bytes())
    for service in services():
        digest.update(f"{service.name}\n".encode())
    return digest.hexdigest()


@cache
def environment() -> str:
    """What decides beside the sources: the interpreter, compiled modules or plain ones, and libraries that compute."""
    compiled = "plain" if queue.__file__.endswith(".py") else "compiled"
    libraries = ", ".join(f"{name} {_version(name)}" for name in ("numpy", "numba", "msgspec"))
    return f"{platform.python_implementation()} {platform.python_version()}, {compiled}, {libraries}"


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "none"


def complete_run(folder: Path) -> Run | None:
    """The run in the folder, if it is there and whole."""
    try:
        run = open_run(folder)
    except InvalidRun:
        return None
    return run if run.info.complete else None


def _clear(folder: Path) -> None:
    """Empty a run's folder. A folder with files and no `run.json` is somebody else's, and stays as it is."""
    if folder.is_dir():
        left = [path for path in folder.iterdir() if path.name != _LOCK]
        if left and not (folder / RUN_FILE).exists():
            raise InvalidRun(str(folder), f"holds files and no {RUN_FILE}, so it is no run's folder; name another one")
        # The description goes last: a clearing that is cut short leaves a folder that is still a run's.
        for path in sorted(left, key=lambda path: path.name == RUN_FILE):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    folder.mkdir(parents=True, exist_ok=True)


def _write_info(folder: Path, info: RunInfo) -> None:
    draft = folder / f".{RUN_FILE}.{os.getpid()}"
    try:
        draft.write_bytes(msgspec.json.format(msgspec.json.encode(info), indent=1) + b"\n")
        draft.replace(folder / RUN_FILE)
    except OSError as error:
        problem = f"{folder / RUN_FILE} cannot be written: {error.strerror or error}"
        raise NotPossibleHere(problem, "make room there, or name another folder") from None
    finally:
        draft.unlink(missing_ok=True)


_LOCK = ".lock"


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder for ourselves. The system drops the lock with the process, so a crash leaves none behind."""
    import fcntl

    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _as_file_name(name: str) -> str:
    """The name, without what a path cannot hold."""
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in name).lstrip(".") or "run"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
