"""The house rules that a machine can check: who imports whom, what protocol code may not do, names, sizes, headers.

Each rule is a table at the top of its section; a new folder is one line in `IMPORTS`.
"""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

import penstock
import penstock.testing
from penstock import errors
from penstock.kernel.packet import CLIENT
from penstock.services import settings_types

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "penstock"
MODULES = {path.relative_to(PACKAGE).with_suffix("").as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}
LINES_MAX = 500

# --- Import direction (docs/architecture.md): a folder may import itself, what it names here, and what those name. Who
# names a single module, such as `services`, may import that module alone, and nothing that it is made from.

IMPORTS: dict[str, tuple[str, ...]] = {
    "errors": (),
    "content": ("errors",),
    "kernel": ("content",),
    "overlay": ("kernel",),
    "transport": ("overlay", "rates"),
    "streams": ("overlay",),
    "pricing": ("overlay",),
    "rates": ("overlay",),
    "retrieval": ("overlay",),
    "tracing": ("overlay",),
    "services": ("transport", "streams", "pricing", "rates", "retrieval", "tracing"),
    "scenario": ("services", "transport", "streams", "pricing", "rates", "retrieval", "tracing"),
    "sim": ("scenario",),
    "live": ("scenario",),
    "dashboard": ("live",),
    "pipeline": (
        *("content", "services", "kernel/trace", "kernel/trace_batch", "kernel/trace_files", "kernel/trace_marks"),
        *("kernel/randomness", "kernel/delay_laws"),
    ),
    "pipeline/source": ("live/client", "streams/config", "streams/log_codec"),
    "pipeline/watch": ("live/client",),
    "testing": ("live",),
    "lab": ("sim", "live", "pipeline"),
    "cli": ("lab", "dashboard"),
    "__init__": ("live", "scenario"),
    "__main__": ("cli",),
}

# Who may import these libraries, as beginnings of module names.
OUTSIDE: dict[str, tuple[str, ...]] = {
    "asyncio": ("live/", "dashboard/", "cli/", "testing/"),
    "psycopg": ("live/store/postgres_",),
    "pyspark": ("pipeline/", "lab/engine/sweep"),
    "pytest": ("testing/plugin",),
    "socket": ("live/", "dashboard/", "cli/"),
    "threading": ("live/", "dashboard/", "cli/", "pipeline/", "lab/engine/pool_processes"),
    "typer": ("cli/",),
    "rich": ("cli/",),
    "networkx": (),  # an oracle for tests
    "lark": (),  # another
}

# --- Calls that protocol code may not make: the clock, global randomness, hashes and sets without order, printing.

PURE = (
    *("content/", "kernel/", "overlay/", "transport/", "streams/", "pricing/", "rates/", "retrieval/", "scenario/"),
    *("tracing/", "services", "testing/pump"),
)
BANNED_MODULES = ("time", "datetime", "secrets", "uuid", "os")
BANNED_CALLS = ("hash", "print", "input", "eval", "exec", "id")
EXCEPTIONS: dict[str, tuple[str, ...]] = {
    "sim/run": ("time.perf_counter",),  # wall_seconds of a run, in no trace and no digest
    "content/language/evaluate": (
        "exec",
    ),  # compiles an expression that the parser has bounded; literals come as arguments
    "kernel/trace_files": ("os",),  # the trace on disk, written by hosts and never by a machine
    "kernel/trace_marks": ("os",),  # likewise
    "streams/start_times": ("datetime",),  # reads a time that somebody wrote, and asks no clock
    "services": ("os",),  # the variable that names services of somebody else's
    "scenario/runs": ("os", "time", "datetime"),  # the folder of a run: its files, its lock, and when it was made
}

# --- Names for users. Extend this list together with `penstock.__all__`.

PUBLIC = [
    "Address",
    "Attributes",
    "BlockingNetwork",
    "BlockingStream",
    "BlockingStreamSubscription",
    "BlockingSharedSubscription",
    "BlockingSubscription",
    "ClientConfig",
    "ConnectionConfig",
    "FlowReport",
    "Identity",
    "InvalidMessage",
    "InvalidOption",
    "InvalidPredicate",
    "Message",
    "Network",
    "NotConnected",
    "OutcomeUnknown",
    "PenstockError",
    "PredicateSyntaxError",
    "PredicateTooLarge",
    "PriceReport",
    "PricingClientConfig",
    "RetrievalClientConfig",
    "PublisherReport",
    "RatesClientConfig",
    "ReaderEnded",
    "ReaderReport",
    "Receipt",
    "Record",
    "Report",
    "Slowdown",
    "Stream",
    "StreamError",
    "StreamGap",
    "StreamMessage",
    "StreamRefused",
    "StreamSlice",
    "StreamSlowdown",
    "StreamSubscription",
    "SharedSubscription",
    "StreamsClientConfig",
    "Subscription",
    "Trace",
    "TransportConfig",
    "UnknownStream",
    "Unreachable",
    "Value",
    "WithheldFlow",
    "connect",
    "connect_blocking",
]

PUBLIC_FOR_TESTS = [  # of penstock.testing
    *("BlockingEmbeddedNetwork", "EmbeddedNetwork", "embedded_network", "embedded_network_blocking"),
    *("all_received", "all_received_blocking", "nothing_received", "nothing_received_blocking"),
    *("ready", "ready_blocking", "received", "received_blocking", "until"),
    *("AMPLE_BYTES", "STEPS_MAX", "ClientMachine", "Flight", "Pump", "a_broker", "a_client", "a_message", "attach"),
    *("broker_name", "broker_network", "publish"),
]

# --- Heavy imports that a broker must not wait for.

HEAVY = ("lark", "networkx", "numba", "psycopg", "pyspark", "pytest", "rich", "typer")


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imports(path: Path, *, with_typing: bool = False) -> Iterator[tuple[str, list[str]]]:
    """(module, names) of every import, late ones too; those for type checkers only are left out unless wanted."""
    whole = tree(path)
    typing_only = {
        child
        for node in ast.walk(whole)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test) and not with_typing
        for child in map(ast.unparse, node.body)
    }
    for node in ast.walk(whole):
        if isinstance(node, ast.Import) and ast.unparse(node) not in typing_only:
            yield from ((alias.name, []) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and ast.unparse(node) not in typing_only:
            assert node.level == 0, f"{path}: relative import"
            yield node.module or "", [alias.name for alias in node.names]


def own_imports(path: Path, *, with_typing: bool = False) -> Iterator[str]:
    """Penstock modules that a file imports, such as `kernel/trace`."""
    for module, names in imports(path, with_typing=with_typing):
        if module.split(".")[0] == "penstock":
            inside = "/".join(module.split(".")[1:])
            for name in names or [""]:
                candidate = f"{inside}/{name}".strip("/")
                yield candidate if candidate in MODULES else inside


def rules_for(module: str) -> str:
    """The most special line of the table that speaks of this module."""
    lines = [line for line in IMPORTS if module == line or module.startswith(line + "/")]
    assert lines, f"{module} stands in no folder of the architecture; add a line to IMPORTS"
    return max(lines, key=len)


def allowed(module: str) -> set[str]:
    """Everything that a module may import: folders, or single modules."""
    line = rules_for(module)
    reach, waiting = {line.split("/")[0], line}, [*IMPORTS[line], *IMPORTS.get(line.split("/")[0], ())]
    while waiting:
        target = waiting.pop()
        if target not in reach:
            reach.add(target)
            waiting += IMPORTS.get(target, ()) if target not in MODULES else ()
    return reach


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_one_way(module: str) -> None:
    reach = allowed(module)
    wrong = [
        target
        for target in own_imports(MODULES[module])
        if target and not any(target == place or target.startswith(place + "/") for place in reach)
    ]
    assert wrong == [], f"{module} may import only {sorted(reach)}"


def test_no_module_needs_itself() -> None:
    left: dict[str, set[str]] = {}
    for module, path in MODULES.items():
        found = own_imports(path, with_typing=True)
        left[module] = {target if target in MODULES else f"{target}/__init__".strip("/") for target in found}
    while done := [module for module, needed in left.items() if not needed & left.keys()]:
        for module in done:
            del left[module]
    assert left == {}, "these import each other, or a module that stands in a circle"


def test_the_table_of_imports_has_no_circles_and_keeps_the_two_worlds_apart() -> None:
    for folder in IMPORTS:
        above = [other for other in IMPORTS if other != folder and folder in allowed(other)]
        assert not [other for other in above if other in allowed(folder)], folder
    assert "live" not in allowed("sim")
    assert "sim" not in allowed("live")
    assert "services" in allowed("pipeline")
    assert not {"overlay", "transport"} & allowed("pipeline")
    assert not [folder for folder in IMPORTS if "testing" in allowed(folder) and folder != "testing"]


@pytest.mark.parametrize("module", MODULES)
def test_libraries_stay_in_their_places(module: str) -> None:
    for name, _ in imports(MODULES[module]):
        places = OUTSIDE.get(name.split(".")[0])
        assert places is None or module.startswith(places), f"{module} imports {name}, which belongs to {places}"


def calls(module: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree(MODULES[module])):
        if isinstance(node, ast.Call):
            yield node.lineno, ast.unparse(node.func)


PROTOCOL = [module for module in MODULES if module.startswith((*PURE, "sim/"))]


@pytest.mark.parametrize("module", PROTOCOL)
def test_protocol_code_asks_neither_the_clock_nor_global_randomness(module: str) -> None:
    exceptions = EXCEPTIONS.get(module, ())
    for name, names in imports(MODULES[module]):
        root = name.split(".")[0]
        if root in BANNED_MODULES and root not in exceptions:
            unexplained = [one for one in names or ["*"] if f"{root}.{one}" not in exceptions]
            assert unexplained == [], f"{module} imports {unexplained} of {root}"
        if root == "random":
            assert names == ["Random"], f"{module} imports {names or 'all'} of random; take a stream instead"


@pytest.mark.parametrize("module", PROTOCOL)
def test_protocol_code_makes_no_banned_calls(module: str) -> None:
    for line, call in calls(module):
        assert call not in BANNED_CALLS or call in EXCEPTIONS.get(module, ()), f"{module}:{line} calls {call}()"


def is_set(node: ast.expr) -> bool:
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    return isinstance(node, ast.Call) and ast.unparse(node.func) in ("set", "frozenset")


@pytest.mark.parametrize("module", PROTOCOL)
def test_protocol_code_never_goes_through_a_set(module: str) -> None:
    for node in ast.walk(tree(MODULES[module])):
        walked: list[ast.expr] = []
        if isinstance(node, ast.For):
            walked = [node.iter]
        elif isinstance(node, ast.ListComp | ast.GeneratorExp | ast.DictComp):
            walked = [generator.iter for generator in node.generators]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("list", "tuple", "enumerate", "iter", "next"):
            walked = node.args[:1]
        for expression in walked:
            assert not is_set(expression), f"{module}:{expression.lineno} goes through a set; sort it"


@pytest.mark.parametrize("module", MODULES)
def test_every_module_says_what_it_is_and_stays_readable(module: str) -> None:
    text = MODULES[module].read_text(encoding="utf-8")
    header = ast.get_docstring(ast.parse(text))
    assert header, f"{module} has no header"
    assert len(header.splitlines()[0]) > 15, f"{module}: a header says what the file is about"
    assert text.count("\n") <= LINES_MAX, f"{module} is longer than {LINES_MAX} lines; it holds two concepts"


def test_no_two_public_classes_share_a_name() -> None:
    homes: dict[str, list[str]] = {}
    for module, path in MODULES.items():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(module)
    shared = {name: modules for name, modules in homes.items() if len(modules) > 1}
    assert shared == {}, "a reader cannot tell which one is meant"


TEXTS = [
    path
    for folder in ("src", "tests", "bench", "docs", "examples", "fuzz", "networks")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in (".py", ".md", ".toml", ".lark") and path != Path(__file__)
]


def test_nothing_is_left_for_later_in_a_comment_and_no_file_knows_a_machine() -> None:
    for path in TEXTS:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"\b(TODO|FIXME|XXX)\b", text), path
        assert not re.search(r"(?<![\w.])/(home|root|work|Users)/\w", text), f"{path} names a place on one machine"


# Words that the field has a word for; docs/glossary.md has those.
OLD_WORDS = re.compile(
    r"\b(wish|wishes|talk|talks|voice|greeting|greeted|goodbye|taker|restraint|suspicion|slow lane|sign of life)\b"
)


def test_the_words_are_the_fields() -> None:
    for path in [*MODULES.values(), *sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"]:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            kept = "the label decides what is drawn" in line  # another label would draw another network
            assert kept or not OLD_WORDS.search(line), f"{path.relative_to(ROOT)}:{number}: {line.strip()}"


def test_the_public_names_are_pinned() -> None:
    assert sorted(getattr(penstock, "__all__", [])) == sorted(PUBLIC)
    assert all(hasattr(penstock, name) for name in PUBLIC)
    assert sorted(penstock.testing.__all__) == sorted(PUBLIC_FOR_TESTS)


def test_all_that_a_user_gives_or_gets_has_a_public_name_and_hints_that_resolve() -> None:
    """The types in the hints of public functions, of the methods of public classes and of their fields."""
    functions = [penstock.connect, penstock.connect_blocking]
    for name in PUBLIC:
        kind = getattr(penstock, name)
        if inspect.isclass(kind) and not issubclass(kind, Exception):
            given = {name: found for name, found in vars(kind).items() if not name.startswith("_")}
            functions += [found for found in given.values() if inspect.isfunction(found)]
            functions += [found.fget for found in given.values() if isinstance(found, property) and found.fget]
            functions.append(kind)
    met = {each for function in functions for hint in get_type_hints(function).values() for each in inside(hint)}
    met |= set(settings_types(CLIENT).values())
    ours = {kind for kind in met if kind.__module__.startswith("penstock")}
    assert len(ours) > 10
    assert {kind.__name__ for kind in ours} <= set(PUBLIC)


def inside(hint: Any) -> Iterator[type]:
    """The classes that a hint is made of."""
    if inspect.isclass(hint) and not get_args(hint):
        yield hint
    for part in get_args(hint):
        for one in part if isinstance(part, list) else [part]:
            yield from inside(one)


def test_every_error_stands_in_the_tree_at_the_top_of_the_file() -> None:
    drawn = re.findall(r"^[ │├└─]*(\w+)(?: {2,}.*)?$", (errors.__doc__ or "").split("\n\n")[1], re.MULTILINE)
    defined = [
        name
        for name, kind in vars(errors).items()
        if inspect.isclass(kind) and issubclass(kind, Exception) and kind.__module__ == errors.__name__
    ]
    assert sorted(drawn) == sorted(defined)


def test_the_tree_of_errors_is_drawn_as_it_grows() -> None:
    parents: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").split("\n\n")[1].splitlines():
        found = re.match(r"^([\s│├└─]*)(\w+)", line)
        assert found, line
        depth, name = len(found[1]), found[2]
        parents = [(column, parent) for column, parent in parents if column < depth]
        if parents:
            assert getattr(errors, name).__base__.__name__ == parents[-1][1]
        parents.append((depth, name))


@pytest.mark.parametrize(
    "module",
    [
        "penstock",
        "penstock.live.client.network",
        "penstock.live.broker.server",
        "penstock.overlay.codec",
        "penstock.overlay.node",
        "penstock.sim.run",
        "penstock.testing",
    ],
)
def test_heavy_imports_are_lazy(module: str) -> None:
    code = f"import sys, {module}; print(*sorted(m for m in {HEAVY!r} if m in sys.modules))"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.split() == []


def test_tests_stand_in_the_folders_of_the_architecture() -> None:
    folders = {path.parent.relative_to(ROOT / "tests").as_posix() for path in (ROOT / "tests").rglob("test_*.py")}
    known = {".", "papers", "simulation", "live", "pipeline", "lab", "security", "browser"}
    known |= {f"unit/{path.name}" for path in PACKAGE.iterdir() if path.is_dir()}  # unit tests mirror the rooms
    assert folders <= known
