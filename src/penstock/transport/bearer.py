"""All that the transport knows of the network below it: three verbs, and one callback.

The network carries messages (identity, attributes, body) to whoever subscribed to their content, as well as it can: it
may lose them, delay them and put them out of order. The transport asks for what it wants with the effects below,
beside `Deliver`, `Done` and records; whoever hosts it carries them out over a network of any make, and hands in what
arrives through `Transport.arrived`. A message for one client alone is published to its inbox: the attribute `_to`
holds its name, and every client with a transport subscribes to that.
"""

from __future__ import annotations

from msgspec import Struct

from penstock.content.message import Message
from penstock.kernel.machine import Effect


class BearerPublish(Struct, frozen=True, gc=False):
    """Send this to whoever wants it."""

    message: Message


class BearerSubscribe(Struct, frozen=True):
    """From now on hand in what matches, under this number."""

    number: int
    where: str


class BearerUnsubscribe(Struct, frozen=True):
    """No more of that."""

    number: int


Verb = BearerPublish | BearerSubscribe | BearerUnsubscribe
TransportEffect = Effect | Verb
