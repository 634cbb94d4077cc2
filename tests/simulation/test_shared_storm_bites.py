"""With one mistake put into shared names, some storm must complain of them; see `test_stream_storm_bites`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.scenario.stream_storm import EVENTS_MAX, stream_storm
from penstock.sim.run import simulate
from penstock.streams import shared_name
from penstock.streams.share_failed import FailedMover
from penstock.streams.share_place import SharePlace
from penstock.streams.share_window import ShareWindow
from penstock.streams.shared_name import SharedName

SEEDS_MAX = 100

Patch = Callable[[pytest.MonkeyPatch], None]


def attempts_are_forgotten_in_a_restart(patch: pytest.MonkeyPatch) -> None:
    original = ShareWindow.restore

    def restore(self: Any, tick: int, attempts: int, holder: str, at: float, *, forgiven: int = 0) -> None:
        original(self, tick, 0, "", at)

    patch.setattr(ShareWindow, "restore", restore)


def what_a_dead_member_held_is_lost(patch: pytest.MonkeyPatch) -> None:
    def leave(self: Any, member: Any, at: float) -> None:
        del self.members[member.reader]
        self.forget(list(member.holding))

    patch.setattr(ShareWindow, "leave", leave)


def open_messages_are_not_written(patch: pytest.MonkeyPatch) -> None:
    original = shared_name.record_of

    def record_of(window: Any, *rest: Any) -> Any:
        record = original(window, *rest)
        return replace(record, position=window.upto, share=replace(record.share, given=()))

    patch.setattr(shared_name, "record_of", record_of)


def a_gap_is_passed_over(patch: pytest.MonkeyPatch) -> None:
    original = SharedName._tell_gap

    def tell_gap(self: Any, now: float) -> Any:
        gap = self._gap()
        if gap is not None:
            self._gap_heard(gap[1])
        return original(self, now)

    patch.setattr(SharedName, "_tell_gap", tell_gap)


def what_failed_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ShareWindow, "_fail", lambda self, message: self._close(message))


def what_failed_is_done_with_before_it_is_stored(patch: pytest.MonkeyPatch) -> None:
    original = FailedMover.start

    def start(self: Any, now: float) -> Any:
        effects = original(self, now)
        if effects:
            self._shared.window.drop_failed((self._moving,))
        return effects

    patch.setattr(FailedMover, "start", start)


def a_client_takes_every_copy_for_news(patch: pytest.MonkeyPatch) -> None:
    original = SharePlace.comes
    patch.setattr(SharePlace, "comes", lambda self, handout: original(self, handout) or True)


FIRST_SEED: dict[Patch, int] = {
    attempts_are_forgotten_in_a_restart: 266,
    what_a_dead_member_held_is_lost: 13,
    open_messages_are_not_written: 6,
    a_gap_is_passed_over: 27,
    what_failed_is_forgotten: 1,
    what_failed_is_done_with_before_it_is_stored: 1,
    a_client_takes_every_copy_for_news: 31,
}


@pytest.mark.parametrize("mistake", FIRST_SEED, ids=lambda mistake: mistake.__name__)
def test_some_storm_finds_the_mistake_in_sharing(mistake: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake(monkeypatch)
    first = FIRST_SEED[mistake]
    for seed in range(first, first + SEEDS_MAX):
        scenario = stream_storm(seed)
        if "shared-done" in scenario.check:
            problems = simulate(scenario, seed, events_max=EVENTS_MAX).problems
            if any("shared '" in problem for problem in problems):
                return
    raise AssertionError("no storm has found it")
