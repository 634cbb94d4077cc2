"""The table of a shared name: random lives against a model, and who gets what."""

from __future__ import annotations

from random import Random

import pytest

from penstock.streams import share_window
from penstock.streams.log_codec import NameRecord
from penstock.streams.packets import Share, ShareVerdict, Tick
from penstock.streams.share_record import new_record, record_of, restored
from penstock.streams.share_window import OpenMessage, ShareWindow
from penstock.testing.pump import a_message

LEASE = 6.0
ACK_WITHIN = 2.0
ATTEMPTS = 3


def a_window(*members: str, credit: int = 4, messages: int = 0) -> ShareWindow:
    window = ShareWindow(0, ack_within=ACK_WITHIN, attempts_max=ATTEMPTS, lease=LEASE)
    for number, reader in enumerate(members):
        window.join(reader, 1, number + 1, credit, 0.0).ready = True
    for tick in range(1, messages + 1):
        window.add(tick, a_message(tick))
    return window


def given(window: ShareWindow, at: float = 0.0) -> dict[str, list[Tick]]:
    """Plan, let that be on disk, and see who gets what."""
    window.plan(at)
    found: dict[str, list[Tick]] = {}
    for message in window.plan_stored(at):
        assert message.holder is not None
        found.setdefault(message.holder.reader, []).append(message.tick)
    return found


def say(window: ShareWindow, reader: str, tick: Tick, verdict: ShareVerdict, at: float = 0.0, attempt: int = 1) -> str:
    return window.judge(window.members[reader], tick, attempt, verdict, at)


def test_messages_go_to_whoever_holds_the_fewest_in_the_order_of_ticks_as_far_as_credit_reaches() -> None:
    window = a_window("a", "b", credit=2, messages=5)
    assert given(window) == {"a": [1, 3], "b": [2, 4]}
    assert given(window) == {}
    assert say(window, "b", 2, ShareVerdict.DONE) == ""
    assert given(window) == {"b": [5]}
    assert window.floor() == 0
    for tick, reader in ((1, "a"), (3, "a"), (4, "b")):
        say(window, reader, tick, ShareVerdict.DONE)
    window.upto = 5
    assert window.floor() == 4


def test_nothing_is_sent_before_the_attempt_is_on_disk_and_a_failed_write_costs_no_attempt() -> None:
    window = a_window("a", messages=1)
    assert window.plan(0.0)
    assert say(window, "a", 1, ShareVerdict.DONE) != "", "it was not sent yet"
    window.plan_failed(0.0)
    assert window.open[1].tried == 0
    assert given(window) == {"a": [1]}
    assert window.open[1].attempts == 1


def test_what_a_dead_member_held_goes_to_others_alone_and_so_an_innocent_does_not_fail_with_a_killer() -> None:
    window = a_window("a", "b", "c", credit=8, messages=2)
    window.members["b"].ready = window.members["c"].ready = False
    assert given(window) == {"a": [1, 2]}
    window.leave(window.members["a"], 1.0)
    window.members["b"].ready = True
    window.add(3, a_message(3))
    assert given(window, 1.0) == {"b": [1]}, "one suspect, and nothing beside it"
    say(window, "b", 1, ShareVerdict.DONE, 1.0, attempt=2)
    assert given(window, 1.0) == {"b": [2]}
    say(window, "b", 2, ShareVerdict.DONE, 1.0, attempt=2)
    assert given(window, 1.0) == {"b": [3]}


def test_a_rejected_message_comes_again_after_a_pause_to_somebody_else_and_fails_in_the_end() -> None:
    window = a_window("a", "b", messages=1)
    assert given(window) == {"a": [1]}
    say(window, "a", 1, ShareVerdict.REJECTED)
    assert given(window) == {}
    assert given(window, 1.0) == {"b": [1]}
    say(window, "b", 1, ShareVerdict.REJECTED, 1.0, attempt=2)
    assert given(window, 2.0) == {"a": [1]}
    say(window, "a", 1, ShareVerdict.REJECTED, 2.0, attempt=3)
    assert list(window.failed) == [1]
    assert given(window, 9.0) == {}
    assert window.redeliver_failed() == 1
    window.load(1, a_message(1))
    assert given(window, 9.0) == {"b": [1]}
    assert window.open[1].attempts == 4  # a number that no member has heard before
    for attempt, (member, at) in enumerate((("b", 9.0), ("a", 20.0), ("b", 40.0)), 4):
        given(window, at)
        say(window, member, 1, ShareVerdict.REJECTED, at, attempt=attempt)
    assert list(window.failed) == [1]


def test_what_is_returned_unseen_was_not_tried() -> None:
    window = a_window("a", "b", messages=1)
    given(window)
    say(window, "a", 1, ShareVerdict.RETURNED)
    assert given(window) == {"b": [1]}
    assert window.open[1].attempts == 1


def test_the_clock_of_what_waits_in_a_queue_begins_anew_whenever_its_application_takes_something() -> None:
    window = a_window("a", credit=3, messages=3)
    given(window)
    for tick in (1, 2, 3):
        at = tick * (ACK_WITHIN - 0.5)
        window.members["a"].heard_at = at
        window.pass_time(at)
        say(window, "a", tick, ShareVerdict.TAKEN, at)
        say(window, "a", tick, ShareVerdict.DONE, at + 0.1)
    assert window.overdue == 0
    assert window.done == 3


def test_who_lets_something_become_overdue_is_served_last_and_one_at_a_time() -> None:
    window = a_window("a", "b", credit=2, messages=1)
    assert given(window) == {"a": [1]}
    window.pass_time(ACK_WITHIN)
    assert window.members["a"].stalled
    for tick in (2, 3, 4, 5):
        window.add(tick, a_message(tick))
    assert given(window, ACK_WITHIN) == {"b": [1], "a": [2]}
    assert say(window, "a", 1, ShareVerdict.DONE, ACK_WITHIN) == "", "late, and it counts"
    assert 1 not in window.open
    assert not window.members["a"].stalled


def test_members_say_nothing_of_what_they_were_not_given() -> None:
    window = a_window("a", "b", messages=2)
    assert given(window) == {"a": [1], "b": [2]}
    for reader, tick, attempt in (("b", 1, 1), ("a", 1, 2), ("a", 7, 1)):
        assert say(window, reader, tick, ShareVerdict.DONE, attempt=attempt) != ""
    assert set(window.open) == {1, 2}


def test_when_the_list_of_failures_is_full_the_next_stays_open_and_moves_when_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(share_window, "FAILED_MAX", 1)
    window = a_window("a", messages=2)
    window.attempts_max = 1
    given(window)
    for tick in (1, 2):
        say(window, "a", tick, ShareVerdict.REJECTED)
    assert (list(window.failed), list(window.open)) == ([1], [2])
    assert given(window, 99.0) == {}
    window.drop_failed([1])
    assert (list(window.failed), list(window.open)) == ([2], [])


class Life:
    """A shared name that is used at random; the model knows what members hold and what was said."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.at = 0.0
        self.record: NameRecord = new_record("TRUE", 0, 0, Share(ACK_WITHIN, ATTEMPTS, ""))
        self.window = restored(self.record, LEASE, 0.0)
        self.contents: dict[Tick, int] = {}
        self.sessions = 0
        self.holders: dict[Tick, tuple[str, int, float]] = {}  # who was sent it, in which attempt, its clock
        self.seen: dict[Tick, int] = {}  # how often applications may have got it
        self.done: set[Tick] = set()  # on disk
        self.said: list[Tick] = []  # said to be done, and not on disk
        self.left: dict[str, float] = {}  # when a member was last gone

    def step(self) -> None:
        members = list(self.window.members.values())
        chance = self.random.random()
        if chance < 0.25:
            self.publish()
        elif chance < 0.33 and len(members) < 4:
            self.join(f"m{self.random.randrange(6)}")
        elif chance < 0.36 and members:
            leaving = self.random.choice(members)
            self.window.leave(leaving, self.at)
            self.left[leaving.reader] = self.at
        elif chance < 0.75 and self.holders:
            self.answer(self.random.choice(list(self.holders)))
        elif chance < 0.85:
            self.pass_time(self.random.choice((0.1, 0.5, 1.0, 3.0)))
        elif chance < 0.87:
            self.crash()
        else:
            self.write(fails=self.random.random() < 0.1)
        self.look()

    def publish(self) -> None:
        tick = self.window.upto + 1
        self.window.add(tick, a_message(tick))
        self.window.upto = tick

    def join(self, reader: str) -> None:
        self.sessions += 1
        self.window.join(reader, 1, self.sessions, self.random.choice((1, 3, 8)), self.at).ready = True

    def answer(self, tick: Tick) -> None:
        """Whoever was sent it says something, also if it has lost it by now."""
        reader, attempt, _ = self.holders[tick]
        member = self.window.members.get(reader)
        verdict = self.random.choice((*ShareVerdict, ShareVerdict.DONE))
        if member is None or self.window.judge(member, tick, attempt, verdict, self.at):
            return
        if verdict is ShareVerdict.DONE:
            self.said.append(tick)
        if verdict >= ShareVerdict.DONE:
            self.seen[tick] -= verdict is ShareVerdict.RETURNED
            del self.holders[tick]

    def pass_time(self, seconds: float) -> None:
        self.at += seconds
        for member in self.window.members.values():
            if self.random.random() < 0.8:
                member.heard_at = self.at
        before = set(self.window.members)
        self.window.pass_time(self.at)
        self.left |= dict.fromkeys(before - set(self.window.members), self.at)

    def write(self, *, fails: bool = False) -> None:
        self.window.plan(self.at)
        record, said = record_of(self.window, self.record, "", 0), self.said
        if fails:
            self.window.plan_failed(self.at)
            return
        self.record, self.said = record, []
        self.done |= set(said)
        for message in self.window.plan_stored(self.at):
            self.sent(message)

    def sent(self, message: OpenMessage) -> None:
        assert message.holder is not None
        reader = message.holder.reader
        assert message.tick not in self.done, "it is done with, and that is on disk"
        assert 1 <= message.attempts <= ATTEMPTS
        self.seen[message.tick] = self.seen.get(message.tick, 0) + 1
        assert self.seen[message.tick] <= ATTEMPTS
        other, _, since = self.holders.get(message.tick, (reader, 0, 0.0))
        over = self.left.get(other, -1.0) >= since or self.at - since >= ACK_WITHIN
        assert other == reader or over, f"{other} has {message.tick}, and {reader} gets it"
        self.holders[message.tick] = (reader, message.attempts, self.at)

    def crash(self) -> None:
        """The disk has the last record; perhaps also the one that was being written."""
        if self.random.random() < 0.5:
            self.window.plan(self.at)
            self.record = record_of(self.window, self.record, "", 0)
            for message in self.window.open.values():
                if message.planned:
                    self.sent(message)
            self.done |= set(self.said)
        self.said = []
        upto = self.window.upto
        self.window = restored(self.record, LEASE, self.at)
        for tick in list(self.window.without_content):
            self.window.load(tick, a_message(tick))
        while self.window.upto < upto:
            self.publish()

    def look(self) -> None:
        """One holder for each, and tables that agree."""
        held = {tick for member in self.window.members.values() for tick in member.holding}
        assert held == {tick for tick, one in self.window.open.items() if one.holder is not None}
        assert sum(len(member.holding) for member in self.window.members.values()) == len(held)
        assert self.window.waiting() == len(self.window.open) - len(held)
        assert not self.done & (set(self.window.open) | set(self.window.failed))


@pytest.mark.parametrize("seed", range(30))
def test_random_lives_lose_nothing_try_nothing_too_often_and_hand_nothing_to_two_at_once(seed: int) -> None:
    life = Life(seed)
    for _ in range(400):
        life.step()
    life.at += 100.0
    life.window.pass_time(life.at)
    life.join("last")
    for _ in range(4 * len(life.window.open) + 4):
        life.at += 11.0
        life.window.members["last"].heard_at = life.at
        life.write()
        for tick in list(life.window.members["last"].holding):
            say(life.window, "last", tick, ShareVerdict.DONE, life.at, life.window.open[tick].attempts)
            life.said.append(tick)
    life.write()
    assert life.window.open == {}
    assert life.done | set(life.window.failed) >= set(range(1, life.window.upto + 1))
    assert not life.done & set(life.window.failed)
