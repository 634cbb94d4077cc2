"""What does the transport cost? Run: `python bench/transport.py [--quick] [--json FILE]`.

Five questions, a table each:

    publisher    microseconds of the processor and bytes that the header adds to a message of 10 attributes, of which
                 half change from message to message: with the product's scheme, and with the papers' for each size and
                 form of its record
    subscriber   microseconds per message that arrives, with each part on, over a stream from which some messages are
                 lost (2 %) and some overtake each other (every 20th); `plain` is a client without the transport that
                 takes the header off
    sessions     10,000 publishers heard by one client, 20 messages each: memory per session, and what is kept when all
                 caches are full
    in order     the product's defaults, messages of six attributes of all types, nothing lost and nothing overtaken:
                 microseconds per message at the publisher, and at a subscriber with a range, order and recovery; and at
                 a subscriber with 10,000 sessions, 1,000 messages/s in all, in turn; bytes that the header adds
    one process  publisher, broker and subscriber in one process, over loopback: messages per second of the processor,
                 from the first publish() to the last message read; with `ordered` and `recover`, and without

All but the last is one thread, without any network: the machines are called directly, so this is what the protocol
itself costs and nothing else. Contenders take turns; the median of the rounds counts.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import random
import statistics
import time
import tracemalloc
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

from penstock.content.envelope import DATA, kind_of, opened
from penstock.content.language.parser import parse_predicate
from penstock.content.message import Identity, Message, make_message
from penstock.kernel.randomness import generator
from penstock.kernel.timers import ServiceTimers, Timers
from penstock.live.client.network import connect
from penstock.live.event_loop import run
from penstock.testing import embedded_network
from penstock.transport.bearer import BearerPublish
from penstock.transport.config import TransportConfig, papers_config
from penstock.transport.transport import Transport

Row = dict[str, Any]
RATE = 1_000.0  # messages per second of the stream
SCHEMES = {
    "ledgers": TransportConfig(),
    "papers, no record": papers_config(record_entries=0),
    "papers, 2 entries": papers_config(record_entries=2),
    "papers, 10 entries": papers_config(record_entries=10),
    "papers, 25 entries": papers_config(record_entries=25),
    "papers, 10 entries, shared": papers_config(record_entries=10, record_form="shared"),
}
WHERE = "kind = 'tick'"


def make_transport(name: str, config: TransportConfig, *, publishes: bool) -> tuple[Transport, Timers]:
    timers, random = Timers(), partial(generator, 1, name)
    return Transport(name, 1, config, ServiceTimers("transport", timers), random, publishes=publishes), timers


def messages(publisher: str, count: int) -> list[Message]:
    source = random.Random(1)
    made = []
    for number in range(1, count + 1):
        attributes: dict[str, Any] = {"kind": "tick", **{f"same{i}": f"value{i}" for i in range(4)}}
        attributes |= {f"other{i}": f"value{source.randrange(100)}" for i in range(5)}
        made.append(make_message(Identity(publisher, 1, number), attributes, bytes(64)))
    return made


def sent(config: TransportConfig, plain: list[Message]) -> list[Message]:
    """The messages as they leave a publisher, without its ledgers."""
    publisher, _ = make_transport(plain[0].identity.publisher, config, publishes=True)
    found = []
    for number, message in enumerate(plain):
        effects = publisher.publish(message, now=number / RATE)
        left = [effect.message for effect in effects if isinstance(effect, BearerPublish)]
        found += [one for one in left if kind_of(one) == DATA]  # a ledger may follow
    return found


def disturbed(stream_of_messages: list[Message]) -> list[Message]:
    """Some are lost and some overtake each other."""
    source = random.Random(2)
    kept = [message for message in stream_of_messages if source.random() >= 0.02]
    for place in range(20, len(kept) - 1, 20):
        kept[place], kept[place + 1] = kept[place + 1], kept[place]
    return kept


def publisher_rows(count: int, rounds: int) -> list[Row]:
    plain = messages("publisher", count)
    times: dict[str, list[float]] = {scheme: [] for scheme in SCHEMES}
    sizes = {}
    for _ in range(rounds):
        for scheme, config in SCHEMES.items():
            began = time.process_time()
            wrapped = sent(config, plain)
            times[scheme].append((time.process_time() - began) / count)
            sizes[scheme] = statistics.fmean(w.size_bytes - p.size_bytes for w, p in zip(wrapped, plain, strict=True))
    return [
        {
            "scheme": scheme,
            "us_per_message": round(statistics.median(times[scheme]) * 1e6, 2),
            "bytes_added": round(sizes[scheme], 1),
        }
        for scheme in SCHEMES
    ]


def subscriber_rows(count: int, rounds: int) -> list[Row]:
    arriving = disturbed(sent(TransportConfig(), messages("publisher", count)))
    cases: dict[str, Callable[[], float]] = {
        "plain: header taken off": lambda: strip_all(arriving),
        "loss detection and recovery": lambda: take_all(arriving, ordered=False, recover=True),
        "order": lambda: take_all(arriving, ordered=True, recover=False),
        "order and recovery": lambda: take_all(arriving, ordered=True, recover=True),
    }
    times: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            times[name].append(case() / len(arriving))
    return [{"part": name, "us_per_message": round(statistics.median(t) * 1e6, 2)} for name, t in times.items()]


def strip_all(arriving: list[Message]) -> float:
    began = time.process_time()
    for message in arriving:
        opened(message)
    return time.process_time() - began


def take_all(arriving: list[Message], *, ordered: bool, recover: bool) -> float:
    transport, timers = make_transport("subscriber", TransportConfig(), publishes=False)
    transport.subscribe(0, parse_predicate(WHERE), ordered=ordered, recover=recover, now=0.0)
    began = time.process_time()
    for message in arriving:
        now = message.identity.count / RATE + 0.05
        while (timer := timers.pop_due(now)) is not None:
            transport.expired(int(timer[1]), timer[2:], now=now)
        transport.arrived((0,), message, now=now)
    return time.process_time() - began


def session_rows(sessions: int) -> list[Row]:
    transport, timers = make_transport("subscriber", TransportConfig(), publishes=False)
    transport.subscribe(0, parse_predicate(WHERE), ordered=True, recover=True, now=0.0)
    bodies = messages("template", 20)
    gc.collect()
    tracemalloc.start()
    began, before = time.process_time(), tracemalloc.get_traced_memory()[0]
    for number in range(sessions):
        own = [Message(Identity(f"publisher-{number}", 1, m.identity.count), m.attributes, m.body, m.size_bytes)
               for m in bodies]  # fmt: skip
        for message in sent(TransportConfig(), own):
            transport.arrived((0,), message, now=message.identity.count / RATE)
    gc.collect()
    kept = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return [{
        "sessions": sessions,
        "bytes_per_session": round(kept / sessions),
        "timers": len(timers),
        "seconds": round(time.process_time() - began, 1),
    }]  # fmt: skip


def six_attributes(publisher: str, count: int) -> list[Message]:
    """Text, numbers and a boolean, as in a quote."""
    source = random.Random(3)
    symbols = [f"symbol{number}" for number in range(15)]
    return [
        make_message(
            Identity(publisher, 1, number),
            {
                "symbol": source.choice(symbols),
                "price": source.uniform(0.0, 1_000.0),
                "volume": source.randrange(10_000),
                "place": f"place-{source.randrange(20)}",
                "urgent": source.random() < 0.2,
                "kind": "tick",
            },
            bytes(64),
        )
        for number in range(1, count + 1)
    ]


def in_order_rows(count: int, rounds: int, sessions: int) -> list[Row]:
    plain = six_attributes("publisher", count)
    arriving = sent(TransportConfig(), plain)
    publisher, subscriber = [], []
    for _ in range(rounds):
        publisher.append(_publish_all(plain) / count)
        subscriber.append(take_in_order(arriving) / count)
    header = statistics.fmean(w.size_bytes - p.size_bytes for w, p in zip(arriving[50:], plain[50:], strict=True))
    return [
        {"part": "publisher", "us_per_message": round(statistics.median(publisher) * 1e6, 2)},
        {"part": "subscriber", "us_per_message": round(statistics.median(subscriber) * 1e6, 2)},
        {
            "part": f"subscriber, {sessions:,} sessions",
            "us_per_message": round(_with_sessions(sessions) * 1e6, 2),
        },
        {"part": "header, bytes", "us_per_message": round(header, 1)},
    ]


def _publish_all(plain: list[Message]) -> float:
    """Seconds for all of them, with their ledgers; nobody keeps a trace, as in the product's defaults."""
    timers = Timers()
    ours = ServiceTimers("transport", timers)
    transport = Transport(
        "publisher", 1, TransportConfig(), ours, partial(generator, 1, "publisher"), publishes=True, traced=False
    )
    began = time.process_time()
    for number, message in enumerate(plain):
        transport.publish(message, now=number / RATE)
    return time.process_time() - began


def take_in_order(arriving: list[Message]) -> float:
    """A subscriber with a range that wants all of them."""
    transport, timers = make_transport("subscriber", TransportConfig(), publishes=False)
    transport.subscribe(0, parse_predicate("price >= 0"), ordered=True, recover=True, now=0.0)
    began = time.process_time()
    for place, message in enumerate(arriving):
        _arrive(transport, timers, message, place / RATE + 0.05)
    return time.process_time() - began


def _arrive(transport: Transport, timers: Timers, message: Message, now: float) -> None:
    while (timer := timers.pop_due(now)) is not None:
        transport.expired(int(timer[1]), timer[2:], now=now)
    transport.arrived((0,), message, now=now)


def _with_sessions(sessions: int) -> float:
    """Seconds per message when so many publishers speak in turn, 1,000 messages/s in all; all have sessions already."""
    each = 4
    template = six_attributes("template", each)
    streams = []
    for number in range(sessions):
        name = f"publisher-{number}"
        own = [Message(Identity(name, 1, m.identity.count), m.attributes, m.body, m.size_bytes) for m in template]
        streams.append(sent(TransportConfig(), own))
    transport, timers = make_transport("subscriber", TransportConfig(), publishes=False)
    transport.subscribe(0, parse_predicate("price >= 0"), ordered=True, recover=True, now=0.0)
    now = began = 0.0
    for turn in range(each):
        if turn == 1:
            began = time.process_time()
        for stream in streams:
            now += 1.0 / RATE
            _arrive(transport, timers, stream[turn], now)
    return (time.process_time() - began) / (sessions * (each - 1))


def one_process_rows(count: int, rounds: int) -> list[Row]:
    times: dict[str, list[float]] = {"with the transport": [], "without": []}
    for _ in range(rounds):
        for name, found in times.items():
            found.append(run(_through_one_process(count, transported=name != "without")))
    return [{"case": name, "messages_per_s": round(count / statistics.median(found))} for name, found in times.items()]


async def _through_one_process(count: int, *, transported: bool) -> float:
    """Seconds for so many messages, 1,000 under way at most."""
    settings = {"transport": TransportConfig()} if transported else {}
    plain = six_attributes("publisher", 1_000)
    async with embedded_network(("a",)) as brokers, AsyncExitStack() as stack:
        publisher = await stack.enter_async_context(connect(brokers.urls["a"], name="publisher", **settings))
        subscriber = await stack.enter_async_context(connect(brokers.urls["a"], name="subscriber", **settings))
        options = {"ordered": True, "recover": True} if transported else {}
        messages_read = await subscriber.subscribe("price >= 0", queue_max=count, **options).open()
        read, began = 0, time.process_time()
        for number in range(count):
            await publisher.publish(plain[number % 1_000].attributes, plain[0].body)
            if number % 500 == 499:
                while read < number - 500:
                    read += len(await messages_read.take(10_000))
        while read < count:
            read += len(await messages_read.take(10_000))
        return time.process_time() - began


def table(title: str, rows: list[Row]) -> str:
    names = list(rows[0])
    lines = [f"### {title}", "", "| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    return "\n".join([*lines, *("| " + " | ".join(str(row[name]) for name in names) + " |" for row in rows), ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, to see whether it runs")
    parser.add_argument("--json", type=Path, help="also write all rows to this file")
    options = parser.parse_args()
    count, rounds, sessions = (2_000, 3, 500) if options.quick else (20_000, 7, 10_000)
    found = {
        "publisher": publisher_rows(count, rounds),
        "subscriber": subscriber_rows(count, rounds),
        "sessions": session_rows(sessions),
        "in order": in_order_rows(count, rounds, sessions),
        "one process": one_process_rows(count, rounds),
    }
    print(f"Python {platform.python_version()}, {count} messages, median of {rounds} rounds\n")
    for title, rows in found.items():
        print(table(title, rows))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
