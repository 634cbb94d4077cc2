"""A subscriber's own flows: one for each of its filters that no other of them covers (000 section III-A).

All publishers are asked for the same flows, so the list is kept once for a client and each session only measures
(`rate_controller`). It follows the subscriptions step by step: a new filter is compared with those that are kept, one
that goes lets back in those that it covered. So a client with a thousand subscriptions does not compare all with all
each time.

By text, by bits. Feedback names a flow by its text, so that the publisher counts exactly what comes here. If the text
is too long for that (or `feedback_exact` is off, for equalities) it names the bits, which may be those of other
messages too. `certain` says whether the record, which has bits only, can show that a message was one of this flow: of
equalities it can, but for chance; with `price < 10` it would take every message with a price for ours.

A flow has the highest priority of the filters that it covers.

State: all filters, those that are kept, those that are covered. Bound: RECEIVER_FLOWS_MAX filters are kept; of any
others congestion control knows nothing, and a record says so when that begins. No messages, no timers.
"""

from __future__ import annotations

from penstock.content.bloom import EncodingScheme
from penstock.content.language.expression import constraint_text
from penstock.content.predicate import Equals, Exists, Filter, Predicate
from penstock.transport.ledgers.sketch_predicate import SketchPredicate
from penstock.transport.sender.flow_table import WantedFlow, flow_covers, flow_of
from penstock.transport.wire.control_messages import WHERE_MAX

RECEIVER_FLOWS_MAX = 1_000


class ReceiverFilter:
    """One filter of one subscription."""

    __slots__ = ("alone", "certain", "kept", "number", "own_priority", "priority", "sketches", "wanted", "where")

    def __init__(
        self, number: int, selected: Filter, priority: float, *, scheme: EncodingScheme, exact: bool, alone: bool
    ) -> None:
        self.number = number  # of the subscription
        self.alone = alone  # the subscription has no other filter
        self.kept = False  # no other covers it
        self.own_priority = self.priority = priority  # its own, and the highest of those that it covers
        self.certain = all(isinstance(constraint, Equals | Exists) for constraint in selected.constraints)
        self.where = _text(selected) if exact or not self.certain else ""  # the text, if feedback is to carry it
        self.sketches = SketchPredicate((selected,))
        self.wanted: WantedFlow = flow_of(selected, scheme, exact=bool(self.where))

    @property
    def key(self) -> tuple[int, str]:
        """What flow it is, whoever wants it."""
        return self.wanted.encoding, self.where


class ReceiverFlows:
    """The flows of all subscriptions of a client."""

    def __init__(self, scheme: EncodingScheme, *, exact: bool) -> None:
        self._scheme = scheme
        self._exact = exact
        self._by_subscription: dict[int, list[ReceiverFilter]] = {}
        self._covered: list[ReceiverFilter] = []
        self.kept: list[ReceiverFilter] = []
        self.full = False  # whether any filter had no room
        self.version = 0  # changes with the subscriptions

    def __contains__(self, number: int) -> bool:
        return number in self._by_subscription

    def add(self, number: int, predicate: Predicate, priority: float) -> None:
        """A new subscription, or another one in place of that of this number."""
        self.remove(number)
        alone = len(predicate.filters) == 1
        made = [
            ReceiverFilter(number, selected, priority, scheme=self._scheme, exact=self._exact, alone=alone)
            for selected in predicate.filters
        ]
        self._by_subscription[number] = made
        for one in made:
            self._keep(one)
        self._weigh()

    def remove(self, number: int) -> None:
        """The subscription is no more; what only its filters covered stands for itself again."""
        self.version += 1
        gone = dict.fromkeys(self._by_subscription.pop(number, ()))
        if not gone:
            return
        left = [one for one in self.kept if one in gone]
        self.kept = [one for one in self.kept if one not in gone]
        waiting = [one for one in self._covered if one not in gone]
        self._covered = []
        for one in waiting:
            if any(flow_covers(other.wanted, one.wanted) for other in left) or self.full:
                self._keep(one)
            else:
                self._covered.append(one)
        self._weigh()

    def of(self, number: int) -> list[ReceiverFilter]:
        """The flows that are filters of this subscription."""
        return [one for one in self._by_subscription.get(number, ()) if one.kept]

    def serving(self, number: int) -> list[ReceiverFilter]:
        """The flows that this subscription needs: its own, and those that cover one of its filters."""
        own = self._by_subscription.get(number, [])
        return [one for one in self.kept if one in own or any(flow_covers(one.wanted, f.wanted) for f in own)]

    def _keep(self, one: ReceiverFilter) -> None:
        if any(flow_covers(other.wanted, one.wanted) for other in self.kept):
            self._covered.append(one)
            return
        needless = dict.fromkeys(other for other in self.kept if flow_covers(one.wanted, other.wanted))
        if needless:
            self._covered += needless
            self.kept = [other for other in self.kept if other not in needless]
        for other in needless:
            other.kept = False
        one.kept = len(self.kept) < RECEIVER_FLOWS_MAX
        (self.kept if one.kept else self._covered).append(one)
        self.full = self.full or not one.kept

    def _weigh(self) -> None:
        """Priorities; most clients have none, and then there is nothing to do."""
        self.full = self.full and len(self.kept) >= RECEIVER_FLOWS_MAX
        everybody = [*self.kept, *self._covered]
        if len({one.own_priority for one in everybody}) < 2:
            for one in everybody:
                one.priority = one.own_priority
            return
        for one in self.kept:
            below = [f.own_priority for f in self._covered if flow_covers(one.wanted, f.wanted)]
            one.priority = max([one.own_priority, *below])


def filter_text(selected: Filter) -> str:
    """The filter as a WHERE text."""
    return " AND ".join(constraint_text(constraint) for constraint in selected.constraints) or "TRUE"


def _text(selected: Filter) -> str:
    """The text for feedback, or none if it is too long for that: then the bits must do."""
    text = filter_text(selected)
    return text if len(text) <= WHERE_MAX else ""
