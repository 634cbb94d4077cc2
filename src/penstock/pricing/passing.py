"""The way of a copy through one broker, also when the tree changes while it waits: nothing is dropped that has a way.

A copy goes on over the links of the present tree that lead to its brokers, and waits there on the account of the
neighbour that it came from. Three kinds of copies cannot:

- A copy that must go back where it came from, because maps do not agree, or did not when it was sent.
- A copy to a broker to which the map shows no way.
- A copy that waited for a link that is not on the tree any more, or has gone down (what the link had taken is lost).

They are *parked*, and looked at again at each `look`. The third kind goes on as any other. A copy that goes back must
not wait on its neighbour's account: two neighbours with a window of copies for each other would wait for ever. So after
RETURN_AFTER seconds, in which maps agree, it is moved to an account of its own (KEPT), as if it had been bought here,
and returns. So is a copy without a way, which waits up to WAY_MAX seconds for one, and holds up nobody meanwhile. Our
own copies that are sent another way count there too.

No circle of waiting. Once maps agree, what came from u to v waits on u's account for links v - w of the tree only, and
w is not u. So each account waits for accounts farther on. What came over a link beside the tree waits for links of the
tree, and nobody waits for such a link. What is KEPT holds nobody's credit. What is parked on a neighbour's account
leaves it after RETURN_AFTER seconds, or, if there is no room, ends after WAY_MAX.

Bound: KEPT_WINDOWS windows of the lane for each neighbour, and one more, which our own copies need. While there is more
than these KEPT_WINDOWS, nothing is bought here; copies that should return stay parked on the account of their
neighbour, so that no more of them come. Only if that lasts WAY_MAX seconds are they dropped and recorded ("tree
changed"): the tree has turned round several windows, and nothing has left.

State: since when each parked copy waits. No timers: `look` is called often.
"""

from __future__ import annotations

from penstock.content.message import Identity, Message
from penstock.kernel.link import Link
from penstock.kernel.machine import Effect, Send, SendFor
from penstock.kernel.packet import Lane
from penstock.kernel.service import NodeView
from penstock.kernel.trace import dropped_record
from penstock.overlay.egress import KEPT, OURSELVES, PARKED, dropped
from penstock.overlay.packets import HOPS_MAX, BrokerId
from penstock.overlay.routing import Routing
from penstock.pricing.packets import PricedPublication, PricedPublish
from penstock.pricing.sender import Held
from penstock.pricing.ways import PricedWays, TreeWay

HOPS_SPARE = 8
RETURN_AFTER = 0.5  # seconds until a copy goes back where it came from
WAY_MAX = 10.0  # seconds that a copy waits for a way
KEPT_WINDOWS = 4

Group = tuple[BrokerId, ...]
Copy = tuple[Link, PricedPublication]


class PricedPassing:
    """Sends copies on, and parks those that cannot go."""

    def __init__(self, node: NodeView, routing: Routing, ways: PricedWays, *, parks: bool) -> None:
        self._node = node
        self._routing = routing
        self._ways = ways
        self._since: dict[tuple[Identity, Group], float] = {}  # of what is parked
        self._kept_bytes = 0  # so far, in this look
        self._parks = parks  # somebody looks
        if parks:
            node.park(PricedPublication)

    def buy(self, one: Held) -> list[Effect]:
        """Send what was bought here."""
        way = self._ways.to(self._others(one))
        lost = [ended("no way", one, way.lost)] if way.lost else []
        return lost + [Send((link,), copy, Lane.PRICED) for link, copy in copies(one.message, way, hops(way))]

    def receive(self, packet: PricedPublication, sender: Link) -> list[Effect]:
        """A neighbour's copy; what cannot go on waits on its account."""
        destinations = self._others(packet)
        way = self._ways.to(destinations)
        onward = [one for one in copies(packet.message, way, packet.hops_left) if one[0] != sender]
        if packet.hops_left == 0 and onward:
            return [ended("hop limit", packet, len(destinations))]
        stays = _without(destinations, [broker for _, copy in onward for broker in copy.destinations])
        effects: list[Effect] = [Send((link,), copy, Lane.PRICED) for link, copy in onward]
        if stays and self._parks:
            effects.append(Send((PARKED,), PricedPublication(stays, packet.hops_left, packet.message), Lane.PRICED))
        elif stays:
            effects.append(ended("no way", packet, len(stays)))
        return effects

    def full(self) -> bool:
        """Whether so much is kept here on nobody's account that nothing should be bought."""
        return self._node.waiting_from(KEPT, Lane.PRICED) > self._kept_max()

    def look(self, now: float) -> list[Effect]:
        """See whether the tree has changed, and what is parked can go."""
        since, self._since = self._since, {}
        found = self._node.recall(PARKED, Lane.PRICED)
        for link in self._ways.off_tree():
            found += self._node.recall(link, Lane.PRICED)
        self._kept_bytes = self._node.waiting_from(KEPT, Lane.PRICED)
        effects: list[Effect] = []
        for packet, source in found:
            if isinstance(packet, PricedPublication):
                began = since.get((packet.message.identity, packet.destinations), now)
                effects += self._anew(packet, KEPT if source == OURSELVES else source, began, now)
            else:
                effects.append(dropped("route", "tree changed", "", Lane.PRICED, packet))
        return effects

    def _anew(self, packet: PricedPublication, source: Link, began: float, now: float) -> list[Effect]:
        """A copy that has waited, as if it were bought here."""
        way = self._ways.to(packet.destinations)
        effects: list[Effect] = []
        back: Group = ()
        for link, copy in copies(packet.message, way, hops(way)):
            if link == source and not (abs(now - began) >= RETURN_AFTER and self._may_keep(copy)):
                back = copy.destinations
            else:
                effects.append(self._on_account(link, copy, _payer(link, source)))
        lost = _without(packet.destinations, [broker for _, group in way.groups for broker in group])
        for group, cause in ((back, "tree changed"), (lost, "no way")):
            if group and abs(now - began) > WAY_MAX:
                effects.append(ended(cause, packet, len(group)))
            elif group:
                left = PricedPublication(group, packet.hops_left, packet.message)
                self._since[left.message.identity, group] = began
                effects.append(
                    self._on_account(PARKED, left, KEPT if group is lost and self._may_keep(left) else source)
                )
        return effects

    def _on_account(self, link: Link, copy: PricedPublication, source: Link) -> Effect:
        if source == KEPT:
            self._kept_bytes += copy.size_bytes()
        return SendFor(link, copy, Lane.PRICED, source)

    def _may_keep(self, copy: PricedPublication) -> bool:
        return self._kept_bytes + copy.size_bytes() <= self._kept_max()

    def _kept_max(self) -> int:
        return KEPT_WINDOWS * self._node.window(Lane.PRICED) * max(1, len(self._routing.link_to))

    def _others(self, one: Held | PricedPublication) -> Group:
        return _without(one.destinations, [self._routing.broker])


def copies(message: Message, way: TreeWay, hops_left: int) -> list[Copy]:
    """One for each link of the way."""
    return [(link, PricedPublication(group, max(0, hops_left - 1), message)) for link, group in way.groups]


def hops(way: TreeWay) -> int:
    """How many links a copy may take that begins here."""
    return min(len(way.hops) + HOPS_SPARE, HOPS_MAX)


def ended(cause: str, one: Held | PricedPublish | PricedPublication, destinations: int = 1) -> Effect:
    """The record of a copy that ends here, or of a message that was never bought."""
    kind = "PricedPublication" if isinstance(one, PricedPublication) else "PricedPublish"
    return dropped_record("route", cause, "", Lane.PRICED, kind, one.message, destinations)


def _payer(link: Link, source: Link) -> Link:
    """On whose account a copy waits for this link: not on that of the neighbour to whom it returns."""
    return KEPT if link == source else source


def _without(destinations: Group, some: list[BrokerId]) -> Group:
    return tuple(broker for broker in destinations if broker not in some)
