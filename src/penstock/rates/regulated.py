"""Which messages fair rates regulate: those of applications, in the lanes best effort and transport."""

from __future__ import annotations

from penstock.content.envelope import DATA, FLAG
from penstock.content.message import Message
from penstock.kernel.packet import Lane

LANES = (Lane.BEST_EFFORT, Lane.TRANSPORT)


def regulated(message: Message, lane: Lane) -> bool:
    """Whether it is held to the rates of links; streams, priced content and all control are not."""
    return lane in LANES and message.attributes.get(FLAG, DATA) == DATA
