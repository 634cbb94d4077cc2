"""The list of services: the one place that names every one, and what is derived from their declarations.

The order matters: a machine may use those of the services before its own, and deliveries go to a client's services in
this order. To add a service of Penstock's own, add a line to SERVICES. A service of somebody else's is put in with
`install`, or named by the variable PENSTOCK_SERVICES (`module:NAME`, separated by commas), which brokers, clients and
tools read when they first need the list.

Two services may not share a name, a kind of packet or record, a table of settings, or an option.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any, get_args

import msgspec
from msgspec import Struct

from penstock.errors import InvalidOption, InvalidService, did_you_mean
from penstock.kernel.packet import CLIENT, Packet
from penstock.kernel.service import Service
from penstock.kernel.trace import SHARED_KINDS, Record
from penstock.overlay.codec import Codec
from penstock.overlay.service import FORWARDING, REPORTS, ROUTING
from penstock.overlay.status import STATUS
from penstock.pricing.service import PRICING
from penstock.rates.service import RATES
from penstock.retrieval.service import RETRIEVAL
from penstock.streams.service import STREAMS
from penstock.tracing.service import TRACING
from penstock.transport.service import TRANSPORT

SERVICES: tuple[Service, ...] = (
    *(ROUTING, FORWARDING, STATUS, REPORTS, RATES, PRICING, TRANSPORT, STREAMS, RETRIEVAL),
    TRACING,
)

VARIABLE = "PENSTOCK_SERVICES"
# Keys of a client's and of a subscription's table in a network file, and arguments of connect, subscribe and publish.
RESERVED_NAMES = (
    *("access_delay", "access_rate_bits_per_s", "broker", "clock_drift", "clock_offset", "config", "connect_within"),
    *("name", "publish", "queue_packets", "services", "settings", "subscribe", "trace", "url"),
)
RESERVED_OPTIONS = (
    *("acknowledge_every", "arrivals", "as_json", "attributes", "body", "body_bytes", "congestion", "count"),
    *("forgets", "from_kept", "jsonl", "linger", "name", "on_drop", "options", "queue", "queue_max", "rate"),
    *("rate_end_messages_per_s", "rate_messages_per_s", "raw", "reads_messages_per_s", "rejects", "repeats", "report"),
    *(
        "spike_every",
        "spike_lasts",
        "spike_rate_messages_per_s",
        "start",
        "stop",
        "transport",
        "url",
        "wait",
        "when_full",
    ),
    "where",
)
OPTION_TYPES = (bool, int, float, str)  # what files, Python and the command line have in common

_added: list[Service] = []
_variable_read = False


def services() -> tuple[Service, ...]:
    """Every service, in order."""
    global _variable_read
    if not _variable_read:
        _variable_read = True  # what is loaded may ask for the list
        try:
            install_named(os.environ.get(VARIABLE, ""))
        except BaseException:
            _variable_read = False
            raise
    return (*SERVICES, *_added)


def install(*more: Service) -> None:
    """Add services at the end of the list; one that is there already stays as it is. Raises InvalidService."""
    for service in more:
        if service not in services():
            _check([*services(), service])
            _added.append(service)
            _forget()


def remove(*some: Service) -> None:
    """Take services out that were installed."""
    for service in some:
        _added.remove(service)
        _forget()


def install_named(names: str) -> None:
    """Add the services of a text such as `my_package.counting:COUNTING`; raises InvalidService."""
    for name in filter(None, (part.strip() for part in names.split(","))):
        module, _, attribute = name.partition(":")
        try:
            found = getattr(import_module(module), attribute or "SERVICE")
        except (ImportError, AttributeError, ValueError, TypeError) as error:
            raise InvalidService(name, f"cannot be loaded ({error}); write module:NAME, on Python's path") from None
        if not isinstance(found, Service):
            raise InvalidService(name, f"is no Service but a {type(found).__name__}")
        install(found)


# Who knows what. A peer says the names of its services in the handshake.

UNSAID = frozenset(service.name for service in SERVICES) - {RATES.name}  # known to peers from before it was said


def unknown_kinds(theirs: Iterable[str], ours: Iterable[Service] | None = None) -> frozenset[type[Packet]]:
    """The packets of our services that a peer with the services of these names cannot read; it must not get any."""
    known = frozenset(theirs)
    listed = services() if ours is None else ours
    return frozenset(kind for service in listed if service.name not in known for kind in service.packets)


def services_without(names: Iterable[str]) -> tuple[Service, ...]:
    """Every service but these."""
    left_out = frozenset(names)
    return tuple(service for service in services() if service.name not in left_out)


# What is derived.


@cache
def codec() -> Codec:
    """Reads the packets of all services."""
    return codec_of(services())


def codec_of(some: Iterable[Service]) -> Codec:
    """Reads the packets of these services, and of no others."""
    return Codec([kind for service in some for kind in service.packets])


@cache
def sent_by(role: str) -> frozenset[type[Packet]]:
    """The packets that this role may send."""
    return frozenset(kind for service in services() for kind in service.packets if role in kind.sent_by)


@cache
def datagram_kinds() -> frozenset[type[Packet]]:
    """The packets that travel by UDP on a datagram link."""
    return frozenset(kind for service in services() for kind in service.packets if kind.as_datagram)


@cache
def record_kinds() -> tuple[type[Record], ...]:
    """The closed list of trace records."""
    return (*SHARED_KINDS, *(kind for service in services() for kind in service.records))


@cache
def subscription_options() -> type[Struct]:
    """What a subscription may ask for: the options of all services in one struct."""
    return _one_struct("SubscriptionOptions", [service.subscription_options for service in services()])


@cache
def publication_options() -> type[Struct]:
    """What a publication may ask for."""
    return _one_struct("PublicationOptions", [service.publication_options for service in services()])


def options(given: Mapping[str, Any], kind: type[Struct] | None = None) -> Any:
    """Options from their names and values, of a subscription unless another kind is named; raises InvalidOption."""
    kind = kind or subscription_options()
    for name in given:
        if name not in kind.__struct_fields__:
            known = list(kind.__struct_fields__)
            others = publication_options() if kind is subscription_options() else subscription_options()
            if name in others.__struct_fields__:
                verbs = ("publish", "subscribe") if kind is subscription_options() else ("subscribe", "publish")
                raise InvalidOption(name, f"is an option of {verbs[0]}, not of {verbs[1]}")
            advice = did_you_mean(name, known) or (f"; there are {', '.join(known)}" if known else "")
            raise InvalidOption(name, f"no service has such an option{advice}")
    try:
        chosen = msgspec.convert(dict(given), kind)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$.")
        raise InvalidOption(path.removesuffix("`"), f"{problem[:1].lower()}{problem[1:]}") from None
    # By its name: a command line that was made before a service was installed has an older struct of the same.
    declared = "publication_options" if kind.__name__ == "PublicationOptions" else "subscription_options"
    asked = {service.name: names for service in services() if (names := service.asked_by(chosen, declared))}
    if len(asked) > 1:
        listed = " and ".join(f"'{names[0]}' of {service}" for service, names in asked.items())
        raise InvalidOption("", f"{listed} do not go together: one service serves each subscription and publication")
    return chosen


def _one_struct(name: str, parts: Iterable[type[Struct] | None]) -> type[Struct]:
    fields = [
        (field.name, field.type, field.default)
        for part in parts
        if part is not None
        for field in msgspec.structs.fields(part)
    ]
    return msgspec.defstruct(name, fields, frozen=True, kw_only=True, forbid_unknown_fields=True, module=__name__)


def checkers() -> dict[str, Any]:
    """The checkers that services bring along."""
    return {name: checker for service in services() for name, checker in service.checkers.items()}


def settings_types(role: str) -> dict[str, type[Any]]:
    """The services that have settings in this role, and what these are made of."""
    found = {service.name: service.settings_type(role) for service in services()}
    return {name: kind for name, kind in found.items() if kind is not None}


def typed_settings(role: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as their services want them, from plain data or as they are; raises msgspec.ValidationError."""
    types = settings_types(role)
    return {
        name: value if isinstance(value, types[name]) else msgspec.convert(value, types[name])
        for name, value in given.items()
    }


def _forget() -> None:
    for derived in (codec, sent_by, datagram_kinds, record_kinds, subscription_options, publication_options):
        derived.cache_clear()


def _check(listed: Sequence[Service]) -> None:
    newest = listed[-1]
    if not newest.name.isidentifier() or not newest.name.islower() or newest.name in RESERVED_NAMES:
        raise InvalidService(newest.name, "a name is a lower-case word that files and connect() do not use otherwise")
    _unique(newest.name, "a service", [service.name for service in listed])
    _unique(newest.name, "a packet", [kind.__name__ for service in listed for kind in service.packets])
    records = [*SHARED_KINDS, *(kind for service in listed for kind in service.records)]
    _unique(newest.name, "a record", [kind.__name__ for kind in records])
    for declared in ("subscription_options", "publication_options"):
        kinds = [getattr(service, declared) for service in listed]
        names = [name for kind in kinds if kind for name in kind.__struct_fields__]
        _unique(newest.name, "an option", [*RESERVED_OPTIONS, *names])
        _check_options(newest.name, getattr(newest, declared))
    _unique(newest.name, "a checker", [name for service in listed for name in service.checkers])
    for config in (newest.config, newest.client_config):
        if config is not None and not (issubclass(config, Struct) and config.__struct_config__.forbid_unknown_fields):
            raise InvalidService(newest.name, f"{config.__name__} must be a Struct with forbid_unknown_fields=True")
    if CLIENT in newest.stores:
        raise InvalidService(newest.name, "clients have no storage; keep it at brokers (stores=(BROKER,))")
    for kind in newest.packets:
        if not kind.sent_by:
            raise InvalidService(newest.name, f"the packet {kind.__name__} does not say who may send it (sent_by)")


def _check_options(service: str, kind: type[Struct] | None) -> None:
    for field in () if kind is None else msgspec.structs.fields(kind):
        plain = get_args(field.type)[0] if get_args(field.type) else field.type
        if plain not in OPTION_TYPES or field.default is msgspec.NODEFAULT:
            raise InvalidService(service, f"the option {field.name} must be a bool, int, float or str with a default")


def _unique(service: str, what: str, names: Iterable[str]) -> None:
    seen: dict[str, None] = {}
    for name in names:
        if name in seen:
            raise InvalidService(service, f"{what} called '{name}' exists already; choose another name")
        seen[name] = None


for _end in range(1, len(SERVICES) + 1):
    _check(SERVICES[:_end])
