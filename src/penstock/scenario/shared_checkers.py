"""What must hold of shared names in every run.

    shared-true       what comes was published to this stream, is unchanged, matches, and has an attempt that can be;
                      one attempt comes to one member once
    shared-attempts   no message reaches applications more often than `attempts_max`, whatever crashes
    shared-alone      nobody gets a message while another member holds it, unless that one's time is over, or something
                      went wrong in the network since that one was last heard of
    shared-settled    what is confirmed as done is not handed out again
    shared-done       in the end every message that is due is done, has failed too often, or was told as a gap; for
                      names that have members

The last is for runs that heal.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.scenario.checker import Checker
from penstock.scenario.shared_book import Attempt, SharedBook, SharedBookName
from penstock.scenario.shared_facts import SharedCame, SharedTaken
from penstock.scenario.spec import Scenario
from penstock.scenario.stream_checkers import stream_settings
from penstock.scenario.stream_facts import StreamFact
from penstock.streams.message import StreamMessage
from penstock.streams.packets import Tick

ON_THE_WAY = 5.0  # seconds that a handout may take, and a verdict
CLOCKS = 0.01  # how much a clock may run too fast, as a share


class SharedChecker(Checker):
    """Keeps a book and judges facts by it; `judge` sees the book as it was before the fact."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self.book = SharedBook()

    def stream_fact(self, time: float, fact: StreamFact) -> None:
        self.judge(time, fact)
        self.book.enter(time, fact)

    def judge(self, time: float, fact: StreamFact) -> None:
        """The subclass looks at what it is there for."""


class SharedTrue(SharedChecker):
    """Nothing is invented, changed or unwanted."""

    def judge(self, time: float, fact: StreamFact) -> None:
        if not isinstance(fact, SharedCame):
            return
        message, (_, name) = fact.message, self.book.of(fact.reader)
        again = self.book.attempt(fact.reader, message.pubend, message.tick, message.attempt)
        publication = self.book.publications.get(message.identity)
        who = f"{time:.6f}: {fact.reader} of {name} got {_what(message)}"
        if publication is None or publication.stream != name.stream:
            self.problem(f"{who}, which nobody published there")
            return
        original = publication.message
        if (message.attributes, message.body) != (original.attributes, original.body):
            self.problem(f"{who} with another content")
        if not name.predicate.matches(original.attributes):
            self.problem(f"{who}, which does not match")
        if again is not None:
            self.problem(f"{who} twice")
        if not 1 <= message.attempt <= name.attempts_max:
            self.problem(f"{who}; the limit is {name.attempts_max}")


class SharedAttempts(SharedChecker):
    """A message is tried so often and no more."""

    def judge(self, time: float, fact: StreamFact) -> None:
        if not isinstance(fact, SharedTaken):
            return
        _, name = self.book.of(fact.reader)
        taken = [one for one in self.book.message(name, fact.pubend, fact.tick).attempts if one.taken_at is not None]
        if len(taken) >= name.attempts_max:
            what = f"{fact.pubend} {fact.tick} for the {len(taken) + 1}th time"
            self.problem(f"{time:.6f}: {fact.reader} of {name} took {what}; the limit is {name.attempts_max}")


class SharedAlone(SharedChecker):
    """One holder at a time."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self._lease = stream_settings(scenario).session_lease
        self._faults = [fault.at for fault in scenario.fault]

    def judge(self, time: float, fact: StreamFact) -> None:
        if not isinstance(fact, SharedCame):
            return
        life, name = self.book.of(fact.reader)
        message = fact.message
        for other in self.book.message(name, message.pubend, message.tick).attempts:
            held = other.ended_at is None and other.life != life and other.attempt < message.attempt
            same = other.attempt == message.attempt and other.life != life and other.ended_at is None
            if (held or same) and not self._excused(time, other, name):
                who = f"{time:.6f}: {fact.reader} of {name} got {_what(message)}"
                self.problem(f"{who}, which {other.life[0]} holds since {other.came_at:.6f}")

    def _excused(self, time: float, other: Attempt, name: SharedBookName) -> bool:
        """Its time is over, or something went wrong within a lease before it got the message, or since."""
        since = other.came_at if other.taken_at is None else other.taken_at
        overdue = time - since >= name.ack_within * (1.0 - CLOCKS) - min(1.0, name.ack_within / 2.0)
        return overdue or any(other.came_at - self._lease - ON_THE_WAY <= at <= time for at in self._faults)


class SharedSettled(SharedChecker):
    """Done is done."""

    def judge(self, time: float, fact: StreamFact) -> None:
        if not isinstance(fact, SharedCame):
            return
        _, name = self.book.of(fact.reader)
        found = self.book.message(name, fact.message.pubend, fact.message.tick)
        if found.confirmed_at is not None and time > found.confirmed_at + ON_THE_WAY:
            who = f"{time:.6f}: {fact.reader} of {name} got {_what(fact.message)}"
            self.problem(f"{who}, which was confirmed as done at {found.confirmed_at:.6f}")


class SharedDone(SharedChecker):
    """In the end nothing is left over."""

    def finish(self) -> None:
        for name in self.book.names.values():
            if any(name.members.values()) and name.in_force:
                for pubend, tick, publication in self.book.due(name):
                    self._due(name, pubend, tick, str(publication.message.identity))
            elif any(name.members.values()):
                self.problem(f"{name} has members, and none was ever answered")

    def _due(self, name: SharedBookName, pubend: str, tick: Tick, identity: str) -> None:
        found = self.book.message(name, pubend, tick)
        if found.done_at is not None or name.missed(pubend, tick) or (pubend, tick) in name.moved:
            return
        failed = tick in name.failed_on_disk.get(pubend, ())
        if failed and name.failed:
            self.problem(f"{identity} at {pubend} {tick} of {name} has failed, and is not in {name.failed}")
        elif not failed:
            highest = max((one.attempt for one in found.attempts), default=0)
            self.problem(f"{identity} at {pubend} {tick} of {name} is not done; it came in attempt {highest} at most")


SHARED_CHECKERS: dict[str, Callable[[Scenario], Checker]] = {
    "shared-true": SharedTrue,
    "shared-attempts": SharedAttempts,
    "shared-alone": SharedAlone,
    "shared-settled": SharedSettled,
    "shared-done": SharedDone,
}


def _what(message: StreamMessage) -> str:
    return f"{message.identity} at {message.pubend} {message.tick}, attempt {message.attempt}"
