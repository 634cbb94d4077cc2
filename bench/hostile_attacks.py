"""The attacks of `hostile.py`: each a small program without keys that does one hostile thing to broker b.

The ground is a chain a - b - c; b's plan names a fourth broker, d, which is not running, so its place is free for an
attacker. A healthy pair publishes at a and subscribes at c. An attack runs until a given time of CLOCK_MONOTONIC, or
ends before; whatever it was answered goes to `heard`. To add an attack, write a function and decorate it.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from itertools import count, islice

from msgspec.structs import replace

from hostile_peer import (
    KEEPALIVE_EVERY,
    Ground,
    Heard,
    Peer,
    again_and_again,
    as_client,
    as_neighbour,
    connected_socket,
    subscribe,
)
from penstock.content.filter_bytes import filter_bytes
from penstock.content.message import Identity, make_message
from penstock.content.predicate import Equals, Filter, Range
from penstock.kernel.packet import Packet
from penstock.live.wire.frames import encode_frame
from penstock.overlay.codec import BATCH_BYTES_MAX
from penstock.overlay.packets import Interest, LinkState, Publish, Subscribe, Summary
from penstock.overlay.status import StatusRequest
from penstock.scenario.spec import BrokerSpec, LinkSpec, Scenario
from penstock.transport.wire.control_messages import (
    ControlIdentities,
    EchoRequest,
    Feedback,
    FlowQuota,
    Key,
    Request,
    echo_request_message,
    feedback_message,
    inbox_where,
    request_to_publisher,
)

CHAIN = ("a", "b", "c")
PAIR_WHERE = "stream = 'pair'"  # what the healthy pair's messages match
FORGED = b"forged"  # the body of a message under somebody else's name
IMAGINARY = 1000  # the ids of brokers that do not exist begin here
ENTRIES_PER_PACKET = 128
ENTRY_BYTES = 32  # of a filter, more or less


def chain_with_spare() -> Scenario:
    """a - b - c, and a place beside b for a broker d that nobody starts.

    The link to d stands before that to c: of two equally good links to one broker, b takes the first.
    """
    links = (("a", "b"), ("d", "b"), ("b", "c"))
    return Scenario(
        name="hostile",
        duration=1.0,
        broker=tuple(BrokerSpec(name=name) for name in (*CHAIN, "d")),
        link=tuple(LinkSpec(between=pair, kind="reliable", delay=0.0, queue_packets=10_000) for pair in links),
    )


def chain() -> Scenario:
    """The part of it that runs."""
    whole = chain_with_spare()
    return replace(
        whole,
        broker=tuple(broker for broker in whole.broker if broker.name in CHAIN),
        link=tuple(link for link in whole.link if "d" not in link.between),
    )


@dataclass(frozen=True)
class Attack:
    """One hostile program."""

    name: str
    about: str
    program: Callable[[Ground, float, Heard], Awaitable[None]]
    full_disk: bool = False  # broker b writes its trace to a disk that has no room

    async def run(self, ground: Ground, until: float) -> Heard:
        """Attack until then; returns what was answered."""
        heard = Heard()
        await self.program(ground, until, heard)
        return heard


ATTACKS: dict[str, Attack] = {}
_Program = Callable[[Ground, float, Heard], Awaitable[None]]


def attack(name: str, about: str, *, full_disk: bool = False) -> Callable[[_Program], _Program]:
    """Enter a program in the list."""

    def entered(program: _Program) -> _Program:
        ATTACKS[name] = Attack(name, about, program, full_disk)
        return program

    return entered


@attack("nobody", "no attack: what the pair alone costs on this machine, to compare with")
async def nobody(ground: Ground, until: float, heard: Heard) -> None:
    await asyncio.sleep(max(0.0, until - time.monotonic()))


# Neighbours.


async def forged_life(life: int, ground: Ground, until: float, heard: Heard) -> None:
    """Say of c that it has a later life, without links and without interest: once as "a", often as "d"."""
    victim = ground.numbers["c"]

    def forged(version: int) -> list[Packet]:
        empty = Interest(origin=victim, incarnation=life, base=0, version=version, added=())
        return [LinkState(victim, life, version, ()), empty]

    async def as_a() -> None:
        peer = await as_neighbour(ground, "a", heard, until)
        try:
            await peer.send(forged(1), until)
        finally:
            peer.end()

    async def as_d() -> None:
        peer = await as_neighbour(ground, "d", heard, until)
        try:
            for version in count(2):
                await peer.send(forged(version), until)
                await peer.linger(min(until, time.monotonic() + KEEPALIVE_EVERY))
        finally:
            peer.end()

    await asyncio.gather(as_a(), again_and_again(until, heard, as_d, 0.05), return_exceptions=True)


@attack("forged-life", "as neighbour: c has a later life, 2^62, that wants nothing")
async def forged_far_life(ground: Ground, until: float, heard: Heard) -> None:
    await forged_life(1 << 62, ground, until, heard)


@attack("forged-life-plausible", "the same with an incarnation only an hour ahead")
async def forged_near_life(ground: Ground, until: float, heard: Heard) -> None:
    await forged_life(time.time_ns() // 1_000_000 + 3_600_000, ground, until, heard)


@attack("forged-hello", "as neighbour d: its Hello says that it is c")
async def forged_hello(ground: Ground, until: float, heard: Heard) -> None:
    async def session() -> None:
        peer = await as_neighbour(ground, "d", heard, until, claims=ground.numbers["c"])
        try:
            await peer.linger(until)
        finally:
            peer.end()

    await again_and_again(until, heard, session, 0.05)


@attack("eviction", "connects as neighbour a every 50 ms")
async def eviction(ground: Ground, until: float, heard: Heard) -> None:
    before: Peer | None = None
    while time.monotonic() < until:
        try:
            peer = await Peer.connect(ground.b, heard)
            if before is not None:
                before.end()
            before = peer
            await peer.handshake("broker", "a", until, ground.numbers["a"])
        except OSError as error:
            heard.note(type(error).__name__)
        await asyncio.sleep(0.05)
    if before is not None:
        before.end()


@attack("imaginary-brokers", "as neighbour d: 500 imaginary brokers in a full mesh, again and again in new versions")
async def imaginary_brokers(ground: Ground, until: float, heard: Heard) -> None:
    mesh = [IMAGINARY + number for number in range(ground.some(500))]
    d, life = ground.numbers["d"], time.time_ns() // 1_000_000
    versions = count(1)

    async def session() -> None:
        peer = await as_neighbour(ground, "d", heard, until)
        try:
            while time.monotonic() < until:
                version = next(versions)
                await peer.send([LinkState(d, life, version, ((ground.numbers["b"], 1), (mesh[0], 1)))], until)
                for origin in mesh:
                    others = tuple((other, 1) for other in (d, *mesh) if other != origin)
                    await peer.send([LinkState(origin, life, version, others)], until)
                heard.note("rounds sent")
        finally:
            peer.end()

    await again_and_again(until, heard, session, 0.05)


@attack("empty-summaries", "as neighbour d: 100,000 summaries that know nothing, each of which asks for everything")
async def empty_summaries(ground: Ground, until: float, heard: Heard) -> None:
    left = ground.some(100_000)

    async def session() -> None:
        nonlocal left
        peer = await as_neighbour(ground, "d", heard, until)
        try:
            while left > 0:
                await peer.send([Summary(())] * 64, until)
                heard.note("summaries sent", 64)
                left -= 64
            await peer.linger(until)
        finally:
            peer.end()

    await again_and_again(until, heard, session, 0.05)


def bogus_entries(number: int, *, valid: bool) -> list[bytes]:
    """Entries of interest that nobody has: such as the wire takes, or garbage of the same length.

    The one place that knows how an entry looks on the wire: a filter in normal form, here a value and a range.
    """
    draw = random.Random(number)
    if not valid:
        return [draw.randbytes(draw.randrange(1, 2 * ENTRY_BYTES)) for _ in range(number)]
    lows = (draw.randrange(10**6) for _ in range(number))
    return [
        filter_bytes(Filter((Range("price", low, low + 10), Equals("symbol", f"S{place}"))))
        for place, low in enumerate(lows)
    ]


async def bogus_interest(valid: bool, ground: Ground, until: float, heard: Heard) -> None:
    """Announce four brokers behind d that want 100,000 filters each."""
    entries = bogus_entries(ground.some(100_000), valid=valid)
    origins = [IMAGINARY + number for number in range(4)]
    d, life = ground.numbers["d"], time.time_ns() // 1_000_000
    links = tuple((other, 1) for other in (ground.numbers["b"], *origins))

    async def session() -> None:
        peer = await as_neighbour(ground, "d", heard, until)
        try:
            await peer.send([LinkState(d, life, 1, links)], until)
            await peer.send([LinkState(origin, life, 1, ((d, 1),)) for origin in origins], until)
            for version, start in enumerate(range(0, len(entries), ENTRIES_PER_PACKET), start=1):
                added = tuple(entries[start : start + ENTRIES_PER_PACKET])
                for origin in origins:
                    change = Interest(origin=origin, incarnation=life, base=version - 1, version=version, added=added)
                    await peer.send([change], until)
                heard.note("entries sent", 4 * len(added))
            await peer.linger(until)
        finally:
            peer.end()

    await again_and_again(until, heard, session, 0.05)


@attack("bogus-interest", "as neighbour d: 400,000 filters of four origins that nobody has")
async def bogus_valid_interest(ground: Ground, until: float, heard: Heard) -> None:
    await bogus_interest(True, ground, until, heard)


@attack("garbage-interest", "the same with entries that cannot be read")
async def bogus_garbage_interest(ground: Ground, until: float, heard: Heard) -> None:
    await bogus_interest(False, ground, until, heard)


# Clients.


@attack("in-lists", "2,361 subscriptions with IN-lists of 56 values, under three names, use up the room for interest")
async def in_lists(ground: Ground, until: float, heard: Heard) -> None:
    lists, per_name = ground.some(2361), 800

    async def one(start: int) -> None:
        async def session() -> None:
            peer = await as_client(ground.b, f"collector-{start}", heard, until)
            try:
                numbers = range(start, min(start + per_name, lists))
                texts = [f"v IN ({', '.join(map(str, range(n * 56, n * 56 + 56)))})" for n in numbers]
                await subscribe(peer, texts, until)
                await peer.linger(until)
            finally:
                peer.end()

        await again_and_again(until, heard, session, 0.1)

    await asyncio.gather(*(one(start) for start in range(0, lists, per_name)))


@attack("subscribe-flood", "100,000 Subscribes of one client as fast as they go")
async def subscribe_flood(ground: Ground, until: float, heard: Heard) -> None:
    numbers = iter(range(ground.some(100_000)))

    async def session() -> None:
        peer = await as_client(ground.b, "flood", heard, until)
        try:
            while chunk := list(islice(numbers, 64)):
                await peer.send([Subscribe(n, n, f"n{n % 7} = {n} AND price < {n}") for n in chunk], until)
            await peer.linger(until)
        finally:
            peer.end()

    await again_and_again(until, heard, session, 0.05)


def heavy_predicate(differences: int) -> str:
    """Many `<>` and six two-way ORs: 64 filters in normal form, all to be compared. With 25 it has 343 characters."""
    unequal = " AND ".join(f"a<>{number}" for number in range(differences))
    return unequal + " AND " + " AND ".join(f"({x}=1 OR {x.lower() * 2}=1)" for x in "ABCDEF")


@attack("heavy-predicates", "one client's predicates of 25, 60 and 200 <> with six two-way ORs")
async def heavy_predicates(ground: Ground, until: float, heard: Heard) -> None:
    async def session() -> None:
        peer = await as_client(ground.b, "heavy", heard, until)
        try:
            for number, differences in enumerate((25, 60, 200, 400)):
                await subscribe(peer, [heavy_predicate(differences)], until, first=number)
                await asyncio.sleep(0.2 * ground.scale)
            await peer.linger(until)
        finally:
            peer.end()

    await again_and_again(until, heard, session, 0.05)


@attack("heavy-likes", "40 subscriptions of 60 LIKEs with _, and ten long strings a second to match them against")
async def heavy_likes(ground: Ground, until: float, heard: Heard) -> None:
    def likes(k: int) -> str:
        return " OR ".join(f"s LIKE '%{'_a' * 8}{chr(98 + k % 20)}_{j:02}%'" for j in range(60))

    async def session() -> None:
        peer = await as_client(ground.b, "likes", heard, until)
        try:
            await subscribe(peer, [likes(k) for k in range(ground.some(40))], until)
            for number in count(1):
                text = "a" * 4000 + str(number)
                message = make_message(Identity("likes", 1, number), {"s": text})
                await peer.send([Publish(message)], until)
                await asyncio.sleep(0.1)
        finally:
            peer.end()

    await again_and_again(until, heard, session, 0.05)


@attack("unfinished-frames", "200 clients each hold 1.8 MB of a frame that never ends")
async def unfinished_frames(ground: Ground, until: float, heard: Heard) -> None:
    most = BATCH_BYTES_MAX - 1
    frame = most.to_bytes(4, "big") + bytes(most - 1)

    async def session(number: int) -> None:
        peer = await as_client(ground.b, f"unfinished-{number}", heard, until)
        try:
            await peer.write(frame, until)
            await peer.until_closed()
        finally:
            peer.end()

    clients = range(ground.some(200))
    await asyncio.gather(*(again_and_again(until, heard, partial(session, number), 0.2) for number in clients))


async def forges(name: str, ground: Ground, until: float, heard: Heard) -> None:
    """As a client of this name at b, publish under the publisher's name."""

    def forged(identity: Identity, ahead: int) -> Publish:
        stolen = Identity(ground.publisher, identity.incarnation, identity.count + ahead)
        return Publish(make_message(stolen, {"stream": "pair"}, FORGED))

    peer = await as_client(ground.b, name, heard, until)
    try:
        await subscribe(peer, [PAIR_WHERE, inbox_where(ground.subscriber), inbox_where(ground.publisher)], until)
        while time.monotonic() < until:
            seen = peer.identity or Identity(ground.publisher, 1, 1)
            await peer.send([forged(seen, ahead) for ahead in range(1, 11)], until)
            await asyncio.sleep(0.02)
    finally:
        peer.end()


@attack("same-name-elsewhere", "a client at b has the publisher's name, as it may: only keys could tell the two apart")
async def same_name_elsewhere(ground: Ground, until: float, heard: Heard) -> None:
    await again_and_again(until, heard, lambda: forges(ground.publisher, ground, until, heard), 0.05)


@attack("stolen-name", "publishes under the publisher's name, reads the subscriber's inbox, connects under its name")
async def stolen_name(ground: Ground, until: float, heard: Heard) -> None:
    async def poses(broker: str) -> None:
        peer = await as_client(ground.addresses[broker], ground.subscriber, heard, until)
        try:
            await subscribe(peer, [PAIR_WHERE], until)
            await asyncio.sleep(0.05)
        finally:
            peer.end()

    await asyncio.gather(
        again_and_again(until, heard, lambda: forges("thief", ground, until, heard), 0.05),
        again_and_again(until, heard, lambda: poses("b"), 0.02),
        again_and_again(until, heard, lambda: poses("c"), 0.02),
    )


@attack("slow-readers", "50 clients at b subscribe to everything and never read")
async def slow_readers(ground: Ground, until: float, heard: Heard) -> None:
    async def session(number: int) -> None:
        peer = await as_client(ground.b, f"sloth-{number}", heard, until, reads=False, receive_bytes=4096)
        try:
            await subscribe(peer, ["TRUE"], until)
            await peer.linger(until)
        finally:
            peer.end()

    clients = range(ground.some(50))
    await asyncio.gather(*(again_and_again(until, heard, partial(session, number), 0.2) for number in clients))


@attack("connection-flood", "connects and disconnects as fast as it goes, beside 2,000 connections that say nothing")
async def connection_flood(ground: Ground, until: float, heard: Heard) -> None:
    async def comes_and_goes() -> None:
        (await connected_socket(ground.b)).close()
        heard.note("connections made")

    async def stays(number: int) -> None:
        await asyncio.sleep(number / 2000)  # all at once would only fill the queue of the listener
        peer = await Peer.connect(ground.b, heard)
        try:
            await peer.until_closed()
        finally:
            peer.end()

    idle = range(ground.some(2000))
    await asyncio.gather(
        *(again_and_again(until, heard, comes_and_goes, 0.0) for _ in range(20)),
        *(again_and_again(until, heard, partial(stays, number), 0.2) for number in idle),
    )


@attack("control-flood", "20,000 requests for a report and control messages a second, to b and to the pair's inboxes")
async def control_flood(ground: Ground, until: float, heard: Heard) -> None:
    name = "controller"
    identities, now = ControlIdentities(name, 1), time.time()
    quota = Feedback(name, now, (FlowQuota(1.0, b"", PAIR_WHERE),))
    again = Request(Key(ground.publisher, 1, 1), name, now, 0.1, 1.0, 1.0, 1)
    packets: list[Packet] = [StatusRequest(number) for number in range(100)]
    for _ in range(25):
        packets.append(Publish(feedback_message(identities, ground.publisher, quota)))
        packets.append(Publish(request_to_publisher(identities, again)))
        for who in (ground.publisher, ground.subscriber):
            packets.append(Publish(echo_request_message(identities, who, EchoRequest(name, now))))
    frames = encode_frame(packets[:100]) + encode_frame(packets[100:])

    async def session() -> None:
        peer = await as_client(ground.b, name, heard, until)
        try:
            began = time.monotonic()
            for turn in count():
                await peer.write(frames, until)
                heard.note("packets sent", len(packets))
                await asyncio.sleep(max(0.0, began + turn * 0.01 - time.monotonic()))
        finally:
            peer.end()

    await again_and_again(until, heard, session, 0.05)


@attack("full-disk", "b traces to a full disk, and a client makes it write 20,000 records a second", full_disk=True)
async def full_disk(ground: Ground, until: float, heard: Heard) -> None:
    dropped = [make_message(Identity("unattached", 1, number), {"n": number}) for number in range(1, 201)]
    frame = encode_frame([Publish(message) for message in dropped])

    async def session() -> None:
        peer = await Peer.connect(ground.b, heard)
        try:
            await peer.handshake("client", "unattached", until)
            began = time.monotonic()
            for turn in count():
                await peer.write(frame, until)
                heard.note("messages sent", len(dropped))
                await asyncio.sleep(max(0.0, began + turn * 0.01 - time.monotonic()))
        finally:
            peer.end()

    await again_and_again(until, heard, session, 0.05)
