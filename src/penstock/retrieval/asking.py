"""When a home asks other routers for what its receivers miss, and whom (ours, but for the flood; 004 section 3.3.3).

The paper floods every interest at once, for all that it misses, over every branch. What comes serves one receiver, and
the next one of the same home asks again. Here a home may ask later, ask few first, and ask once for all:

- Late (`patience`): others are asked when part of a lifetime is over. Until then a receiver takes what comes anyway. A
  lifetime is the time that a receiver gives the network (3.2), and what is asked for late serves all who came since.
- Together: of the receivers that look for the same, the one that misses most asks, and the others wait for what comes.
  If homes are not patient each waits once and then asks for itself: some can use only what they have asked for.
- Likely ones first: `probes` neighbours one after another, those first whose answers came before; then a flood.
- Budgeted: the flood asks each branch for its share alone; whoever answers shares the rest among its own.
- As new: a home that remembers what was used there (mediation.py) says so in its interest, and asks for anything else;
  without that a refreshed interest may be sent only what never left its router. If the list would be too long, or the
  home has forgotten some of it, it asks as the paper does.

State: of each group of interests that look for the same, what was asked for and until when answers may come (boxes.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf

from penstock.retrieval.boxes import Boxes, InterestBox
from penstock.retrieval.interest import LOCAL, InterestId, Interface, LooseInterest, PublicationId
from penstock.retrieval.outlet import RouterOutlet
from penstock.retrieval.probing import LikelyInterfaces
from penstock.retrieval.rules import MediationRules

HadHere = Callable[[LooseInterest], tuple[PublicationId, ...] | None]  # None: that cannot be said


class HomeAsking:
    """Of one router."""

    def __init__(
        self,
        rules: MediationRules,
        outlet: RouterOutlet,
        boxes: Boxes,
        had_here: HadHere,
        interfaces: Callable[[], Sequence[Interface]],
    ) -> None:
        self.likely = LikelyInterfaces(interfaces)
        self._rules = rules
        self._outlet = outlet
        self._boxes = boxes
        self._had_here = had_here
        self._listing = rules.duplicates in ("proactive", "both")

    def begin(self, box: InterestBox, now: float) -> None:
        """The cache here has not all that a new box wants."""
        if self._rules.patience:
            at = now + self._rules.patience * (box.interest.deadline - now)
            self._outlet.proceed_at(box.interest.id, at)
        else:
            self._take_turn(box, now)

    def proceed(self, interest: InterestId, now: float) -> None:
        """The time has come to ask, or whoever was asked has had its time."""
        box = self._boxes.get(interest)
        if box is None or box.missing <= 0 or box.advertised:
            return
        if now + self._rules.flood_wait <= box.interest.deadline:  # else no answer comes in time
            self._take_turn(box, now, waited=not self._rules.patience)

    def _take_turn(self, box: InterestBox, now: float, *, waited: bool = False) -> None:
        """Ask, or wait for what somebody else here has asked for."""
        if not self._rules.together:
            until = self._ask(box, now)
        else:
            group = self._boxes.group(box)
            if waited or group.until <= now or not (self._rules.patience or group.covers(box)):
                asker = box if waited else group.neediest(box, now + self._rules.flood_wait)
                group.asks(asker, self._ask(asker, now))
            until = group.until
        if not box.advertised:
            self._outlet.proceed_at(box.interest.id, until)

    def _ask(self, box: InterestBox, now: float) -> float:
        """One likely neighbour after another, then everybody; returns when what they send should have come."""
        rules, rest = self._rules, self._rest(box)
        likely = self.likely.order(rest.shelf)[: rules.probes]
        if box.probed < len(likely):
            self._outlet.probe(likely[box.probed], rest)
            box.probed += 1
            return now + rules.probe_wait
        box.advertised = True
        self._outlet.advertise(rest.shared(self.likely.count()) if rules.budgeted else rest, LOCAL)
        return now + rules.flood_wait

    def _rest(self, box: InterestBox) -> LooseInterest:
        """What a box still misses, as others are asked for it."""
        interest, got = box.interest, tuple(box.got)
        rest = interest.after(got, listing=self._listing) if got else interest
        if self._rules.remembers and self._listing and interest.refreshed and interest.moved_at == -inf:
            had = self._had_here(interest)
            if had is not None:
                return replace(rest, refreshed=False, listed=had)
        return rest
