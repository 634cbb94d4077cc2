"""The scenario reader: what it reads means what it says; every mistake is named with its place and how to mend it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.errors import InvalidScenario
from penstock.kernel.packet import Lane
from penstock.kernel.queue import LaneBounds, Overflow, QueueConfig
from penstock.overlay.config import BrokerConfig, RoutingConfig
from penstock.scenario.node_config import broker_config, client_config
from penstock.scenario.reader import FILE_BYTES_MAX, parse_scenario, read_scenario, typed
from penstock.scenario.spec import BrokerSpec, Scenario
from penstock.scenario.validate import BROKERS_MAX, validate
from penstock.streams.config import StreamsClientConfig, StreamsConfig
from penstock.transport.config import TransportConfig

ROOT = Path(__file__).parents[3]
GOOD = """
name = "pair"
duration = 10

[[broker]]
name = "a"
[[broker]]
name = "b"
[[link]]
between = ["a", "b"]
[[client]]
name = "c"
broker = "a"
[[client.subscribe]]
where = "n > 1"
[[client.publish]]
rate_messages_per_s = 5
[client.publish.attributes]
n = 1
[[fault]]
at = 1
kind = "crash"
broker = "b"
"""


def refusal(text: str | bytes) -> InvalidScenario:
    with pytest.raises(InvalidScenario) as caught:
        parse_scenario(text if isinstance(text, bytes) else text.encode())
    return caught.value


def changed(old: str, new: str) -> str:
    assert GOOD.count(old) == 1, old
    return GOOD.replace(old, new)


def test_a_file_that_does_not_say_how_long_runs_for_ten_seconds() -> None:
    assert parse_scenario(changed("duration = 10\n", "").encode()).duration == 10.0


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("networks/twon.toml", "; did you mean networks/town.toml?"),
        ("networks/town", "; did you mean networks/town.toml?"),
        ("town.toml", "; did you mean networks/town.toml?"),
        ("network/town.toml", "; did you mean networks/town.toml?"),
        ("my.tml", "; did you mean my.toml?"),
        ("nothing-like-it.toml", ""),
    ],
)
def test_for_a_file_that_is_not_there_a_similar_one_is_named(
    given: str, meant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "networks").mkdir()
    (tmp_path / "networks" / "town.toml").write_text(GOOD)
    (tmp_path / "my.toml").write_text(GOOD)
    with pytest.raises(InvalidScenario) as caught:
        read_scenario(Path(given))
    assert str(caught.value) == f"{given}: cannot be read: No such file or directory{meant}"


def test_a_good_scenario_is_read() -> None:
    scenario = parse_scenario(GOOD.encode())
    assert [broker.name for broker in scenario.broker] == ["a", "b"]
    assert scenario.client[0].publish[0].attributes == {"n": 1}


def test_settings_and_options_of_services_are_read_as_their_services_want_them() -> None:
    text = changed("duration = 10", "duration = 10\nservices.routing.hello_interval = 0.25")
    text = text.replace('where = "n > 1"', 'where = "n > 1"\nordered = true\nreads_messages_per_s = 5\nqueue_max = 7')
    text = text.replace('broker = "a"\n', 'broker = "a"\ntransport = {latch = "static"}\n')
    scenario = parse_scenario(text.encode())
    assert scenario.services == {"routing": RoutingConfig(hello_interval=0.25)}
    assert scenario.client[0].services == {"transport": TransportConfig(latch="static")}
    (subscription,) = scenario.client[0].subscribe
    assert (subscription.options, subscription.reads_messages_per_s, subscription.queue_max) == (
        {"ordered": True},
        5,
        7,
    )


STREAMS = changed(
    "[[fault]]",
    """stream = "orders"
key = "k"
repeats = 0.5
[[client.subscribe]]
where = "n = 1"
stream = "orders"
durable = "billing"
start_at = "earliest"
ack = "manual"
from_kept = true
acknowledge_every = 3
[client.streams]
window = 5
[[stream]]
name = "orders"
at = ["b", "a", "b"]
[services.streams]
cache_bytes = 5000
[[fault]]""",
).replace("[client.publish.attributes]\nn = 1\n", "attributes = {n = 1}\n")


def test_streams_are_declared_in_one_place_and_become_settings_of_brokers() -> None:
    scenario = parse_scenario(STREAMS.encode())
    config = broker_config(scenario).services["streams"]
    assert config == StreamsConfig(declared={"orders": ("b", "a", "b")}, cache_bytes=5000)
    (client,) = scenario.client
    assert client_config(scenario, client).services["streams"] == StreamsClientConfig(window=5)
    (flow,) = client.publish
    assert (flow.options, flow.repeats) == ({"stream": "orders", "key": "k"}, 0.5)
    durable = client.subscribe[1]
    assert (durable.options["durable"], durable.from_kept, durable.acknowledge_every) == ("billing", True, 3)


@pytest.mark.parametrize(
    ("old", "new", "where", "problem"),
    [
        ('at = ["b", "a", "b"]', 'at = ["b", "c"]', "stream[0].at", "there is no broker 'c'"),
        ('at = ["b", "a", "b"]', "at = []", "stream[0].at", "0 brokers; name between 1 and 64"),
        ('at = ["b", "a", "b"]', "", "stream[0]", "the key 'at' is missing"),
        ('name = "orders"', 'name = "or ders"', "stream[0].name", "may have letters"),
        ('name = "orders"', 'nmae = "orders"', "stream[0]", "did you mean 'name'"),
        (
            "[services.streams]",
            '[[stream]]\nname = "orders"\nat = ["a"]\n[services.streams]',
            "stream[1].name",
            "stream[0]",
        ),
        ("cache_bytes = 5000", "declared = {orders = ['a']}", "services.streams.declared", "[[stream]]"),
        ("cache_bytes = 5000", "cache_bytes = 0", "services.streams", "must be above 0"),
        ('durable = "billing"\n', "", "client[0] (c).subscribe[1].from_kept", "give it one"),
        ("acknowledge_every = 3", "acknowledge_every = 0", "client[0] (c).subscribe[1].acknowledge_every", "between 1"),
        ('stream = "orders"\nkey', "key", "client[0] (c).publish[0].repeats", "name it"),
        ("repeats = 0.5", "repeats = 2.0", "client[0] (c).publish[0].repeats", "between 0 and 1"),
        ('key = "k"', 'publication_id = "x"', "client[0] (c).publish[0].publication_id", "each has one of its own"),
        ('stream = "orders"\nkey', 'stream = "order"\nkey', "client[0] (c).publish[0].stream", "did you mean 'orders'"),
        ('stream = "orders"\ndur', 'stream = "x"\ndur', "client[0] (c).subscribe[1].stream", "there is no stream 'x'"),
        ('stream = "orders"\ndur', "dur", "client[0] (c).subscribe[1].stream", "is missing"),
        (
            'durable = "billing"\nstart_at = "earliest"\nack = "manual"\nfrom_kept = true\n',
            "",
            "client[0] (c).subscribe[1].durable",
            "is missing",
        ),
        ("window = 5", "widnow = 5", "client[0] (c).streams", "did you mean 'window'"),
    ],
)
def test_mistakes_about_streams_are_named_with_their_places(old: str, new: str, where: str, problem: str) -> None:
    assert STREAMS.count(old) == 1
    caught = refusal(STREAMS.replace(old, new))
    assert caught.where == where
    assert problem in caught.problem


@pytest.mark.parametrize(
    ("fault", "where", "problem"),
    [
        ('kind = "disk_flip"', "fault[0].broker", "needs the name of a broker"),
        ('kind = "client_crash"\nclient = "d"', "fault[0].client", "there is no client 'd'"),
        ('kind = "move"\nclient = "d"\nbroker = "a"', "fault[0].client", "there is no client 'd'"),
        ('kind = "move"\nclient = "d"', "fault[0].broker", "needs the name of a broker"),
        ('kind = "link_down"\nlink = ["a", "b"]\ntowards = "c"', "fault[0].towards", "towards 'a' or 'b'"),
        (
            'kind = "link_rate"\nlink = ["a", "b"]\nrate_bits_per_s = 1.0\ntowards = "a"',
            "fault[0].towards",
            "down or up",
        ),
        ('kind = "link_down"\nlink = ["c", "b"]', "fault[0].link", "no link joins 'c' and 'b'"),
        ('kind = "link_down"\nlink = ["d", "b"]', "fault[0].link", "there is no broker or client 'd'"),
    ],
)
def test_mistakes_about_faults_are_named_with_their_places(fault: str, where: str, problem: str) -> None:
    caught = refusal(changed('kind = "crash"\nbroker = "b"', fault))
    assert caught.where == where
    assert problem in caught.problem


def test_the_connection_of_a_client_is_a_link_that_may_fail() -> None:
    fault = 'kind = "link_down"\nlink = ["c", "a"]\ntowards = "a"'
    assert parse_scenario(changed('kind = "crash"\nbroker = "b"', fault).encode()).fault[0].towards == "a"


@pytest.mark.parametrize("key", ["duplicate", "reorder"])
def test_a_reliable_link_neither_duplicates_nor_reorders(key: str) -> None:
    link = f'between = ["a", "b"]\n{key} = 0.5'
    assert getattr(parse_scenario(changed('between = ["a", "b"]', link).encode()).link[0], key) == 0.5
    caught = refusal(changed('between = ["a", "b"]', link + '\nkind = "reliable"'))
    assert caught.where == f"link[0].{key}"


def test_settings_from_python_may_be_plain_data_or_what_their_services_want() -> None:
    given = {"routing": {"hello_interval": 0.25}, "forwarding": BrokerConfig(clients_max=3)}
    scenario = Scenario(name="x", duration=1.0, broker=(BrokerSpec(name="a"),), services=given)
    validate(scenario)
    routing = RoutingConfig(hello_interval=0.25)
    assert typed(scenario).services == {"routing": routing, "forwarding": BrokerConfig(clients_max=3)}
    assert typed(typed(scenario)) == typed(scenario)
    with pytest.raises(InvalidScenario, match=r"services\.routing"):
        validate(replace(scenario, services={"routing": BrokerConfig()}))


def test_lanes_of_a_file_are_those_of_all_nodes() -> None:
    text = changed(
        "duration = 10", "duration = 10\nlanes.priced = {overflow = 'hold', weight = 3, bytes_max = 2097152}"
    )
    scenario = parse_scenario(text.encode())
    for config in (broker_config(scenario), client_config(scenario, scenario.client[0])):
        assert config.queues.held_lanes == (Lane.PRICED,)
        assert config.queues.lanes[Lane.PRICED] == LaneBounds(overflow=Overflow.HOLD, weight=3, bytes_max=2 << 20)
        assert config.queues.lanes[Lane.STREAM] == LaneBounds()
        assert config.queues.lanes[Lane.CONTROL] == QueueConfig().lanes[Lane.CONTROL]


@pytest.mark.parametrize("path", sorted((ROOT / "networks").glob("*.toml")), ids=lambda path: path.name)
def test_every_network_that_comes_with_penstock_is_read(path: Path) -> None:
    assert read_scenario(path).name == path.stem


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidScenario, match=r"nowhere\.toml: cannot be read"):
        read_scenario(tmp_path / "nowhere.toml")


def test_a_mistake_in_a_file_is_named_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(changed("duration = 10", "duration = -1"))
    with pytest.raises(InvalidScenario, match=r"bad\.toml: duration: is -1"):
        read_scenario(path)


@pytest.mark.parametrize(
    ("old", "new", "where", "advice"),
    [
        ("duration = 10", "duration = 10\ndrian = 3", "", "unknown key 'drian'; did you mean 'drain'?"),
        ("duration = 10", "duration = 10\nstore = 'here'", "store", "a folder is named with --data"),
        ('name = "b"', 'name = "b"\nworker = 3', "broker[1]", "did you mean 'workers'?"),
        ('between = ["a", "b"]', 'between = ["a", "b"]\nrate = 3', "link[0]", "unknown key 'rate'"),
        ('where = "n > 1"', 'where = "n > 1"\nstar = 3', "client[0].subscribe[0]", "did you mean 'start'?"),
        ("rate_messages_per_s = 5", "rate_message_per_s = 5", "client[0].publish[0]", "did you mean"),
        ("n = 1\n", "n = {choos = [1]}\n", "client[0].publish[0].attributes", "did you mean 'choose'?"),
        ("at = 1\n", "at = 1\nbrokr = 'b'\n", "fault[0]", "did you mean 'broker'?"),
        ("duration = 10", "duration = 10\nencoding = {bit = 3}", "encoding", "did you mean 'bits'?"),
        ("duration = 10", "duration = 10\nzzz = 3", "", "the keys here are name, duration"),
        (
            "duration = 10",
            "duration = 10\nservices = {routing = {helo_interval = 1.0}}",
            "services.routing",
            "did you mean 'hello_interval'?",
        ),
        (
            'broker = "a"',
            'broker = "a"\ntransport = {latchh = "static"}',
            "client[0] (c).transport",
            "did you mean 'latch'?",
        ),
        ("duration = 10", "duration = 10\nlanes = {priced = {over = 'hold'}}", "lanes", "did you mean 'overflow'?"),
        ('where = "n > 1"', 'where = "n > 1"\nordred = true', "client[0].subscribe[0]", "did you mean 'ordered'?"),
        ('broker = "a"', 'broker = "a"\ntransprt = {}', "client[0]", "did you mean 'transport'?"),
        ('where = "n > 1"', 'where = "n > 1"\nxyz = 1', "client[0].subscribe[0]", "ordered, recover, priority"),
    ],
)
def test_an_unknown_key_is_named_with_the_one_it_was_probably_meant_to_be(
    old: str, new: str, where: str, advice: str
) -> None:
    error = refusal(changed(old, new))
    assert error.where.startswith(where)
    assert advice in error.problem


@pytest.mark.parametrize(
    ("old", "new", "where", "problem"),
    [
        ('name = "b"\n', "workers = 3\n", "broker[1]", "the key 'name' is missing"),
        ("duration = 10", "duration = 'long'", "duration", "expected `float`, got `str`"),
        ("duration = 10", "duration = nan", "duration", "is nan"),
        ("duration = 10", "duration = inf", "duration", "is inf"),
        ("duration = 10", "duration = 0", "duration", "more than 0"),
        ("duration = 10", "duration = 1e9", "duration", "at most 86400"),
        ("duration = 10", f"duration = {'9' * 400}", "duration", ""),
        ("duration = 10", "duration = 10\ndrain = -1", "drain", "at least 0"),
        ("duration = 10", "duration = 10\nencoding = {bits = 100}", "encoding.bits", "multiple of 64"),
        ("duration = 10", "duration = 10\nencoding = {hashes = 99}", "encoding.hashes", "between 1 and 16"),
        ("duration = 10", "duration = 10\ncheck = ['at-most-onec']", "check[0]", "did you mean 'at-most-once'?"),
        ("duration = 10", "duration = 10\ncheck = ['x']", "check[0]", "choose one of 'at-most-once'"),
        ('name = "b"', 'name = "a"', "broker[1].name", "taken by broker[0].name"),
        ('name = "c"', 'name = "a"', "client[0].name", "taken by broker[0].name"),
        ('name = "b"', 'name = ""', "broker[1].name", "between 1 and 64 bytes"),
        ('name = "b"', f'name = "{"é" * 33}"', "broker[1].name", "between 1 and 64 bytes"),
        ('name = "b"', 'name = "b"\nworkers = 0', "broker[1] (b).workers", "between 1 and 1000"),
        ('name = "b"', 'name = "b"\nworkers = 1.5', "broker[1].workers", "expected `int`"),
        ('name = "b"', 'name = "b"\nservice_mean = -0.1', "broker[1] (b).service_mean", "at least 0"),
        ('name = "b"', 'name = "b"\nclock_drift = 2.0', "broker[1] (b).clock_drift", "at most 0.1"),
        ('between = ["a", "b"]', 'between = ["a", "bee"]', "link[0].between", "there is no broker 'bee'"),
        ('between = ["a", "b"]', 'between = ["a", "a"]', "link[0].between", "joins 'a' to itself"),
        ('between = ["a", "b"]', 'between = ["a"]', "link[0].between", "expected `array` of length 2"),
        (
            'between = ["a", "b"]',
            'between = ["a", "b"]\n[[link]]\nbetween = ["b", "a"]',
            "link[1].between",
            "link[0] joins these two already",
        ),
        (
            'between = ["a", "b"]',
            'between = ["a", "b"]\nrate_bits_per_s = -5',
            "link[0].rate_bits_per_s",
            "more than 0",
        ),
        ('between = ["a", "b"]', 'between = ["a", "b"]\nrate_bits_per_s = 0', "link[0].rate_bits_per_s", "more than 0"),
        ('between = ["a", "b"]', 'between = ["a", "b"]\nrate_bits_per_s = nan', "link[0].rate_bits_per_s", "is nan"),
        ('between = ["a", "b"]', 'between = ["a", "b"]\ndelay = -1', "link[0].delay", "at least 0"),
        ('between = ["a", "b"]', 'between = ["a", "b"]\njitter = 1', "link[0].jitter", "at most 0.001"),
        ('between = ["a", "b"]', 'between = ["a", "b"]\nloss = 1.1', "link[0].loss", "at most 1"),
        ('between = ["a", "b"]', 'between = ["a", "b"]\nqueue_packets = 0', "link[0].queue_packets", "between 1"),
        ('between = ["a", "b"]', 'between = ["a", "b"]\ncost = 0', "link[0].cost", "between 1 and 65535"),
        (
            'between = ["a", "b"]',
            'between = ["a", "b"]\nkind = "udp"',
            "link[0].kind",
            "is 'udp'; choose one of 'datagram', 'shaped', 'reliable', 'tcp'",
        ),
        ('broker = "a"', 'broker = "aa"', "client[0] (c).broker", "did you mean 'a'?"),
        ('where = "n > 1"', 'where = "n > "', "client[0] (c).subscribe[0].where", "^"),
        ('where = "n > 1"', 'where = "n > 1"\nstart = 5\nstop = 4', "client[0] (c).subscribe[0].stop", "at least 5"),
        (
            "rate_messages_per_s = 5",
            "rate_messages_per_s = -5",
            "client[0] (c).publish[0].rate_messages_per_s",
            "more than 0",
        ),
        ("rate_messages_per_s = 5", "rate_messages_per_s = nan", "client[0] (c).publish[0].rate", "is nan"),
        (
            "rate_messages_per_s = 5",
            "rate_messages_per_s = 5\nrate_end_messages_per_s = 0",
            "client[0] (c).publish[0].rate_end",
            "more than 0",
        ),
        (
            "rate_messages_per_s = 5",
            "rate_messages_per_s = 5\nbody_bytes = 2000000",
            "client[0] (c).publish[0].body_bytes",
            "between 0 and 1048576",
        ),
        ("n = 1\n", "n = 1\n_to = 'x'\n", "client[0] (c).publish[0].attributes._to", "reserved"),
        ("n = 1\n", f"n = {2**63}\n", "client[0] (c).publish[0].attributes.n", "64-bit"),
        ("n = 1\n", "n = nan\n", "client[0] (c).publish[0].attributes.n", "finite"),
        ("n = 1\n", "n = 1979-05-27\n", "client[0].publish[0].attributes", "got `date`"),
        ("n = 1\n", "n = {}\n", "client[0] (c).publish[0].attributes.n", "exactly one of"),
        ("n = 1\n", "n = {choose = [1], chance = 0.5}\n", "client[0] (c).publish[0].attributes.n", "exactly one of"),
        ("n = 1\n", "n = {choose = []}\n", "client[0] (c).publish[0].attributes.n.choose", "between 1 and"),
        ("n = 1\n", "n = {choose = [inf]}\n", "client[0] (c).publish[0].attributes.n", "finite"),
        ("n = 1\n", "n = {chance = 1.5}\n", "client[0] (c).publish[0].attributes.n.chance", "probability"),
        ("n = 1\n", "n = {chance = nan}\n", "client[0] (c).publish[0].attributes.n.chance", "probability"),
        ("n = 1\n", "n = {chance = 0.5, missing = 2}\n", "client[0] (c).publish[0].attributes.n", "probability"),
        ("n = 1\n", "n = {choose = [1], zipf = -1}\n", "client[0] (c).publish[0].attributes.n", "zipf"),
        ("n = 1\n", "n = {uniform = [2, 1]}\n", "client[0] (c).publish[0].attributes.n", "the smaller one first"),
        ("n = 1\n", "n = {uniform = [0, inf]}\n", "client[0] (c).publish[0].attributes.n", "finite"),
        ("n = 1\n", "n = {uniform = [-1.7e308, 1.7e308]}\n", "client[0] (c).publish[0].attributes.n", "finite"),
        ("n = 1\n", f"n = {{integer = [1, {2**63}]}}\n", "client[0] (c).publish[0].attributes.n", "64-bit"),
        ("n = 1\n", f"n = {{integer = [1, {'9' * 400}]}}\n", "client[0] (c).publish[0].attributes.n", ""),
        ("at = 1\n", "at = -1\n", "fault[0].at", "at least 0"),
        ('kind = "crash"\nbroker = "b"', 'kind = "crash"', "fault[0].broker", "needs the name of a broker"),
        ('kind = "crash"\nbroker = "b"', 'kind = "crash"\nbroker = "z"', "fault[0].broker", "there is no broker 'z'"),
        (
            'kind = "crash"\nbroker = "b"',
            'kind = "burn"',
            "fault[0].kind",
            "is 'burn'; choose one of 'crash', 'leave', 'restart'",
        ),
        ('kind = "crash"\nbroker = "b"', 'kind = "link_up"', "fault[0].link", "link = ['a', 'b']"),
        (
            'kind = "crash"\nbroker = "b"',
            'kind = "link_up"\nlink = ["a", "z"]',
            "fault[0].link",
            "there is no broker or client 'z'",
        ),
        (
            'kind = "crash"\nbroker = "b"',
            'kind = "link_up"\nlink = ["a", "a"]',
            "fault[0].link",
            "no link joins 'a' and 'a'",
        ),
        (
            'where = "n > 1"',
            'where = "n > 1"\npriority = 0',
            "client[0] (c).subscribe[0].priority",
            "expected `float` > 0",
        ),
        (
            'where = "n > 1"',
            'where = "n > 1"\npriority = inf',
            "client[0] (c).subscribe[0].priority",
            "expected `float` <= 1000000",
        ),
        (
            'where = "n > 1"',
            'where = "n > 1"\nordered = 3',
            "client[0] (c).subscribe[0].ordered",
            "expected `bool`, got `int`",
        ),
        (
            'where = "n > 1"',
            'where = "n > 1"\nreads_messages_per_s = 0',
            "client[0] (c).subscribe[0].reads_messages_per_s",
            "more than 0",
        ),
        ('where = "n > 1"', 'where = "n > 1"\nqueue_max = 0', "client[0] (c).subscribe[0].queue_max", "between 1"),
        ('where = "n > 1"', 'where = "n > 1"\noptions = {ordered = true}', "", "is no key of a file"),
        ('broker = "a"', 'broker = "a"\nservices = {transport = {}}', "", "is no key of a file"),
        ('broker = "a"', 'broker = "a"\ntransport = 3', "client[0] (c).transport", "expected `object`"),
        (
            'broker = "a"',
            'broker = "a"\ntransport = {latch = "x"}',
            "client[0] (c).transport.latch",
            "is 'x'; choose one of 'two-laplace'",
        ),
        (
            'broker = "a"',
            'broker = "a"\nforwarding = {subscriptions_max = 0}',
            "client[0] (c).forwarding",
            "subscriptions_max must be at least 1",
        ),
        ("duration = 10", "duration = 10\nservices = 3", "services", "expected `object`"),
        ("duration = 10", "duration = 10\nservices.routing = 3", "services.routing", "expected `object`"),
        (
            "duration = 10",
            "duration = 10\nservices.routing.hello_interval = 3.0",
            "services.routing",
            "intervals must grow",
        ),
        (
            "duration = 10",
            "duration = 10\nservices.rooting.hello_interval = 3.0",
            "services.rooting",
            "no service 'rooting' has settings; did you mean 'routing'?",
        ),
        (
            "duration = 10",
            "duration = 10\nservices.transport.latch = 'static'",
            "services.transport",
            "no service 'transport' has settings",
        ),
        (
            "duration = 10",
            "duration = 10\nlanes.priced.overflow = 'x'",
            "lanes",
            "is 'x'; choose one of 'drop', 'hold'",
        ),
        ("duration = 10", "duration = 10\nlanes.priced.weight = 0", "lanes.priced.weight", "between 1 and 1000"),
        ("duration = 10", "duration = 10\nlanes.priced.bytes_max = 9", "lanes.priced.bytes_max", "between 4096"),
        (
            "duration = 10",
            "duration = 10\nlanes.control.weight = 2",
            "",
            "is 'control'; choose one of 'stream', 'priced'",
        ),
        (
            'kind = "crash"',
            'kind = "crash"\ntail = "half"',
            "fault[0].tail",
            "is 'half'; choose one of 'lost', 'kept', 'torn'",
        ),
        ('kind = "crash"\nbroker = "b"', 'kind = "disk_full"', "fault[0].broker", "needs the name of a broker"),
        ('kind = "crash"', 'kind = "disk_slow"\nseconds = -1', "fault[0].seconds", "at least 0"),
        ('kind = "crash"\nbroker = "b"', 'kind = "partition"', "fault[0].group", "group = [...]"),
        ('kind = "crash"\nbroker = "b"', 'kind = "partition"\ngroup = ["x"]', "fault[0].group", "no broker 'x'"),
        (
            'kind = "crash"\nbroker = "b"',
            'kind = "clock_step"\nbroker = "b"\nseconds = 1e5',
            "fault[0].seconds",
            "at most 3600",
        ),
    ],
)
def test_a_mistake_is_named_with_its_place_and_how_to_mend_it(old: str, new: str, where: str, problem: str) -> None:
    error = refusal(changed(old, new))
    assert error.where.startswith(where)
    assert problem in error.problem


def test_text_that_is_no_toml_says_where() -> None:
    assert "line 2" in refusal('name = "x"\nduration = = 3\n').problem


def test_bytes_that_are_no_text_say_so() -> None:
    assert "UTF-8" in refusal(b"name = '\xff'").problem


def test_nesting_without_end_is_refused() -> None:
    assert "nested too deeply" in refusal("a = " + "[" * 100_000).problem


def test_a_number_with_thousands_of_digits_is_refused() -> None:
    assert "is not TOML" in refusal("a = " + "9" * 5000).problem


def test_a_file_over_the_limit_is_refused_before_it_is_looked_at() -> None:
    assert "FILE_BYTES_MAX" in refusal(b"#" * (FILE_BYTES_MAX + 1)).problem


def test_a_million_brokers_by_mistake_are_refused() -> None:
    brokers = tuple(BrokerSpec(name=str(number)) for number in range(1_000_000))
    with pytest.raises(InvalidScenario, match="broker: is 1000000; it must be between 1 and 2000"):
        validate(Scenario(name="large", duration=1.0, broker=brokers))


def test_a_few_brokers_too_many_are_refused_in_a_file_too() -> None:
    text = 'name = "large"\nduration = 1\n' + "".join(f'[[broker]]\nname = "{n}"\n' for n in range(BROKERS_MAX + 1))
    assert refusal(text).where == "broker"


def test_no_broker_at_all_is_refused() -> None:
    assert refusal('name = "x"\nduration = 1\nbroker = []').where == "broker"


def test_a_name_built_in_python_that_has_no_utf8_form_is_refused() -> None:
    with pytest.raises(InvalidScenario, match=r"broker\[0\].name"):
        validate(Scenario(name="x", duration=1.0, broker=(BrokerSpec(name="\ud800"),)))


@given(st.binary(max_size=300))
def test_arbitrary_bytes_raise_nothing_but_invalid_scenario(data: bytes) -> None:
    refusal(data)


WORDS = sorted({name for spec in (Scenario, BrokerSpec) for name in spec.__struct_fields__})
TOMLISH = st.lists(
    st.one_of(
        st.sampled_from(
            ["[[", "]]", "[", "]", "{", "}", "=", "\n", '"', "'", ".", ",", "#", "[[broker]]\n", "[[link]]\n"]
        ),
        st.sampled_from([f"{word} = " for word in WORDS]),
        st.sampled_from(["1", "-1", "nan", "inf", "1e999", "true", "''", '"a"', "[]", "{}", "2000-01-01", "25:61:00"]),
        st.text(max_size=4),
    ),
    max_size=30,
).map("".join)


@given(TOMLISH)
@example("a = 1979-13-41")
@example("a = 0001-01-01T00:00:00+23:59")
@example('name = "\\ud800"')
@example("a.b.c = 1\na.b = 2")
def test_text_that_looks_like_toml_raises_nothing_but_invalid_scenario(text: str) -> None:
    refusal(text.encode("utf-8", "surrogatepass"))


SCALARS = st.one_of(
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(["a", "b", "c", "crash", "reliable", "heal", "n > 1", 10**400, -1, 0, 1.5]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["n", "choose"]), inner)),
    max_leaves=5,
)


def tables_of(raw: Any) -> list[dict[str, Any]]:
    """Every table of a scenario, at any depth."""
    found = [raw] if isinstance(raw, dict) else []
    children = raw.values() if isinstance(raw, dict) else raw if isinstance(raw, list) else []
    return found + [table for child in children for table in tables_of(child)]


@given(st.data())
def test_a_good_scenario_with_anything_put_anywhere_is_read_or_refused(data: st.DataObject) -> None:
    raw: dict[str, Any] = msgspec.toml.decode(GOOD)
    for _ in range(data.draw(st.integers(1, 3))):
        table = data.draw(st.sampled_from(tables_of(raw)))
        known = [*table, "start", "stop", "workers", "loss", "jitter", "group", "link", "check", "missing", "uniform"]
        key = data.draw(st.sampled_from(known))
        if data.draw(st.booleans()):
            table[key] = data.draw(VALUES)
        else:
            table.pop(key, None)
    # Through the same door as a file; what TOML cannot write is left out.
    problem = "none"
    try:
        parse_scenario(to_toml(raw).encode())
    except InvalidScenario as error:
        problem = error.problem
    assert problem


def to_toml(raw: dict[str, Any]) -> str:
    """As inline tables: plain enough for any value drawn here."""

    def written(value: Any) -> str:
        if isinstance(value, dict):
            return "{" + ", ".join(f"{written(str(key))} = {written(item)}" for key, item in value.items()) + "}"
        if isinstance(value, list):
            return "[" + ", ".join(map(written, value)) + "]"
        if isinstance(value, str):
            return msgspec.json.encode(value.encode("utf-8", "replace").decode()).decode().replace("\x7f", "")
        return str(value).lower()

    return "".join(f"{key} = {written(value)}\n" for key, value in raw.items())
