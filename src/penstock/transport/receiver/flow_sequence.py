"""A limiting receiver counts the messages of its flows, and so sees every loss (beyond the papers; 002 section 6.2).

A message of a limited flow says the how-manieth of that flow it is. Who asked for the flow gets all of them, so a
number that does not come is a message that was lost. It may only be late: a missing number is lost when OVERTAKEN_BY
later ones of its flow have come.

A flow is known by the publisher's number for it, and is watched from the first message on that names us as its limiting
receiver; from then on every message of it counts, whomever it names, because the role goes from one to another and the
counting goes on. Each flow is counted by itself: a client that limits two flows gets their messages mixed. Numbers of
flows come around after 65,535; a step that is too large begins anew.

State: for each flow the highest count and those missing below it. Bounds: FLOWS_MAX flows, of which the one not heard
of for longest goes; MISSING_MAX missing. No timers.
"""

from __future__ import annotations

from penstock.transport.wire.control_messages import FLOWS_MAX

OVERTAKEN_BY = 3  # later messages of its flow, after which a missing one counts as lost and not as late
MISSING_MAX = 1_000


class FlowCounts:
    """The counts of one publisher's flows that we have been the limiting receiver of."""

    __slots__ = ("_flows",)

    def __init__(self) -> None:
        self._flows: dict[int, _Count] = {}  # the one heard of last is the last

    def arrived(self, flow: int, place: int, *, named: bool) -> bool | None:
        """A message of this flow came, with this count; says whether one was lost, None if that cannot be told.

        `named`: we are the limiting receiver, so the flow is ours.
        """
        count = self._flows.pop(flow, None)
        if count is None and not named:
            return None
        if count is None or not -MISSING_MAX <= place - count.highest <= MISSING_MAX:
            count = _Count(place)
        self._flows[flow] = count
        if len(self._flows) > FLOWS_MAX:
            del self._flows[next(iter(self._flows))]
        return count.arrived(place)


class _Count:
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
