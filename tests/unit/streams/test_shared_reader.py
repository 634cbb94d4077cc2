"""A member of a shared name in its client: what comes, what is said of it, and for how long."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import InvalidOption
from penstock.kernel.machine import Accepted, Refused
from penstock.streams.config import StreamSubscriptionOptions
from penstock.streams.durable_options import durable_request
from penstock.streams.packets import (
    DurableEnded,
    DurableLeave,
    DurableSubscribe,
    Share,
    ShareDelivery,
    ShareSettle,
    ShareSettled,
    ShareVerdict,
    StreamDelivery,
)
from penstock.streams.records import GapNoticed
from scripted_home import ScriptedHome, a_message

RECEIVED, TAKEN, DONE, REJECTED, RETURNED = (int(verdict) for verdict in ShareVerdict)


class Member(ScriptedHome):
    """A client that is a member of `billing`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.up()
        self.subscribe(share=True, ack_within=5.0, attempts_max=3, failed="bad")
        self.answer()
        self.wait(0.1)
        self.sent.clear()

    def hand_out(self, *handouts: tuple[int, int]) -> None:
        items = tuple((tick, attempt, a_message(tick, publisher="p")) for tick, attempt in handouts)
        self.say(ShareDelivery(1, "orders/0", 7, items))

    def settle(self, tick: int, attempt: int, verdict: ShareVerdict = ShareVerdict.DONE) -> int:
        ticket = self.ticket()
        machine, handout = self.machine, (tick, attempt)
        self.apply(machine.settle(1, "orders/0", handout, verdict, ticket=ticket, now=self.now))
        return ticket

    def said(self) -> list[tuple[int, int, int]]:
        """What was said since the last look."""
        self.wait(0.02)
        return [verdict for packet in self.take_sent(ShareSettle) for verdict in packet.verdicts]

    def taken(self) -> list[tuple[int, int]]:
        return [(message.tick, message.attempt) for message in self.messages]


def test_it_asks_to_share_and_says_a_first_word_when_it_is_in_force() -> None:
    home = ScriptedHome()
    home.up()
    home.subscribe(share=True, attempts_max=3)
    asked = home.answer()
    assert (asked.share, asked.credit) == (Share(0.0, 3, ""), 16)
    home.wait(0.1)
    assert home.take_sent(ShareSettle) == [ShareSettle(1, "orders/0", 7, ())]
    home.wait(5.0)
    assert len(home.take_sent(ShareSettle)) == 2, "and again now and then, in case that was lost"


def test_a_handout_that_comes_twice_is_handed_over_once_and_said_to_have_come_each_time() -> None:
    home = Member()
    home.hand_out((101, 1), (105, 2))
    assert home.taken() == [(101, 1), (105, 2)]
    assert home.said() == [(101, 1, RECEIVED), (105, 2, RECEIVED)]
    home.take(1)
    home.hand_out((101, 1))
    assert home.taken() == [(101, 1), (105, 2)]
    assert home.said() == [(101, 1, TAKEN)]
    home.hand_out((101, 2))
    assert home.taken()[-1] == (101, 2), "another attempt is another handout"


def test_what_is_settled_is_said_until_it_is_confirmed_over_a_new_connection_too() -> None:
    home = Member()
    home.hand_out((101, 1), (102, 1))
    done, rejected = home.settle(101, 1), home.settle(102, 1, ShareVerdict.REJECTED)
    assert set(home.said()) == {(101, 1, DONE), (102, 1, REJECTED)}
    home.wait(1.0)
    assert set(home.said()) >= {(101, 1, DONE), (102, 1, REJECTED)}
    home.say(ShareSettled(1, "orders/0", 7, ((101, 1),)))
    assert home.done[done] == Accepted()
    assert rejected not in home.done
    home.down()
    home.wait(3.0)
    home.up()
    home.answer()
    assert home.said() == [(102, 1, REJECTED)]
    home.say(ShareSettled(1, "orders/0", 7, ((102, 1),)))
    assert home.done[rejected] == Accepted()
    home.hand_out((102, 1))
    assert home.taken() == [(101, 1), (102, 1)]
    assert home.said() == [(102, 1, REJECTED)], "a copy that comes late gets the same answer"


def test_an_attempt_that_is_over_makes_room_and_may_still_be_done_with() -> None:
    home = Member(share_window=1)
    home.hand_out((101, 1), (102, 1), (103, 1))
    assert home.taken() == [(101, 1), (102, 1)], "twice the window and no more"
    home.take(2)
    home.say(ShareSettled(1, "orders/0", 7, ((101, 1),)))
    home.hand_out((103, 1))
    assert home.taken()[-1] == (103, 1)
    home.said()
    late = home.settle(101, 1)
    assert home.said() == [(101, 1, DONE)]
    home.say(ShareSettled(1, "orders/0", 7, ((101, 1),)))
    assert home.done[late] == Accepted()


def test_who_leaves_gives_back_what_the_application_has_not_seen() -> None:
    home = Member()
    home.hand_out((101, 1), (102, 1))
    home.take(1)
    home.said()
    home.apply(home.machine.unsubscribe(1, ticket=home.ticket(), now=home.now))
    settled, left = home.sent
    assert isinstance(settled, ShareSettle)
    assert (102, 1, RETURNED) in settled.verdicts
    assert (101, 1, RETURNED) not in settled.verdicts
    assert left == DurableLeave(1)


def test_a_gap_is_told_once_and_confirmed_each_time() -> None:
    home = Member()
    for _ in range(2):
        home.say(ShareDelivery(1, "orders/0", 7, (), (90, 120)))
        assert home.said() == [(120, 0, RECEIVED)]
    assert home.recorded(GapNoticed) == [GapNoticed(1, "orders", "orders/0", 90, 120)]


def test_what_was_never_handed_out_cannot_be_settled_and_what_is_over_is_refused() -> None:
    home = Member()
    never = home.settle(101, 1)
    assert isinstance(home.done[never], Refused)
    upto = home.acknowledge(101)
    assert "one by one" in str(home.done[upto])
    home.hand_out((101, 1))
    waiting = home.settle(101, 1)
    home.say(DurableEnded(1, "'billing' was removed"))
    assert "was removed" in str(home.done[waiting])
    home.hand_out((102, 1))
    assert home.taken() == [(101, 1)]


def test_heartbeats_of_the_broker_are_no_messages_and_other_pubends_are_nobodys() -> None:
    home = Member()
    home.say(StreamDelivery(1, "orders/0", 7, 100, 100, ()))
    home.say(ShareDelivery(1, "orders/9", 7, ((101, 1, a_message(1)),)))
    home.say(ShareDelivery(1, "orders/0", 6, ((101, 1, a_message(1)),)))
    assert home.taken() == []
    home.wait(9.0)
    assert home.take_sent(DurableSubscribe) == []


@pytest.mark.parametrize(
    ("option", "asked"),
    [
        ("ack_within", {"ack_within": 5.0}),
        ("attempts_max", {"attempts_max": 5}),
        ("failed", {"failed": "bad"}),
        ("takeover", {"share": True, "takeover": True}),
        ("ack_within", {"share": True, "ack_within": -1.0}),
        ("attempts_max", {"share": True, "attempts_max": 1_001}),
        ("failed", {"share": True, "failed": "orders"}),
        ("failed", {"share": True, "failed": "no name"}),
    ],
)
def test_options_that_cannot_be_are_refused_before_anything_is_sent(option: str, asked: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption) as refused:
        durable_request(1, "TRUE", StreamSubscriptionOptions(stream="orders", durable="x", **asked), "c", 1)
    assert refused.value.option == option
