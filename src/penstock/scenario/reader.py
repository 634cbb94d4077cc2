"""Scenarios from TOML files, with errors that a person can use.

A misspelt key is named together with the key it was probably meant to be; a wrong type says what was expected; all of
it with the place in the file. Nothing is guessed and nothing unknown is ignored: a scenario that reads is a scenario
that means what it says.
"""

from __future__ import annotations

import re
import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from penstock import services
from penstock.errors import InvalidScenario
from penstock.kernel.packet import BROKER, CLIENT
from penstock.pricing.config import PricedClass
from penstock.scenario.checkers import make_checkers
from penstock.scenario.spec import (
    BrokerSpec,
    ClientSpec,
    EncodingSpec,
    FaultSpec,
    LaneSpec,
    LinkSpec,
    Scenario,
    StreamSpec,
    SubscriptionSpec,
    TcpSpec,
)
from penstock.scenario.validate import explained, validate
from penstock.scenario.workload import PublisherSpec, Recipe

FILE_BYTES_MAX = 16 << 20
NETWORKS = Path("networks")  # where those that come with the project are, seen from its folder

_TABLES: dict[str, type[msgspec.Struct]] = {
    "": Scenario,
    "encoding": EncodingSpec,
    "lanes": LaneSpec,
    "broker": BrokerSpec,
    "link": LinkSpec,
    "stream": StreamSpec,
    "class": PricedClass,
    "client": ClientSpec,
    "client.subscribe": SubscriptionSpec,
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
        advice = _similar_file(path) if isinstance(error, FileNotFoundError) else ""
        raise InvalidScenario(str(path), f"cannot be read: {error.strerror or error}{advice}") from None
    try:
        return parse_scenario(data)
    except InvalidScenario as error:
        where = f"{path}: {error.where}" if error.where else str(path)
        raise InvalidScenario(where, error.problem) from None


def _similar_file(path: Path) -> str:
    """A network file of a similar name, in the same folder or in `networks`, to append to an error; or nothing."""
    found = {file.name: file for folder in (NETWORKS, path.parent) for file in sorted(folder.glob("*.toml"))}
    close = get_close_matches(path.name, list(found), n=1)
    return f"; did you mean {found[close[0]]}?" if close else ""


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
    _sorted_out(raw)
    try:
        scenario = msgspec.convert(raw, Scenario)
    except msgspec.ValidationError as error:
        raise _explained(str(error)) from None
    validate(scenario)
    scenario = typed(scenario)
    make_checkers(scenario)  # a misspelt checker is a mistake in the file too
    return scenario


def typed(scenario: Scenario) -> Scenario:
    """The same with settings of services as these want them, where a file or JSON has plain data."""
    clients = tuple(
        replace(client, services=services.typed_settings(CLIENT, client.services)) if client.services else client
        for client in scenario.client
    )
    brokers = tuple(
        replace(broker, services=services.typed_settings(BROKER, broker.services)) if broker.services else broker
        for broker in scenario.broker
    )
    settings = services.typed_settings(BROKER, scenario.services)
    return replace(scenario, broker=brokers, client=clients, services=settings)


def _sorted_out(raw: dict[str, Any]) -> None:
    """Put what belongs to services where a scenario keeps it: settings of a client, options of a subscription."""
    settings, options = services.settings_types(CLIENT), services.subscription_options().__struct_fields__
    for client in _tables(raw.get("client")):
        _gather(client, "services", list(settings))
        for subscription in _tables(client.get("subscribe")):
            _gather(subscription, "options", list(options))
        for publisher in _tables(client.get("publish")):
            _gather(publisher, "options", list(services.publication_options().__struct_fields__))


def _gather(table: dict[str, Any], under: str, names: list[str]) -> None:
    if under in table:
        raise InvalidScenario(under, f"'{under}' is no key of a file; write what belongs there beside the other keys")
    found = {name: table.pop(name) for name in names if name in table}
    if found:
        table[under] = found


def _tables(found: Any) -> list[dict[str, Any]]:
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _explained(message: str) -> InvalidScenario:
    """Turn a validation message into place, problem and advice."""
    place = message.partition(" - at `")[2].removesuffix("`").removeprefix("$").removeprefix(".")
    table = re.sub(r"\[(\d+|\.\.\.)\]", "", place)
    return explained(message, "", _keys(table), Scenario)


def _keys(table: str) -> list[str]:
    """The keys that a table of the file may have, those of services among them."""
    own = [name for name in _TABLES.get(table, Scenario).__struct_fields__ if name != "options"]
    if table == "client":
        return [name for name in own if name != "services"] + list(services.settings_types(CLIENT))
    if table == "client.subscribe":
        return own + list(services.subscription_options().__struct_fields__)
    return own + list(services.publication_options().__struct_fields__) if table == "client.publish" else own
