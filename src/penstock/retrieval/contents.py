"""What a cached publication is to a broker: a message, and a hash of all of it.

The hash travels with the publication. A copy that does not fit its hash is refused where it comes in, and one in a
cache is dropped before it is served. It protects against faults of memory, disk and wire; a broker that lies can make a
hash for its lie.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

import msgspec

from penstock.content.envelope import DATA, FLAG, opened
from penstock.content.message import INBOX, Message
from penstock.errors import InvalidMessage
from penstock.retrieval.interest import PublishedItem
from penstock.retrieval.packets import HASH_BYTES

_encode = msgspec.msgpack.Encoder(order="sorted").encode


@dataclass(slots=True, eq=False)
class ItemContent:
    """The content of a PublishedItem."""

    message: Message
    content_hash: bytes

    @property
    def whole(self) -> bool:
        """Whether the message is what was hashed."""
        return hash_of(self.message) == self.content_hash


def hash_of(message: Message) -> bytes:
    """Of its identity, attributes and body."""
    identity = message.identity
    parts = (identity.publisher, identity.incarnation, identity.count, message.attributes, message.body)
    return blake2b(_encode(parts), digest_size=HASH_BYTES, person=b"penstock-item").digest()


def new_item(message: Message, uploaded: float) -> PublishedItem:
    """A publication that a publisher has just handed in."""
    return PublishedItem(message.identity, uploaded, 0, ItemContent(message, hash_of(message)))


def content_of(item: PublishedItem) -> ItemContent:
    """Its message and hash."""
    assert isinstance(item.content, ItemContent)
    return item.content


def public_content(message: Message, *, later: bool = False) -> Message | None:
    """What anybody may retrieve of a message that a client has published; None: it is for services, or one inbox.

    `later`: it stays in its envelope, because most are never asked for, and is opened later.
    """
    attributes = message.attributes
    if INBOX in attributes:
        return None
    if FLAG not in attributes:
        return message
    if attributes[FLAG] != DATA:
        return None
    if later:
        return message
    try:
        return opened(message)[1]
    except InvalidMessage:
        return None
