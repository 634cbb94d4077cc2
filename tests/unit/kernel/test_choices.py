"""Closed sets of words: a wrong one is answered with those there are, wherever it stands."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta, Struct

from penstock.errors import InvalidScenario, choose_one, wrong_choice
from penstock.kernel.choices import check_choices, explain_choice, wrong_field
from penstock.scenario.spec import BrokerSpec, ClientSpec, FaultSpec, LaneSpec, LinkSpec, Scenario
from penstock.scenario.validate import validate
from penstock.scenario.workload import PublisherSpec
from penstock.transport.config import TransportConfig

Word = Literal["drop", "hold"]


class Inner(Struct, forbid_unknown_fields=True):
    word: Word = "drop"


class Outer(Struct, forbid_unknown_fields=True):
    plain: Word = "drop"
    perhaps: Word | None = None
    described: Annotated[Word, Meta(description="which")] = "drop"
    several: tuple[Word, ...] = ()
    pair: tuple[Word, int] = ("drop", 1)
    inner: tuple[Inner, ...] = ()
    by_name: dict[str, Inner] = {}
    keys: dict[Word, int] = {}
    number: int = 1


@pytest.mark.parametrize(
    "raw",
    [
        {"plain": "hodl"},
        {"perhaps": "hodl"},
        {"described": "hodl"},
        {"several": ["drop", "hodl"]},
        {"pair": ["hodl", 2]},
        {"inner": [{}, {"word": "hodl"}]},
        {"by_name": {"a": {"word": "hodl"}}},
        {"keys": {"hodl": 1}},
    ],
)
def test_wherever_a_wrong_word_stands_the_right_ones_are_named(raw: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(raw, Outer)
    assert explain_choice(str(caught.value), Outer) == "is 'hodl'; choose one of 'drop', 'hold' (did you mean 'hold'?)"


def test_what_is_wrong_otherwise_is_left_to_others() -> None:
    for raw in ({"number": "x"}, {"plain": 3}, {"unknown": 1}):
        with pytest.raises(msgspec.ValidationError) as caught:
            msgspec.convert(raw, Outer)
        assert explain_choice(str(caught.value), Outer) is None


def test_very_many_choices_are_not_all_listed() -> None:
    assert choose_one("n7", [f"n{n}" for n in range(100)]).endswith("'n19' and 80 more (did you mean 'n7'?)")
    assert wrong_choice(3, ["a"]) == "is 3; choose one of 'a'"


def test_what_python_builds_is_checked_too() -> None:
    check_choices(Outer())
    assert wrong_field(Inner("hodl")) == ("word", wrong_choice("hodl", ("drop", "hold")))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="when_full is 'hold'; choose one of 'wait', 'drop'"):
        TransportConfig(when_full="hold")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"link": (LinkSpec(between=("a", "b"), kind="rope"),)}, "link[0].kind"),  # type: ignore[arg-type]
        ({"lanes": {"priced": LaneSpec(overflow="hodl")}}, "lanes.priced.overflow"),  # type: ignore[arg-type]
        ({"fault": (FaultSpec(at=1.0, kind="burn"),)}, "fault[0].kind"),  # type: ignore[arg-type]
        (
            {
                "client": (
                    ClientSpec(
                        name="c",
                        broker="a",
                        publish=(PublisherSpec(rate_messages_per_s=1.0, arrivals="daily"),),  # type: ignore[arg-type]
                    ),
                )
            },
            "client[0] (c).publish[0].arrivals",
        ),
    ],
)
def test_a_scenario_that_python_builds_is_checked_too(changes: dict[str, Any], where: str) -> None:
    with pytest.raises(InvalidScenario, match="choose one of") as caught:
        validate(Scenario(name="s", duration=1.0, broker=(BrokerSpec(name="a"), BrokerSpec(name="b")), **changes))
    assert caught.value.where == where
