"""The control messages of transports, carried as messages of the network below (002 sections 4.2.2, 4.2.3 and 4.3).

    request    please send this message again. Its attributes are the bits of the lost message's encoding, so any
               content-based network brings it to everybody whose own filter has a subset of these bits, and to nobody
               else
    repair     the message again: with the original attributes, so that it takes the way of the original; or, for one
               client alone, everything inside and its inbox outside
    heartbeat  a publication record with no message: this is what I published lately
    feedback   send me no more of this than so much (000 section III-B)
    echo       a request that measures a round trip, and its reply (`answer`); both go to inboxes
    question   who is slowed down by whom? To all publishers that are; `slowed` is the answer, to the asker's inbox

Each has an identity of its own, under the name of its sender with a `~` before it, so that nothing below can take it
for a message of an application. What a request or a repair is about stands in its header.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import and_
from typing import TypeVar

import msgspec
from msgspec import Struct

from penstock.content.bloom import positions
from penstock.content.envelope import FLAG, control_message, control_name
from penstock.content.language.expression import value_text
from penstock.content.language.parser import DEFAULT_PREDICATE_LIMITS
from penstock.content.message import INBOX, Identity, Message, Value, make_message
from penstock.content.tags import BIT_PREFIX
from penstock.errors import InvalidHeader, InvalidMessage

REQUEST, REPAIR, HEARTBEAT, ECHO, ANSWER = "request", "repair", "heartbeat", "echo", "answer"
FEEDBACK = "feedback"
QUESTION, SLOWED = "slow?", "slowed"
# These must come through where data does not, so they travel in the lane for control messages of services. The others
# take the way of data: a repair is data, a heartbeat must not overtake what it tells of, an echo measures it.
ASK = "ask"  # the request of the scheme with ledgers
AHEAD_OF_DATA = frozenset({REQUEST, ASK, FEEDBACK, QUESTION, SLOWED})
FLOWS_MAX = 64  # in one feedback
WHERE_MAX = 256  # characters of a flow's text; to parse one takes time, and feedback comes often
SLOWED_MAX = 32  # flows in one answer to a question
FLOW_LENGTH_MAX = 200  # characters of a flow's name in it
RECEIVER_LENGTH_MAX = 128  # and of its limiting receiver's: so the longest answer still fits into a datagram
TO, FROM, ABOUT, DOMAIN = INBOX, "_from", "_about", "_domain"
ANY = "_any"  # in the place of bits, if there are too many: then everybody is asked
BITS_MAX = 60  # of a request: a message has at most 64 attributes, and some are taken


class Key(Struct, frozen=True, array_like=True, order=True, gc=False):
    """Which message of which publisher's life."""

    publisher: str
    incarnation: int
    sequence: int


class Request(Struct, frozen=True, array_like=True):
    """Please send me this message again."""

    key: Key
    requester: str
    sent_at: float  # by the requester's clock
    distance: float  # from the publisher to the requester, in seconds (d_ZB)
    first: float  # C1, C2: how long such a requester waits, for those who size their caches by it
    spread: float
    attempt: int


class Repair(Struct, frozen=True, array_like=True):
    """This is that message; `attributes` only if it goes to one client alone."""

    key: Key
    count: int  # of its identity
    departure: float
    requester: str
    attributes: dict[str, Value] | None = None


class EchoRequest(Struct, frozen=True, array_like=True):
    """Please return this to my inbox: it measures a round trip."""

    sender: str
    sent_at: float
    settings: bytes = b""  # of the sender, that must agree (`agreement`)


class EchoReply(Struct, frozen=True, array_like=True):
    """The reply to an echo request."""

    sender: str
    sent_at: float  # as it came
    answered_at: float  # by the clock of who answers
    settings: bytes = b""  # of who answers


class FlowQuota(Struct, frozen=True, array_like=True):
    """A quota that is asked for one flow, which is given by its bits or by its text."""

    quota: float  # messages/s
    encoding: bytes
    where: str = ""


class Feedback(Struct, frozen=True, array_like=True):
    """How fast a publisher's flows may come to this subscriber."""

    subscriber: str
    sent_at: float  # by the subscriber's clock (erratum C6: the papers forget it)
    flows: tuple[FlowQuota, ...]
    received: int = 0  # the highest number of the publisher's that has come: only who receives can know it


class Question(Struct, frozen=True, array_like=True):
    """Who is slowed down, and by whom?"""

    asker: str
    number: int  # which the answer must name


class SlowedFlow(Struct, frozen=True, array_like=True):
    """A flow of the publisher that answers."""

    flow: str
    quota: float  # messages/s
    limiting_receiver: str
    queue: int  # messages that wait
    since: float  # seconds that it has been limited


class Slowed(Struct, frozen=True, array_like=True):
    """These flows of mine are limited, the slowest first."""

    publisher: str
    number: int  # of the question
    flows: tuple[SlowedFlow, ...]
    in_all: int  # limited flows, also those that have no room here
    withheld: int  # messages that did not leave


class ControlIdentities:
    """Gives each control message of a client its identity."""

    def __init__(self, name: str, incarnation: int) -> None:
        self._publisher = control_name(name)
        self._incarnation = incarnation
        self._count = 0

    def next(self) -> Identity:
        """An identity that was not used before."""
        self._count += 1
        return Identity(self._publisher, self._incarnation, self._count)


_encode = msgspec.msgpack.Encoder().encode
_Kind = TypeVar("_Kind", Request, Repair, EchoRequest, EchoReply, Feedback, Question, Slowed)


def request_to_peers(identities: ControlIdentities, request: Request, encoding: int, domain: str) -> Message:
    """A request that reaches everybody who may have the message."""
    bits = positions(encoding)
    names = [f"{BIT_PREFIX}{position}" for position in bits] if len(bits) <= BITS_MAX else [ANY]
    attributes: dict[str, Value] = {ABOUT: request.key.publisher, DOMAIN: domain, **dict.fromkeys(names, True)}
    return control_message(identities.next(), REQUEST, attributes, _encode(request))


def request_to_publisher(identities: ControlIdentities, request: Request) -> Message:
    """A request that reaches the publisher alone."""
    return control_message(identities.next(), REQUEST, {TO: request.key.publisher}, _encode(request))


def repair_to_all(identities: ControlIdentities, repair: Repair, message: Message) -> Message:
    """The message again, for everybody who wanted it."""
    attributes = dict(message.attributes)
    if repair.requester:  # so that the publisher receives it too, unless it is its own proactive repair
        attributes[ABOUT] = repair.key.publisher
    return control_message(identities.next(), REPAIR, attributes, _encode(repair), message.body)


def repair_to_requester(identities: ControlIdentities, repair: Repair, message: Message) -> Message:
    """The message again, for the one who asked."""
    inside = msgspec.structs.replace(repair, attributes=message.attributes)
    return control_message(identities.next(), REPAIR, {TO: repair.requester}, _encode(inside), message.body)


def repaired_message(repair: Repair, opened: Message) -> Message:
    """The original message, as it was published; raises InvalidHeader."""
    identity = Identity(repair.key.publisher, repair.key.incarnation, repair.count)
    inside = {name: value for name, value in opened.attributes.items() if name != ABOUT}
    attributes = inside if repair.attributes is None else repair.attributes
    try:
        return make_message(identity, attributes, opened.body)
    except InvalidMessage as error:
        raise InvalidHeader(f"a repair of no possible message: {error}") from None


def heartbeat_message(identities: ControlIdentities, publisher: str, header: bytes) -> Message:
    """A publication record by itself."""
    return control_message(identities.next(), HEARTBEAT, {FROM: publisher}, header)


def echo_request_message(identities: ControlIdentities, to: str, echo: EchoRequest) -> Message:
    """An echo request to an inbox."""
    return control_message(identities.next(), ECHO, {TO: to}, _encode(echo))


def echo_reply_message(identities: ControlIdentities, to: str, answer: EchoReply) -> Message:
    """The reply to an echo request."""
    return control_message(identities.next(), ANSWER, {TO: to}, _encode(answer))


def feedback_message(identities: ControlIdentities, to: str, feedback: Feedback) -> Message:
    """To the publisher's inbox."""
    return control_message(identities.next(), FEEDBACK, {TO: to}, _encode(feedback))


def question_message(identities: ControlIdentities, question: Question) -> Message:
    """To everybody who subscribed to questions."""
    return control_message(identities.next(), QUESTION, {}, _encode(question))


def slowed_message(identities: ControlIdentities, to: str, slowed: Slowed) -> Message:
    """The answer to a question."""
    return control_message(identities.next(), SLOWED, {TO: to}, _encode(slowed))


def decode_control(data: bytes, kind: type[_Kind]) -> _Kind:
    """What is in a header of this kind; raises InvalidHeader."""
    try:
        decoded = msgspec.msgpack.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidHeader(f"no valid {kind.__name__}: {error}") from None
    if not _sane(decoded):
        raise InvalidHeader(f"{kind.__name__} with values that cannot be")
    return decoded


def _sane(decoded: Request | Repair | EchoRequest | EchoReply | Feedback | Question | Slowed) -> bool:
    numbers: list[float]
    if isinstance(decoded, Request):
        key = decoded.key
        numbers = [decoded.distance, decoded.first, decoded.spread, decoded.attempt, key.sequence, key.incarnation]
    elif isinstance(decoded, Repair):
        numbers = [decoded.count, decoded.key.sequence, decoded.key.incarnation]
    elif isinstance(decoded, Feedback):
        if len(decoded.flows) > FLOWS_MAX:
            return False
        numbers = [flow.quota for flow in decoded.flows]
    elif isinstance(decoded, Question):
        numbers = [decoded.number]
    elif isinstance(decoded, Slowed):
        if not 0 < len(decoded.flows) <= min(SLOWED_MAX, decoded.in_all) or not all(map(_short, decoded.flows)):
            return False
        numbers = [decoded.number, decoded.in_all, decoded.withheld]
        numbers += [number for flow in decoded.flows for number in (flow.quota, flow.queue, flow.since)]
    else:
        numbers = []
    times = [getattr(decoded, name) for name in ("sent_at", "departure", "answered_at") if hasattr(decoded, name)]
    return all(0.0 <= number < 2.0**62 for number in numbers) and all(abs(time) < 1e15 for time in times)


def _short(flow: SlowedFlow) -> bool:
    return len(flow.flow) <= FLOW_LENGTH_MAX and len(flow.limiting_receiver) <= RECEIVER_LENGTH_MAX


def inbox_where(name: str) -> str:
    """What is meant for this client alone."""
    return f"{TO} = {value_text(name)}"


def heartbeats_where(publisher: str) -> str:
    """The heartbeats of one publisher."""
    return f"{FLAG} = '{HEARTBEAT}' AND {FROM} = {value_text(publisher)}"


def questions_where() -> str:
    """Questions who is slowed down."""
    return f"{FLAG} = '{QUESTION}'"


def about_where(publisher: str, domain: str) -> str:
    """Control messages about what this client published itself: requests in its domain, and repairs."""
    request = f"{FLAG} = '{REQUEST}' AND {DOMAIN} = {value_text(domain)}"
    return f"{ABOUT} = {value_text(publisher)} AND ({FLAG} = '{REPAIR}' OR ({request}))"


def requests_where(encodings: Iterable[int], domain: str) -> str:
    """Requests, in this domain, for messages that match a filter with one of these encodings.

    If they are so many that no network would take the text, the bits that all of them share must do.
    """
    asked = list(encodings)
    whole = _requests_for(asked, domain)
    limits = DEFAULT_PREDICATE_LIMITS
    if len(asked) < limits.filters_max and len(whole) <= limits.characters_max:
        return whole
    return _requests_for([reduce(and_, asked)], domain)


def _requests_for(encodings: list[int], domain: str) -> str:
    where = f"{FLAG} = '{REQUEST}' AND {DOMAIN} = {value_text(domain)}"
    ways = [" AND ".join(f"{BIT_PREFIX}{position}" for position in positions(encoding)) for encoding in encodings]
    if all(ways):  # an encoding without bits is that of a filter that may match everything
        where += " AND (" + " OR ".join([ANY, *(f"({way})" for way in ways)]) + ")"
    return where
