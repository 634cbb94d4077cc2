"""One network for each row of the table (issue 19), drawn from a seed.

ten by ten         10 publishers, each with 10 readers of parts of their own, over 2 Mbit/s
overlapping        60 readers with 1 to 3 equalities of Zipf values over one link; 15 more before it
nested             12 readers of `x < c` over one link
large              the paper's large network (`setups.congestion`) with 1 to 5 equalities of Zipf values
series             links of 1, 0.5 and 0.25 Mbit/s in a row; at the end of each some want more than it carries
fast and slow      two readers of all, one of whom takes a part of it: its application or its access link is slow
round trips        publishers at homes that are 10 and 400 ms away from the bottleneck and back
flaps              a link that changes between 1 and 0.2 Mbit/s every few whole seconds
first seconds      a publisher that begins with thousands a second, towards a reader of 100/s
fifty at once      50 publishers that begin in the same moment
sparse and greedy  200 publishers that use half of the link together, beside two that want all of it
on and off         publishers that say little, and for moments more than the link carries
beside TCP         a TCP connection begins on the bottleneck when half of the time is over
cheating           one of several homes holds its publisher to nothing
busy               50 brokers, most of whose links are too narrow
idle               the same with room everywhere
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.lab.setups.congestion import CONSTRAINTS_MAX, NAMES, VALUES, large_brokers, zipf_filter
from penstock.lab.setups.network_rates.drawing import KINDS, MBIT, STARTS, Content, Draft, Kind, wanted_share
from penstock.lab.setups.trees import grown_tree
from penstock.scenario.spec import FaultSpec, TcpSpec
from penstock.scenario.workload import Recipe

NEAR, FAR = "near", "far"
LETTERS = {f"a{number}": Recipe(choose=VALUES, zipf=1.0) for number in range(5)}
FLAP_RATES = (1.0 * MBIT, 0.2 * MBIT)
SERIES_RATES = (1.0 * MBIT, 0.5 * MBIT, 0.25 * MBIT)
LARGE_BITS = 1.0 * MBIT
READS = 100.0  # messages/s of a slow reader
SHORT, LONG = 0.005, 0.200  # seconds one way, of the two homes
BROKERS = 50
SPARSE = 200


def _sides(draft: Draft, rate: float, **more: Any) -> tuple[list[str], list[str]]:
    """The brokers of both sides, and the bottleneck between them."""
    near, far = draft.side(NEAR), draft.side(FAR)
    draft.bottleneck(NEAR, FAR, rate, **more)
    return near, far


def ten_by_ten(draft: Draft) -> None:
    near, far = _sides(draft, 2.0 * MBIT)
    rate = draft.busy(2.0 * MBIT) / 10
    for number in range(10):
        content: Content = {"source": number, "part": Recipe(integer=(0, 9))}
        draft.publisher(f"p{number}", draft.random.choice(near), content, rate)
        for part in range(10):
            draft.reader(f"r{number}-{part}", draft.random.choice(far), f"source = {number} AND part = {part}")


def overlapping(draft: Draft) -> None:
    bits = draft.random.choice((0.5, 1.0, 2.0)) * MBIT
    near, far = _sides(draft, bits)
    wheres = [zipf_filter(draft.random, tuple(LETTERS), 3) for _ in range(75)]
    for number, where in enumerate(wheres):
        home = draft.random.choice(near if number >= 60 else far)
        draft.reader(f"r{number}" if number < 60 else f"before-{number}", home, where)
    publishers = draft.random.randint(2, 5)
    rate = draft.busy(bits, wanted_share(LETTERS, wheres[:60], draft.random)) / publishers
    for number in range(publishers):
        draft.publisher(f"p{number}", draft.random.choice(near), LETTERS, rate)


def nested(draft: Draft) -> None:
    bits = draft.random.choice((0.5, 1.0, 2.0)) * MBIT
    near, far = _sides(draft, bits)
    limits = sorted(draft.random.randint(20, 1_000) for _ in range(12))
    for number, limit in enumerate(limits):
        draft.reader(f"r{number}", draft.random.choice(far), f"x < {limit}")
    publishers = draft.random.randint(1, 3)
    rate = draft.busy(bits, limits[-1] / 1_000) / publishers
    for number in range(publishers):
        draft.publisher(f"p{number}", draft.random.choice(near), {"x": Recipe(uniform=(0.0, 1_000.0))}, rate)


def large(draft: Draft) -> None:
    brokers, links = large_brokers()
    draft.brokers += brokers
    draft.links += links
    homes = [f"b{number % 8}" for number in range(758)]
    for number, home in enumerate(homes):
        where = zipf_filter(draft.random, NAMES, CONSTRAINTS_MAX)
        draft.reader(f"r{number}" if home != "b0" else f"before-{number}", home, where)
    for number in (1, 2):
        content = {name: Recipe(choose=VALUES, zipf=1.0) for name in NAMES}
        draft.publisher(f"p{number}", "b0", content, draft.busy(LARGE_BITS, times=2.5) / 2)


def series(draft: Draft) -> None:
    brokers = [draft.broker(f"b{number}") for number in range(4)]
    kind: Kind = draft.random.choice(KINDS)
    for a, b, bits in zip(brokers, brokers[1:], SERIES_RATES, strict=False):
        draft.bottleneck(a, b, bits, kind=kind)
    offered = draft.busy(SERIES_RATES[0])
    publishers = draft.random.randint(1, 4)
    for number in range(publishers):
        content = {"x": Recipe(uniform=(0.0, 1_000.0)), "y": Recipe(uniform=(0.0, 1_000.0))}
        draft.publisher(f"p{number}", "b0", content, offered / publishers)
    for place, broker in enumerate(brokers[1:]):
        draft.reader(f"all-{place}", broker, "x >= 0")
        draft.reader(f"some-{place}", broker, f"y < {draft.random.randint(100, 900)}")


def fast_and_slow(draft: Draft) -> None:
    brokers = draft.side(NEAR)
    offered = draft.random.uniform(3.0, 8.0) * READS
    draft.publisher("p", draft.random.choice(brokers), {"x": Recipe(uniform=(0.0, 1.0))}, offered)
    draft.reader("fast", draft.random.choice(brokers), "x >= 0")
    if draft.random.random() < 0.5:
        draft.reader("slow", draft.random.choice(brokers), "x >= 0", reads_messages_per_s=READS, queue_max=1_000)
    else:
        access = {"access_rate_bits_per_s": READS * 8 * draft.message_bytes}
        draft.reader("slow", draft.random.choice(brokers), "x >= 0", client=access)


def round_trips(draft: Draft) -> None:
    draft.broker(NEAR)
    far = draft.side(FAR)
    bits = draft.random.choice((0.5, 1.0, 2.0)) * MBIT
    draft.bottleneck(NEAR, FAR, bits)
    each = draft.random.randint(1, 3)
    rate = draft.busy(bits) / each
    for home, delay in (("short", SHORT), ("long", LONG)):
        draft.fast(NEAR, draft.broker(home), delay)
        for number in range(each):
            draft.publisher(f"{home}-{number}", home, {"home": home}, rate)
        draft.reader(f"of-{home}", draft.random.choice(far), f"home = '{home}'")


def flaps(draft: Draft) -> None:
    near, far = _sides(draft, FLAP_RATES[0])
    publishers = draft.random.randint(1, 5)
    rate = draft.busy(FLAP_RATES[0]) / publishers
    for number in range(publishers):
        draft.publisher(f"p{number}", draft.random.choice(near), {"source": number}, rate)
        draft.reader(f"r{number}", draft.random.choice(far), f"source = {number}")
    at, low = STARTS + 3.0, True
    while at < draft.duration:
        rate = FLAP_RATES[low]
        draft.faults.append(FaultSpec(at=at, kind="link_rate", link=(NEAR, FAR), rate_bits_per_s=rate))
        at, low = at + draft.random.randint(3, 6), not low


def first_seconds(draft: Draft) -> None:
    brokers = draft.side(NEAR)
    offered = draft.random.uniform(10.0, 30.0) * READS
    draft.publisher("p", draft.random.choice(brokers), {"x": Recipe(uniform=(0.0, 1.0))}, offered)
    draft.reader("slow", draft.random.choice(brokers), "x >= 0", reads_messages_per_s=READS, queue_max=1_000)


def fifty_at_once(draft: Draft) -> None:
    near, far = _sides(draft, 2.0 * MBIT)
    rate = draft.busy(2.0 * MBIT) / 50
    for number in range(50):
        draft.publisher(f"p{number}", draft.random.choice(near), {"source": number}, rate)
    for number in range(5):
        where = f"source >= {10 * number} AND source < {10 * (number + 1)}"
        draft.reader(f"r{number}", draft.random.choice(far), where)


def sparse_and_greedy(draft: Draft) -> None:
    near, far = _sides(draft, 2.0 * MBIT)
    sparse = draft.busy(2.0 * MBIT, times=0.5) / SPARSE
    for number in range(SPARSE):
        draft.publisher(f"p{number}", draft.random.choice(near), {"kind": "sparse"}, sparse)
    for number in range(2):
        draft.publisher(f"g{number}", draft.random.choice(near), {"kind": "greedy"}, draft.busy(2.0 * MBIT, times=1.0))
    for kind in ("sparse", "greedy"):
        draft.reader(f"of-{kind}", draft.random.choice(far), f"kind = '{kind}'")


def on_and_off(draft: Draft) -> None:
    near, far = _sides(draft, 1.0 * MBIT)
    publishers = draft.random.randint(3, 8)
    off = draft.random.uniform(1.0, 3.0)
    for number in range(publishers):
        spike = draft.busy(1.0 * MBIT, times=draft.random.uniform(0.5, 1.5))
        more = {"spike_rate_messages_per_s": spike, "spike_every": off, "spike_lasts": (0.3, 2.0)}
        draft.publisher(f"p{number}", draft.random.choice(near), {"source": number}, 2.0, **more)
        draft.reader(f"r{number}", draft.random.choice(far), f"source = {number}")


def beside_tcp(draft: Draft) -> None:
    near, far = _sides(draft, 1.0 * MBIT, kind="datagram", queue=50)
    draft.publisher("p", draft.random.choice(near), {"source": 0}, draft.busy(1.0 * MBIT))
    draft.reader("r", draft.random.choice(far), "source = 0")
    start = round(draft.duration / 2)
    draft.tcp.append(
        TcpSpec(name="tcp", path=(NEAR, FAR), start=start, segment_bytes=draft.message_bytes, acknowledge_every=1)
    )


def cheating(draft: Draft) -> None:
    near, far = _sides(draft, 1.0 * MBIT)
    draft.cheats.append(draft.broker("cheat"))
    draft.fast(NEAR, "cheat")
    honest = draft.random.randint(1, 4)
    for number in range(honest + 1):
        name, home = ("cheat-p", "cheat") if number == honest else (f"p{number}", draft.random.choice(near))
        draft.publisher(name, home, {"source": number}, draft.busy(1.0 * MBIT, times=1.5))
        draft.reader(f"r{number}", draft.random.choice(far), f"source = {number}")


def busy(draft: Draft, narrow: float = 0.7) -> None:
    """So large a share of the links is narrow; readers stand everywhere."""
    tree = grown_tree(BROKERS, 10, draft.random)
    names = [draft.broker(f"b{number}") for number in range(BROKERS)]
    for a, b in tree:
        if draft.random.random() < narrow:
            draft.bottleneck(names[a], names[b], draft.random.choice((0.1, 0.2, 0.5)) * MBIT)
        else:
            draft.fast(names[a], names[b])
    content = {**LETTERS, "x": Recipe(uniform=(0.0, 1_000.0))}
    wheres = [zipf_filter(draft.random, tuple(LETTERS), 1) for _ in names]
    wheres += [f"x < {draft.random.randint(50, 500)}" for _ in names]
    for number, where in enumerate(wheres):
        draft.reader(f"r{number}", names[number % BROKERS], where)
    rate = draft.busy(1.0 * MBIT) / 20
    for number in range(20):
        draft.publisher(f"p{number}", draft.random.choice(names), content, rate)


def idle(draft: Draft) -> None:
    busy(draft, narrow=0.0)


ROWS: dict[str, Callable[[Draft], None]] = {
    "ten by ten": ten_by_ten,
    "overlapping": overlapping,
    "nested": nested,
    "large": large,
    "series": series,
    "fast and slow": fast_and_slow,
    "round trips": round_trips,
    "flaps": flaps,
    "first seconds": first_seconds,
    "fifty at once": fifty_at_once,
    "sparse and greedy": sparse_and_greedy,
    "on and off": on_and_off,
    "beside TCP": beside_tcp,
    "cheating": cheating,
    "busy": busy,
    "idle": idle,
}
