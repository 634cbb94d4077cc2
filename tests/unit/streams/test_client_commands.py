"""Commands about streams: one question, one report, and a clear word when none comes."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.kernel.machine import Outcome, Refused, Reported, Unknown
from penstock.streams import client_commands
from penstock.streams.packets import StreamCommand, StreamReport
from scripted_home import ScriptedHome


def command(home: ScriptedHome, verb: str, stream: str = "orders", **arguments: Any) -> int:
    ticket = home.ticket()
    home.apply(home.machine.command(verb, stream, arguments, ticket=ticket, now=home.now))
    return ticket


def connected() -> ScriptedHome:
    home = ScriptedHome()
    home.up()
    return home


def problem(outcome: Outcome) -> str:
    assert isinstance(outcome, Refused)
    return outcome.problem


def test_a_report_answers_the_command() -> None:
    home = connected()
    ticket = command(home, "add", at=["bank"])
    (asked,) = home.take_sent(StreamCommand)
    assert (asked.verb, asked.stream, asked.arguments) == ("add", "orders", b'{"at":["bank"]}')
    home.say(StreamReport(asked.request, b'{"pubends": 1}'))
    assert home.done == {ticket: Reported({"pubends": 1})}
    home.say(StreamReport(asked.request, b"{}"))
    home.wait(1_000.0)
    assert len(home.timers) == 0


def test_a_problem_is_a_refusal() -> None:
    home = connected()
    ticket = command(home, "rm")
    (asked,) = home.take_sent(StreamCommand)
    home.say(StreamReport(asked.request, b"", "there is no stream 'orders'"))
    assert home.done == {ticket: Refused("there is no stream 'orders'")}


@pytest.mark.parametrize(("verb", "kind"), [("info", Refused), ("ls", Refused), ("rm", Unknown), ("trim", Unknown)])
def test_without_a_report_one_that_changes_something_has_an_unknown_outcome(verb: str, kind: type[Refused]) -> None:
    home = connected()
    late = command(home, verb)
    home.wait(60.0)
    assert type(home.done[late]) is kind
    lost = command(home, verb)
    home.down()
    assert type(home.done[lost]) is kind
    assert "the connection was lost" in problem(home.done[lost])
    home.up()
    assert len(home.take_sent(StreamCommand)) == 2  # never repeated
    garbled = command(home, verb)
    (asked,) = home.take_sent(StreamCommand)
    home.say(StreamReport(asked.request, b"[1, 2"))
    assert type(home.done[garbled]) is kind


def test_to_verify_takes_its_time() -> None:
    home = connected()
    ticket = command(home, "verify")
    home.wait(600.0)
    assert ticket not in home.done
    home.wait(61.0)
    assert "no answer in time" in problem(home.done[ticket])


@pytest.mark.parametrize(
    ("verb", "stream", "arguments", "words"),
    [
        ("adds", "orders", {}, "did you mean 'add'?"),
        ("x" * 10_000, "orders", {}, "choose one of"),
        ("info", "", {}, "is empty"),
        ("info", "o" * 10_000, {}, "the limit is 64 bytes"),
        ("add", "orders", {"at": "b" * (1 << 18)}, "the limit is 262144"),
        ("add", "orders", {"at": object()}, "no form as JSON"),
        ("add", "orders", {"at": "\ud800"}, "no form as JSON"),
    ],
)
def test_what_cannot_be_asked_is_refused(verb: str, stream: str, arguments: dict[str, Any], words: str) -> None:
    home = connected()
    ticket = command(home, verb, stream, **arguments)
    assert words in problem(home.done[ticket])
    assert len(problem(home.done[ticket])) < 300
    assert home.sent == []


def test_without_a_connection_or_room_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    home = ScriptedHome()
    ticket = command(home, "ls", "")
    assert "not connected" in problem(home.done[ticket])
    home.up()
    monkeypatch.setattr(client_commands, "COMMANDS_MAX", 1)
    command(home, "ls", "")
    over = command(home, "ls", "")
    assert "wait for them" in problem(home.done[over])
