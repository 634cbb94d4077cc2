"""All settings of the transport, with the papers' defaults.

One frozen object for a whole client. Every part reads its own lines of it, and each part can be switched off by
itself: no record (`record_entries=0`, the basic mode), no order, no recovery (both are asked for per subscription), no
repairs for others (`answers=False`), no heartbeats (`heartbeat_interval=0`), no echo (`echo_interval=0`).
"""

from __future__ import annotations

from functools import cached_property
from math import isfinite
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from penstock.content.bloom import EncodingScheme
from penstock.kernel.choices import check_choices

LatchName = Literal[
    "two-laplace",  # 002 section 3.2.4, whatever the number of brokers
    "conditional",  # the same law, given that the message is already missing (erratum O3)
    "stages",  # the exact law for `hops` equal brokers (erratum O4)
    "static",  # the same wait for all, the paper's baseline
    "chebyshev",  # the general bounds of 002 section 3.2.2
    "bernstein",
    "hoeffding",
    "normal",
    "two-paths",  # two ways of different constant delay (002 section 6.2)
]
_KINDS: dict[type, str] = {bool: "True or False", int: "a whole number", float: "a number", str: "text"}
RECORD_ENTRIES_MAX = 255  # one byte of the header counts them
RECORD_ENTRIES_TAKEN_MAX = 128  # no publisher has a reason to send more, and a receiver need not look at more


class TransportOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a subscription may ask of the transport."""

    ordered: Annotated[bool, Meta(description="Each publisher's messages in the order in which it sent them.")] = False
    recover: Annotated[bool, Meta(description="Ask for lost messages again.")] = False
    priority: Annotated[
        float, Meta(gt=0.0, le=1e6, description="With congestion control: 2 gets twice the rate of 1.")
    ] = 1.0


class TransportConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """Settings of one client's transport. Times are in seconds."""

    # Which scheme. Both ends must have the same.
    scheme: Literal["ledgers", "papers"] = (
        "ledgers"  # papers: that of 002; settings marked (papers) have no effect else
    )

    # The publication record (002 sections 3.2.6 and 3.3).
    record_entries: int = 10  # k: 25 and 5 in chapter 3, 10 in chapter 4, 2 in chapter 5
    record_bits: int = 256  # of one entry: 128 in chapter 3, 256 in chapters 4 and 5 (erratum B3)
    record_hashes: int = 5  # per value, and one bit per name: 002 gives none (erratum B4, decision 0008)
    record_form: Literal["whole", "shared"] = "whole"  # shared: an entry is written as its difference to its neighbour
    record_span: float = 0.0  # 0: always record_entries; otherwise as many as were published in this time (3.2.6)

    # Ordering (002 sections 3.2.5 and 3.4).
    latch: LatchName = "two-laplace"
    quantile: Literal["exact", "appendix"] = "exact"  # erratum O1
    violation_probability: float = 0.0  # P_t; 0: none stated, see `latch_probability`
    delay_samples: int = 25  # q
    static_latch: float = 0.030  # CST-30 of Figure 3.11
    hops: int = 0  # brokers on the way, for the latches that ask; 0: as the header says, 2 if it does not
    latch_max: float = 5.0  # no message waits longer for another, whatever the delays look like
    late: Literal["deliver", "drop", "hold"] = "deliver"  # hold: with recovery, wait for the repair up to hold_max
    hold_max: float = 2.0
    queue_max: int = 10_000  # messages of one publisher that wait; beyond it the first goes out early

    # Loss detection.
    window: int = 4_096  # how far behind the newest message a number is remembered as received or not
    jump_max: int = 100_000  # a larger step of the sequence number is refused as absurd
    skew_max: float = 60.0  # so is a delay that differs by more from that of the message before

    # Requests and repairs (002 section 4.2; constants of SRM).
    request_first: float = 2.0  # C1
    request_spread: float = 2.0  # C2
    repair_first: float = 1.0  # D1
    repair_spread: float = 1.0  # D2
    repair_distance: Literal["requester", "publisher"] = "requester"  # R3: 002 prints the second
    requests_max: int = 3  # for one message; a phantom loss is answered by nobody
    requests_pending_max: int = 10_000
    request_to: Literal["peers", "publisher"] = "peers"  # publisher: straight to its inbox, nobody else receives it
    repair_to: Literal["all", "requester"] = "all"  # republished, or sent to the requester alone (4.2.3)
    answers: bool = True  # this client keeps messages and sends repairs
    publisher_answers: bool = True  # so it does for what it published itself, from a ring of its own
    published_kept: int = 4_096  # the size of that ring
    kept_bytes_max: int = 64 << 20  # of all messages in it, and of those kept from any one other publisher
    domain: str = ""  # requests stay among clients that name the same domain, or none (4.2.2)
    adaptive_suppression: bool = False  # tune C1, C2, D1, D2 as SRM does

    # The cache of others' messages (Algorithm 4.2, corrected).
    cache_min: int = 5  # K_min
    cache_max: int = 300  # K_max
    cache_hit_ratio: float = 1.0  # H
    cache_interval: float = 1.0
    cache_fixed: bool = False  # stay at cache_max: a baseline

    # Echoes (distances).
    echo_interval: float = 10.0
    distance_first: float = 0.1  # until an echo has come back
    distances_max: int = 20_000

    # Heartbeats: publication records without a message (002 sections 4.3 and 6.2).
    heartbeat_interval: float = 0.0  # seconds between two of a publisher that has published meanwhile; 0: none
    heartbeat_spans: int = 2  # a heartbeat covers so many intervals, 1 or 2: with 2 one of them may be lost
    heartbeat_repeats: int = 2  # how often it is repeated when nothing follows: the end of a burst
    heartbeat_below: float = 1.0  # who detects fewer losses than this share subscribes to them; 1: always

    # Proactive repair: a second copy of each message (beyond the papers).
    proactive_repair_after: float = 0.0  # so long after the first; 0: none

    # Congestion control (000; 002 chapter 5).
    congestion: bool = False  # publisher: obey feedback; subscriber: send it
    slow_start: bool = True  # publisher: twice what left lately, and no more, before anybody can complain (12.10)
    control: Literal["equation", "window"] = "equation"  # what rate is fair: TCP's response function, or a window (6.2)
    increase_max: float = 0.5  # alpha: by which share of its rate a flow may grow in one round trip
    loss_intervals: int = 8  # i: how many loss intervals are averaged; weights as in TFRC
    gap_rule: Literal["probable", "optimistic", "conservative"] = "probable"  # for gaps that no record covers (5.2.3)
    feedback_patience: float = 6.0  # longest suppression timer of feedback, in round trips; 0: no suppression (6.2)
    feedback_exact: bool = True  # feedback names filters by their text; else by their bits, but for ranges (III-B2)
    flow_timeout: float = 2.0  # a flow whose limiting receiver is silent for so long, or 10 round trips, is free again
    flow_queue: int = 50  # messages of one flow that may wait for tokens
    prefer_shared: bool = True  # a full queue gives up a message that fewer flows want; else the newest, as in 000
    flows_max: int = 1_000
    quota_floor: float = 1.0  # messages/s; no subscriber gets a flow below it
    quarantine_below: float = 2.0  # messages/s; a receiver that alone holds a flow below this is quarantined, 0: never
    quarantine_after: float = 30.0  # once it has done so for this long
    when_full: Literal["wait", "drop"] = "wait"  # what a publisher does whose flow has no tokens: wait, or withhold

    # Bounds.
    sessions_max: int = 20_000
    session_idle: float = 3_600.0  # a publisher that was silent so long is forgotten

    def __post_init__(self) -> None:
        check_choices(self)
        for problem in self._wrong_values() or self._problems():
            raise ValueError(problem)

    def _wrong_values(self) -> list[str]:
        """Fields whose value is none of its kind, or a number that no time or constant can be; files have no such."""
        problems = []
        for name, default in zip(self.__struct_fields__, self.__struct_defaults__, strict=True):
            value, kind = getattr(self, name), type(default)
            fits = isinstance(value, float | int if kind is float else kind) and isinstance(value, bool) == (
                kind is bool
            )
            if not fits:
                problems.append(f"{name} is {value!r}; it must be {_KINDS[kind]}")
            elif kind is float and not (isfinite(value) and value >= 0.0):
                problems.append(f"{name} is {value:g}; times and constants must be finite and not negative")
        return problems

    def _problems(self) -> list[str]:
        rules = {
            f"record_entries must be from 0 to {RECORD_ENTRIES_TAKEN_MAX}": 0
            <= self.record_entries
            <= RECORD_ENTRIES_TAKEN_MAX,
            "record_bits must be a multiple of 64 from 64 to 1024": self.record_bits in range(64, 1025, 64),
            "record_hashes must be from 1 to 16": 1 <= self.record_hashes <= 16,
            "violation_probability must be from 0 to 0.5": 0.0 <= self.violation_probability <= 0.5,
            "delay_samples must be from 1 to 10000": 1 <= self.delay_samples <= 10_000,
            "hops must be from 0 to 255": 0 <= self.hops <= 255,
            "window must be at least 64, and larger than the record": self.window >= max(64, self.record_entries),
            "jump_max must be at least 1": self.jump_max >= 1,
            "requests_max must be at least 1": self.requests_max >= 1,
            "cache_min must be at least 1 and at most cache_max": 1 <= self.cache_min <= self.cache_max,
            "cache_hit_ratio must be from 0 to 1": 0.0 <= self.cache_hit_ratio <= 1.0,
            "loss_intervals must be from 1 to 64": 1 <= self.loss_intervals <= 64,
            "flow_queue and flows_max must be at least 1": min(self.flow_queue, self.flows_max) >= 1,
            "increase_max, flow_timeout and quota_floor must be above 0": min(
                self.increase_max, self.flow_timeout, self.quota_floor
            )
            > 0.0,
            "heartbeat_spans must be 1 or 2": self.heartbeat_spans in (1, 2),
            "heartbeat_repeats must be from 0 to 100": 0 <= self.heartbeat_repeats <= 100,
            "heartbeat_below must be from 0 to 1": 0.0 <= self.heartbeat_below <= 1.0,
            "queue_max, requests_pending_max, published_kept, distances_max and sessions_max must be at least 1": min(
                self.queue_max,
                self.requests_pending_max,
                self.published_kept,
                self.distances_max,
                self.sessions_max,
            )
            >= 1,
            "skew_max, cache_interval, distance_first and session_idle must be above 0": min(
                self.skew_max, self.cache_interval, self.distance_first, self.session_idle
            )
            > 0.0,
        }
        return [problem for problem, holds in rules.items() if not holds]

    @property
    def latch_probability(self) -> float:
        """What a latch goes by: 002's choice, if no probability was stated."""
        return self.violation_probability or 0.05

    @cached_property
    def encoding(self) -> EncodingScheme:
        """How a message becomes an entry of the papers' record, or bits that stand for a flow."""
        return EncodingScheme(
            bits=self.record_bits,
            hashes=self.record_hashes,
            existence_hashes=1,
            key=b"penstock-record",
            fill_limit=1.0,
            wide_tags=False,
        )


PAPERS = {"scheme": "papers", "violation_probability": 0.05, "published_kept": 2_000, "slow_start": False}


def papers_config(**settings: Any) -> TransportConfig:
    """The papers' scheme with its own defaults, for the papers' experiments and for who wants it."""
    return TransportConfig(**{**PAPERS, **settings})
