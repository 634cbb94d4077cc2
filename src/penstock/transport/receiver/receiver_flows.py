"""A subscriber's own flows: one for each of its filters that no other of them covers (000 section III-A).

All publishers are asked for the same flows, so the list is kept once for a client and each session only measures
(`congestion`). It follows the wishes step by step: a new filter is compared with those that are kept, one that goes
lets back in those that it covered. So a client with a thousand subscriptions does not compare all with all each time.

By text, by bits. Feedback names a flow by its text, so that the publisher counts exactly what comes here. If the text
is too long for that (or `feedback_exact` is off, for equalities) it names the bits, which may be those of other
messages too. `certain` says whether the record, which has bits only, can tell that a message was one of this flow: of
equalities it can, but for chance; with `price < 10` it would take every message with a price for ours.

A flow has the highest priority of the filters that it covers.

State: all filters, those that are kept, those that are covered. Bound: OWN_FLOWS_MAX filters are kept; of any others
congestion control knows nothing, and a record says so when that begins. No messages, no timers.
"""

from __future__ import annotations

from penstock.content.bloom import EncodingScheme
from penstock.content.language.expression import constraint_text
from penstock.content.predicate import Equals, Exists, Filter, Predicate
from penstock.transport.sender.flow_table import Wanted, flow_covers, flow_of
from penstock.transport.wire.control_messages import WHERE_MAX

OWN_FLOWS_MAX = 1_000


class OwnFilter:
    """One filter of one wish."""

    __slots__ = ("alone", "certain", "kept", "number", "own_priority", "priority", "wanted", "where")

    def __init__(
        self, number: int, selected: Filter, priority: float, *, scheme: EncodingScheme, exact: bool, alone: bool
    ) -> None:
        self.number = number  # of the wish
        self.alone = alone  # the wish has no other filter
        self.kept = False  # no other covers it
        self.own_priority = self.priority = priority  # its own, and the highest of those that it covers
        self.certain = all(isinstance(constraint, Equals | Exists) for constraint in selected.constraints)
        self.where = _text(selected) if exact or not self.certain else ""  # the text, if feedback is to carry it
        self.wanted: Wanted = flow_of(selected, scheme, exact=bool(self.where))

    @property
    def key(self) -> tuple[int, str]:
        """What flow it is, whoever wants it."""
        return self.wanted.encoding, self.where


class OwnFlows:
    """The flows of all wishes of a client."""

    def __init__(self, scheme: EncodingScheme, *, exact: bool) -> None:
        self._scheme = scheme
        self._exact = exact
        self._wishes: dict[int, list[OwnFilter]] = {}
        self._covered: list[OwnFilter] = []
        self.kept: list[OwnFilter] = []
        self.full = False  # whether any filter had no room
        self.version = 0  # changes with the wishes

    def __contains__(self, number: int) -> bool:
        return number in self._wishes

    def add(self, number: int, predicate: Predicate, priority: float) -> None:
        """A new wish, or another one in place of that of this number."""
        self.remove(number)
        alone = len(predicate.filters) == 1
        made = [
            OwnFilter(number, selected, priority, scheme=self._scheme, exact=self._exact, alone=alone)
            for selected in predicate.filters
        ]
        self._wishes[number] = made
        for one in made:
            self._keep(one)
        self._weigh()

    def remove(self, number: int) -> None:
        """The wish is no more; what only its filters covered stands for itself again."""
        self.version += 1
        gone = dict.fromkeys(self._wishes.pop(number, ()))
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

    def of(self, number: int) -> list[OwnFilter]:
        """The flows that are filters of this wish."""
        return [one for one in self._wishes.get(number, ()) if one.kept]

    def serving(self, number: int) -> list[OwnFilter]:
        """The flows that this wish needs: its own, and those that cover one of its filters."""
        wished = self._wishes.get(number, [])
        return [one for one in self.kept if one in wished or any(flow_covers(one.wanted, f.wanted) for f in wished)]

    def _keep(self, one: OwnFilter) -> None:
        if any(flow_covers(other.wanted, one.wanted) for other in self.kept):
            self._covered.append(one)
            return
        needless = dict.fromkeys(other for other in self.kept if flow_covers(one.wanted, other.wanted))
        if needless:
            self._covered += needless
            self.kept = [other for other in self.kept if other not in needless]
        for other in needless:
            other.kept = False
        one.kept = len(self.kept) < OWN_FLOWS_MAX
        (self.kept if one.kept else self._covered).append(one)
        self.full = self.full or not one.kept

    def _weigh(self) -> None:
        """Priorities; most clients have none, and then there is nothing to do."""
        self.full = self.full and len(self.kept) >= OWN_FLOWS_MAX
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
