"""The shared names of a pubend: who joins, what they say, and when to look at the time.

A name is shared from its first reader on, or never. Members have sessions like other readers: Register begins one,
Renew keeps it, Unregister ends it; SessionEnded says that there is none. But there are several, and what they hold
outlives a session that is registered anew.

Timer: PUBEND_SHARES every LOOK_EVERY seconds while a shared name has members, or something to move.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from penstock.kernel.machine import Effect
from penstock.overlay.packets import BrokerId
from penstock.streams.durable_names import DurableName, DurableNames
from penstock.streams.packets import Item, Register, SessionEnded, Tick, Verdicts
from penstock.streams.pubend_core import PubendCore
from penstock.streams.share_failed import StoreElsewhere
from penstock.streams.share_record import new_record
from penstock.streams.shared_name import SharedName
from penstock.streams.timers import StreamTimer

LOOK_EVERY = 0.25  # seconds
MEMBERS_SHOWN_MAX = 50


class SharedNames:
    """All shared names of one pubend."""

    def __init__(self, core: PubendCore, names: DurableNames, store: StoreElsewhere) -> None:
        self._core = core
        self._names = names
        self._store = store
        self._newest: Tick = 0  # of the log
        self._looking = False  # the timer is set

    def __iter__(self) -> Iterator[SharedName]:
        return iter([shared for name in self._names if (shared := self.of(name)) is not None])

    def of(self, name: DurableName | None) -> SharedName | None:
        """The shared side of a durable name."""
        shared = None if name is None else name.shared
        assert shared is None or isinstance(shared, SharedName)
        return shared

    def opened(self, newest: Tick, now: float) -> list[Effect]:
        """The pubend is open: what is on disk is shared again."""
        self._newest = newest
        for name in self._names:
            if name.stored is not None and name.stored.share is not None:
                shared = name.shared = SharedName(self._core, self._names, name, name.stored)
                shared.begin(newest, self._store)
        self._look_soon(now)
        return []

    # Members.

    def problem(self, packet: Register, known: DurableName | None) -> str:
        """Why this reader cannot begin under this name, shared or not."""
        share = packet.share
        if share is not None and share.failed == self._core.stream:
            return f"failed='{share.failed}' is the stream itself; what fails too often needs another place"
        if known is None:
            return ""
        shared = self.of(known)
        if (shared is None) != (share is None):
            is_shared, wanted = ("is shared", "without") if shared is not None else ("is not shared", "with")
            return f"'{packet.name}' {is_shared}, and cannot be read {wanted} share=True; choose another name"
        return "" if shared is None else shared.problem(packet)

    def join(self, packet: Register, broker: BrokerId, position: Tick, horizon: Tick, now: float) -> list[Effect]:
        """A member begins; a new name begins after this position."""
        assert packet.share is not None
        known = self._names.find(packet.name)
        if known is None:
            record = new_record(packet.where, position, horizon, packet.share)
            known = self._names.add(packet.name, record)
            known.shared = SharedName(self._core, self._names, known, record)
            known.shared.begin(self._newest, self._store)
        shared = self.of(known)
        assert shared is not None
        effects = shared.join(packet, broker, now)
        self._look_soon(now)
        return effects

    def renew(self, name: str, session: int, now: float) -> bool:
        """Whether there is such a member; it lives."""
        shared = self.of(self._names.find(name))
        member = shared.member(session) if shared is not None else None
        if shared is None or member is None:
            return False
        shared.renew(member, now)
        return True

    def leave(self, name: str, session: int, now: float) -> list[Effect]:
        """A member has left."""
        shared = self.of(self._names.find(name))
        member = shared.member(session) if shared is not None else None
        return [] if shared is None or member is None else shared.leave(member, now)

    def verdicts(self, packet: Verdicts, broker: BrokerId, now: float) -> list[Effect]:
        """A member says what became of messages; what another says under its session is not heard."""
        shared = self.of(self._names.find(packet.name))
        member = shared.member(packet.session) if shared is not None else None
        if shared is None or member is None or member.broker != broker or packet.epoch != self._core.epoch:
            if not self._core.ready:
                return []
            ended = SessionEnded(self._core.name, packet.name, packet.session, self._core.problem)
            return self._core.send(broker, ended, now)
        return shared.verdicts(packet, member, now)

    # The log and time.

    def committed(self, items: Sequence[Item], now: float) -> list[Effect]:
        """The log has grown by these."""
        self._newest = items[-1][0]
        return [effect for shared in self for effect in shared.committed(items, now)]

    def gone_moved(self, now: float) -> list[Effect]:
        """Something is kept no longer."""
        return [effect for shared in self for effect in shared.pump(now)]

    def expired(self, now: float) -> list[Effect]:
        """Look at the time."""
        self._looking = False
        effects = [effect for shared in self for effect in shared.pass_time(now)]
        self._look_soon(now)
        return effects

    def heed_clock(self, now: float) -> None:
        """The clock was set back: timers that were set by it would come too late."""
        self._looking = False
        self._look_soon(now)

    def _look_soon(self, now: float) -> None:
        if not self._looking and any(shared.busy() for shared in self):
            self._looking = True
            self._core.set_timer(StreamTimer.PUBEND_SHARES, now + LOOK_EVERY)

    # Commands.

    def report(self, name: DurableName) -> dict[str, Any] | None:
        """What a report says of a shared name; None: it is not shared."""
        shared = self.of(name)
        if shared is None:
            return None
        window, mover = shared.window, shared.mover
        members = [member for member in window.members.values() if member.session]
        return {
            "ack_within": window.ack_within,
            "attempts_max": window.attempts_max,
            "failed_stream": shared.failed_stream,
            "members": [
                {"reader": one.reader, "broker": one.broker, "outstanding": len(one.holding), "stalled": one.stalled}
                for one in members[:MEMBERS_SHOWN_MAX]
            ],
            "members_in_all": len(members),
            "outstanding": sum(message.holder is not None for message in window.open.values()),
            "open": len(window.open),
            "upto": window.upto,
            "redelivered": window.redelivered,
            "done": window.done,
            "rejected": window.rejected,
            "overdue": window.overdue,
            "failed": len(window.failed),
            "moved": 0 if mover is None else mover.moved,
            "problem": "" if mover is None else mover.problem,
        }

    def failed(
        self, name: DurableName, *, redeliver: bool, drop: bool, now: float
    ) -> tuple[dict[str, Any], list[Effect]]:
        """List what failed under this name; let it be tried again, or forget it."""
        shared = self.of(name)
        assert shared is not None
        window = shared.window
        found = [{"tick": tick, "attempts": message.attempts} for tick, message in sorted(window.failed.items())]
        report: dict[str, Any] = {"pubend": self._core.name, "durable": name.name, "failed": found}
        if redeliver:
            report["redelivered"] = window.redeliver_failed()
        elif drop:
            report["dropped"] = len(window.failed)
            window.drop_failed(list(window.failed))
        return report, shared.pump(now)
