"""How a reader begins, lives and ends under a durable name of a pubend.

Register is checked from top to bottom, and changes nothing if something is wrong with it: the name, the predicate,
the position that the reader presents (of this epoch, and not in the future), the start of a new name, the predicate of
a known name, and who else reads under it. Then the record goes to disk, and Registered says from where on the
subscription is in force.

A presented position says what the reader has got, not what it is done with: the reader goes on from there, or from what
the name has acknowledged if that is later, and only Progress moves the stored position on. With `rewind` the presented
one wins, higher or lower, and is stored: the application knows best what it has done.

A position below what is kept is a gap: the answer says from where on something is missing, and the stored position
stays where it is until the reader makes progress, so that the gap is told again if the answer is lost.

Renew and Progress of a session that is not known get SessionEnded without a problem, so that the edge registers again.
A pubend that has stopped says why instead.

Members of a shared name come and go in the same way; what is theirs alone is in `shared_names`.
"""

from __future__ import annotations

from math import isfinite

from penstock.content.language.parser import parse_predicate
from penstock.errors import InvalidPredicate
from penstock.kernel.machine import Effect
from penstock.kernel.trace import InputRefused
from penstock.overlay.packets import BrokerId
from penstock.streams.durable_names import DurableName, DurableNames
from penstock.streams.log_codec import VERSION, NameRecord
from penstock.streams.packets import (
    DURABLE_NAME_BYTES_MAX,
    TICK_MAX,
    Progress,
    Register,
    Registered,
    Renew,
    SessionEnded,
    Tick,
    Unregister,
    client_of,
    name_problem,
)
from penstock.streams.pubend_clock import SECOND
from penstock.streams.pubend_core import PubendCore
from penstock.streams.shared_names import SharedNames

START_HELP = "use earliest, latest, tick:N, time:SECONDS or ago:SECONDS"


class DurableReaders:
    """Readers of one pubend."""

    def __init__(self, core: PubendCore, names: DurableNames, shared: SharedNames) -> None:
        self._core = core
        self._names = names
        self._shared = shared

    def register(self, packet: Register, broker: BrokerId, now: float) -> list[Effect]:
        horizon = self._core.ticks.horizon(now)
        problem, again = self._core.refusal()
        if not problem:
            problem, again = self._problem(packet, horizon)
        done: Tick = 0
        if not problem:
            done, problem = self._done(packet, horizon)
        if problem:
            answer = Registered(packet.request, packet.pubend, packet.name, problem=problem, again=again)
            return self._core.send(broker, answer, now)
        if packet.share is not None:
            return self._shared.join(packet, broker, done, horizon, now)
        known = self._names.find(packet.name)
        created = known.newest.created if known is not None else horizon
        record = NameRecord(VERSION, packet.where, done, created, horizon)
        position, gone = max(done, packet.position), self._core.gone
        answer = Registered(
            packet.request,
            self._core.name,
            packet.name,
            self._core.epoch,
            position=max(position, gone),
            done=done,
            gone_from=position + 1 if position < gone and not self._begins_anywhere(packet, known) else 0,
        )
        return [*self._end_other(packet, known, broker, now), *self._names.begin(packet, broker, record, answer, now)]

    def _problem(self, packet: Register, horizon: Tick) -> tuple[str, bool]:
        """What is wrong with it, and whether that may pass."""
        core = self._core
        problem = name_problem(packet.name, "a durable name", DURABLE_NAME_BYTES_MAX) or _where_problem(packet.where)
        if problem:
            return problem, False
        if packet.position >= 0 and packet.epoch != core.epoch:
            return (
                f"the position {packet.position} is of another {core.name} (epoch {packet.epoch}, now {core.epoch}):"
                " that one was removed, and ticks of one mean nothing in the other; subscribe without a position"
            ), False
        if packet.position > horizon:
            return (
                f"the position {packet.position} is in the future; the newest tick of {core.name} is {horizon}",
                False,
            )
        known = self._names.find(packet.name)
        problem = self._shared.problem(packet, known)
        if problem:
            return problem, False
        if known is None:
            limit = core.config.names_max
            full = f"{core.name} has {len(self._names)} durable names; the limit names_max is {limit}"
            return (full, False) if len(self._names) >= limit else ("", False)
        return self._known_problem(packet, known)

    def _known_problem(self, packet: Register, known: DurableName) -> tuple[str, bool]:
        if known.removed_by is not None:
            return f"'{packet.name}' is being removed", True
        if known.newest.where != packet.where:
            return (
                f"'{packet.name}' wants {known.newest.where}, and not {packet.where}; choose another name, or remove"
                f" this one with 'penstock stream rm {self._core.stream} --durable {packet.name}'"
            ), False
        session = known.session
        if session is None or packet.share is not None or packet.takeover or session.reader == packet.reader:
            return "", False
        return (
            f"'{packet.name}' is being read by client '{client_of(session.reader)}' at broker {session.broker};"
            " takeover=True takes its place"
        ), False

    def _done(self, packet: Register, horizon: Tick) -> tuple[Tick, str]:
        """What the name is done with when the reader begins, or a problem."""
        known = self._names.find(packet.name)
        if packet.position >= 0 and (packet.rewind or known is None):
            return packet.position, ""
        if known is not None:
            return known.newest.position, ""
        return start_position(packet.start, gone=self._core.gone, horizon=horizon)

    def _begins_anywhere(self, packet: Register, known: DurableName | None) -> bool:
        """Whether it is a new name that did not ask for a certain tick: then nothing is missing."""
        return known is None and packet.position < 0 and not packet.start.startswith("tick:")

    def _end_other(self, packet: Register, known: DurableName | None, broker: BrokerId, now: float) -> list[Effect]:
        """The reader that was there before gives way, and is told if it is another one."""
        if known is None or known.session is None or known.session.reader == packet.reader:
            return []
        return self.end(
            known, f"client '{client_of(packet.reader)}' at broker {broker} has taken over '{packet.name}'", now
        )

    def unregister(self, packet: Unregister, now: float) -> list[Effect]:
        if self._names.session(packet.name, packet.session) is not None:
            self._names.end_session(packet.name)
            return []
        return self._shared.leave(packet.name, packet.session, now)

    def renew(self, packet: Renew, broker: BrokerId, now: float) -> list[Effect]:
        self._core.ticks.clock.read(now)
        effects: list[Effect] = []
        for name, number in packet.sessions:
            session = self._names.session(name, number)
            if session is None and not self._core.problem and self._shared.renew(name, number, now):
                continue
            if session is None or self._core.problem:
                effects += self._unknown(broker, name, number, now)
            else:
                session.heard_at = self._core.ticks.clock.elapsed
        return effects

    def progress(self, packet: Progress, broker: BrokerId, now: float) -> list[Effect]:
        horizon = self._core.ticks.horizon(now)
        effects: list[Effect] = []
        for name, number, tick in packet.done:
            session = self._names.session(name, number)
            if session is None or packet.epoch != self._core.epoch or self._core.problem:
                effects += self._unknown(broker, name, number, now)
            elif tick > horizon:
                problem = f"'{name}' says it has read up to {tick}; the newest tick of {self._core.name} is {horizon}"
                effects.append(InputRefused(session.reader, problem))
            else:
                session.heard_at = self._core.ticks.clock.elapsed
                effects += self._names.progress(name, session, tick, now, silent=packet.silent)
        return effects

    def _unknown(self, broker: BrokerId, name: str, number: int, now: float) -> list[Effect]:
        """Nothing while the pubend opens: its names are not read yet."""
        if not self._core.ready and not self._core.problem:
            return []
        return self._core.send(broker, self._ended(name, number, self._core.problem), now)

    def end(self, name: DurableName, problem: str, now: float) -> list[Effect]:
        """Nobody reads under this name any more, for this reason."""
        shared = self._shared.of(name)
        if shared is not None:
            return shared.end(problem, now)
        session, name.session = name.session, None
        if session is None:
            return []
        if session.awaits is None:
            return self._core.send(session.broker, self._ended(name.name, session.number, problem), now)
        a = session.answer
        return self._core.send(session.broker, Registered(a.request, a.pubend, a.name, problem=problem), now)

    def expire(self, now: float) -> list[Effect]:
        """Readers that were not heard of are gone; what the disk has refused is tried again."""
        self._core.ticks.clock.read(now)
        for name in self._names.expired_sessions():
            self._names.end_session(name)
        return self._names.write_unsaved()

    def _ended(self, name: str, session: int, problem: str) -> SessionEnded:
        return SessionEnded(self._core.name, name, session, problem)


def start_position(start: str, *, gone: Tick, horizon: Tick) -> tuple[Tick, str]:
    """The position before the first tick that a new name wants; or a problem."""
    kind, _, number = start.partition(":")
    if kind in ("", "latest") and not number:
        return horizon, ""
    if kind == "earliest" and not number:
        return gone, ""
    if kind not in ("tick", "time", "ago"):
        return 0, f"the start '{start}' is none that there is; {START_HELP}"
    first = _first_tick(kind, number, horizon)
    if first is None:
        return 0, f"the start '{start}' has no number that can be; {START_HELP}"
    if first > horizon + 1:
        return 0, f"the start '{start}' is in the future; the newest tick is {horizon}"
    before = max(0, first - 1)
    return (before if kind == "tick" else max(gone, before)), ""


def _first_tick(kind: str, number: str, horizon: Tick) -> Tick | None:
    if kind == "tick":
        good = number.isascii() and number.isdecimal() and len(number) <= 20
        return int(number) if good and int(number) <= TICK_MAX else None
    try:
        seconds = float(number)
    except ValueError:
        return None
    if not isfinite(seconds) or not 0.0 <= seconds <= TICK_MAX / SECOND:
        return None
    return int(seconds * SECOND) if kind == "time" else max(0, horizon - int(seconds * SECOND))


def _where_problem(where: str) -> str:
    try:
        parse_predicate(where)
    except InvalidPredicate as error:
        return f"the predicate cannot be used: {error}"
    return ""
