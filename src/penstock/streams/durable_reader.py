"""One durable subscription of a client: every matching message once and in order, across connections.

State: a place in each pubend (`pubend_place`), and what the application has not taken yet. On each new connection the
subscription is asked for anew with its positions, again and again until the broker answers; the ticket is answered the
first time. From the answer on it is in force; a broker may serve the pubends that it reaches before that.

What comes. A delivery says which tick it follows. One that follows the position is handed over, message by message,
and moves the position; one that is known already is a duplicate; one that begins beyond the position shows a hole: it
is dropped, and Resume asks the broker to go back. A gap is what nobody keeps any more; it is recorded and passed over.
Besides that only an answer moves a position: what the durable name is done with, because somebody else has read under
it meanwhile, is not read again. Brokers tell how far they are also when nothing matches; if none of that has come for
QUIET_AFTER seconds, or a hole does not close, the subscription is asked for anew.

Credit. At most `window` messages wait for the application. A Take says how many may be sent in all since the
subscription was last asked for; it goes out when half a window was taken. It also says how many have come, so that the
broker need not fill the way to us, and goes out for that after REPORT_MESSAGES or REPORT_BYTES. Resume says so too:
those that were lost on the way cost no credit. A broker that sends far more than it may is not listened to until there
is room.

Acknowledgements are cumulative for each pubend. One is under way at a time; what comes meanwhile goes out when it is
answered, or after ACKNOWLEDGE_EVERY. One that is not answered is sent again, also over a new connection. A gap that
was told is acknowledged with the messages before it, or at once if they are.

Timers: CLIENT_SUBSCRIBE, CLIENT_ACKNOWLEDGE (subscription), CLIENT_RESUME (subscription, pubend).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from msgspec import Struct

from penstock.kernel.link import Link
from penstock.kernel.machine import Accepted, Deliver, Done, Effect, Refused, Send
from penstock.kernel.packet import Lane, Packet
from penstock.kernel.storage import Ticket
from penstock.kernel.timers import ServiceTimers
from penstock.kernel.trace import InputRefused, TraceSwitch
from penstock.streams.config import StreamsClientConfig
from penstock.streams.durable_options import DurableRequest
from penstock.streams.message import placed
from penstock.streams.packets import (
    PUBENDS_MAX,
    TICK_MAX,
    Acknowledge,
    Acknowledged,
    DurableAnswer,
    DurableLeave,
    DurableSubscribe,
    Position,
    Resume,
    StreamDelivery,
    Take,
    Tick,
    stream_of,
)
from penstock.streams.pubend_place import PubendPlace
from penstock.streams.records import (
    DurableBegan,
    DurableDelayed,
    DurableStopped,
    GapNoticed,
    SharingBegan,
    StreamDelivered,
)
from penstock.streams.timers import StreamTimer

ACKNOWLEDGE_EVERY = 0.05  # seconds, while the one before is not answered
REPORT_MESSAGES = 512  # that have come before the broker is told of it
REPORT_BYTES = 128 << 10
QUIET_AFTER = 10.0  # seconds in which a broker that serves us would have said something


class DurableReport(Struct, frozen=True):
    """How a durable subscription fares."""

    stream: str
    durable: str
    in_force: bool
    problem: str  # why it is not
    ended: bool  # it will not be again
    positions: tuple[Position, ...]  # that the application may keep
    acknowledged: tuple[Position, ...]  # on disk at the pubends
    received: int
    duplicates: int
    holes: int
    gaps: int
    waiting: int  # messages that the application has not taken
    credit: int  # messages that the broker may still send


class DurableReader:
    """A sub-machine of the client's, for one subscription."""

    def __init__(
        self,
        request: DurableRequest,
        positions: Sequence[Position],  # that the application has kept
        ticket: Ticket,
        config: StreamsClientConfig,
        timers: ServiceTimers,
        *,
        traced: TraceSwitch | bool,
    ) -> None:
        self.request = request
        self.in_force = False
        self.began = False  # it has been in force
        self.ended = False
        self.problem = ""
        self.places = {pubend: PubendPlace(pubend, epoch, tick) for pubend, epoch, tick in positions}
        self._rewind = bool(positions)
        self._ticket: Ticket | None = ticket  # None: answered
        self._config = config
        self._window = config.window if request.share is None else config.share_window
        self._timers = timers
        self._traced = traced
        self._home: Link | None = None
        self._asked = 0  # the request that is under way, or was answered last
        self._delay = 0.0  # until it is asked again
        self._heard_at = 0.0  # when the broker last told us something that fits our places
        self._acknowledge_at: float | None = None  # when the timer is set for
        self._untaken: deque[tuple[PubendPlace, Tick]] = deque()
        self._allowed = 0  # messages in all, since it was last asked for
        self._came = 0  # since it was last asked for
        self._told = 0  # of those, how many the broker knows to have come
        self._untold_bytes = 0
        self._received = self._duplicates = self._holes = self._gaps = 0

    # Being in force.

    def connected(self, home: Link, *, now: float) -> list[Effect]:
        """Ask the broker for it."""
        self._home = home
        return [] if self.ended else self._ask_anew(now)

    def disconnected(self) -> None:
        """It is in force no more, until it is asked for again."""
        self._home = None
        self.in_force = False
        self._stop_timers()

    def subscribe_due(self, *, now: float) -> list[Effect]:
        """There was no answer: ask again. In force: look whether the broker is heard of, and repeat the last Take."""
        if not self.in_force:
            return self._ask(now)
        if now >= self._heard_at + QUIET_AFTER:
            return self._ask_anew(now)
        self._timers.set(StreamTimer.CLIENT_SUBSCRIBE, self._heard_at + QUIET_AFTER, self.request.number)
        return self._take()

    def _ask_anew(self, now: float) -> list[Effect]:
        self.in_force = False
        self._asked += 1
        self._delay = 0.0
        for place in self.places.values():
            place.hole, place.resume_delay = False, 0.0
            self._timers.cancel(StreamTimer.CLIENT_RESUME, self.request.number, place.pubend)
        return self._ask(now)

    def _ask(self, now: float) -> list[Effect]:
        self._told = self._untold_bytes = 0
        self._came, self._allowed = 0, max(0, self._window - len(self._untaken))
        self._delay = min(self._config.retry_max, 2 * self._delay or self._config.retry_min)
        self._timers.set(StreamTimer.CLIENT_SUBSCRIBE, now + self._delay, self.request.number)
        asked = self.request
        packet = DurableSubscribe(
            self._asked,
            asked.number,
            asked.stream,
            asked.durable,
            asked.where,
            asked.start,
            tuple(place.presented for place in self.places.values()),
            asked.takeover and not self.began,  # whoever took over from us since then keeps it
            self._allowed,
            asked.incarnation,
            self._rewind and not self.began,
            asked.share,
        )
        return self._send(packet)

    def answered(self, packet: DurableAnswer, *, now: float) -> list[Effect]:
        """The broker has answered."""
        if self.in_force or packet.request != self._asked:
            return []
        if packet.problem:
            return self._delayed(packet.problem) if packet.again else self.end(packet.problem)
        wrong = self._wrong(packet.positions)
        if wrong:
            return [InputRefused("broker", wrong)]
        self.in_force, self.problem = True, ""
        self._heard_at = now
        self._timers.set(StreamTimer.CLIENT_SUBSCRIBE, now + QUIET_AFTER, self.request.number)
        effects = self._begin(packet.positions)
        again, self.began = self.began, True
        if self._ticket is not None:
            effects.append(Done(self._ticket, Accepted()))
            self._ticket = None
        for place in self.places.values():
            place.sent = place.stored
            if again:  # the broker that served us before may have died before it told the pubend
                place.acknowledge_silence()
            if place.acknowledged > place.stored:
                effects += self._acknowledge(place, now)
        return effects

    def _delayed(self, problem: str) -> list[Effect]:
        """It cannot be now; the broker, or we, will try again."""
        repeated, self.problem = problem == self.problem, problem
        asked = self.request
        return [] if repeated else [DurableDelayed(asked.number, asked.stream, asked.durable, problem)]

    def _wrong(self, positions: tuple[Position, ...]) -> str:
        pubends = dict.fromkeys(pubend for pubend, _, _ in positions)
        if not 0 < len(pubends) == len(positions) <= PUBENDS_MAX:
            return f"an answer with {len(positions)} positions for '{self.request.durable}'"
        if any(stream_of(pubend) != self.request.stream for pubend in pubends):
            return f"an answer about another stream than '{self.request.stream}'"
        if not all(0 < epoch <= TICK_MAX and 0 <= tick <= TICK_MAX for _, epoch, tick in positions):
            return f"an answer with ticks that cannot be for '{self.request.durable}'"
        return ""

    def _begin(self, positions: tuple[Position, ...]) -> list[Effect]:
        """Take the positions of the answer, where they are beyond ours."""
        effects: list[Effect] = []
        asked = self.request
        for pubend, epoch, tick in positions:
            place = self.places.get(pubend)
            new = not self.began
            if place is None or place.epoch != epoch:
                if place is not None:
                    effects += place.abandon(f"{pubend} was removed and made anew")
                place = self.places[pubend] = PubendPlace(pubend, epoch, tick)
                new = True
            elif tick > place.position:
                place.moved(tick)
                new = True
            if new:
                at = (pubend, epoch, place.position)
                record = DurableBegan if asked.share is None else SharingBegan
                effects.append(record(asked.number, asked.stream, asked.durable, *at, asked.where))
        return effects

    def end(self, problem: str) -> list[Effect]:
        """It is over: refused, or served no longer. The ticket is answered, and nobody waits for an acknowledgement."""
        self.ended, self.in_force, self.problem = True, False, problem
        self._stop_timers()
        asked, effects = self.request, list[Effect]()
        if self.began:
            effects.append(DurableStopped(asked.number, asked.stream, asked.durable, problem))
        else:
            effects.append(InputRefused(asked.client, problem))
        if self._ticket is not None:
            effects.append(Done(self._ticket, Refused(problem)))
            self._ticket = None
        for place in self.places.values():
            effects += place.abandon(f"not acknowledged: {problem}")
        return effects

    def leave(self) -> list[Effect]:
        """The application is done with it: tell the broker what it has acknowledged, and that it leaves."""
        effects: list[Effect] = []
        if not self.ended:
            for place in self.places.values():
                if place.acknowledged > place.sent:
                    effects += self._send(self._acknowledgement(place))
            effects += self._send(DurableLeave(self.request.number))
        self._stop_timers()
        left = "unsubscribed before the broker had answered"
        if self._ticket is not None:
            effects.append(Done(self._ticket, Refused(left)))
        for place in self.places.values():
            effects += place.abandon(left)
        return effects

    # What comes.

    def delivered(self, packet: StreamDelivery, *, now: float) -> list[Effect]:
        """What follows the position is handed over."""
        self._came += len(packet.items)
        self._untold_bytes += sum(message.size_bytes for _, message in packet.items)
        place = self.places.get(packet.pubend)
        if place is None or place.epoch != packet.epoch:
            problem = f"a delivery of '{packet.pubend}', which '{self.request.durable}' does not read"
            return [InputRefused("broker", problem), *self._grant()]
        if packet.after > place.position or (self._overfull and packet.items):
            self._holes += not place.hole
            place.hole = True
            return self._resume(place, now) + self._grant()
        self._heard_at = now
        if packet.upto <= place.position:
            self._duplicates += len(packet.items)
            if packet.upto == place.position:  # the broker stands where we do
                place.moved(packet.upto)
            return self._grant()
        effects = self._gap(packet, place) if packet.gap else self._messages(packet, place)
        place.moved(packet.upto)
        if packet.gap:
            place.gap_came(packet.upto)
            if place.acknowledged > place.sent:
                effects += self._acknowledge(place, now)
        return effects + self._grant()

    def _gap(self, packet: StreamDelivery, place: PubendPlace) -> list[Effect]:
        self._gaps += 1
        asked = self.request
        return [GapNoticed(asked.number, asked.stream, place.pubend, place.position + 1, packet.upto)]

    def _messages(self, packet: StreamDelivery, place: PubendPlace) -> list[Effect]:
        number, effects, before = self.request.number, list[Effect](), place.position
        pubend, epoch = place.pubend, place.epoch
        for tick, message in packet.items:
            if tick <= before:
                self._duplicates += 1
                continue
            self._received += 1
            place.message_came(tick)
            self._untaken.append((place, tick))
            if self._traced:
                who = message.identity
                at = (number, place.pubend, place.epoch, tick)
                effects.append(StreamDelivered(*at, who.publisher, who.incarnation, who.count))
            effects.append(Deliver(number, placed(message, pubend, epoch, tick)))
        return effects

    @property
    def _overfull(self) -> bool:
        """Whether the broker has sent far more than it was allowed."""
        return len(self._untaken) > 2 * self._window

    def resume_due(self, pubend: str, *, now: float) -> list[Effect]:
        """A hole may not have closed."""
        place = self.places[pubend]
        if not place.hole:
            return []
        if place.resume_delay >= self._config.retry_max and not self._overfull:
            return self._ask_anew(now)
        return self._resume(place, now)

    def _resume(self, place: PubendPlace, now: float) -> list[Effect]:
        """Ask the broker to go back; before its answer that would undo what the answer is about to say."""
        if not self.in_force:
            return []
        if now < place.resume_at or self._overfull:
            at = max(place.resume_at, now + self._config.retry_min)
            self._timers.set(StreamTimer.CLIENT_RESUME, at, self.request.number, place.pubend)
            return []
        place.resume_delay = min(self._config.retry_max, 2 * place.resume_delay or self._config.retry_min)
        place.resume_at = now + place.resume_delay
        number = self.request.number
        self._timers.set(StreamTimer.CLIENT_RESUME, place.resume_at, number, place.pubend)
        return self._send(Resume(number, place.pubend, place.epoch, place.position, self._came))

    # Credit.

    def taken(self, count: int, *, now: float) -> list[Effect]:
        """The application has taken so many."""
        next_one = self._untaken.popleft
        for _ in range(min(count, len(self._untaken))):
            place, tick = next_one()
            place.message_taken(tick)
        return self._grant()

    def _grant(self) -> list[Effect]:
        """Let the broker send more, if enough was taken."""
        enough = self._room - self._allowed >= max(1, self._window // 2)
        many = self._came - self._told >= REPORT_MESSAGES or self._untold_bytes >= REPORT_BYTES
        return self._take() if (enough or many) and not self.ended else []

    @property
    def _room(self) -> int:
        """Messages in all, since it was last asked for, that there is room for."""
        return self._came + self._window - len(self._untaken)

    def _take(self) -> list[Effect]:
        self._allowed = max(self._allowed, self._room)
        self._told, self._untold_bytes = self._came, 0
        return self._send(Take(self.request.number, self._allowed, self._came))

    # Acknowledgements.

    def acknowledge(self, pubend: str, tick: Tick, *, ticket: Ticket, now: float) -> list[Effect]:
        """The application is done with everything of this pubend up to this tick."""
        place = self.places.get(pubend)
        if self.ended:
            problem = self.problem
        elif place is None:
            problem = f"'{pubend}' is no pubend that '{self.request.durable}' reads"
        else:
            problem = place.refusal(tick, ticket)
        if problem or place is None:
            told = f"not acknowledged: {problem}"
            return [Done(ticket, Refused(told)) if ticket else InputRefused(self.request.client, told)]
        effects = place.acknowledge(tick, ticket)
        if place.acknowledged > place.sent:
            if place.sent <= place.stored:
                effects += self._acknowledge(place, now)
            else:
                self._acknowledge_soon(now + ACKNOWLEDGE_EVERY)
        return effects

    def acknowledged(self, packet: Acknowledged, *, now: float) -> list[Effect]:
        """A pubend has stored one."""
        place = self.places.get(packet.pubend)
        if place is None or place.epoch != packet.epoch:
            return []
        effects = place.acknowledgement_stored(packet.tick)
        if place.acknowledged > place.sent:
            effects += self._acknowledge(place, now)
        return effects

    def acknowledge_due(self, *, now: float) -> list[Effect]:
        """Send what has gathered, and again what was not answered."""
        self._acknowledge_at = None
        effects: list[Effect] = []
        for place in self.places.values():
            overdue = place.sent > place.stored and now >= place.sent_at + self._config.retry_min
            if place.acknowledged > place.sent or overdue:
                effects += self._acknowledge(place, now)
            elif place.sent > place.stored:
                self._acknowledge_soon(place.sent_at + self._config.retry_min)
        return effects

    def _acknowledge(self, place: PubendPlace, now: float) -> list[Effect]:
        if not self.in_force:  # the answer lets it out
            return []
        place.sent, place.sent_at = place.acknowledged, now
        self._acknowledge_soon(now + self._config.retry_min)
        return self._send(self._acknowledgement(place))

    def _acknowledgement(self, place: PubendPlace) -> Acknowledge:
        return Acknowledge(self.request.number, place.pubend, place.epoch, place.acknowledged)

    def _acknowledge_soon(self, at: float) -> None:
        if self._acknowledge_at is None or at < self._acknowledge_at:
            self._acknowledge_at = at
            self._timers.set(StreamTimer.CLIENT_ACKNOWLEDGE, at, self.request.number)

    # Parts.

    def positions(self) -> tuple[Position, ...]:
        """What an application may keep that is done with all it has taken."""
        return tuple(place.kept for _, place in sorted(self.places.items()))

    def report(self) -> DurableReport:
        """How it fares."""
        places = [place for _, place in sorted(self.places.items())]
        return DurableReport(
            stream=self.request.stream,
            durable=self.request.durable,
            in_force=self.in_force,
            problem=self.problem,
            ended=self.ended,
            positions=self.positions(),
            acknowledged=tuple((place.pubend, place.epoch, place.stored) for place in places),
            received=self._received,
            duplicates=self._duplicates,
            holes=self._holes,
            gaps=self._gaps,
            waiting=len(self._untaken),
            credit=max(0, self._allowed - self._came),
        )

    def _send(self, packet: Packet) -> list[Effect]:
        return [] if self._home is None else [Send((self._home,), packet, Lane.CONTROL)]

    def _stop_timers(self) -> None:
        number = self.request.number
        self._timers.cancel(StreamTimer.CLIENT_SUBSCRIBE, number)
        self._timers.cancel(StreamTimer.CLIENT_ACKNOWLEDGE, number)
        self._acknowledge_at = None
        for pubend in self.places:
            self._timers.cancel(StreamTimer.CLIENT_RESUME, number, pubend)
