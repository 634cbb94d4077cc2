"""Settings of streams. All times are in seconds; the defaults are our own choice unless a section of 001 is named."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from penstock.kernel.choices import check_choices
from penstock.kernel.trace import TRACE_STREAM


class StreamsConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of brokers: [services.streams]."""

    declared: dict[str, tuple[str, ...]] = {}  # stream -> the brokers of its pubends; a network file's [[stream]]
    # Pubends.
    silence_first: float = 0.05  # an idle pubend says so, so that the loss of its last message is noticed
    silence_interval: float = 0.5  # and again, as long as it is idle (001 section 2)
    lease: float = 10.0  # how far ahead ticks are promised to disk, so that none is given twice after a crash
    history: float = 3_600.0  # acknowledged messages are kept this long, for readers that begin in the past
    retain: float = 7 * 86_400.0  # no message is kept longer, acknowledged or not
    retain_bytes: int = 1 << 30  # nor more of them, for each pubend
    trace_retain: float = 600.0  # the same of the stream `_trace`, which nobody needs for long
    trace_bytes: int = 64 << 20
    ids_window: float = 600.0  # a publication_id is known this long, as far as the log reaches
    ids_max: int = 100_000  # and so many, for each pubend
    pending_bytes_max: int = 32 << 20  # of messages that wait for the disk, for each pubend
    names_max: int = 1_000  # durable names of one pubend
    session_lease: float = 6.0  # a reader that is not heard of this long is gone
    # Relays.
    cache_bytes: int = 8 << 20  # of messages, for each pubend
    runs_max: int = 10_000  # ranges of ticks that are known, for each pubend
    answer_bytes: int = 64 << 10  # what one Nack is answered with at most
    packet_items: int = 512  # messages of one Knowledge packet at most; 1 in 001, where each travels alone
    refresh_interval: float = 1.0  # Joins, sessions and adverts are told again
    expire_after: float = 5.0  # a Join that was not
    reads_max: int = 4  # reads of the log at once, for each pubend
    # Edges.
    receive_window: float = 30.0  # seconds of ticks above the doubt horizon; what is beyond it is ignored
    nack_window: float = 5.0  # seconds of ticks above a reader's position that may be asked for
    nack_delay: float = 0.01  # a gap may close by itself when packets overtake each other
    nack_retry_min: float = 0.2  # 001 errata: max(2 round trips, 200 ms), doubled each time
    nack_retry_max: float = 5.0
    outstanding_max: int = 64  # ranges that are asked for, for each pubend
    # Congestion control (001 section 3, Table 1): the pubend's (PDCC) and the edge's (SDCC), each by itself.
    pubend_control: bool = True
    edge_control: bool = True
    control_rule: Literal["measured", "paper"] = "measured"  # how rates and windows change: ours, or as in 001
    query_interval: float = 1.0  # between two queries of a pubend
    quiet: float = 2.0  # without alerts, before the rate is raised
    rate_step: float = 2.0  # messages/s that it is raised by at least
    rate_floor: float = 10.0  # messages/s that it is never below; or 5 kB/s, if that is less (not in 001)
    increase: float = 0.05
    decrease: float = 0.5
    keep_of_increase: float = 0.25  # of the last increase, when the rate falls for the first time after it
    smoothing: float = 0.1  # of the pace of the doubt horizon, for each sample
    pace_interval: float = 1.0  # seconds between two samples of it
    alert_below: float = 0.05  # seconds of ticks per second less than real time
    recovery_gain: float = 1.0  # and more than real time, for edges that recover
    lag_max: float = 4.0  # seconds of ticks behind the pubend
    lag_alert: float = 0.5  # seconds that data may wait on their way; rule "measured"
    live_share: float = 0.12  # of the rate, that pubends keep while an edge recovers; rule "measured"
    nack_window_first: float = 0.1  # seconds of ticks that are asked for at first; `nack_window` is the most
    nack_window_step: float = 0.1
    nack_gain: float = 0.1
    nack_loss: float = 0.3
    readers_max: int = 10_000  # durable subscriptions of one broker's clients
    # What 001 argues against, for experiments.
    decrease_step: float = 0.0  # above 0: an alert lowers the rate by so many messages/s, and never by a share of it
    control_first: bool = True  # False: queries and alerts wait in line with data (only where that lane drops)
    recovering_by_nacks: bool = False  # True: an edge that has sent a Nack since the last query is recovering

    def __post_init__(self) -> None:
        positive = [
            *("silence_first", "silence_interval", "lease", "history", "retain", "retain_bytes", "ids_window"),
            *("trace_retain", "trace_bytes"),
            *("ids_max", "pending_bytes_max", "names_max", "session_lease", "cache_bytes", "runs_max", "answer_bytes"),
            "packet_items",
            *("refresh_interval", "expire_after", "reads_max", "receive_window", "nack_window", "nack_retry_min"),
            *("nack_retry_max", "outstanding_max", "readers_max", "query_interval", "quiet", "rate_step", "rate_floor"),
            *("pace_interval", "lag_max", "lag_alert", "live_share", "nack_window_first", "nack_window_step"),
        ]
        for name in positive:
            value: Any = getattr(self, name)
            if not value > 0:
                raise ValueError(f"{name} is {value}; it must be above 0")
        if self.nack_window > self.receive_window:
            raise ValueError("nack_window is at most receive_window")
        for name in ("decrease", "keep_of_increase", "smoothing", "alert_below", "live_share"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be between 0 and 1")
        check_choices(self)

    def of(self, stream: str) -> StreamsConfig:
        """As they are for one stream: records of a trace are kept for a short time, whoever has not read them."""
        if stream != TRACE_STREAM:
            return self
        retain = self.trace_retain
        return replace(
            self, history=min(self.history, retain), retain=min(self.retain, retain), retain_bytes=self.trace_bytes
        )


class StreamsClientConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of one client: [client.streams]."""

    retry_min: float = 0.5  # before a publication, or a subscription, is tried again
    retry_max: float = 5.0
    give_up_after: float = 60.0  # then `publish` raises: nobody knows whether it was stored
    command_within: float = 60.0  # for the answer to a command
    window: int = 2_000  # messages of a durable subscription that may wait for the application
    share_window: int = 16  # messages that a member of a shared name may hold, over all pubends

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value: Any = getattr(self, name)
            if not value > 0:
                raise ValueError(f"{name} is {value}; it must be above 0")


class StreamPublicationOptions(Struct, frozen=True, kw_only=True):
    """What a publication may ask for."""

    stream: Annotated[str, Meta(description="Store it in this stream; returns when it is on disk.")] = ""
    key: Annotated[str, Meta(description="Chooses the pubend: messages of one key stay in order.")] = ""
    publication_id: Annotated[str, Meta(description="A repeat under the same id is not stored again.")] = ""


class StreamSubscriptionOptions(Struct, frozen=True, kw_only=True):
    """What a subscription may ask for."""

    stream: Annotated[str, Meta(description="Read this stream, exactly once and in order.")] = ""
    durable: Annotated[str, Meta(description="The name under which the position is kept.")] = ""
    start_at: Annotated[
        str,
        Meta(description="For a new name: earliest, latest, a tick, a time, or 10m ago.", extra={"flag": "--start"}),
    ] = ""
    takeover: Annotated[bool, Meta(description="Take the place of another reader of this name.")] = False
    ack: Annotated[str, Meta(description="auto: done with it when the next is asked for; manual.")] = "auto"
    share: Annotated[bool, Meta(description="Share the name: each message to one of its readers.")] = False
    ack_within: Annotated[float, Meta(description="Shared: seconds until it goes to another (30).")] = 0.0
    attempts_max: Annotated[int, Meta(description="Shared: how often a message is tried (5).")] = 0
    failed: Annotated[str, Meta(description="Shared: the stream for what was tried that often.")] = ""
