"""Scenarios from TOML files, with errors that a person can use.

A misspelt key is named together with the key it was probably meant to be; a wrong type says what was expected; all of
it with the place in the file. Nothing is guessed and nothing unknown is ignored: a scenario that reads is a scenario
that means what it says.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import msgspec

from penstock.errors import InvalidScenario
from penstock.scenario.checkers import make_checkers
from penstock.scenario.spec import (
    BrokerSpec,
    ClientSpec,
    EncodingSpec,
    FaultSpec,
    LinkSpec,
    Scenario,
    SubscriptionSpec,
    TcpSpec,
)
from penstock.scenario.validate import did_you_mean, validate
from penstock.scenario.workload import PublisherSpec, Recipe
from penstock.transport.config import TransportConfig

FILE_BYTES_MAX = 16 << 20

_TABLES: dict[str, type[msgspec.Struct]] = {
    "": Scenario,
    "encoding": EncodingSpec,
    "broker": BrokerSpec,
    "link": LinkSpec,
    "client": ClientSpec,
    "client.subscribe": SubscriptionSpec,
    "client.transport": TransportConfig,
    "client.publish": PublisherSpec,
    "client.publish.attributes": Recipe,
    "tcp": TcpSpec,
    "fault": FaultSpec,
}


def read_scenario(path: Path) -> Scenario:
    """The scenario in this file; raises InvalidScenario."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InvalidScenario(str(path), f"cannot be read: {error.strerror or error}") from None
    try:
        return parse_scenario(data)
    except InvalidScenario as error:
        where = f"{path}: {error.where}" if error.where else str(path)
        raise InvalidScenario(where, error.problem) from None


def parse_scenario(data: bytes) -> Scenario:
    """The scenario in these bytes of TOML; raises InvalidScenario."""
    if len(data) > FILE_BYTES_MAX:
        raise InvalidScenario("", f"{len(data)} bytes; the limit FILE_BYTES_MAX is {FILE_BYTES_MAX}")
    try:
        raw = tomllib.loads(data.decode())
    except UnicodeDecodeError as error:
        raise InvalidScenario("", f"is not UTF-8 (byte {error.start}); save the file as UTF-8") from None
    except ValueError as error:  # tomllib's own error, or int() on a number with thousands of digits
        raise InvalidScenario("", f"is not TOML: {error}") from None
    except RecursionError:
        raise InvalidScenario("", "is nested too deeply to be a scenario") from None
    try:
        scenario = msgspec.convert(raw, Scenario)
    except msgspec.ValidationError as error:
        raise _explained(str(error)) from None
    validate(scenario)
    make_checkers(scenario)  # a misspelt checker is a mistake in the file too
    return scenario


def _explained(message: str) -> InvalidScenario:
    """Turn a validation message into place, problem and advice."""
    problem, _, path = message.partition(" - at `")
    place = path.removesuffix("`").removeprefix("$").removeprefix(".")
    table = re.sub(r"\[(\d+|\.\.\.)\]", "", place)
    unknown = re.match(r"Object contains unknown field `(.*)`", problem)
    if unknown:
        known = list(_TABLES.get(table, Scenario).__struct_fields__)
        advice = did_you_mean(unknown[1], known) or f"; the keys here are {', '.join(known)}"
        return InvalidScenario(place, f"unknown key '{unknown[1]}'{advice}")
    missing = re.match(r"Object missing required field `(.*)`", problem)
    if missing:
        return InvalidScenario(place, f"the key '{missing[1]}' is missing")
    return InvalidScenario(place, f"{problem[:1].lower()}{problem[1:]}")
