"""The small parts of the live world that need no socket: waits, addresses, plans."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

import penstock
from live_help import a_line
from penstock.content.message import Identity, make_message
from penstock.errors import InvalidScenario, PenstockError
from penstock.kernel.trace import Published, Record, published_record
from penstock.live.broker.applied import not_applied, settings_applied
from penstock.live.broker.plan import assign_addresses, plan_for
from penstock.live.wire.addresses import Address, free_ports, parse_address, parse_url
from penstock.live.wire.backoff import FIRST, LONGEST, Backoff
from penstock.overlay.config import RoutingConfig
from penstock.scenario.reader import parse_scenario, read_scenario
from penstock.scenario.script import script
from penstock.scenario.spec import BrokerSpec, ClientSpec, EncodingSpec, FaultSpec, LaneSpec, Scenario, TcpSpec
from penstock.scenario.workload import PublisherSpec, Recipe
from penstock.sim.run import simulate


def test_waits_grow_to_a_bound_and_start_small_again() -> None:
    backoff = Backoff(Random(1))
    waits = [backoff.wait() for _ in range(20)]
    assert 0.5 * FIRST <= waits[0] <= 1.5 * FIRST
    assert 0.5 * LONGEST <= waits[-1] <= 1.5 * LONGEST
    backoff.reset()
    assert backoff.wait() <= 1.5 * FIRST


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:7000", Address("127.0.0.1", 7000)),
        ("host", Address("host", 7420)),
        (":80", Address("127.0.0.1", 80)),
        ("[::1]:80", Address("::1", 80)),
        ("[::1]", Address("::1", 7420)),
    ],
)
def test_addresses_as_people_write_them(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    "text", ["host:port", "host:70000", "::1", "a b:1", "host:-1", "host:99999999999", "host/x", "u@host"]
)
def test_what_is_no_address_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(PenstockError, match="write"):
        parse_address(text)


def test_a_url_may_name_several_brokers() -> None:
    assert parse_url("penstock://a:1,[::1]:2, c/") == [Address("a", 1), Address("::1", 2), Address("c", 7420)]
    assert parse_url("127.0.0.1:7421") == [Address("127.0.0.1", 7421)]
    assert parse_url(" localhost ") == [Address("localhost", 7420)]
    assert parse_url("a:1,b") == [Address("a", 1), Address("b", 7420)]
    assert parse_url("penstock://a:1,penstock://b") == [Address("a", 1), Address("b", 7420)]
    for wrong in ("http://a:1", "penstock://a,http://b", "penstock://", "penstock://,", ""):
        with pytest.raises(PenstockError, match="write penstock://"):
            parse_url(wrong)


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        (18420, "write the text '127.0.0.1:18420'"),
        (Address("b", 7421), "write the text 'b:7421'"),
        (["a", "b"], "such as 'penstock://127.0.0.1:7420'"),
    ],
)
def test_what_is_no_text_is_no_url_and_the_error_says_how_to_write_it(given: Any, advice: str) -> None:
    with pytest.raises(PenstockError, match=advice):
        penstock.connect(given)
    with pytest.raises(PenstockError, match="a name is a text"):
        penstock.connect(name=given)


def test_free_ports_differ() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20


def test_ports_are_given_out_in_order_and_those_of_the_file_are_kept() -> None:
    brokers = (BrokerSpec(name="a"), BrokerSpec(name="b", listen="10.0.0.1:7421"), BrokerSpec(name="c"))
    scenario = Scenario(name="n", duration=1.0, broker=brokers)
    assert assign_addresses(scenario) == {
        "a": Address("127.0.0.1", 7420),
        "b": Address("10.0.0.1", 7421),
        "c": Address("127.0.0.1", 7422),
    }
    with pytest.raises(InvalidScenario, match="smaller"):
        assign_addresses(scenario, base_port=65_535)


def test_of_two_linked_brokers_the_first_dials() -> None:
    scenario = a_line("a", "b", "c")
    addresses = assign_addresses(scenario)
    dials = {
        name: {n.name: n.dials for n in plan_for(scenario, name, addresses).neighbours} for name in ("a", "b", "c")
    }
    assert dials == {"a": {"b": addresses["b"]}, "b": {"a": None, "c": addresses["c"]}, "c": {"b": None}}
    with pytest.raises(InvalidScenario, match="no broker 'd'"):
        plan_for(scenario, "d", addresses)


@pytest.mark.parametrize("listen", ["nowhere", "host:0", "host:x", ":7420", "host:123456"])
def test_a_file_with_a_bad_address_is_refused(listen: str) -> None:
    text = f'name = "n"\nduration = 1\n[[broker]]\nname = "a"\nlisten = "{listen}"\n'
    with pytest.raises(InvalidScenario, match="host:port"):
        parse_scenario(text.encode())


def test_what_real_time_leaves_out_is_said() -> None:
    assert not_applied(a_line("a", "b")) == []
    assert not_applied(a_line("a", "b", delay=0.5)) == []
    assert not_applied(a_line("a", "b", loss=0.5)) == ["jitter and loss of datagram links"]


def test_everything_that_a_file_asks_for_is_applied_or_is_not_and_it_says_why() -> None:
    town = read_scenario(Path(__file__).parents[2] / "networks" / "town.toml")
    rows = {row.setting: row for row in settings_applied(town)}
    assert all(row.why for row in rows.values())
    assert {name for name, row in rows.items() if row.applied} >= {"links", "rates and queues of links"}
    assert not rows["subscriptions and publications of clients"].applied
    alike = settings_applied(town, emulated=True)
    assert next(row for row in alike if row.setting.startswith("subscriptions")).applied
    assert [row.applied for row in alike] == sorted((row.applied for row in alike), reverse=True)


@pytest.mark.parametrize(
    ("changes", "setting", "applied"),
    [
        ({"lanes": {"priced": LaneSpec(weight=2)}}, "lanes", True),
        ({"encoding": EncodingSpec(bits=1024)}, "encoding", True),
        ({"services": {"routing": RoutingConfig()}}, "settings of services", True),
        ({"broker": (BrokerSpec(name="a", listen="127.0.0.1:7430"),)}, "addresses of brokers", True),
        ({"broker": (BrokerSpec(name="a", workers=3),)}, "workers and service times", False),
        ({"broker": (BrokerSpec(name="a", disk_delay=0.1),)}, "delays of disks", False),
        ({"broker": (BrokerSpec(name="a", joins_at=1.0),)}, "faults", False),
        ({"client": (ClientSpec(name="c", broker="a", clock_offset=1.0),)}, "clocks", False),
        ({"client": (ClientSpec(name="c", broker="a", access_delay=1.0),)}, "access delays of clients", False),
        ({"client": (ClientSpec(name="c", broker="a", queue_packets=9),)}, "rates and queues of clients", True),
        ({"tcp": (TcpSpec(name="t", path=("a", "b")),)}, "TCP flows beside the brokers", False),
        ({"fault": (FaultSpec(at=1.0, kind="heal"),)}, "faults", False),
    ],
)
def test_what_is_not_asked_for_is_not_listed(changes: dict[str, Any], setting: str, applied: bool) -> None:
    plain = Scenario(name="s", duration=1.0, broker=(BrokerSpec(name="a"),))
    assert settings_applied(plain) == []
    assert {row.setting: row.applied for row in settings_applied(replace(plain, **changes))}[setting] is applied


def test_the_script_is_what_the_simulator_publishes() -> None:
    flows = (
        PublisherSpec(rate_messages_per_s=30, arrivals="poisson", attributes={"n": Recipe(integer=(0, 10**6))}),
        PublisherSpec(rate_messages_per_s=17, rate_end_messages_per_s=40, attributes={"x": Recipe(uniform=(0, 1))}),
    )
    client = ClientSpec(name="c", broker="b", publish=flows)
    scenario = Scenario(name="s", duration=3.0, broker=(BrokerSpec(name="b"),), client=(client,))
    published: list[tuple[float, Record]] = []

    class Kept:
        def write(self, time: float, node: str, record: Record) -> None:
            if isinstance(record, Published):
                published.append((time, record))

    simulate(scenario, 5, trace=Kept())
    lines = [
        (line.time, published_record(make_message(Identity("c", 1, count), line.attributes, line.body)))
        for count, line in enumerate(script(client, 3.0, 5), start=1)
    ]
    assert len(lines) > 100
    assert lines == published


def test_a_delay_that_the_file_names_is_applied_and_the_unsaid_millisecond_is_not() -> None:
    addresses = assign_addresses(a_line("a", "b"), base_port=None)
    [near] = plan_for(a_line("a", "b"), "a", addresses).neighbours
    [far] = plan_for(a_line("a", "b", delay=0.05), "a", addresses).neighbours
    assert (near.delay, far.delay) == (0.0, 0.05)
