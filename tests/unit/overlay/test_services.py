"""The list of services: no two share anything, what is derived follows the list, and options are explained."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import pytest
from msgspec import Meta, Struct, ValidationError

from penstock import services
from penstock.errors import InvalidOption, InvalidService
from penstock.kernel.packet import BROKER, CLIENT, Packet
from penstock.kernel.service import Service
from penstock.kernel.trace import SHARED_KINDS, Record
from penstock.overlay.codec import encode
from penstock.overlay.config import BrokerConfig, ClientConfig, RoutingConfig
from penstock.overlay.packets import Delivery, Hello, Publication, Publish, Subscribe
from penstock.streams.packets import Knowledge, Nack
from penstock.transport.config import TransportConfig


class Tick(Packet, frozen=True):
    sent_by = (BROKER,)
    as_datagram = True

    number: int


class Unsigned(Packet, frozen=True):
    number: int


class Ticked(Record, frozen=True):
    number: int


class TickOptions(Struct, frozen=True, kw_only=True):
    ticks: Annotated[int, Meta(ge=1, description="How often.")] = 1


class TockOptions(Struct, frozen=True, kw_only=True):
    urgent: bool = False


class Reserved(Struct, frozen=True, kw_only=True):
    where: str = ""


class TickConfig(Struct, frozen=True, forbid_unknown_fields=True):
    every: float = 1.0


class SomeChecker:
    """A checker, as far as the list cares."""


def ticking(name: str = "ticking", **more: Any) -> Service:
    return Service(name=name, **more)


FULL = ticking(
    packets=(Tick,),
    records=(Ticked,),
    config=TickConfig,
    client_config=TickConfig,
    subscription_options=TickOptions,
    publication_options=TockOptions,
    checkers={"ticks": SomeChecker},
)


@pytest.fixture(autouse=True)
def tidy() -> Iterator[None]:
    """Whatever a test installs is taken out again."""
    before = services.services()
    yield
    services.remove(*(service for service in services.services() if service not in before))


# The list.


def test_the_list_begins_with_the_services_of_penstock_in_their_order() -> None:
    names = [service.name for service in services.services()]
    assert names[:7] == ["routing", "forwarding", "status", "reports", "rates", "pricing", "transport"]


def test_what_is_installed_stands_at_the_end_once_and_can_be_removed() -> None:
    before = services.services()
    services.install(FULL, ticking("other"))
    services.install(FULL)
    assert [service.name for service in services.services()[len(before) :]] == ["ticking", "other"]
    services.remove(FULL)
    assert [service.name for service in services.services()[len(before) :]] == ["other"]


def test_everything_that_is_derived_follows_the_list() -> None:
    before = (services.codec().kinds, services.record_kinds(), services.sent_by(BROKER), services.datagram_kinds())
    services.install(FULL)
    assert services.codec().decode(encode(Tick(3))) == Tick(3)
    assert services.record_kinds()[-1] is Ticked
    assert Tick in services.sent_by(BROKER)
    assert Tick not in services.sent_by(CLIENT)
    assert Tick in services.datagram_kinds()
    assert services.options({"ticks": 3}).ticks == 3
    assert services.options({"urgent": True}, services.publication_options()).urgent
    assert services.settings_types(BROKER)["ticking"] is services.settings_types(CLIENT)["ticking"] is TickConfig
    assert services.checkers()["ticks"] is SomeChecker
    services.remove(FULL)
    assert (
        services.codec().kinds,
        services.record_kinds(),
        services.sent_by(BROKER),
        services.datagram_kinds(),
    ) == before
    assert "ticks" not in services.checkers()
    with pytest.raises(InvalidOption):
        services.options({"ticks": 3})


def test_who_may_send_what_and_what_goes_by_datagram_is_as_the_packets_say() -> None:
    assert {Hello, Publication, Delivery} <= services.sent_by(BROKER)
    assert {Publish, Subscribe} <= services.sent_by(CLIENT)
    assert not {Publish, Subscribe} & services.sent_by(BROKER)
    assert not {Hello, Publication, Delivery} & services.sent_by(CLIENT)
    assert services.datagram_kinds() == {Publication, Knowledge, Nack}
    assert services.record_kinds()[: len(SHARED_KINDS)] == SHARED_KINDS


# Two services share nothing.


def namesake(base: type, **members: Any) -> Any:
    """Another class of the same name."""
    return type(base.__name__, base.__bases__, {"__annotations__": {"number": int}, **members}, frozen=True)


@pytest.mark.parametrize(
    ("service", "problem"),
    [
        (ticking("routing"), "a service called 'routing' exists already"),
        (ticking(), "a service called 'ticking' exists already"),
        (ticking("other", packets=(Hello,)), "a packet called 'Hello' exists already"),
        (ticking("other", packets=(namesake(Tick, sent_by=(BROKER,)),)), "a packet called 'Tick' exists already"),
        (ticking("other", packets=(Unsigned, Unsigned)), "a packet called 'Unsigned' exists already"),
        (ticking("other", records=(SHARED_KINDS[0],)), "a record called 'NodeStarted' exists already"),
        (ticking("other", records=(namesake(Ticked),)), "a record called 'Ticked' exists already"),
        (ticking("other", subscription_options=TickOptions), "an option called 'ticks' exists already"),
        (ticking("other", publication_options=TockOptions), "an option called 'urgent' exists already"),
        (ticking("other", packets=(Unsigned,)), "the packet Unsigned does not say who may send it"),
        (ticking("subscribe"), "a name is a lower-case word"),
        (ticking("Other"), "a name is a lower-case word"),
        (ticking("by-name"), "a name is a lower-case word"),
        (ticking(""), "a name is a lower-case word"),
        (ticking("other", subscription_options=Reserved), "an option called 'where' exists already"),
        (ticking("other", publication_options=Reserved), "an option called 'where' exists already"),
    ],
)
def test_a_service_that_does_not_fit_the_list_is_refused_by_name_and_changes_nothing(
    service: Service, problem: str
) -> None:
    services.install(FULL)
    before, kinds = services.services(), services.codec().kinds
    with pytest.raises(InvalidService, match=problem) as caught:
        services.install(service)
    assert caught.value.service == service.name
    assert str(caught.value).startswith(f"service '{service.name}': ")
    assert services.services() == before
    assert services.codec().kinds == kinds


def test_an_option_of_subscriptions_may_be_one_of_publications_too() -> None:
    services.install(FULL, ticking("other", publication_options=TickOptions))
    assert "ticks" in services.publication_options().__struct_fields__


# Options.


def test_options_have_the_defaults_of_their_services() -> None:
    given = services.options({})
    assert (given.ordered, given.recover, given.priority) == (False, False, 1.0)
    assert services.options({"ordered": True, "priority": 2}) == services.subscription_options()(
        ordered=True, priority=2.0
    )


@pytest.mark.parametrize(
    ("given", "option", "problem"),
    [
        ({"orderd": True}, "orderd", "no service has such an option; did you mean 'ordered'?"),
        ({"zzz": True}, "zzz", "no service has such an option; there are ordered, recover, priority"),
        ({"ordered": 3}, "ordered", "expected `bool`, got `int`"),
        ({"priority": 0}, "priority", "expected `float` > 0.0"),
        ({"priority": float("inf")}, "priority", "expected `float` <= 1000000.0"),
        ({"priority": None}, "priority", "expected `float`, got `null`"),
    ],
)
def test_a_wrong_option_is_named_with_what_is_wrong(given: dict[str, Any], option: str, problem: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        services.options(given)
    assert caught.value.option == option
    assert caught.value.problem.startswith(problem)
    assert str(caught.value).startswith(f"{option}: ")


def test_options_of_two_services_do_not_go_together_unless_one_of_them_asks_for_nothing() -> None:
    services.install(FULL)
    with pytest.raises(InvalidOption, match="'ordered' of transport and 'ticks' of ticking do not go together"):
        services.options({"ordered": True, "ticks": 2})
    assert services.options({"ordered": True, "ticks": 1}).ordered
    assert services.options({"ordered": False, "ticks": 2}).ticks == 2


def test_where_no_service_has_options_nothing_is_suggested() -> None:
    none_at_all = msgspec.defstruct("PublicationOptions", [])
    with pytest.raises(InvalidOption) as caught:
        services.options({"urgent": True}, none_at_all)
    assert caught.value.problem == "no service has such an option"


# Settings.


def test_settings_are_those_of_the_role() -> None:
    broker, client = services.settings_types(BROKER), services.settings_types(CLIENT)
    assert (broker["routing"], broker["forwarding"]) == (RoutingConfig, BrokerConfig)
    assert (client["forwarding"], client["transport"]) == (ClientConfig, TransportConfig)
    assert "transport" not in broker
    assert "status" not in broker


def test_settings_come_as_plain_data_or_as_their_service_wants_them() -> None:
    given = {"routing": {"hello_interval": 0.25}, "forwarding": BrokerConfig(clients_max=3)}
    assert services.typed_settings(BROKER, given) == {
        "routing": RoutingConfig(hello_interval=0.25),
        "forwarding": BrokerConfig(clients_max=3),
    }
    with pytest.raises(ValidationError):
        services.typed_settings(BROKER, {"routing": {"helo_interval": 0.25}})


# Services by name.

THIS = "unit_overlay_services_by_name"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module that somebody else has written."""
    found = type(sys)(THIS)
    found.TICKING = FULL  # type: ignore[attr-defined]
    found.SERVICE = ticking("mine")  # type: ignore[attr-defined]
    found.NUMBER = 3  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, THIS, found)
    return found


def test_services_are_found_by_module_and_name(module: Any) -> None:
    services.install_named(f" {THIS}:TICKING , {THIS},")
    assert services.services()[-2:] == (module.TICKING, module.SERVICE)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("no_such_module:X", "cannot be loaded .*; write module:NAME, on Python's path"),
        (f"{THIS}:X", "cannot be loaded"),
        (":X", "cannot be loaded"),
        (".relative:X", "cannot be loaded"),
        (f"{THIS}:NUMBER", "is no Service but a int"),
    ],
)
@pytest.mark.usefixtures("module")
def test_a_name_that_leads_to_no_service_is_explained(name: str, problem: str) -> None:
    before = services.services()
    with pytest.raises(InvalidService, match=problem) as caught:
        services.install_named(name)
    assert caught.value.service == name
    assert services.services() == before


def test_the_variable_names_services_for_a_whole_process(tmp_path: Any) -> None:
    (tmp_path / "elsewhere.py").write_text(
        "from penstock.kernel.service import Service\nMINE = Service(name='mine')\n", encoding="utf-8"
    )
    code = "from penstock.services import services; print(services()[-1].name)"
    environment = {**os.environ, "PENSTOCK_SERVICES": "elsewhere:MINE", "PYTHONPATH": str(tmp_path)}
    shown = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "mine"
