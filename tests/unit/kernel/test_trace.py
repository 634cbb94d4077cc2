"""The trace: a closed list of records with plain columns, and a digest that depends on nothing but what was written."""

from __future__ import annotations

import importlib
import pkgutil
import typing

import pytest

import penstock
from penstock.kernel.packet import Lane
from penstock.kernel.trace import SHARED_KINDS, Digest, Dropped, NodeStarted, NodeStopped, Record
from penstock.services import SERVICES, record_kinds

KINDS = record_kinds()
LINES = [(0.5 * i, f"n{i % 3}", NodeStarted("broker", i) if i % 2 else NodeStopped("crash")) for i in range(3000)]


def own_subclasses(kind: type) -> list[type]:
    """Those of the package; services that live in tests have records of their own."""
    found = [each for child in kind.__subclasses__() for each in (child, *own_subclasses(child))]
    return [each for each in found if each.__module__.startswith("penstock.")]


def digest_of(lines: list[tuple[float, str, Record]], *, ask_every: int = 0) -> str:
    digest = Digest()
    for number, line in enumerate(lines):
        digest.write(*line)
        if ask_every and number % ask_every == 0:
            digest.hexdigest()
    return digest.hexdigest()


def test_every_kind_of_record_is_on_the_list() -> None:
    for package in ("kernel", "overlay", "transport", "scenario", "sim"):
        root = importlib.import_module(f"{penstock.__name__}.{package}")
        for module in pkgutil.walk_packages(root.__path__, f"{root.__name__}."):
            importlib.import_module(module.name)
    assert set(own_subclasses(Record)) == set(KINDS)


def test_the_list_is_what_all_share_and_what_each_service_adds_in_order() -> None:
    assert KINDS[: len(SHARED_KINDS)] == SHARED_KINDS
    assert list(KINDS[len(SHARED_KINDS) :]) == [kind for service in SERVICES for kind in service.records]


def test_no_two_kinds_share_a_name_on_the_wire() -> None:
    assert len({kind.__struct_config__.tag for kind in KINDS}) == len(KINDS)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_columns_are_of_plain_types_and_every_kind_is_explained(kind: type[Record]) -> None:
    hints = typing.get_type_hints(kind)
    assert {name: hints[name] for name in kind.__struct_fields__ if hints[name] not in (bool, int, float, str)} == {}
    assert kind.__doc__


@pytest.mark.parametrize("ask_every", [1, 7, 1023, 1024, 1025])
def test_the_digest_does_not_depend_on_how_lines_are_batched(ask_every: int) -> None:
    assert digest_of(LINES, ask_every=ask_every) == digest_of(LINES)


@pytest.mark.parametrize(
    "lines",
    [
        LINES[:-1],
        [*LINES[:-2], LINES[-1], LINES[-2]],
        [(LINES[0][0] + 1e-12, *LINES[0][1:]), *LINES[1:]],
        [(LINES[0][0], "other", LINES[0][2]), *LINES[1:]],
        [(*LINES[0][:2], NodeStopped("leave")), *LINES[1:]],
    ],
    ids=["one less", "other order", "other time", "other node", "other content"],
)
def test_the_digest_sees_every_difference(lines: list[tuple[float, str, Record]]) -> None:
    assert digest_of(lines) != digest_of(LINES)


def test_an_enumeration_in_a_column_counts_as_its_number() -> None:
    def line(lane: int) -> tuple[float, str, Record]:
        return (0.0, "n", Dropped("egress", "queue full", "m", lane, "Publish", "p", 1, 1, 1))

    assert digest_of([line(Lane.BEST_EFFORT)]) == digest_of([line(4)])


def test_an_empty_trace_has_a_digest_that_is_pinned() -> None:
    assert digest_of([]) == Digest().hexdigest()
    assert digest_of([(1.5, "north", NodeStarted("broker", 1))]) == "ca02f279b71d3f497cce6e8c9c602fab"
