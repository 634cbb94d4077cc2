"""Which messages fair rates regulate: those of applications, in the lanes best effort and transport, if these drop.

A lane that holds (`overflow = "hold"`) promises to lose nothing: its publishers wait, and nothing of it is withheld.
"""

from __future__ import annotations

from penstock.content.envelope import DATA, FLAG
from penstock.content.message import Message
from penstock.kernel.packet import Lane
from penstock.kernel.service import NodeView

LANES = (Lane.BEST_EFFORT, Lane.TRANSPORT)


def regulated_lanes(node: NodeView) -> tuple[Lane, ...]:
    """Those of this node."""
    return tuple(lane for lane in LANES if not node.holds(lane))


def regulated(message: Message, lane: Lane, lanes: tuple[Lane, ...]) -> bool:
    """Whether it is held to the rates of links; streams, priced content and all control are not."""
    return lane in lanes and message.attributes.get(FLAG, DATA) == DATA
