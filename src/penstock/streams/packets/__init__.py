"""The packets of streams.

Between neighbours, hop by hop, each about one pubend:
    Join, JoinRefresh, JoinWanted, Leave   downstream tells upstream what it wants, as a set of filters with a version
    Knowledge    downstream: what every tick of a range is, as far as the receiver's filters select it
    Nack         upstream: ranges of ticks that the sender knows nothing of
    Dcq, Uca     downstream: can you keep up? upstream: we cannot (congestion control)
    Advert       flooded: who a broker is, and which pubends it hosts
    AdvertsWanted   of a new neighbour: tell me all adverts that you know

Between any two brokers, carried along the shortest path (`Routed`), lost like everything else, asked again by whoever
waits for the answer:
    PublishRequest, PublishAnswer                  a message for a pubend; the tick under which it is on disk
    PublishStored                                  the same answer for several that were written together
    PublishWaits                                   it is there and waits: the rate is limited
    Register, Registered, Unregister, Renew        a reader begins, ends, and lives on under a durable name
    SessionEnded                                   the pubend knows no such session, or another reader took over
    Progress, ProgressStored                       a reader has acknowledged up to a tick; that is on disk
    SharedHandout, Verdicts, VerdictsStored        of shared names: to one member; what it says; that is on disk
    ReadLog, LogSlice                              a range of the log, for who is no reader; a slice of it
    Command, CommandAnswer                         add, info, trim, rm, verify, failed, survey, begin

Between a client and its home broker:
  from the client
    StreamPublish, DurableSubscribe, DurableLeave, Take, Acknowledge, Resume, ShareSettle, ReadLog,
    StreamCommand
  to it
    StreamPublished, StreamStored, StreamWaits, DurableAnswer, StreamDelivery, Acknowledged, DurableEnded,
    ShareDelivery, ShareSettled, LogSlice, StreamReport

A pubend is named `stream/number`. Its *epoch* is drawn when it is made and tells it from one of the same name that was
removed before: ticks of another epoch mean nothing. Ranges of ticks include both ends. A version of interest counts
within one life of the broker that joined, so it travels with that broker's incarnation (`life`).
"""

from __future__ import annotations

from penstock.kernel.packet import Packet
from penstock.streams.packets.clients import (
    Acknowledge,
    Acknowledged,
    DurableAnswer,
    DurableEnded,
    DurableLeave,
    DurableSubscribe,
    Resume,
    StreamCommand,
    StreamDelivery,
    StreamPublish,
    StreamPublished,
    StreamReport,
    StreamStored,
    StreamWaits,
    Take,
)
from penstock.streams.packets.common import (
    ADVERTISED_MAX,
    COMMAND_BYTES_MAX,
    DURABLE_NAME_BYTES_MAX,
    FILTER_BYTES_MAX,
    FILTERS_MAX,
    ITEMS_MAX,
    KEY_CHARACTERS_MAX,
    NAMES_MAX,
    PUBENDS_MAX,
    PUBLICATION_ID_BYTES_MAX,
    RANGES_MAX,
    STORED_MAX,
    STREAM_NAME_BYTES_MAX,
    TICK_MAX,
    WAITING_MAX,
    WHERE_BYTES_MAX,
    Item,
    Position,
    Range,
    Tick,
    WaitNotice,
    client_of,
    name_problem,
    pubend_name,
    stream_of,
)
from penstock.streams.packets.neighbours import (
    Advert,
    AdvertsWanted,
    Dcq,
    Join,
    JoinRefresh,
    JoinWanted,
    Knowledge,
    Leave,
    Nack,
    Uca,
)
from penstock.streams.packets.reads import SLICE_BYTES_MAX, SLICE_ENTRIES_MAX, LogSlice, ReadLog
from penstock.streams.packets.routed import (
    Command,
    CommandAnswer,
    ForPubend,
    Payload,
    Progress,
    ProgressStored,
    PublishAnswer,
    PublishRequest,
    PublishStored,
    PublishWaits,
    Register,
    Registered,
    Renew,
    Routed,
    SessionEnded,
    Unregister,
)
from penstock.streams.packets.shared import (
    ACK_WITHIN_MAX,
    ATTEMPTS_MAX,
    SETTLING,
    SHARED_ITEMS_MAX,
    Handout,
    Share,
    ShareDelivery,
    SharedHandout,
    SharedItem,
    ShareSettle,
    ShareSettled,
    ShareVerdict,
    VerdictItem,
    Verdicts,
    VerdictsStored,
)

BROKER_PACKETS: tuple[type[Packet], ...] = (
    Advert,
    AdvertsWanted,
    Join,
    JoinRefresh,
    JoinWanted,
    Leave,
    Knowledge,
    Nack,
    Dcq,
    Uca,
    Routed,
)
FROM_CLIENT: tuple[type[Packet], ...] = (
    StreamPublish,
    DurableSubscribe,
    DurableLeave,
    Take,
    Acknowledge,
    Resume,
    ShareSettle,
    ReadLog,
    StreamCommand,
)
TO_CLIENT: tuple[type[Packet], ...] = (
    StreamPublished,
    StreamStored,
    StreamWaits,
    DurableAnswer,
    StreamDelivery,
    Acknowledged,
    DurableEnded,
    ShareDelivery,
    ShareSettled,
    LogSlice,
    StreamReport,
)

__all__ = [
    "ACK_WITHIN_MAX",
    "ADVERTISED_MAX",
    "ATTEMPTS_MAX",
    "BROKER_PACKETS",
    "COMMAND_BYTES_MAX",
    "DURABLE_NAME_BYTES_MAX",
    "FILTERS_MAX",
    "FILTER_BYTES_MAX",
    "FROM_CLIENT",
    "ITEMS_MAX",
    "KEY_CHARACTERS_MAX",
    "NAMES_MAX",
    "PUBENDS_MAX",
    "PUBLICATION_ID_BYTES_MAX",
    "RANGES_MAX",
    "SETTLING",
    "SHARED_ITEMS_MAX",
    "SLICE_BYTES_MAX",
    "SLICE_ENTRIES_MAX",
    "STORED_MAX",
    "STREAM_NAME_BYTES_MAX",
    "TICK_MAX",
    "TO_CLIENT",
    "WAITING_MAX",
    "WHERE_BYTES_MAX",
    "Acknowledge",
    "Acknowledged",
    "Advert",
    "AdvertsWanted",
    "Command",
    "CommandAnswer",
    "Dcq",
    "DurableAnswer",
    "DurableEnded",
    "DurableLeave",
    "DurableSubscribe",
    "ForPubend",
    "Handout",
    "Item",
    "Join",
    "JoinRefresh",
    "JoinWanted",
    "Knowledge",
    "Leave",
    "LogSlice",
    "Nack",
    "Payload",
    "Position",
    "Progress",
    "ProgressStored",
    "PublishAnswer",
    "PublishRequest",
    "PublishStored",
    "PublishWaits",
    "Range",
    "ReadLog",
    "Register",
    "Registered",
    "Renew",
    "Resume",
    "Routed",
    "SessionEnded",
    "Share",
    "ShareDelivery",
    "ShareSettle",
    "ShareSettled",
    "ShareVerdict",
    "SharedHandout",
    "SharedItem",
    "StreamCommand",
    "StreamDelivery",
    "StreamPublish",
    "StreamPublished",
    "StreamReport",
    "StreamStored",
    "StreamWaits",
    "Take",
    "Tick",
    "Uca",
    "Unregister",
    "VerdictItem",
    "Verdicts",
    "VerdictsStored",
    "WaitNotice",
    "client_of",
    "name_problem",
    "pubend_name",
    "stream_of",
]
