"""A limiting receiver checks the sequence of its flows, and so sees every loss (beyond the papers; 002 section 6.2).

A message of a limited flow carries its place in that flow. Who asked for the flow gets all of them, so a place that
does not come is a message that was lost. It may only be late: a missing place is lost when OVERTAKEN_BY later ones of
its flow have come.

A flow is known by the publisher's number for it, and is watched from the first message on that names us as its limiting
receiver; from then on every message of it counts, whomever it names, because the role goes from one to another and the
sequence goes on. Each flow has a sequence of its own: a client that limits two flows gets their messages mixed. Numbers
of flows come around after 65,535; a step that is too large begins anew.

State: for each flow the highest place and those missing below it. Bounds: FLOWS_MAX flows, of which the one without
messages for longest goes; MISSING_MAX missing. No timers.
"""

from __future__ import annotations

from penstock.transport.wire.control_messages import FLOWS_MAX

OVERTAKEN_BY = 3  # later messages of its flow, after which a missing one counts as lost and not as late
MISSING_MAX = 1_000


class FlowSequences:
    """The sequences of one publisher's flows that we have been the limiting receiver of."""

    __slots__ = ("_flows",)

    def __init__(self) -> None:
        self._flows: dict[int, _FlowSequence] = {}  # the one that came last is the last

    def arrived(self, flow: int, place: int, *, named: bool) -> bool | None:
        """A message of this flow came, with this place; returns whether one was lost, None if that cannot be known.

        `named`: we are the limiting receiver, so the flow is ours.
        """
        sequence = self._flows.pop(flow, None)
        if sequence is None and not named:
            return None
        if sequence is None or not -MISSING_MAX <= place - sequence.highest <= MISSING_MAX:
            sequence = _FlowSequence(place)
        self._flows[flow] = sequence
        if len(self._flows) > FLOWS_MAX:
            del self._flows[next(iter(self._flows))]
        return sequence.arrived(place)


class _FlowSequence:
    __slots__ = ("_missing", "highest")

    def __init__(self, place: int) -> None:
        self.highest = place
        self._missing: dict[int, int] = {}  # and how many later ones have come

    def arrived(self, place: int) -> bool:
        self._missing.pop(place, None)
        for missing in self._missing:
            self._missing[missing] += missing < place
        self._missing.update(dict.fromkeys(range(self.highest + 1, place), 1))
        self.highest = max(self.highest, place)
        lost = [missing for missing, later in self._missing.items() if later >= OVERTAKEN_BY]
        for missing in lost:
            del self._missing[missing]
        while len(self._missing) > MISSING_MAX:
            del self._missing[next(iter(self._missing))]
        return bool(lost)
