"""What makes a scenario sensible beyond its types: no link to nowhere, no two nodes of one name, no rate below zero.

`validate` reports the first mistake, with its place and how to mend it. Whoever reads, makes or runs a scenario calls
it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from math import isfinite
from typing import Any

import msgspec
from msgspec import Struct

from penstock import services
from penstock.content.language.parser import parse_predicate
from penstock.errors import InvalidOption, InvalidPredicate, InvalidScenario, choose_one, did_you_mean
from penstock.kernel.choices import explain_choice, wrong_field
from penstock.kernel.link import LinkKind
from penstock.kernel.packet import BROKER, CLIENT
from penstock.overlay.spanning_tree import SpanningTree
from penstock.scenario.node_config import reliable_lines
from penstock.scenario.spec import (
    BrokerSpec,
    ClientSpec,
    FaultSpec,
    LinkSpec,
    Scenario,
    StreamSpec,
    SubscriptionSpec,
    TcpSpec,
)
from penstock.scenario.workload import PublisherSpec, validate_publisher
from penstock.streams.packets import PUBENDS_MAX, STREAM_NAME_BYTES_MAX, name_problem

BROKERS_MAX = 2_000  # more than ten times any network in the papers; a larger number is a slip of the keyboard
CLIENTS_MAX = 100_000
LINKS_MAX = 20_000
DURATION_MAX = 86_400.0
STREAMS_MAX = 1_000
NEEDED_BY_NOBODY = ("rates", "transport", "streams", "retrieval", "tracing")  # a broker can do without these services
STORE_SCHEMES = ("postgresql://", "postgres://")
BROKER_FAULTS = (
    *("crash", "leave", "restart", "clock_step", "move"),
    *("disk_full", "disk_freed", "disk_slow", "disk_flip", "disk_roll_back", "disk_restore"),
)
CLIENT_FAULTS = ("client_crash", "client_restart", "move")
LINK_FAULTS = ("link_down", "link_up", "link_rate")


def validate(scenario: Scenario) -> None:
    """Raise InvalidScenario at the first thing that makes no sense."""
    _number("duration", scenario.duration, low=0.0, high=DURATION_MAX, open_low=True)
    _number("drain", scenario.drain, low=0.0, high=DURATION_MAX)
    _number("settled_after", scenario.settled_after, low=0.0, high=DURATION_MAX)
    _number("settle", scenario.settle, low=0.0, high=DURATION_MAX)
    _count("broker", len(scenario.broker), 1, BROKERS_MAX)
    _count("link", len(scenario.link), 0, LINKS_MAX)
    _count("client", len(scenario.client), 0, CLIENTS_MAX)
    if scenario.store and not scenario.store.startswith(STORE_SCHEMES):
        raise InvalidScenario("store", "must be postgresql://user@host/database; a folder is named with --data")
    if scenario.encoding.bits not in range(64, 4097, 64):
        raise InvalidScenario("encoding.bits", "must be a multiple of 64 between 64 and 4096")
    _count("encoding.hashes", scenario.encoding.hashes, 1, 16)
    for name, lane in scenario.lanes.items():
        _choices(f"lanes.{name}", lane)
        if lane.bytes_max is not None:
            _count(f"lanes.{name}.bytes_max", lane.bytes_max, 4096, 1 << 40)
        _count(f"lanes.{name}.weight", lane.weight, 1, 1_000)
    _unique_names(scenario)
    _validate_settings("services", BROKER, scenario.services)
    brokers = {broker.name: None for broker in scenario.broker}
    for index, broker in enumerate(scenario.broker):
        _validate_broker(f"broker[{index}] ({broker.name})", broker)
    pairs: dict[tuple[str, ...], int] = {}
    for index, link in enumerate(scenario.link):
        _validate_link(f"link[{index}]", link, brokers, pairs, index)
    _validate_streams(scenario, brokers)
    _validate_classes(scenario)
    for index, client in enumerate(scenario.client):
        _validate_client(f"client[{index}] ({client.name})", client, brokers)
        _validate_uses(f"client[{index}] ({client.name})", client, {stream.name: None for stream in scenario.stream})
    kinds = {tuple(sorted(link.between)): link for link in scenario.link}
    for index, link in enumerate(scenario.link):
        if link.along:
            _validate_way(f"link[{index}].along", link.along, brokers, kinds)
    for index, flow in enumerate(scenario.tcp):
        _validate_tcp(f"tcp[{index}] ({flow.name})", flow, brokers, kinds)
    access = {tuple(sorted((client.name, client.broker))): 0 for client in scenario.client}
    for index, fault in enumerate(scenario.fault):
        _validate_fault(f"fault[{index}]", fault, scenario, brokers, {**pairs, **access})


def _unique_names(scenario: Scenario) -> None:
    seen: dict[str, str] = {}
    places = [(f"broker[{i}].name", b.name) for i, b in enumerate(scenario.broker)]
    places += [(f"client[{i}].name", c.name) for i, c in enumerate(scenario.client)]
    places += [(f"tcp[{i}].name", flow.name) for i, flow in enumerate(scenario.tcp)]
    for where, name in places:
        if not name.isprintable() or not 1 <= len(name.encode()) <= 64:  # a lone surrogate is not printable
            raise InvalidScenario(where, "a name has between 1 and 64 bytes, of characters that can be printed")
        if name in seen:
            raise InvalidScenario(where, f"'{name}' is taken by {seen[name]}; every node needs a name of its own")
        seen[name] = where


def _validate_broker(where: str, broker: BrokerSpec) -> None:
    _count(f"{where}.workers", broker.workers, 1, 1_000)
    _count(f"{where}.ingress_packets", broker.ingress_packets, 1, 10_000_000)
    _number(f"{where}.service_mean", broker.service_mean, low=0.0, high=60.0)
    _number(f"{where}.slow_share", broker.slow_share, low=0.0, high=1.0)
    _number(f"{where}.slow_mean", broker.slow_mean, low=0.0, high=60.0)
    _number(f"{where}.delivery_cost", broker.delivery_cost, low=0.0, high=60.0)
    _number(f"{where}.send_cost", broker.send_cost, low=0.0, high=60.0)
    _number(f"{where}.disk_delay", broker.disk_delay, low=0.0, high=60.0)
    _number(f"{where}.joins_at", broker.joins_at, low=0.0, high=DURATION_MAX)
    _validate_clock(where, broker.clock_offset, broker.clock_drift)
    _validate_settings(f"{where}.services", BROKER, broker.services)
    for name in broker.without:
        if name not in NEEDED_BY_NOBODY:
            problem = f"no broker can do without '{name}'; {choose_one(name, NEEDED_BY_NOBODY)}"
            raise InvalidScenario(f"{where}.without", problem)
    if broker.listen is not None:
        _validate_address(f"{where}.listen", broker.listen)


def _validate_address(where: str, address: str) -> None:
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdigit() and 1 <= int(port[:6]) <= 65_535):
        raise InvalidScenario(where, f"'{address}' is no address; write host:port, such as 127.0.0.1:7420")


def _validate_link(
    where: str, link: LinkSpec, brokers: dict[str, None], pairs: dict[tuple[str, ...], int], index: int
) -> None:
    _choices(where, link)
    for name in link.between:
        _known(f"{where}.between", name, brokers)
    if link.between[0] == link.between[1]:
        raise InvalidScenario(f"{where}.between", f"joins '{link.between[0]}' to itself")
    pair = tuple(sorted(link.between))
    if pair in pairs:
        raise InvalidScenario(f"{where}.between", f"link[{pairs[pair]}] joins these two already")
    pairs[pair] = index
    if link.rate_bits_per_s is not None:
        _number(f"{where}.rate_bits_per_s", link.rate_bits_per_s, low=0.0, high=1e12, open_low=True)
    if link.rate_back_bits_per_s is not None:
        _number(f"{where}.rate_back_bits_per_s", link.rate_back_bits_per_s, low=0.0, high=1e12, open_low=True)
        if link.rate_bits_per_s is None:
            raise InvalidScenario(f"{where}.rate_back_bits_per_s", "needs rate_bits_per_s, the rate of the other way")
    _number(f"{where}.delay", link.delay, low=0.0, high=3600.0)
    _number(f"{where}.jitter", link.jitter, low=0.0, high=link.delay)
    _number(f"{where}.loss", link.loss, low=0.0, high=1.0)
    _number(f"{where}.loss_burst", link.loss_burst, low=1.0, high=1e6)
    if link.loss_burst > 1.0 and link.loss > link.loss_burst / (1.0 + link.loss_burst):
        raise InvalidScenario(
            f"{where}.loss", f"with bursts of {link.loss_burst:g} no more than that share can be lost"
        )
    for key in ("duplicate", "reorder"):
        share: float = getattr(link, key)
        _number(f"{where}.{key}", share, low=0.0, high=1.0)
        if share and link.link_kind is LinkKind.RELIABLE:
            raise InvalidScenario(f"{where}.{key}", f"a {link.kind} link neither duplicates nor reorders; leave it out")
    _count(f"{where}.queue_packets", link.queue_packets, 1, 10_000_000)
    _count(f"{where}.cost", link.cost, 1, 65_535)
    _count(f"{where}.send_buffer_bytes", link.send_buffer_bytes, 1_024, 1 << 30)
    _count(f"{where}.segment_bytes", link.segment_bytes, 40, 65_535)
    _count(f"{where}.receive_window", link.receive_window, 3, 1_000_000)
    _count(f"{where}.wire_packets", link.wire_packets, 1, 10_000_000)
    if link.along and link.kind != "tcp":
        raise InvalidScenario(f"{where}.along", "only a tcp link can go along others; say kind = 'tcp'")


def _validate_classes(scenario: Scenario) -> None:
    """What is priced; it travels on one tree, whose links must be reliable."""
    if not scenario.classes:
        return
    for index, one in enumerate(scenario.classes):
        try:
            parse_predicate(one.where)
        except InvalidPredicate as error:
            raise InvalidScenario(f"class[{index}].where", str(error)) from None
    if "priced" in scenario.lanes and scenario.lanes["priced"].overflow != "hold":
        raise InvalidScenario("lanes.priced.overflow", "priced messages are never dropped for want of room; say 'hold'")
    tree = SpanningTree([(1, a, b) for a, b in reliable_lines(scenario)], 0)
    apart = [broker.name for number, broker in enumerate(scenario.broker) if number and tree.first(number) is None]
    if apart:
        problem = f"priced messages take reliable and tcp links only, and none of those leads to '{apart[0]}'"
        raise InvalidScenario("class", f"{problem} from '{scenario.broker[0].name}'; make its links kind = 'reliable'")


def _validate_streams(scenario: Scenario, brokers: dict[str, None]) -> None:
    """What [[stream]] says; settings of the service say nothing of it, so that there is one place for it."""
    _count("stream", len(scenario.stream), 0, STREAMS_MAX)
    seen: dict[str, int] = {}
    for index, stream in enumerate(scenario.stream):
        where = f"stream[{index}]"
        _validate_stream(where, stream, brokers)
        if stream.name in seen:
            raise InvalidScenario(
                f"{where}.name", f"'{stream.name}' is declared by stream[{seen[stream.name]}] already"
            )
        seen[stream.name] = index
    settings = scenario.services.get("streams")
    declared = settings.get("declared") if isinstance(settings, Mapping) else getattr(settings, "declared", None)
    if declared:
        raise InvalidScenario("services.streams.declared", "declare each stream in a table of its own: [[stream]]")
    first = settings.get("control_first") if isinstance(settings, Mapping) else getattr(settings, "control_first", None)
    if first is False and "stream" in scenario.lanes and scenario.lanes["stream"].overflow == "hold":
        raise InvalidScenario("services.streams.control_first", "needs a stream lane that drops, not one that holds")


def _validate_stream(where: str, stream: StreamSpec, brokers: dict[str, None]) -> None:
    problem = name_problem(stream.name, "the name of a stream", STREAM_NAME_BYTES_MAX)
    if problem:
        raise InvalidScenario(f"{where}.name", problem)
    if not 1 <= len(stream.at) <= PUBENDS_MAX:
        advice = f"name between 1 and {PUBENDS_MAX} brokers, such as at = ['bank']"
        raise InvalidScenario(f"{where}.at", f"{len(stream.at)} brokers; {advice}")
    for name in stream.at:
        _known(f"{where}.at", name, brokers)


def _validate_client(where: str, client: ClientSpec, brokers: dict[str, None]) -> None:
    _known(f"{where}.broker", client.broker, brokers)
    _number(f"{where}.access_delay", client.access_delay, low=0.0, high=3600.0)
    if client.access_rate_bits_per_s is not None:
        _number(f"{where}.access_rate_bits_per_s", client.access_rate_bits_per_s, low=0.0, high=1e12, open_low=True)
    _count(f"{where}.queue_packets", client.queue_packets, 1, 10_000_000)
    _validate_clock(where, client.clock_offset, client.clock_drift)
    _validate_settings(where, CLIENT, client.services)
    for index, subscription in enumerate(client.subscribe):
        place = f"{where}.subscribe[{index}]"
        try:
            parse_predicate(subscription.where)
        except InvalidPredicate as error:
            raise InvalidScenario(f"{place}.where", str(error)) from None
        _span(place, subscription.start, subscription.stop)
        _validate_subscription(place, subscription)
    for index, publisher in enumerate(client.publish):
        _validate_flow(f"{where}.publish[{index}]", publisher)


def _validate_uses(where: str, client: ClientSpec, streams: dict[str, None]) -> None:
    """Streams that a client publishes to and reads are declared; reading one needs a durable name."""
    for index, subscription in enumerate(client.subscribe):
        place = f"{where}.subscribe[{index}]"
        stream, durable = subscription.options.get("stream", ""), subscription.options.get("durable", "")
        _declared(f"{place}.stream", stream, streams)
        if stream and not durable:
            raise InvalidScenario(f"{place}.durable", "is missing: a stream is read under a name, such as 'billing'")
        if durable and not stream:
            raise InvalidScenario(f"{place}.stream", "is missing: a durable name is for a stream, such as 'orders'")
    for index, publisher in enumerate(client.publish):
        _declared(f"{where}.publish[{index}].stream", publisher.options.get("stream", ""), streams)


def _declared(where: str, stream: str, streams: dict[str, None]) -> None:
    if stream and stream not in streams:
        remedy = choose_one(stream, streams) if streams else "declare it in a table of its own: [[stream]]"
        raise InvalidScenario(where, f"there is no stream '{stream}'; {remedy}")


def _validate_flow(where: str, publisher: PublisherSpec) -> None:
    _choices(where, publisher)
    validate_publisher(where, publisher)
    _validate_options(where, publisher.options, services.publication_options())
    _span(where, publisher.start, publisher.stop)
    if publisher.repeats and not publisher.options.get("stream"):
        raise InvalidScenario(f"{where}.repeats", "is for messages of a stream; name it, as in stream = 'orders'")
    if publisher.unanswered_max is not None and (publisher.unanswered_max < 1 or not publisher.options.get("stream")):
        raise InvalidScenario(f"{where}.unanswered_max", "is at least 1, and for messages of a stream")
    if publisher.options.get("publication_id"):
        raise InvalidScenario(f"{where}.publication_id", "would be that of every message; each has one of its own")


def _validate_subscription(where: str, subscription: SubscriptionSpec) -> None:
    if subscription.reads_messages_per_s is not None:
        rate = subscription.reads_messages_per_s
        _number(f"{where}.reads_messages_per_s", rate, low=0.0, high=1e9, open_low=True)
    _count(f"{where}.queue_max", subscription.queue_max, 1, 10_000_000)
    _count(f"{where}.acknowledge_every", subscription.acknowledge_every, 1, 1_000_000)
    _validate_options(where, subscription.options, services.subscription_options())
    for option in ("rejects", "forgets"):
        chance = getattr(subscription, option)
        _number(f"{where}.{option}", chance, low=0.0, high=1.0)
        if chance and not subscription.options.get("share"):
            raise InvalidScenario(f"{where}.{option}", "is for a member of a shared name: share = true")
    if subscription.from_kept and not subscription.options.get("durable"):
        raise InvalidScenario(f"{where}.from_kept", "is for a durable name; give it one, as in durable = 'billing'")


def _validate_options(where: str, given: Mapping[str, Any], kind: type[Struct]) -> None:
    try:
        services.options(given, kind)
    except InvalidOption as error:
        raise InvalidScenario(f"{where}.{error.option}".rstrip("."), error.problem) from None


def _validate_settings(where: str, role: str, given: Mapping[str, Any]) -> None:
    """Settings of services, as a file or a program gives them."""
    types = services.settings_types(role)
    for name, value in given.items():
        place = f"{where}.{name}" if where else name
        if name not in types:
            other = services.settings_types(CLIENT if role == BROKER else BROKER)
            table = f"[client.{name}]" if role == BROKER else f"[services.{name}]"
            advice = f" here; write them under {table}" if name in other else did_you_mean(name, list(types))
            advice = advice or f"; those that have are {', '.join(types)}"
            raise InvalidScenario(place, f"no service '{name}' has settings{advice}")
        try:
            services.typed_settings(role, {name: value})
        except (msgspec.ValidationError, ValueError) as error:
            raise explained(str(error), place, list(types[name].__struct_fields__), types[name]) from None


def _validate_way(
    where: str, way: tuple[str, ...], brokers: dict[str, None], links: dict[tuple[str, ...], LinkSpec]
) -> None:
    """Brokers through whose links a TCP goes."""
    if len(way) < 2:
        raise InvalidScenario(where, f"name at least two brokers, such as {where.rpartition('.')[2]} = ['a', 'b']")
    for name in way:
        _known(where, name, brokers)
    for pair in pairwise(way):
        link = links.get(tuple(sorted(pair)))
        if link is None:
            raise InvalidScenario(where, f"no link joins '{pair[0]}' and '{pair[1]}'")
        if link.kind not in ("datagram", "tcp"):  # elsewhere there is no queue on the wire that a TCP could share
            raise InvalidScenario(where, f"the link of '{pair[0]}' and '{pair[1]}' must be a datagram or tcp link")
        if link.along:
            raise InvalidScenario(where, f"the link of '{pair[0]}' and '{pair[1]}' goes along others itself")


def _validate_tcp(where: str, flow: TcpSpec, brokers: dict[str, None], links: dict[tuple[str, ...], LinkSpec]) -> None:
    _validate_way(f"{where}.path", flow.path, brokers, links)
    _span(where, flow.start, flow.stop)
    _count(f"{where}.segment_bytes", flow.segment_bytes, 40, 65_535)
    _count(f"{where}.acknowledge_every", flow.acknowledge_every, 1, 16)
    _count(f"{where}.receive_window", flow.receive_window, 16, 1_000_000)
    _number(f"{where}.access_delay", flow.access_delay, low=0.0, high=60.0)


def _validate_fault(
    where: str, fault: FaultSpec, scenario: Scenario, brokers: dict[str, None], pairs: dict[tuple[str, ...], int]
) -> None:
    _choices(where, fault)
    _number(f"{where}.at", fault.at, low=0.0, high=DURATION_MAX)
    if fault.kind in BROKER_FAULTS:
        if fault.broker is None:
            raise InvalidScenario(f"{where}.broker", f"a {fault.kind} needs the name of a broker")
        _known(f"{where}.broker", fault.broker, brokers)
    if fault.kind in CLIENT_FAULTS:
        clients = [client.name for client in scenario.client]
        if fault.client not in clients:
            advice = choose_one(fault.client or "", clients)
            raise InvalidScenario(f"{where}.client", f"there is no client '{fault.client}'; {advice}")
    if fault.kind in LINK_FAULTS:
        nodes = {**brokers, **dict.fromkeys(client.name for client in scenario.client)}
        _validate_link_fault(where, fault, nodes, pairs)
    if fault.kind == "partition":
        if not fault.group:
            raise InvalidScenario(f"{where}.group", "a partition needs the brokers of one side, as group = [...]")
        for name in fault.group:
            _known(f"{where}.group", name, brokers)
    if fault.kind == "clock_step":
        _number(f"{where}.seconds", fault.seconds, low=-3600.0, high=3600.0)
    if fault.kind == "disk_slow":
        _number(f"{where}.seconds", fault.seconds, low=0.0, high=3600.0)


def _validate_link_fault(
    where: str, fault: FaultSpec, nodes: dict[str, None], pairs: dict[tuple[str, ...], int]
) -> None:
    if fault.kind == "link_rate":
        _number(f"{where}.rate_bits_per_s", fault.rate_bits_per_s, low=0.0, high=1e12, open_low=True)
    if fault.link is None:
        raise InvalidScenario(f"{where}.link", f"a {fault.kind} needs a link, such as link = ['a', 'b']")
    for name in fault.link:
        if name not in nodes:
            raise InvalidScenario(f"{where}.link", f"there is no broker or client '{name}'; {choose_one(name, nodes)}")
    if tuple(sorted(fault.link)) not in pairs:
        raise InvalidScenario(f"{where}.link", f"no link joins '{fault.link[0]}' and '{fault.link[1]}'")
    if fault.towards is not None and (fault.kind == "link_rate" or fault.towards not in fault.link):
        ends = f"'{fault.link[0]}' or '{fault.link[1]}'"
        raise InvalidScenario(f"{where}.towards", f"is '{fault.towards}'; a link goes down or up towards {ends}")


def _validate_clock(where: str, offset: float, drift: float) -> None:
    _number(f"{where}.clock_offset", offset, low=-1e9, high=1e9)
    _number(f"{where}.clock_drift", drift, low=-0.1, high=0.1)


def _span(where: str, start: float, stop: float | None) -> None:
    _number(f"{where}.start", start, low=0.0, high=DURATION_MAX)
    if stop is not None:
        _number(f"{where}.stop", stop, low=start, high=DURATION_MAX)


def _known(where: str, name: str, brokers: dict[str, None]) -> None:
    if name not in brokers:
        raise InvalidScenario(where, f"there is no broker '{name}'; {choose_one(name, brokers)}")


def _choices(where: str, spec: Struct) -> None:
    wrong = wrong_field(spec)
    if wrong is not None:
        raise InvalidScenario(f"{where}.{wrong[0]}", wrong[1])


def _number(where: str, value: float, *, low: float, high: float, open_low: bool = False) -> None:
    if not isfinite(value) or value < low or value > high or (open_low and value == low):
        least = f"more than {low:g}" if open_low else f"at least {low:g}"
        raise InvalidScenario(where, f"is {value:g}; it must be {least} and at most {high:g}")


def _count(where: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise InvalidScenario(where, f"is {value}; it must be between {low} and {high}")


def explained(message: str, where: str, known: list[str], kind: Any) -> InvalidScenario:
    """Turn a validation message about a table of this kind, with these keys, into place, problem and advice."""
    problem, _, path = message.partition(" - at `")
    inside = path.removesuffix("`").removeprefix("key` in `").removeprefix("$").removeprefix(".")
    choice = explain_choice(message, kind)
    place = ".".join(part for part in (where, inside) if part)
    unknown = re.match(r"Object contains unknown field `(.*)`", problem)
    if unknown:
        advice = did_you_mean(unknown[1], known) or f"; the keys here are {', '.join(known)}"
        return InvalidScenario(place, f"unknown key '{unknown[1]}'{advice}")
    if choice is not None:
        return InvalidScenario(place, choice)
    missing = re.match(r"Object missing required field `(.*)`", problem)
    if missing:
        return InvalidScenario(place, f"the key '{missing[1]}' is missing")
    return InvalidScenario(place, f"{problem[:1].lower()}{problem[1:]}")
