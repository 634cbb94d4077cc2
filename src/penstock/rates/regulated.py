"""Which messages fair rates regulate, and whose they are: those of applications, in lanes best effort and transport.

A repair is one of them: it carries a message once more, and its publisher pays for it as for any other. A lane that
holds (`overflow = "hold"`) promises to lose nothing: its publishers wait, and nothing of it is withheld.
"""

from __future__ import annotations

from penstock.content.envelope import CONTROL_MARK, DATA, FLAG, REPAIRS, TELLING
from penstock.content.message import Message
from penstock.kernel.packet import Lane
from penstock.kernel.service import NodeView

LANES = (Lane.BEST_EFFORT, Lane.TRANSPORT)


def regulated_lanes(node: NodeView) -> tuple[Lane, ...]:
    """Those of this node."""
    return tuple(lane for lane in LANES if not node.holds(lane))


def regulated(message: Message, lane: Lane, lanes: tuple[Lane, ...]) -> bool:
    """Whether it is held to the rates of links; streams, priced content and all control are not."""
    if lane not in lanes:
        return False
    kind = message.attributes.get(FLAG, DATA)
    return kind == DATA or kind in REPAIRS


def tells_of_data(message: Message, lane: Lane, lanes: tuple[Lane, ...]) -> bool:
    """Whether it tells of regulated messages: it is not regulated, but waits in slow start behind these."""
    return lane in lanes and message.attributes.get(FLAG) in TELLING


def publisher_of(message: Message) -> str:
    """The client that sends it; a repair has the name of its services."""
    return message.identity.publisher.removeprefix(CONTROL_MARK)


def group_of(publisher: str) -> str:
    """Those whose names are alike up to the first "/"."""
    return publisher.partition("/")[0]
