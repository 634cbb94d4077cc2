"""A message as it comes out of the network's caches: the message that was published, and which lifetime brought it.

It has a record of its own (ItemRetrieved): it may be a day old, and says nothing about how fast the network delivers.
"""

from __future__ import annotations

from penstock.content.message import Message


class RetrievedMessage(Message, frozen=True, array_like=True, gc=False):
    """Identity, attributes and body are as they were published."""

    lifetime: int  # of the subscription, from 1


def retrieved(message: Message, lifetime: int) -> RetrievedMessage:
    """The message, with the lifetime that brought it."""
    return RetrievedMessage(message.identity, message.attributes, message.body, message.size_bytes, lifetime)
