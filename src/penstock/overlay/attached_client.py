"""One client, as its home broker sees it: who it is, what it holds, how much it may ask for.

A client publishes under its own name, and its services under that name with a mark (`content.envelope.control_name`);
under any other name a message goes no further. It reads its own inbox only: a message with an address (`_to`) goes to
subscriptions of the client of that name, whatever else they match.

Verbs. Subscribing costs the broker a parse, a place in two indexes and a flood, so each client has a budget of it
(`verbs_burst`, `verbs_rate`), ample for all subscriptions of an honest client at once. Over it a verb is refused
unread; answers and records of refusals have budgets too, so that a flood of refused verbs is no flood of packets.

State: four numbers and a bucket each. Bound: one for each client (`clients_max`).
"""

from __future__ import annotations

from penstock.content.envelope import control_name
from penstock.content.message import INBOX
from penstock.content.predicate import Equals, Missing, Predicate
from penstock.kernel.token_bucket import TokenBucket
from penstock.overlay.config import BrokerConfig

RECORDS_BURST, RECORDS_RATE = 100, 10.0  # of refusals, for one client


class AttachedClient:
    """A client at its home broker."""

    __slots__ = ("answers", "keys", "name", "names", "records", "room", "verbs")

    def __init__(self, name: str, config: BrokerConfig, now: float, before: AttachedClient | None = None) -> None:
        self.name = name
        self.names = (name, control_name(name))  # under which it may publish
        self.keys: dict[int, int] = {}  # the client's subscription number -> key in the index
        self.room = 0  # that its filters take of the broker's interest
        self.verbs = TokenBucket(config.verbs_rate, config.verbs_burst, now)
        self.answers = TokenBucket(config.verbs_rate, config.verbs_burst, now)
        self.records = TokenBucket(RECORDS_RATE, RECORDS_BURST, now)
        if before is not None:  # it begins again on its link, with what it had left
            self.verbs, self.answers, self.records = before.verbs, before.answers, before.records

    def inbox_problem(self, predicate: Predicate) -> str:
        """Why it may not subscribe to this: it asks for an inbox that is another's."""
        for part in predicate.filters:
            asked = [constraint for constraint in part.constraints if constraint.name == INBOX]
            own = all(isinstance(one, Missing) or one == Equals(INBOX, self.name) for one in asked)
            if not own:
                return f"a client reads its own inbox only: {INBOX} = '{self.name}'"
        return ""
