"""Retrieval on real sockets: late readers find what was published, over refreshes, kills and moves, nothing twice."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

import penstock
from live_help import BrokerServer, a_line, a_network, run, until, url
from penstock.cli.main import app
from penstock.kernel.trace import Published, Record
from penstock.lab.fast import fast_network
from penstock.lab.fast.fast_network import FastNetwork
from penstock.lab.fast.news_workload import NewsRequest
from penstock.lab.fast.setting import TICKS, NewsSetting
from penstock.live.broker.plan import assign_addresses
from penstock.live.broker.supervisor import Brokers
from penstock.live.client.network import Network
from penstock.live.client.subscription import Subscription
from penstock.retrieval.broker_service import RetrievalBroker
from penstock.retrieval.config import RetrievalClientConfig, RetrievalConfig
from penstock.retrieval.interest import EVERYTHING, LooseInterest, PublishedItem
from penstock.retrieval.records import ItemRetrieved
from penstock.scenario.spec import ClientSpec, Scenario, SubscriptionSpec
from penstock.scenario.workload import PublisherSpec
from penstock.sim.run import simulate
from penstock.testing import embedded_network, embedded_network_blocking

SHORT = 0.3  # seconds of a lifetime; nothing depends on how long it really is
QUICK = RetrievalClientConfig(answer_time=0.3, retry=0.2)


def a_line_of(*names: str, **changed: object) -> Scenario:
    settings = RetrievalConfig(**{"lifetime_min": 0.1, "moved_slack": 0.05, **changed})  # type: ignore[arg-type]
    return replace(a_line(*names, kind="reliable"), services={"retrieval": settings})


async def publish(network: Network, *numbers: int) -> None:
    for number in numbers:
        await network.publish({"topic": "news", "n": number}, b"headline")


async def numbers(items: Subscription, count: int) -> list[object]:
    return [(await anext(items)).attributes["n"] for _ in range(count)]


def cached(server: BrokerServer) -> int:
    return server.node.machine(RetrievalBroker).status().cached


def test_a_late_reader_gets_what_was_published_the_freshest_first_and_no_more_than_it_asked_for() -> None:
    async def late() -> None:
        async with (
            a_network(a_line_of("a", "b", "c")) as brokers,
            penstock.connect(url(brokers["a"])) as writer,
            penstock.connect(url(brokers["c"]), retrieval=QUICK) as reader,
        ):
            await publish(writer, *range(5))
            await until(lambda: cached(brokers["a"]) == 5)
            once = reader.retrieve("topic = 'news'", max=3, lifetime=0)
            assert [message.attributes["n"] async for message in once] == [4, 3, 2]
            everything = [message.attributes["n"] async for message in reader.retrieve("TRUE", max="all", lifetime=0)]
            assert sorted(everything) == [0, 1, 2, 3, 4]  # type: ignore[type-var]
            assert [one async for one in reader.retrieve("topic = 'sport'", lifetime=0)] == []

    run(late())


def test_successive_lifetimes_bring_each_item_once() -> None:
    async def successive() -> None:
        async with (
            a_network(a_line_of("a", "b")) as brokers,
            penstock.connect(url(brokers["a"])) as writer,
            penstock.connect(url(brokers["b"])) as reader,
        ):
            await publish(writer, *range(6))
            await until(lambda: cached(brokers["a"]) == 6)
            async with reader.retrieve("topic = 'news'", max=2, lifetime=SHORT) as items:
                assert await numbers(items, 2) == [5, 4]
                assert await numbers(items, 4) == [3, 2, 1, 0]
                await publish(writer, 6)
                assert await numbers(items, 1) == [6]
                report = items.report().services["retrieval"]
                assert report["lifetime"] >= 3
                assert report["items_in_all"] == 7

    run(successive())


@pytest.mark.parametrize("lifetime", [None, True, 1e-12, -1.0, float("nan"), float("inf")])
def test_what_is_no_length_of_time_is_refused_and_not_taken_for_0(lifetime: Any) -> None:
    network = penstock.connect("penstock://127.0.0.1:1")
    with pytest.raises(penstock.InvalidOption, match="lifetime"):
        network.retrieve("TRUE", lifetime=lifetime)


def test_all_items_of_a_lifetime_come_at_its_end_if_that_is_asked_for() -> None:
    async def came() -> None:
        async with a_network(a_line_of("a")) as brokers, penstock.connect(url(brokers["a"])) as both:
            await publish(both, 1)
            await until(lambda: cached(brokers["a"]) == 1)
            async with both.retrieve("topic = 'news'", lifetime=SHORT, refresh=False, at_end=True) as items:
                await publish(both, 2)
                assert sorted(await numbers(items, 2)) == [1, 2]  # type: ignore[type-var]
                with pytest.raises(StopAsyncIteration):
                    await anext(items)  # the lifetime is over

    run(came())


def test_a_broker_that_is_killed_and_restarted_still_has_its_items_and_repeats_none(tmp_path: Path) -> None:
    async def killed() -> None:
        scenario = a_line_of("a", stored=True)
        addresses = assign_addresses(scenario, base_port=None)
        async with Brokers(scenario, addresses, data=tmp_path) as brokers:
            where = f"penstock://{addresses['a']}"
            async with penstock.connect(where, name="w") as writer, penstock.connect(where, name="r") as reader:
                await publish(writer, *range(6))
                async with reader.retrieve("topic = 'news'", max=2, lifetime=SHORT) as items:
                    got = await numbers(items, 2)
                    await brokers.kill("a", restart=True)
                    got += await numbers(items, 4)
                    assert sorted(got) == [0, 1, 2, 3, 4, 5]  # type: ignore[type-var]
                    assert reader.reconnects == 1

    run(killed())


def test_a_client_that_reconnects_elsewhere_gets_the_rest_and_nothing_again() -> None:
    async def moved() -> None:
        async with (
            embedded_network(a_line_of("a", "b")) as brokers,
            penstock.connect(brokers.urls["b"]) as writer,
            penstock.connect(brokers.url_of("a", "b"), retrieval=QUICK) as reader,
        ):
            await publish(writer, *range(4))
            await until(lambda: cached(brokers.servers["b"]) == 4)
            async with reader.retrieve("topic = 'news'", max=2, lifetime=SHORT) as items:
                got = await numbers(items, 2)
                await brokers.stop("a")
                await reader.wait_connected()
                got += await numbers(items, 2)
                await until(lambda: items.report().services["retrieval"]["moved"] == 1)
                await publish(writer, 4, 5)
                seen: set[object] = set(got)
                while 5 not in seen:
                    one = (await anext(items)).attributes["n"]
                    assert one not in seen
                    seen.add(one)

    run(moved())


def test_what_cannot_be_asked_for_is_refused_with_the_reason() -> None:
    async def refused() -> None:
        limits = {"interests_per_client_max": 1, "lifetime_max": 3_600.0}
        async with a_network(a_line_of("a", **limits)) as brokers, penstock.connect(url(brokers["a"])) as reader:
            with pytest.raises(penstock.PenstockError, match="one must be above 0"):
                reader.retrieve("TRUE", lifetime=0, freshness=0)
            with pytest.raises(penstock.PenstockError, match="above 0, or 'all'"):
                reader.retrieve("TRUE", max=0)
            with pytest.raises(penstock.PenstockError, match="lifetime_max"):
                await reader.retrieve("TRUE", lifetime="36500d").open()
            async with reader.retrieve("TRUE", lifetime="1h"):
                with pytest.raises(penstock.PenstockError, match="interests_per_client_max is 1"):
                    await reader.retrieve("TRUE", lifetime="1h").open()

    run(refused())


def test_fetch_and_sub_on_the_command_line() -> None:
    with embedded_network_blocking(a_line_of("a", "b")) as brokers:
        with penstock.connect_blocking(brokers.urls["a"]) as writer:
            for number in range(3):
                writer.publish({"type": "article", "n": number})
            with writer.retrieve("type = 'article'", max=1, lifetime="1h", freshness="1h") as last_value:
                assert next(iter(last_value)).attributes["n"] == 2
            where = ["--url", brokers.urls["b"], "--json"]
            fetched = CliRunner().invoke(app, ["fetch", "type = 'article'", "--max", "2", "--freshness", "24h", *where])
            assert fetched.exit_code == 0, fetched.output
            lines = [json.loads(line) for line in fetched.stdout.splitlines() if line.startswith("{")]
            assert [line["attributes"]["n"] for line in lines] == [2, 1]
            words = ["sub", "type = 'article'", "--max", "3", "--lifetime", "24h", "--count", "3", *where]
            read = CliRunner().invoke(app, words)
            assert read.exit_code == 0, read.output
            nothing = CliRunner().invoke(app, ["fetch", "type = 'poem'", "--within", "0.1", *where])
            assert nothing.exit_code == 3
            for wrong in (["--all", "--max", "2"], ["--freshness", "0"], ["--freshness", "0.0h"]):
                refused = CliRunner().invoke(app, ["fetch", "TRUE", *wrong, *where])
                assert refused.exit_code == 2, refused.output
                assert wrong[0] in refused.output
        report = CliRunner().invoke(app, ["report", "--url", brokers.urls["a"]])
        assert "retrieval" in report.stdout


# One story in three worlds: six headlines, a reader two brokers away that takes two in each lifetime, somebody else who
# asks once for all of them, and a seventh headline.
READ, ASKED_ONCE = [6, 5, 4, 3, 2, 1, 7], [1, 2, 3, 4, 5, 6]
LIFETIME = 4  # seconds of virtual time


def in_the_simulator() -> tuple[list[int], list[int], list[float]]:
    """What both got, and when headlines were published."""
    news = {"topic": "news"}
    early = PublisherSpec(rate_messages_per_s=2.0, stop=3.0, attributes=news)
    late = PublisherSpec(rate_messages_per_s=1.0, start=19.0, stop=20.0, attributes=news)
    loose = SubscriptionSpec(where="topic = 'news'", start=5.0, options={"max": 2, "lifetime": f"{LIFETIME}s"})
    once = SubscriptionSpec(where="TRUE", start=17.5, options={"all_items": True, "lifetime": "0"})
    scenario = replace(
        a_line_of("a", "b", "c"),
        duration=24.0,
        client=(
            ClientSpec(name="w", broker="a", publish=(early, late)),
            ClientSpec(name="r", broker="c", subscribe=(loose,)),
            ClientSpec(name="q", broker="b", subscribe=(once,)),
        ),
    )
    got: dict[str, list[int]] = {"r": [], "q": []}
    published: list[float] = []

    class Story:
        def write(self, time: float, node: str, record: Record) -> None:
            if isinstance(record, ItemRetrieved):
                got[node].append(record.count)
            elif isinstance(record, Published):
                published.append(time)

    result = simulate(scenario, 7, trace=Story())
    assert result.problems == []
    return got["r"], got["q"], published


class StoryWorkload:
    """The same for the fast network, whose ticks are tenths of a second."""

    def __init__(self, published: list[float]) -> None:
        self.neighbours = [[1], [0, 2], [1]]
        self._ticks = [round(time * TICKS) for time in published]
        self._requests = {
            5 * TICKS: NewsRequest(1, 2, 0, 0, 2, LIFETIME, refreshed=False),
            17 * TICKS + 5: NewsRequest(2, 1, 0, 0, EVERYTHING, 0, refreshed=False),
        }

    def uploads(self, tick: int) -> list[tuple[int, int]]:
        return [(0, 0)] * self._ticks.count(tick)

    def new_requests(self, tick: int, renewed: int) -> list[NewsRequest]:
        return [self._requests[tick]] if tick in self._requests else []

    def after(self, request: NewsRequest) -> NewsRequest | None:
        return dataclasses.replace(request, refreshed=True) if request.lifetime else None


def in_the_fast_network(published: list[float], monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], list[int]]:
    monkeypatch.setattr(fast_network, "NewsWorkload", lambda setting, seed: StoryWorkload(published))
    setting = NewsSetting(routers=3, units=24, freshness=86_400.0, freshness_rule="before request", cursors=True)
    network = FastNetwork(dataclasses.replace(setting, duplicates="proactive", events=1, topics=1), 7)
    got: dict[int, list[int]] = {1: [], 2: []}
    for outlet in network.outlets:
        tallied = outlet.deliver

        def deliver(interest: LooseInterest, item: PublishedItem, tallied: Any = tallied) -> None:
            got[interest.where.chain].append(item.id)  # type: ignore[attr-defined, arg-type]
            tallied(interest, item)

        monkeypatch.setattr(outlet, "deliver", deliver)
    network.run()
    return got[1], got[2]


async def live() -> tuple[list[object], list[object]]:
    async with (
        a_network(a_line_of("a", "b", "c")) as brokers,
        penstock.connect(url(brokers["a"])) as writer,
        penstock.connect(url(brokers["b"]), retrieval=QUICK) as asker,
        penstock.connect(url(brokers["c"])) as reader,
    ):
        await publish(writer, *range(1, 7))
        await until(lambda: cached(brokers["a"]) == 6)
        async with reader.retrieve("topic = 'news'", max=2, lifetime=SHORT) as items:
            read = await numbers(items, 6)
            once = [message.attributes["n"] async for message in asker.retrieve("TRUE", max="all", lifetime=0)]
            await publish(writer, 7)
            return read + await numbers(items, 1), list(once)


def test_the_same_items_come_in_the_simulator_in_the_fast_network_and_live(monkeypatch: pytest.MonkeyPatch) -> None:
    read, once, published = in_the_simulator()
    assert (read, sorted(once)) == (READ, ASKED_ONCE)
    fast_read, fast_once = in_the_fast_network(published, monkeypatch)
    assert (fast_read, sorted(fast_once)) == (READ, ASKED_ONCE)
    live_read, live_once = run(live())
    assert (live_read, sorted(live_once)) == (READ, ASKED_ONCE)  # type: ignore[type-var]
