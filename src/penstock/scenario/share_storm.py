"""Shared names in random storms: members that come and go, reject, forget, and are slow.

In some storms one stream has a name that several clients share, at different brokers, each for some time; the last of
them stays. Some of these names have a stream for what fails too often. The draws are apart from those of the storm
itself, so a storm without members is the storm that it always was.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from penstock.scenario.spec import ClientSpec, StreamSpec, SubscriptionSpec
from penstock.streams.config import StreamsClientConfig

SHARED = 0.4  # how likely a storm is to have a shared name
FAILED = "failed"  # the stream for what fails too often


def drawn_members(
    random: Random, names: Sequence[str], streams: Sequence[StreamSpec], wheres: Sequence[str], until: float
) -> tuple[list[ClientSpec], list[StreamSpec]]:
    """The members of one shared name, or none, and the stream that they need besides."""
    if random.random() >= SHARED:
        return [], []
    stream = random.choice(streams)
    failed = random.random() < 0.5
    options = {
        "stream": stream.name,
        "durable": "shared",
        "share": True,
        "start_at": random.choice(("earliest", "latest")),
        "ack_within": random.choice((0.0, 1.0, 1.0)),
        "attempts_max": random.choice((0, 2, 3)),
        "failed": FAILED if failed else "",
    }
    where = random.choice(wheres)
    forgets = random.choice((0.0, 0.0, 0.05)) if options["ack_within"] else 0.0  # more would take too long to heal
    windows = (16, 16, 3) if forgets else (16, 16, 1, 3)
    starts = sorted(random.choice((0.0, random.uniform(0.0, until))) for _ in range(random.randint(1, 5)))
    members = []
    for turn, start in enumerate(starts):
        last = turn == len(starts) - 1
        stop = None if last or random.random() < 0.5 else min(until, start + random.expovariate(0.5))
        subscription = SubscriptionSpec(
            where=where,
            start=start,
            stop=stop,
            options=options,
            reads_messages_per_s=random.choice((None, None, 20.0)),
            rejects=random.choice((0.0, 0.0, 0.2, 0.6)),
            forgets=forgets,
        )
        members.append(
            ClientSpec(
                name=f"m-{stream.name}-{turn}",
                broker=random.choice(names),
                subscribe=(subscription,),
                services={"streams": StreamsClientConfig(share_window=random.choice(windows))},
            )
        )
    return members, [StreamSpec(name=FAILED, at=(random.choice(names),))] if failed else []
