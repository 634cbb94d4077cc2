"""What an embedded network looks like: from a few words to a scenario.

    nothing                         one broker
    ("a", "b", "c")                 brokers in a line
    ("a", "b", "c"), links=[...]    brokers joined as you say; {("a", "b"): {"loss": 0.1}} says it link by link
    "networks/town.toml"            the brokers and links of a network file; its clients are yours to play
    a Scenario                      the same, built in Python

Links are reliable unless something asks for another kind: only datagram links can lose messages or let one overtake
another, so `loss` and `jitter` make them that. A datagram link without a rate puts several messages into one datagram,
which are then lost together; to make `loss` the loss of messages, a link that loses has a rate, an ample one if none
was given, and it does not repair itself unless that is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from penstock.errors import InvalidScenario
from penstock.scenario.reader import read_scenario, typed
from penstock.scenario.spec import BrokerSpec, LinkSpec, Scenario
from penstock.scenario.validate import explained, validate

Shape = Sequence[str] | str | Path | Scenario
Links = Iterable[tuple[str, str]] | Mapping[tuple[str, str], Mapping[str, Any]]

AMPLE_RATE_BITS_PER_S = 100e6
NAMES = ("broker",)


def shape_of(brokers: Shape, links: Links | None, settings: Mapping[str, Any]) -> Scenario:
    """The scenario that these words mean; `settings` are those of every link. Raises InvalidScenario."""
    if isinstance(brokers, Scenario | str | Path):
        if links is not None or settings:
            given = ", ".join([*(["links"] if links is not None else []), *settings])
            raise InvalidScenario(
                "", f"a network file, or a scenario, says itself what its links are; leave out {given}"
            )
        scenario = brokers if isinstance(brokers, Scenario) else _read(Path(brokers))
    else:
        scenario = Scenario(
            name="embedded",
            duration=1.0,
            broker=tuple(BrokerSpec(name=name) for name in brokers),
            link=tuple(_links(pairwise(brokers) if links is None else links, settings)),
        )
    validate(scenario)
    free = tuple(replace(broker, listen=None) for broker in scenario.broker)  # free ports, whatever the file says
    return typed(replace(scenario, broker=free))


def _read(path: Path) -> Scenario:
    if not path.exists():
        advice = f"to name brokers, give a tuple: ('{path}',)"
        raise InvalidScenario(str(path), f"there is no such network file; {advice}")
    return read_scenario(path)


def _links(links: Links, settings: Mapping[str, Any]) -> Iterable[LinkSpec]:
    for pair in links:
        yield _link(pair, {**settings, **(links[pair] if isinstance(links, Mapping) else {})})


def _link(pair: tuple[str, str], given: Mapping[str, Any]) -> LinkSpec:
    jitter, loses = given.get("jitter", 0.0), given.get("loss", 0.0) > 0.0
    settings = {"kind": "datagram" if loses or jitter else "reliable", "delay": jitter, **given}
    if loses:
        settings.setdefault("rate_bits_per_s", AMPLE_RATE_BITS_PER_S)
    settings.setdefault("repair", False)
    try:
        return msgspec.convert({**settings, "between": pair}, LinkSpec)
    except msgspec.ValidationError as error:
        where = f"link between {' and '.join(map(str, pair))}"
        raise explained(str(error), where, list(LinkSpec.__struct_fields__), LinkSpec) from None
