"""Compiled or not, and whatever the hash seed, a run is the same run.

The copy is compiled with the modules that take a few seconds; bench/simulator.py compares the digests with all of them.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import sysconfig
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]
QUICK_TO_COMPILE = [
    "content/matching/vocabulary.py",
    "kernel/driver.py",
    "kernel/queue.py",
    "kernel/timers.py",
    "overlay/client.py",
    "overlay/egress.py",
    "overlay/node.py",
    "overlay/topology.py",
    "overlay/verbs.py",
    "sim/engine.py",
    "sim/pipes.py",
]

# Ten seconds of the town, among them the failure of a link; prints the digest and where each module came from.
RUN = """
import sys
from importlib import import_module
from pathlib import Path
from msgspec.structs import replace
from penstock.scenario.reader import read_scenario
from penstock.sim.run import simulate

result = simulate(replace(read_scenario(Path(sys.argv[1])), duration=10.0, drain=1.0), 7)
assert result.records["Delivered"] > 1000 and not result.problems
print(result.digest)
for module in sys.argv[2:]:
    print(import_module("penstock." + module.removesuffix(".py").replace("/", ".")).__file__)
"""


def loaded(file: Path) -> ModuleType:
    """A program beside the package, as a module."""
    spec = spec_from_file_location(f"{file.stem}_tool", file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def hot_modules() -> list[str]:
    """Those that setup.py would compile."""
    return list(loaded(ROOT / "setup.py").hot_modules())


def run_town(package: Path, hash_seed: int) -> list[str]:
    command = [sys.executable, "-c", RUN, str(ROOT / "networks" / "town.toml"), *QUICK_TO_COMPILE]
    environment = {**os.environ, "PYTHONPATH": str(package), "PYTHONHASHSEED": str(hash_seed)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_digest_is_the_same_compiled_or_not_and_under_another_hash_seed(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "tools" / "compile.py"), str(tmp_path), "--level", "0"]
    done = subprocess.run([*command, "--modules", *QUICK_TO_COMPILE], capture_output=True, text=True, check=False)
    if done.returncode == 3:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    digest, *files = run_town(ROOT / "src", hash_seed=1)
    assert all(file.endswith(".py") for file in files)
    compiled_digest, *compiled_files = run_town(tmp_path, hash_seed=2)
    assert all(Path(file).is_relative_to(tmp_path) and not file.endswith(".py") for file in compiled_files)
    assert compiled_digest == digest


def test_digest_is_the_same_under_another_hash_seed() -> None:
    assert run_town(ROOT / "src", hash_seed=1)[0] == run_town(ROOT / "src", hash_seed=2)[0]


def test_hot_modules_hold_no_class_that_compiling_would_change() -> None:
    """mypyc ignores options in a class line, such as msgspec's frozen=True; such classes live in plain modules."""
    for module in hot_modules():
        for node in ast.walk(ast.parse((ROOT / "src" / "penstock" / module).read_text())):
            if isinstance(node, ast.ClassDef):
                assert not node.keywords, f"{module}: class {node.name} has options, and mypyc would ignore them"


def test_no_plain_class_derives_from_a_compiled_one() -> None:
    """An interpreted class cannot inherit from one that mypyc compiled: the whole package would not import."""
    package = ROOT / "src" / "penstock"
    hot = {(package / module).resolve() for module in hot_modules()}
    compiled_classes = {
        node.name
        for path in hot
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    }
    for path in sorted(package.rglob("*.py")):
        if path.resolve() not in hot:
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    bases = {ast.unparse(base).split(".")[-1].split("[")[0] for base in node.bases}
                    assert not bases & compiled_classes, f"{path.relative_to(package)}: class {node.name}"


def test_nothing_compiled_is_given_to_sparks_workers() -> None:
    """Spark asks for the signature of a function, which a compiled one does not have."""
    for module in hot_modules():
        assert "InArrow(" not in (ROOT / "src" / "penstock" / module).read_text(), module


def test_modules_compiled_here_are_hot() -> None:
    assert set(QUICK_TO_COMPILE) <= set(hot_modules())


def test_a_copy_of_other_sources_is_not_current(tmp_path: Path) -> None:
    """`make lab-paper` compiles again only if something changed; a folder without compiled modules never is current."""
    compile_tool = loaded(ROOT / "tools" / "compile.py")
    assert not compile_tool.is_current(tmp_path)
    shutil.copytree(ROOT / "src" / "penstock", tmp_path / "penstock", ignore=shutil.ignore_patterns("__pycache__"))
    assert not compile_tool.is_current(tmp_path)
    (tmp_path / f"x__mypyc{sysconfig.get_config_var('EXT_SUFFIX')}").touch()
    assert compile_tool.is_current(tmp_path)
    (tmp_path / "penstock" / "services.py").write_text("changed")
    assert not compile_tool.is_current(tmp_path)
