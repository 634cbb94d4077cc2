"""Trace records made from messages: what hosts and services say about them in the same words."""

from __future__ import annotations

import msgspec

from penstock.content.message import Message
from penstock.kernel.trace import Published


def published_record(message: Message) -> Published:
    """An application's message has left."""
    identity = message.identity
    return Published(
        publisher=identity.publisher,
        incarnation=identity.incarnation,
        count=identity.count,
        attributes=msgspec.json.encode(message.attributes, order="sorted").decode(),
        body_bytes=len(message.body),
    )
