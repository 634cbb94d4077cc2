"""A scenario: brokers, links, clients with their subscriptions and publications, faults and checks.

This file says what a scenario is; `reader` makes one from TOML, Python code may build one directly, and `validate`
looks for what types cannot say. All quantities are SI: seconds, bits per second, bytes. The field names are the keys of
the file.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct, field

from penstock.kernel.link import LinkKind
from penstock.pricing.config import PricedClass
from penstock.scenario.workload import PublisherSpec

DEFAULT_CHECKS = ("at-most-once", "only-wanted", "sets-split", "nothing-silent")
RETRIEVAL_CHECKS = ("retrieval-max", "retrieval-fresh", "retrieval-tables", "retrieval-waves")
PRICED_CHECKS = ("priced-paid", "priced-accounts", "priced-once", "priced-kept")
STREAM_CHECKS = ("stream-once", "stream-true", "stream-in-force", "stream-ticks", "stream-kept", "stream-positions")


class BrokerSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A broker. With several workers, or random service times, messages may overtake each other inside it."""

    name: str
    workers: int = 1
    service_mean: float = 0.0  # seconds a worker spends on a message, exponentially distributed; 0: none
    slow_share: float = 0.0  # of the messages that take longer: a pause of the machine, a page that is not there
    slow_mean: float = 0.0  # by so many seconds, exponentially distributed
    delivery_cost: float = 0.0  # seconds more for each copy that the worker hands to a client
    send_cost: float = 0.0  # seconds for each message of a stream that it puts on a link, new or again
    ingress_packets: int = 10_000  # how many messages may wait for a worker
    joins_at: float = 0.0
    clock_offset: float = 0.0
    clock_drift: float = 0.0  # seconds per second
    disk_delay: float = 0.002  # seconds that its disk takes for a change
    services: dict[str, Any] = {}  # settings of its own, in the place of those of all brokers
    without: tuple[str, ...] = ()  # services that it does not have, as a broker of an earlier release
    listen: str | None = None  # where a live broker listens, such as "127.0.0.1:7420"; none: a port is assigned


class LinkSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A link between two brokers, the same in both directions, but for the rate if two are given.

    A `tcp` link is a connection as a `reliable` one is. In the simulator a `reliable` connection is ideal, and a `tcp`
    one is a simulated TCP whose segments wait, and are dropped, on the wire, where they meet those of others.
    """

    between: tuple[str, str]
    kind: Literal["datagram", "shaped", "reliable", "tcp"] = "datagram"
    rate_bits_per_s: float | None = None  # none: as fast as you like
    rate_back_bits_per_s: float | None = None  # from the second to the first; none: the same
    delay: float = 0.001
    jitter: float = 0.0  # the delay wanders slowly within plus and minus this
    loss: float = 0.0
    loss_burst: float = 1.0  # packets lost in a row, on average (Gilbert's model); 1: each is lost by itself
    duplicate: float = 0.0  # share of packets that arrive twice; not on reliable links
    reorder: float = 0.0  # share of packets that are held up, so that later ones overtake them; not on reliable links
    queue_packets: int = 1_000
    cost: int = 1
    repair: bool = True  # a datagram link sends again what the wire lost; no other kind needs it
    # Of tcp links alone:
    send_buffer_bytes: int = 16_384  # what the connection holds, sent and not acknowledged
    segment_bytes: int = 1_460  # of packets; each segment has 40 bytes more on the simulated wire, its header
    receive_window: int = 1_000  # segments that may be under way, at most
    wire_packets: int = 50  # that may wait for the wire; those that find no place are dropped, and sent again
    along: tuple[str, ...] = ()  # brokers through whose links the connection goes, with its own wire for access

    @property
    def link_kind(self) -> LinkKind:
        """What the link is for its two ends."""
        return LinkKind.RELIABLE if self.kind == "tcp" else LinkKind(self.kind)


class StreamSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A stream: one pubend at each of these brokers, in this order; a broker may have several."""

    name: str
    at: tuple[str, ...]


class SubscriptionSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a client wants, and from when until when.

    A durable name may be read by one client after the other. The next reader begins where the name's acknowledgements
    have come to, or, with `from_kept`, at the position that the reader before it has kept and hands over.
    """

    where: str
    start: float = 0.0
    stop: float | None = None
    options: dict[str, Any] = {}  # what it asks of services; in a file these stand beside `where`: ordered = true
    reads_messages_per_s: float | None = None  # how fast the application takes messages; none: at once
    queue_max: int = 10_000  # how many may wait for the application
    from_kept: bool = False
    acknowledge_every: int = 1  # messages, where ack = "manual"
    rejects: float = 0.0  # of a member of a shared name: how likely it is to reject a message
    forgets: float = 0.0  # and never to say what became of it


class ClientSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A client at its home broker."""

    name: str
    broker: str
    access_delay: float = 0.0
    access_rate_bits_per_s: float | None = None
    queue_packets: int = 1_000  # what may wait at the broker for a slow access link
    clock_offset: float = 0.0
    clock_drift: float = 0.0
    subscribe: tuple[SubscriptionSpec, ...] = ()
    publish: tuple[PublisherSpec, ...] = ()
    services: dict[str, Any] = {}  # settings of its services; in a file tables of their own: [client.transport]


class TcpSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A bulk TCP connection beside the brokers, whose packets share the wires of a path of datagram links."""

    name: str
    path: tuple[str, ...]  # brokers, from the sender's side to the receiver's
    start: float = 0.0
    stop: float | None = None
    segment_bytes: int = 280  # on the wire, with its header
    access_delay: float = 0.0005  # from the sender to the first broker, and from the last to the receiver
    acknowledge_every: int = 2  # segments; 1: no delayed acknowledgements
    receive_window: int = 1_000  # segments that may be under way, at most


class FaultSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something that goes wrong, or right again, at a moment.

    crash, leave, restart: `broker`. What a crash leaves of changes to the disk that were not answered yet is in `tail`:
    nothing (lost), everything (kept), or the first ones (torn). client_crash: `client`, which does not come back but by
    client_restart: then it lives its next life, subscribes again and publishes what is due from then on.

    link_down, link_up: `link`, in both directions, or only `towards` one of its ends; a reliable link needs both. A
    client and its broker are a link too. move: `client` connects to `broker` instead of the one it had. link_rate:
    `link` and `rate_bits_per_s`, from now on. partition: `group` against the rest.

    clock_step: `broker` and `seconds`. disk_full, disk_freed: `broker`. disk_slow: `broker` and `seconds` for each
    change from now on. disk_flip: one bit of what the `broker` has stored is another now. disk_roll_back: a part of it
    is as it was before its last change. disk_restore: what these two have changed is mended; the broker must restart.

    heal: everything comes back (but clients), disks are mended, have room and are as fast as they were, brokers whose
    disks had to be mended restart, and no link loses, duplicates or reorders anything any more.
    """

    at: float
    kind: Literal[
        "crash",
        "leave",
        "restart",
        "client_crash",
        "move",
        "client_restart",
        "link_down",
        "link_up",
        "link_rate",
        "partition",
        "clock_step",
        "disk_full",
        "disk_freed",
        "disk_slow",
        "disk_flip",
        "disk_roll_back",
        "disk_restore",
        "heal",
    ]
    broker: str | None = None
    client: str | None = None
    link: tuple[str, str] | None = None
    towards: str | None = None
    group: tuple[str, ...] = ()
    seconds: float = 0.0
    tail: Literal["lost", "kept", "torn"] = "lost"
    rate_bits_per_s: float = 0.0


class LaneSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One lane of every link between brokers and to clients: [lanes.priced], for instance."""

    bytes_max: int | None = None  # what may wait for a link (4 MiB), or, if it holds, for each neighbour (256 KiB)
    weight: int = 1  # its share of a link, against the other lanes that have something to send
    overflow: Literal["drop", "hold"] = "drop"  # when full: drop, or give neighbours no more credit


class EncodingSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The Bloom encoding of the whole network."""

    bits: int = 512
    hashes: int = 3


class Scenario(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything about a run but its seed."""

    name: str
    duration: float = 10.0  # publishing ends here; the run goes on for `drain` so that nothing is left on the way
    drain: float = 2.0
    settled_after: float = 0.0  # from here on nothing may be missed
    settle: float = 1.0  # how long a subscription may take to be known everywhere
    encoding: EncodingSpec = EncodingSpec()
    lanes: dict[Literal["stream", "priced", "transport", "best_effort"], LaneSpec] = {}
    services: dict[str, Any] = {}  # settings of the services of all brokers: [services.routing]
    broker: tuple[BrokerSpec, ...]
    link: tuple[LinkSpec, ...] = ()
    store: str = ""  # where live brokers store, if not in a folder: postgresql://user@host/database
    stream: tuple[StreamSpec, ...] = ()
    classes: tuple[PricedClass, ...] = field(default=(), name="class")  # [[class]]: content that is priced
    client: tuple[ClientSpec, ...] = ()
    tcp: tuple[TcpSpec, ...] = ()
    fault: tuple[FaultSpec, ...] = ()
    check: tuple[str, ...] = DEFAULT_CHECKS  # and those of streams, classes, retrieval if there are any
