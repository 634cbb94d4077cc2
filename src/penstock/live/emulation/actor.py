"""One client of a scenario in real time: it publishes its script and holds its subscriptions, as the file says.

What it publishes to a stream is not waited for: the next line of the script comes when its time has come. A reader of
a stream keeps its position in a notebook under its durable name; one that the file lets begin there (`from_kept`) finds
what the reader before it has kept, in whatever client.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from penstock.content.message import Identity, Message
from penstock.errors import NotConnected, StreamError, StreamGap
from penstock.kernel.randomness import generator
from penstock.live.client.network import Network
from penstock.live.client.shared_subscription import SharedSubscription
from penstock.live.client.stream_subscription import StreamSubscription
from penstock.live.client.subscription import Report, Subscription
from penstock.scenario.script import Line, script
from penstock.scenario.spec import ClientSpec, Scenario, SubscriptionSpec
from penstock.scenario.stream_tally import StreamTallies, tally_of
from penstock.streams.message import StreamMessage
from penstock.streams.packets import Position

Notebook = dict[tuple[str, str], tuple[Position, ...]]  # (stream, durable name) -> what its last reader has kept


@dataclass
class Tally:
    """What one client did and got."""

    published: int = 0
    refused: int = 0
    delivered: int = 0
    reports: dict[int, Report] = field(default_factory=dict)  # of its subscriptions, at the end; not those of streams
    delays: list[float] = field(default_factory=list)  # of what it got, from publish() on
    per_second: Counter[int] = field(default_factory=Counter)
    deliveries: list[tuple[int, str, int]] = field(default_factory=list)  # (subscription, publisher, count)
    drops: dict[tuple[str, str, str], int] = field(default_factory=dict)  # (peer, place, cause) -> packets
    streams: StreamTallies = field(default_factory=dict)


class Actor:
    """One client of the scenario."""

    def __init__(
        self,
        spec: ClientSpec,
        scenario: Scenario,
        seed: int,
        network: Network,
        sent_at: dict[Identity, float],
        notebook: Notebook,
    ) -> None:
        self.spec = spec
        self.tally = Tally()
        self.numbers = range(len(spec.subscribe))
        self._lines = script(spec, scenario.duration, seed)
        self._end = scenario.duration
        self._waiting = [  # flows whose application awaits publish(), and with how many messages at once
            (script(spec, scenario.duration, seed, number), one.waits)
            for number, one in enumerate(spec.publish)
            if one.waits
        ]
        self._network = network
        self._sent_at = sent_at
        self._notebook = notebook
        self._random = generator(seed, spec.name, "shared")
        self._storing: set[asyncio.Task[None]] = set()
        # All made now, so that their numbers are those of the file, as in the simulator.
        self._subscriptions = [self._subscription(one) for one in spec.subscribe]

    def _subscription(self, one: SubscriptionSpec) -> Subscription | StreamSubscription:
        options = dict(one.options)
        stream = options.pop("stream", "")
        if not stream:
            return self._network.subscribe(one.where, queue_max=one.queue_max, **options)
        start = options.pop("start_at", "") or "latest"
        made: StreamSubscription = self._network.stream(stream).subscribe(one.where, start=start, **options)
        return made

    async def read(self, start: float, number: int) -> None:
        """Hold one subscription from its start to its stop."""
        spec, subscription = self.spec.subscribe[number], self._subscriptions[number]
        await until_time(start + spec.start)
        if spec.stop is not None:
            asyncio.get_running_loop().call_later(
                max(0.0, start + spec.stop - time.monotonic()), lambda: asyncio.ensure_future(subscription.close())
            )
        if isinstance(subscription, StreamSubscription):
            await self._read_stream(subscription, spec, number, start)
            return
        async with subscription:
            async for message in subscription:
                self._came(message, number, start)
                await _rest(spec)

    async def _read_stream(
        self, subscription: StreamSubscription, spec: SubscriptionSpec, number: int, start: float
    ) -> None:
        name = (subscription.stream, subscription.durable)
        if spec.from_kept:
            subscription._present(self._notebook.get(name, ()))
        unacknowledged = 0
        async with subscription:
            while True:
                try:
                    message = await anext(subscription, None)
                except StreamGap:
                    continue  # the trace has it
                if message is None:
                    return
                self._came(message, number, start)
                tally = tally_of(self.tally.streams, *name)
                tally.read += 1
                if message.identity in self._sent_at:
                    tally.delays.append(time.monotonic() - self._sent_at[message.identity])
                self._notebook[name] = subscription.positions()
                unacknowledged += 1
                if isinstance(subscription, SharedSubscription):
                    await self._settle(subscription, spec, message)
                elif subscription.options.ack == "manual" and unacknowledged >= spec.acknowledge_every:
                    unacknowledged = 0
                    await subscription.ack(message)
                await _rest(spec)

    async def _settle(self, subscription: SharedSubscription, spec: SubscriptionSpec, message: StreamMessage) -> None:
        """A member is done with a message, rejects it, or forgets to say anything."""
        chance = self._random.random()
        if chance < spec.rejects:
            await subscription.reject(message)
        elif chance < spec.rejects + spec.forgets:
            subscription._forget(message)
        else:
            await subscription.ack(message)

    def _came(self, message: Message, number: int, start: float) -> None:
        now, identity, tally = time.monotonic(), message.identity, self.tally
        tally.delivered += 1
        tally.per_second[int(now - start)] += 1
        tally.deliveries.append((number, identity.publisher, identity.count))
        if identity in self._sent_at:
            tally.delays.append(now - self._sent_at[identity])

    def report(self) -> None:
        """Keep how the subscriptions fared."""
        self.tally.reports = {
            number: made.report() for number, made in enumerate(self._subscriptions) if isinstance(made, Subscription)
        }

    def drops(self) -> dict[tuple[str, str, str], int]:
        """What ended at this client, once it is closed."""
        link = self._network._link
        return {} if link is None else dict(link.host.drops)

    async def publish(self, start: float) -> None:
        """Publish what the script says, when it says so."""
        waiting = [self._publish_waiting(lines, start) for lines, at_once in self._waiting for _ in range(at_once)]
        await asyncio.gather(self._publish_in_time(start), *waiting)

    async def _publish_waiting(self, lines: Iterator[Line], start: float) -> None:
        """One message after the other, as they leave."""
        for line in lines:
            await until_time(start + line.time)
            left = start + self._end - time.monotonic()
            if left <= 0.0:
                return
            self.tally.published += 1
            try:
                async with asyncio.timeout(left):
                    await self._publish_line(line)
            except TimeoutError:
                return

    async def _publish_in_time(self, start: float) -> None:
        for line in self._lines:
            await until_time(start + line.time)
            if line.unanswered_max is not None and len(self._storing) >= line.unanswered_max:
                continue
            self.tally.published += 1
            if line.options.get("stream"):
                task = asyncio.get_running_loop().create_task(self._store(line))
                self._storing.add(task)
                task.add_done_callback(self._storing.discard)
                continue
            await self._publish_line(line)

    async def _publish_line(self, line: Line) -> None:
        now = time.monotonic()
        try:
            identity = await self._network.publish(line.attributes, line.body, **line.options)
        except NotConnected:
            self.tally.refused += 1
        else:
            self._sent_at[identity] = now

    async def _store(self, line: Line) -> None:
        """A message for a stream; its reader may have it before we have the receipt."""
        network, began = self._network, time.monotonic()
        self._sent_at[Identity(network.name, network.incarnation, network._count + 1)] = began
        tally = tally_of(self.tally.streams, line.options["stream"])
        tally.offered += 1
        try:
            await network.publish(line.attributes, line.body, **line.options)
        except StreamError:
            self.tally.refused += 1
            tally.not_stored += 1
        else:
            tally.stored += 1
            tally.delays.append(time.monotonic() - began)

    def end(self) -> None:
        """Wait for no more receipts."""
        for task in self._storing:
            task.cancel()


async def until_time(at: float) -> None:
    """Return at this moment of the monotonic clock."""
    wait = at - time.monotonic()
    if wait > 0:
        await asyncio.sleep(wait)


async def _rest(spec: SubscriptionSpec) -> None:
    """As long as the application takes for a message."""
    if spec.reads_messages_per_s is not None:
        await asyncio.sleep(1.0 / spec.reads_messages_per_s)
