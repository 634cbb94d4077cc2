"""003 section 7: the experiments on CAIRN, a network across the United States (Figures 17 to 24), simulated.

Links carry what the paper measured with a TCP, in each direction. A message has 1000 bytes on the wire, of which 850
are the user's: Spread's overhead of 15 %. Rates are of user data, as in the paper. Each group has one sender, near its
broker, which has a message whenever it may send one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from penstock.lab.engine.experiment import Criterion, Experiment, Figure, Plan, Scale, Views
from penstock.lab.papers.spread.setting import PAPER, between, counted, curves, smoothed
from penstock.lab.setups.spread import (
    CAIRN,
    USER_SHARE,
    WIRE_BYTES,
    cairn_link,
    cairn_network,
    spread_network,
)
from penstock.scenario.spec import Scenario, TcpSpec

SECONDS = {"paper": 300.0, "smoke": 10.0}
START = {"paper": 30.0, "smoke": 5.0}
LINK_SECONDS = {"paper": 60.0, "smoke": 6.0}
Groups = Mapping[str, tuple[str, Sequence[str]]]
FAST = ("isiepc", "isiepc2", "isiepc3")
SCENARIOS: dict[int, Groups] = {
    1: {"G1": ("isiepc3", ("mitpc2", "udelpc")), "G2": ("mitpc2", ("isipc", "isiepc2"))},
    2: {"G1": ("isipc", ("tisepc", "mitpc2")), "G2": ("udelpc", ("tisepc", "saicpc"))},
    3: {sender: (sender, FAST) for sender in ("mitpc2", "saicpc", "udelpc")},
    4: {sender: (sender, (*FAST, "udelpc")) for sender in ("mitpc2", "saicpc", "udelpc")},
}


def _plans(number: int) -> Callable[[Scale], Mapping[str, Plan]]:
    def plans(scale: Scale) -> Mapping[str, Plan]:
        name = f"cb-cairn-{number}-{scale}"
        return {"run": Plan(scenario=cairn_network(name, SCENARIOS[number], duration=SECONDS[scale]))}

    return plans


def _measure(number: int) -> Callable[[Views], Mapping[str, float]]:
    def measure(views: Views) -> Mapping[str, float]:
        """What each sender sent, in Mbit/s of user data."""
        counts = counted(views["run"])
        rates = {group: USER_SHARE * counts.mean_rate(group, START[views.scale]) for group in SCENARIOS[number]}
        names = list(rates)
        ratios = {f"{a} over {b}": rates[a] / max(rates[b], 1e-9) for a in names for b in names if a != b}
        data = sum(len(counts.bought["time"][counts.groups == group]) for group in names) * WIRE_BYTES
        return {
            **{f"{group} (Mbit/s)": rate for group, rate in rates.items()},
            **ratios,
            "control, share of what links carry (%)": counts.control_share(),
            "messages sent (MB)": data / 1e6,
        }

    return measure


def _draw(number: int, caption: str) -> Callable[[Views], Sequence[Figure]]:
    def draw(views: Views) -> Sequence[Figure]:
        counts = counted(views["run"])
        named = {group: USER_SHARE * smoothed(counts.rate(group)) for group in SCENARIOS[number]}
        bits = {group: rates.cumsum() for group, rates in named.items()}
        return (curves(caption, named, "Mbit/s"), curves("The same as bits sent so far.", bits, "Mbit"))

    return draw


# The links by themselves.


def link_plans(scale: Scale) -> Mapping[str, Plan]:
    """A TCP in each direction of each link, one direction at a time."""
    return {word: Plan(scenario=_bulk(scale, word == "back")) for word in ("there", "back")}


def _bulk(scale: Scale, back: bool) -> Scenario:
    word = "back" if back else "there"
    network = spread_network(
        f"cb-cairn-links-{word}-{scale}",
        dict.fromkeys(CAIRN, 1.0),
        {},
        duration=LINK_SECONDS[scale],
        priced=False,
        tcp=[
            TcpSpec(name="-".join(pair), path=pair[::-1] if back else pair, start=1.0, segment_bytes=WIRE_BYTES)
            for pair in CAIRN
        ],
    )
    return replace(network, link=tuple(cairn_link(pair) for pair in CAIRN))


def measure_links(views: Views) -> Mapping[str, float]:
    """What a TCP gets, over what the paper measured."""
    values = {}
    stop = LINK_SECONDS[views.scale]
    for pair, (there, back, _) in CAIRN.items():
        for word, rate in (("there", there), ("back", back)):
            found = between(counted(views[word]).tcp("-".join(pair)), stop / 2, stop)
            values[f"{'-'.join(pair)}, {word}"] = found / rate
    return {**values, "furthest from the table (%)": 100.0 * max(abs(one - 1.0) for one in values.values())}


def _draw_links(views: Views) -> Sequence[Figure]:
    counts = counted(views["there"])
    slow = [pair for pair, (rate, _, _) in CAIRN.items() if rate < 5.0]
    named = {"-".join(pair): counts.tcp("-".join(pair)) for pair in slow}
    return (curves("A TCP on each of the slow links.", named, "Mbit/s"),)


def _rate(name: str, paper: str, low: float, high: float | None = None) -> Criterion:
    return Criterion(name=name, paper=paper, low=low, high=high, scales=PAPER)


CONTROL = Criterion(name="control, share of what links carry (%)", paper="below 0.16 of data", high=0.5, scales=PAPER)
PARAMETERS = {
    "links": "as in Figure 17, names repaired; connections hold up to 64 kB",
    "prices": "salary 10, savings 20, fee 1, soft limit 100, updates every 100 ms",
    "rates": f"of user data, {USER_SHARE:.0%} of what is sent",
    "senders": "one for each group, behind 10 Mbit/s as in section 6",
    "open in the paper": "300 s; threshold 15, periods from 5 ms to 1 s",
}


def _experiment(
    name: str, number: int, figures: str, about: str, criteria: Sequence[Criterion], title: str
) -> Experiment:
    return Experiment(
        name=name,
        title=title,
        source=f"003 section 7, scenario {number}, {figures}",
        about=about,
        plans=_plans(number),
        measure=_measure(number),
        draw=_draw(number, f"Rates of user data ({figures})."),
        parameters=PARAMETERS,
        criteria=tuple(criteria),
    )


EXPERIMENTS = (
    Experiment(
        name="cb-cairn-links",
        title="The links of CAIRN",
        source="003 section 7, Figure 17",
        about="What one TCP gets on each link and in each direction, over what the paper measured.",
        plans=link_plans,
        measure=measure_links,
        draw=_draw_links,
        parameters={"links": "rates and round trips of Figure 17, names repaired; 50 packets may wait for each wire"},
        criteria=(
            Criterion(
                name="furthest from the table (%)", judged="every seed", paper="the table", high=2.0, scales=PAPER
            ),
        ),
    ),
    _experiment(
        "cb-cairn-s1",
        1,
        "Figure 19",
        "Each group has its own bottleneck, and each sender gets its own.",
        (
            _rate("G1 (Mbit/s)", "1.110", 1.05, 1.25),
            _rate("G2 (Mbit/s)", "1.502", 1.4, 1.75),
            _rate("G2 over G1", "1.35", 1.001),
            CONTROL,
        ),
        "CAIRN: a bottleneck for each group",
    ),
    _experiment(
        "cb-cairn-s2",
        2,
        "Figure 20",
        "Both groups share the link to tisepc, and get the same.",
        (
            _rate("G1 (Mbit/s)", "0.584", 0.52, 0.65),
            _rate("G2 (Mbit/s)", "0.568", 0.52, 0.65),
            _rate("G1 over G2", "1.03", 0.9, 1.1),
            CONTROL,
        ),
        "CAIRN: one bottleneck for both groups",
    ),
    _experiment(
        "cb-cairn-s3",
        3,
        "Figures 21 and 22",
        "Three senders with ways of their own to three fast receivers: each gets what its own link carries.",
        (
            _rate("saicpc (Mbit/s)", "1.289", 1.15, 1.35),
            _rate("udelpc (Mbit/s)", "1.271", 1.15, 1.35),
            _rate("mitpc2 over saicpc", "5.5", 5.0),
            _rate("mitpc2 over udelpc", "5.6", 5.0),
            CONTROL,
        ),
        "CAIRN: three senders with ways of their own",
    ),
    _experiment(
        "cb-cairn-s4",
        4,
        "Figures 23 and 24",
        "One of the slow senders receives too: its own sending is not slowed down, the others share its link.",
        (
            _rate("udelpc (Mbit/s)", "1.189", 1.05, 1.3),
            _rate("saicpc (Mbit/s)", "0.508", 0.45, 0.65),
            _rate("mitpc2 (Mbit/s)", "0.529", 0.45, 0.65),
            _rate("mitpc2 over saicpc", "1.04", 0.85, 1.15),
            CONTROL,
        ),
        "CAIRN: a slow receiver",
    ),
)
