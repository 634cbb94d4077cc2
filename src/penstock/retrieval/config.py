"""Settings of retrieval: [services.retrieval] of brokers, [client.retrieval] of a client, options of a subscription.

Times are in seconds. Cache size and policy are the paper's (004 Table 4); bounds are our own choice, for it has none.
"""

from __future__ import annotations

import re
from math import isfinite
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, Struct

from penstock.errors import InvalidOption
from penstock.kernel.choices import check_choices
from penstock.kernel.storage import VALUES_MAX
from penstock.retrieval.forwarding import Forwarding
from penstock.retrieval.interest import EVERYTHING, FreshnessRule
from penstock.retrieval.rules import Dissemination, Duplicates, MediationRules
from penstock.retrieval.selection import configuration

DEFAULT_MAX = 10
DEFAULT_TIME = "24h"  # lifetime and freshness
SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
HAD_MAX = 200  # publications that an interest names as had by its home: some kilobytes
FLOOD_WAIT = 0.5  # seconds for which others wait that look for the same as somebody who has asked
NONCES_MAX = 16_384  # multicasts and their recipients that a broker remembers
LEFT_MAX = 10_000  # used publications that a broker remembers after they left its cache
TIME_MAX = 36_500 * 86_400.0  # a century: no freshness is longer
_TIME = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)\s*([smhdw]?)", re.ASCII)


class RetrievalConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a broker caches and answers."""

    keep: str = "TRUE"  # which publications of its clients it caches, as a predicate; FALSE: none
    cache_size: int = 500  # publications (CS)
    item_bytes_max: int = 128 << 10  # what is larger is not cached: so the cache holds 64 MB at most
    stored: bool = False  # the cache is kept in the broker's store, and outlives a restart
    policy: str = "MF"  # what is sent first, and evicted first
    dissemination: Dissemination = "overload notification"
    push_margin: float = 1.0
    en_route: bool = False  # cache what passes
    flushing: bool = False  # an unsent publication that is evicted goes to a neighbour
    forwarding: Forwarding = (
        "score"  # of what waits for a neighbour, first what most wait for, most urgently; or "fifo"
    )
    duplicates: Duplicates = "proactive"  # in-network dropping also drops what others on the way still wait for
    cursors: bool = True  # chains also get what other clients of the same broker got first; not in 004
    addressed: bool = True  # a multicast names the brokers that each copy is for; not in 004
    freshness_rule: FreshnessRule = "before request"  # "printed" is the paper's (erratum E1)
    interests_max: int = 100_000  # pending ones, of all brokers
    interests_per_client_max: int = 100
    items_max: int = 10_000  # of one lifetime; max="all" asks for so many
    lifetime_min: float = 2.0
    lifetime_max: float = 31 * 86_400.0
    moved_slack: float = 1.0  # by how much ages of publications may be wrong, where a client moves or copies come late
    resend_after: float = 0.5  # seconds without a receipt
    unreceipted_max: int = 16_384  # packets for one neighbour: whole caches may be asked for
    forget_after: float = 60.0  # a neighbour that is gone, with what it has not received

    def __post_init__(self) -> None:
        positive = ("item_bytes_max", "interests_max", "interests_per_client_max", "items_max", "lifetime_min")
        for name in (*positive, "resend_after", "unreceipted_max", "forget_after"):
            value: Any = getattr(self, name)
            if not (value > 0 and isfinite(value)):
                raise ValueError(f"{name} is {value}; it must be above 0")
        if not self.lifetime_min <= self.lifetime_max <= TIME_MAX:
            raise ValueError("lifetime_min must not be above lifetime_max, nor that above a century")
        if not 0.0 <= self.moved_slack <= TIME_MAX:
            raise ValueError("moved_slack must not be negative")
        if self.stored and self.cache_size > VALUES_MAX // 2 - 1:
            raise ValueError(f"a stored cache holds at most {VALUES_MAX // 2 - 1} publications")
        configuration(self.policy)
        check_choices(self)
        self.rules()

    def rules(self) -> MediationRules:
        """What the router goes by."""
        return MediationRules(
            cache_size=self.cache_size,
            policy=self.policy,
            dissemination=self.dissemination,
            push_margin=self.push_margin,
            en_route=self.en_route,
            flushing=self.flushing,
            duplicates=self.duplicates,
            cursors=self.cursors,
            interests_max=self.interests_max,
            remembers=True,
            had_max=HAD_MAX,
            together=True,
            flood_wait=FLOOD_WAIT,
            addressed=self.addressed,
            nonces_max=NONCES_MAX,
            left_max=LEFT_MAX,
            age_slack=self.moved_slack,
        )


class RetrievalClientConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds of one client."""

    answer_time: float = 1.0  # seconds that a one-shot request waits for answers
    retry: float = 2.0  # seconds without an answer of the broker, before it is asked again
    held_max: int = 10_000  # items that wait for the end of a lifetime, of all subscriptions

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value: Any = getattr(self, name)
            if not (value > 0 and isfinite(value)):
                raise ValueError(f"{name} is {value}; it must be above 0")


class RetrievalOptions(Struct, frozen=True, kw_only=True):
    """What a subscription may ask for. Whoever sets one of these asks for items, at most so many in each lifetime."""

    max: Annotated[int, Meta(description="Retrieve so many in each lifetime, cached or new (10).", ge=1)] = 0
    all_items: Annotated[bool, Meta(description="Retrieve all there are.", extra={"flag": "--all"})] = False
    lifetime: Annotated[str, Meta(description="Retrieve: how long a lifetime is (24h); 0: ask once.")] = ""
    freshness: Annotated[str, Meta(description="Retrieve: how old items may be (24h); 0: new ones only.")] = ""
    one_lifetime: Annotated[bool, Meta(description="Retrieve: end with the lifetime, do not ask again.")] = False
    at_end: Annotated[bool, Meta(description="Retrieve: hand all over at the end of each lifetime.")] = False


class RetrievalTerms(NamedTuple):
    """What a subscription asks for, in seconds."""

    max: int  # 0: all
    lifetime: float  # 0: one-shot
    freshness: float
    refreshes: bool
    at_end: bool


def terms_of(options: Any) -> RetrievalTerms:
    """From the options that were set, with defaults for the others; raises InvalidOption."""
    if not 0 <= options.max <= EVERYTHING or (options.max and options.all_items):
        raise InvalidOption("max", f"is a number from 1 to {EVERYTHING}, or leave it out and ask for all")
    lifetime = seconds_of(options.lifetime or DEFAULT_TIME, "lifetime")
    freshness = seconds_of(options.freshness or DEFAULT_TIME, "freshness")
    if lifetime == 0.0 and freshness == 0.0:
        problem = "0 asks for what is there already, and freshness 0 for what comes later: one must be above 0"
        raise InvalidOption("lifetime", problem)
    most = 0 if options.all_items else options.max or DEFAULT_MAX
    return RetrievalTerms(most, lifetime, freshness, lifetime > 0.0 and not options.one_lifetime, options.at_end)


def seconds_of(text: str, option: str) -> float:
    """A length of time: 90, 90s, 15m, 24h, 7d, 2w; raises InvalidOption."""
    found = _TIME.fullmatch(text.strip().lower())
    seconds = float(found[1]) * SECONDS[found[2]] if found is not None else -1.0
    if seconds > TIME_MAX:
        raise InvalidOption(option, f"cannot be {text[:64]!r}: a century (36500d) is the most")
    if seconds < 0.0:
        raise InvalidOption(option, f"cannot be {text[:64]!r}; write 0, 30s, 15m, 24h or 7d")
    return seconds
