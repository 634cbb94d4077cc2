"""docs/settings.md names every setting and argument that there is, with its default."""

from __future__ import annotations

import inspect
import re

import msgspec
import pytest

import pages
import penstock
from penstock.overlay.link_reports import ReportsConfig
from penstock.pricing.config import PricingClientConfig, PricingConfig
from penstock.rates.config import RatesClientConfig, RatesConfig
from penstock.retrieval.config import RetrievalClientConfig, RetrievalConfig, RetrievalOptions
from penstock.services import subscription_options
from penstock.streams.config import StreamsClientConfig, StreamsConfig, StreamSubscriptionOptions
from penstock.transport.config import TransportConfig

PAGE = pages.ROOT / "docs" / "settings.md"


def shown(default: object) -> str:
    """A default as the page writes it."""
    if default is inspect.Parameter.empty:
        return "required"
    return f'"{default}"' if isinstance(default, str) else str(default)


def arguments(function: object) -> dict[str, str]:
    found = inspect.signature(function).parameters  # type: ignore[arg-type]  # a function of ours
    named = [one for one in found.values() if one.kind is not inspect.Parameter.VAR_KEYWORD and one.name != "self"]
    return {one.name: shown(one.default) for one in named}


def test_every_setting_of_the_transport_stands_on_the_page_in_order_with_its_default() -> None:
    rows = pages.table(PAGE, "setting")
    fields = msgspec.structs.fields(TransportConfig)
    assert [(row["setting"], row["default"]) for row in rows] == [(one.name, shown(one.default)) for one in fields]
    assert {row["who"] for row in rows} == {"P", "S", "B"}
    assert all(row["meaning"] for row in rows)


def test_five_settings_are_said_to_matter_and_have_these_defaults() -> None:
    found = dict(re.findall(r"^\*\*`(\w+)`\*\* \(default `([^`]+)`", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    defaults = {one.name: shown(one.default) for one in msgspec.structs.fields(TransportConfig)}
    assert len(found) == 5
    assert found == {name: defaults[name] for name in found}
    explained = [row["setting"] for row in pages.table(PAGE, "setting") if row["meaning"] == "see above"]
    assert set(explained) <= set(found)


def test_the_arguments_of_connect_and_subscribe_stand_on_the_page() -> None:
    rows = {row["argument of connect"]: row["default"] for row in pages.table(PAGE, "argument of connect")}
    assert rows == arguments(penstock.connect)
    elsewhere = StreamSubscriptionOptions.__struct_fields__ + RetrievalOptions.__struct_fields__
    options = {
        one.name: shown(one.default)
        for one in msgspec.structs.fields(subscription_options())
        if one.name not in elsewhere
    }
    rows = {row["argument of subscribe"]: row["default"] for row in pages.table(PAGE, "argument of subscribe")}
    assert rows == {**arguments(penstock.Network.subscribe), **options}


@pytest.mark.parametrize(
    ("heading", "function"),
    [
        ("argument of retrieve", penstock.Network.retrieve),
        ("argument of stream.publish", penstock.Stream.publish),
        ("argument of stream.subscribe", penstock.Stream.subscribe),
    ],
)
def test_the_arguments_of_other_verbs_stand_on_the_page(heading: str, function: object) -> None:
    rows = {row[heading]: row["default"] for row in pages.table(PAGE, heading)}
    assert rows == arguments(function)


@pytest.mark.parametrize(
    ("heading", "kind"),
    [
        ("setting of brokers", StreamsConfig),
        ("setting of clients", StreamsClientConfig),
        ("setting of prices", PricingConfig),
        ("setting of reports", ReportsConfig),
        ("setting of rates", RatesConfig),
        ("setting of readers", RatesClientConfig),
        ("setting of senders", PricingClientConfig),
        ("setting of caches", RetrievalConfig),
        ("setting of retrieving clients", RetrievalClientConfig),
    ],
)
def test_every_setting_of_services_stands_on_the_page(heading: str, kind: type[msgspec.Struct]) -> None:
    rows = [(row[heading], row["default"]) for row in pages.table(PAGE, heading)]
    assert rows == [
        (one.name, shown(one.default_factory() if one.default is msgspec.NODEFAULT else one.default))
        for one in msgspec.structs.fields(kind)
    ]
