"""A message in an envelope: a service's header travels in front of the body, under a flag among the attributes.

    _t       the flag: a reserved attribute that says what kind of envelope it is
    body     2 bytes: how long the header is; the header; the application's own body

Brokers see one attribute more and a longer body, nothing else. `data` envelopes hold an application's message; all
other kinds are control messages between services and of no interest to an application. A client library always opens
envelopes, also when it has no use for the header: who subscribes plainly gets the message as it was published, and no
control messages.
"""

from __future__ import annotations

from penstock.content.message import (
    DEFAULT_LIMITS,
    Attributes,
    Identity,
    Message,
    MessageLimits,
    Value,
    make_message,
)
from penstock.errors import InvalidMessage

FLAG = "_t"
DATA = "data"
HEADER_BYTES_MAX = 0xFFFF
REPAIRS = ("reply", "again", "repair")  # kinds of control messages that carry an application's message once more
TELLING = ("ledger", "heartbeat")  # kinds that tell of messages: they must not come long before these
CONTROL_MARK = "~"  # no client's name begins with it
_FLAG_BYTES = len(FLAG) + 5  # and the length of the kind: see message.plain_size


def wrap(message: Message, header: bytes, *, limits: MessageLimits = DEFAULT_LIMITS) -> Message:
    """An application's message with a header; raises InvalidMessage if there is no room for one."""
    if len(message.attributes) >= limits.attributes_max:
        raise InvalidMessage(
            f"{len(message.attributes)} attributes; with a transport a message has at most {limits.attributes_max - 1}"
        )
    if len(header) > HEADER_BYTES_MAX or 2 + len(header) + len(message.body) > limits.body_bytes_max:
        raise InvalidMessage(
            f"the body has {len(message.body)} bytes and the transport's header {len(header)};"
            f" the limit body_bytes_max is {limits.body_bytes_max}"
        )
    attributes: dict[str, Value] = {**message.attributes, FLAG: DATA}
    size = message.size_bytes + _FLAG_BYTES + len(DATA) + 2 + len(header)
    return Message(message.identity, attributes, len(header).to_bytes(2, "big") + header + message.body, size)


def control_message(identity: Identity, kind: str, attributes: Attributes, header: bytes, body: bytes = b"") -> Message:
    """A message between services; raises InvalidMessage if it is too large for one."""
    if len(header) > HEADER_BYTES_MAX:
        raise InvalidMessage(f"a header of {len(header)} bytes; an envelope takes at most {HEADER_BYTES_MAX}")
    return make_message(
        identity, {**attributes, FLAG: kind}, len(header).to_bytes(2, "big") + header + body, reserved=True
    )


def control_name(client: str) -> str:
    """The publisher that control messages of this client's services have: nothing else is published under it."""
    return f"{CONTROL_MARK}{client}"


def client_of(name: str) -> str:
    """Whose control message has this publisher; empty for what is none."""
    return name[1:] if name.startswith(CONTROL_MARK) else ""


def kind_of(message: Message) -> str | None:
    """What kind of envelope this is; None for a message without one."""
    kind = message.attributes.get(FLAG)
    return kind if isinstance(kind, str) else None


def opened(message: Message) -> tuple[bytes, Message]:
    """The header, and the message without flag and header; raises InvalidMessage if it is no envelope."""
    body = message.body
    begins = 2 + (body[0] << 8 | body[1] if len(body) >= 2 else 0)  # the body inside
    attributes = message.attributes.copy()
    kind = attributes.pop(FLAG, None)
    if kind is None or len(body) < begins:
        raise InvalidMessage(f"an envelope whose header of {begins - 2} bytes is not all there ({len(body)} bytes)")
    size = message.size_bytes - _FLAG_BYTES - begins - (len(kind) if kind.__class__ is str else 0)
    return body[2:begins], Message(message.identity, attributes, body[begins:], size if size > 0 else 0)
