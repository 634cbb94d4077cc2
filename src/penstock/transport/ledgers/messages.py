"""The control messages of this scheme, beside those that both schemes have (`wire/control_messages`).

    ledger   sketches of what was published: from a publisher to all who subscribed to ledgers
    ask      which messages are missing here: from a subscriber to the publisher's inbox
    reply    the messages, or that they are gone: to the inbox of who asked
    again    one message for all who wanted it: it has the attributes of the original and takes its way

Whose message it is says its identity: each is sent under its client's control name, which brokers let nobody else use.
So none names its sender, nor who gets it, since that is its inbox. Most requests are small and many are lost: what only
some have stands in a part of its own, and times are milliseconds modulo 65,536. The first byte is the `version`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec
from msgspec import Struct

from penstock.content.envelope import FLAG, control_message
from penstock.content.message import DEFAULT_LIMITS, INBOX, Identity, Message, Value, make_message
from penstock.errors import InvalidHeader, InvalidMessage
from penstock.kernel.number_ranges import NUMBER_MAX, WrittenRanges
from penstock.transport.ledgers.version import VERSION_BYTE, versioned
from penstock.transport.wire.control_messages import ASK, ControlIdentities

LEDGER, REPLY, AGAIN = "ledger", "reply", "again"
FILTERS_MAX = 64  # in one request
FILTER_BYTES_MAX = 1_000  # of all of them
NAMES_ASKED_MAX = 32  # names of columns that are asked for, or whose texts are


class Fills(Struct, frozen=True, array_like=True):
    """What a request says of numbers of which nobody here knows whether they are wanted."""

    ranges: WrittenRanges  # of these, only what matches
    filters: tuple[str, ...] = ()
    not_before: float = -1e15  # nothing that left earlier, by the publisher's clock
    texts: tuple[str, ...] = ()  # columns whose texts are of use in ledgers
    columns: tuple[str, ...] = ()  # columns that are of use, where filters would be too long


class MessageRequest(Struct, frozen=True, array_like=True):
    """Please send me these messages again, and of those what matches my filters."""

    incarnation: int
    stamp: int  # when it was sent, by the requester's clock
    numbers: WrittenRanges  # the messages themselves
    repeated: WrittenRanges = ()  # those that were asked for before, and did not come
    fills: Fills | None = None
    congestion: int = 0  # whether the requester has congestion control (`agreement`)


class Resent(Struct, frozen=True, array_like=True):
    """A message in a reply; its body stands behind the others'."""

    number: int
    count: int  # of its identity
    attributes: dict[str, Value]
    body_bytes: int


class Reply(Struct, frozen=True, array_like=True):
    """What became of some of the messages that were asked for."""

    incarnation: int
    stamp: int  # of the request
    covered: WrittenRanges  # fills of which everything that matches is here
    gone: WrittenRanges  # not kept any more
    last: int  # number of the last message that left
    messages: tuple[Resent, ...]


class Again(Struct, frozen=True, array_like=True):
    """The original of this number, for all."""

    incarnation: int
    number: int
    count: int


_encode = msgspec.msgpack.Encoder().encode
_Kind = TypeVar("_Kind", MessageRequest, Reply, Again)


def ledgers_where() -> str:
    """The subscription to all ledgers."""
    return f"{FLAG} = '{LEDGER}'"


def ledger_message(identities: ControlIdentities, ledger: bytes) -> Message:
    """To everybody who subscribed to ledgers."""
    return control_message(identities.next(), LEDGER, {}, b"", ledger)


def stamp_of(now: float) -> int:
    """A time as it travels in a request."""
    return int(now * 1e3) & 0xFFFF


def since_stamp(stamp: int, now: float) -> float:
    """How many seconds ago that was, up to a minute."""
    return (stamp_of(now) - stamp & 0xFFFF) * 1e-3


def ask_message(identities: ControlIdentities, publisher: str, ask: MessageRequest) -> Message:
    """To the publisher's inbox."""
    return control_message(identities.next(), ASK, {INBOX: publisher}, b"", VERSION_BYTE + _encode(ask))


def reply_message(identities: ControlIdentities, to: str, reply: Reply, bodies: Sequence[bytes]) -> Message:
    """To the inbox of who asked."""
    return control_message(identities.next(), REPLY, {INBOX: to}, VERSION_BYTE + _encode(reply), b"".join(bodies))


def again_message(identities: ControlIdentities, again: Again, message: Message) -> Message:
    """To everybody who wanted the message."""
    return control_message(identities.next(), AGAIN, message.attributes, VERSION_BYTE + _encode(again), message.body)


def decode_message(data: bytes, kind: type[_Kind]) -> _Kind:
    """What is in a control message of this kind; raises InvalidHeader, or ForeignScheme for another version."""
    try:
        decoded = msgspec.msgpack.decode(versioned(data, kind.__name__), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidHeader(f"no valid {kind.__name__}: {error}") from None
    if not _sane(decoded):
        raise InvalidHeader(f"{kind.__name__} with values that cannot be")
    return decoded


def _sane(decoded: MessageRequest | Reply | Again) -> bool:
    if decoded.incarnation < 0:
        return False
    if isinstance(decoded, MessageRequest):
        return decoded.fills is None or _sane_fills(decoded.fills)
    if isinstance(decoded, Again):
        return 0 < decoded.number <= NUMBER_MAX
    if not 0 <= decoded.last <= NUMBER_MAX:
        return False
    return all(0 < one.number <= NUMBER_MAX and one.body_bytes >= 0 for one in decoded.messages)


def _sane_fills(fills: Fills) -> bool:
    names = (fills.texts, fills.columns)
    short = all(max(map(len, one), default=0) <= DEFAULT_LIMITS.name_bytes_max for one in names)
    sizes = len(fills.filters) <= FILTERS_MAX and max(map(len, names)) <= NAMES_ASKED_MAX
    return short and sizes and sum(map(len, fills.filters)) <= FILTER_BYTES_MAX


def resent_messages(publisher: str, reply: Reply, bodies: bytes) -> list[tuple[Resent, Message]]:
    """The messages in this publisher's reply, as they were published; raises InvalidHeader."""
    found = []
    at = 0
    for one in reply.messages:
        body, at = bodies[at : at + one.body_bytes], at + one.body_bytes
        found.append((one, original(publisher, reply.incarnation, one.count, one.attributes, body)))
    if at != len(bodies):
        raise InvalidHeader(f"bodies of {len(bodies)} bytes where {at} were announced")
    return found


def original(publisher: str, incarnation: int, count: int, attributes: dict[str, Value], body: bytes) -> Message:
    """The message as it was published; raises InvalidHeader."""
    try:
        return make_message(Identity(publisher, incarnation, count), attributes, body)
    except InvalidMessage as error:
        raise InvalidHeader(f"a repair of no possible message: {error}") from None
