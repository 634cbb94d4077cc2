"""The application of a simulated client: it subscribes, publishes and reads as its scenario says.

What it publishes is the client's script, the same as in real time (`scenario.script`). It takes messages at once, or at
the rate that a subscription names: then they wait in a bounded queue, what does not fit is dropped and recorded, and
the machine gets readings, as in real time. What it does with streams stands in `stream_application`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from penstock import services
from penstock.content.message import Attributes, Identity, Message, make_message
from penstock.kernel.machine import Accepted, Deliver, Outcome, Refused
from penstock.kernel.reader_queue import READING_EVERY, ReaderQueue, reader_drop
from penstock.overlay.verbs import Verbs
from penstock.scenario.checker import Checker
from penstock.scenario.script import Line, script
from penstock.scenario.spec import ClientSpec
from penstock.scenario.stream_facts import StreamFact
from penstock.sim.engine import Engine
from penstock.sim.host import Host
from penstock.sim.stream_application import Notebook, StreamApplication
from penstock.streams.message import StreamMessage

HELD_LOOK_EVERY = 0.005  # seconds between two looks whether a held client may publish again
Tell = Callable[[Callable[[Checker], None]], None]


class Application:
    """Plays one client's application."""

    def __init__(
        self,
        spec: ClientSpec,
        end: float,
        seed: int,
        engine: Engine,
        host: Host,
        verbs: Callable[[], Verbs],  # of the client's present life
        tell: Tell,  # the checkers
        publishes: Callable[[Identity], None],  # called before each publication
        notebook: Notebook,
        published_at: Mapping[Identity, float],  # of every message of the run
    ) -> None:
        self.refused = 0
        self._spec = spec
        self._engine = engine
        self._host = host
        self._verbs = verbs
        self._tell = tell
        self._publishes = publishes
        self._script = script(spec, end, seed)
        self._waiting = [
            _WaitingFlow(self, script(spec, end, seed, number), publisher.waits, end)
            for number, publisher in enumerate(spec.publish)
            if publisher.waits
        ]
        self._left: dict[int, tuple[_WaitingFlow, Identity]] = {}  # ticket -> who waits for it
        self._readers: dict[int, _Reader] = {}
        self._life = 1
        self._count = 0
        self._ticket = 0
        self._refused_now = False
        host.answered = self._answered
        self.streams = StreamApplication(
            spec, seed, engine, host, verbs, self._identity, self._next, self._tell_fact, notebook, published_at
        )

    def begin(self) -> None:
        """Arrange for everything that the scenario says."""
        for number, subscription in enumerate(self._spec.subscribe):
            self._engine.at(subscription.start, self._subscribe, number)
            if subscription.stop is not None:
                self._engine.at(subscription.stop, self._unsubscribe, number)
            if subscription.reads_messages_per_s is not None and not self.streams.reads(number):
                reader = _Reader(self, number, subscription.reads_messages_per_s, subscription.queue_max)
                self._readers[number] = reader
        self._host.on_deliver = self._delivered
        self._schedule(self._script)
        for flow in self._waiting:
            flow.go_on()

    def restarted(self) -> None:
        """The client lives again: it counts anew, and wants what it wanted."""
        if self._host.incarnation == self._life:
            return  # it had not died
        self._life = self._host.incarnation
        self._count = 0
        for number, subscription in enumerate(self._spec.subscribe):
            ended = subscription.stop is not None and subscription.stop <= self._engine.now
            if subscription.start <= self._engine.now and not ended:
                self._subscribe(number)

    def report(self) -> None:
        """Tell the checkers what the client's services report of its subscriptions."""
        if self._host.machine is None:
            return
        for number in range(len(self._spec.subscribe)):
            for service, report in self._verbs().reports(number).items():
                self._tell_report(number, service, report)

    def _tell_report(self, number: int, service: str, report: Any) -> None:
        self._tell(lambda c: c.reported(self._engine.now, self._spec.name, number, service, report))

    def publish(
        self,
        attributes: Attributes,
        body: bytes,
        options: dict[str, Any] | None = None,
        repeats: float = 0.0,
        waiting: _WaitingFlow | None = None,
    ) -> None:
        """Publish one message now; if somebody waits for it to leave, it is told when it does."""
        message = make_message(self._identity(), attributes, body)
        if options and options.get("stream"):
            self.streams.publish(message, options, repeats)
            return
        self._refused_now, ticket = False, self._next()
        now = self._engine.now
        if waiting is not None:
            self._left[ticket] = waiting, message.identity
            self._tell(lambda c: c.awaited(now, self._spec.name, message.identity))
        chosen = services.options(options, services.publication_options()) if options else None
        self._host.apply(self._verbs().publish((message,), chosen, tickets=(ticket,), now=self._host.now()))
        if not self._refused_now:
            self._tell(lambda c: c.published(now, self._spec.name, message))

    def _identity(self) -> Identity:
        """That of the next message."""
        self._count += 1
        identity = Identity(self._spec.name, self._host.incarnation, self._count)
        self._publishes(identity)
        return identity

    def _tell_fact(self, fact: StreamFact) -> None:
        self._tell(lambda c: c.stream_fact(self._engine.now, fact))

    def _schedule(self, lines: Iterator[Line]) -> None:
        line = next(lines, None)
        if line is not None:
            self._engine.at(line.time, self._publish_line, line)

    def _publish_line(self, line: Line) -> None:
        free = line.unanswered_max is None or self.streams.unanswered < line.unanswered_max
        if self._host.machine is not None and free:
            self.publish(line.attributes, line.body, line.options, line.repeats)
        self._schedule(self._script)

    def _subscribe(self, number: int) -> None:
        if self._host.machine is None:
            return
        if self.streams.reads(number):
            self.streams.subscribe(number)
            return
        subscription = self._spec.subscribe[number]
        self._tell(lambda c: c.subscribed(self._engine.now, self._spec.name, number, subscription.where))
        options, ticket = services.options(subscription.options), self._next()
        self._host.apply(
            self._verbs().subscribe(number, subscription.where, options, ticket=ticket, now=self._host.now())
        )

    def _unsubscribe(self, number: int) -> None:
        alive = self._host.machine is not None
        if self.streams.reads(number):
            if alive:
                self.streams.unsubscribe(number)
            return
        for service, report in self._verbs().reports(number).items() if alive else ():
            self._tell_report(number, service, report)
        self._tell(lambda c: c.unsubscribed(self._engine.now, self._spec.name, number))
        if not alive:
            return  # it will not subscribe again
        self._host.apply(self._verbs().unsubscribe(number, ticket=self._next(), now=self._host.now()))

    def _answered(self, ticket: int, outcome: Outcome) -> None:
        refused = isinstance(outcome, Refused)
        self.refused += refused
        if ticket in self._left:
            flow, identity = self._left.pop(ticket)
            accepted = isinstance(outcome, Accepted)
            self._tell(lambda c: c.answered(self._engine.now, self._spec.name, identity, accepted))
            self.later(0.0, flow.left)
        if self.streams.answered(ticket, outcome):
            return
        if ticket == self._ticket:  # an earlier publication may be answered while this one is made
            self._refused_now = refused

    def _next(self) -> int:
        self._ticket += 1
        return self._ticket

    # Reading.

    def _delivered(self, effect: Deliver) -> None:
        if isinstance(effect.message, StreamMessage):
            self.streams.delivered(effect.subscription, effect.message)
            return
        reader = self._readers.get(effect.subscription)
        if reader is not None:
            reader.put(effect.message)

    def read(self, number: int, queue: ReaderQueue) -> None:
        """Tell the machine how the reader of this subscription fares."""
        if self._host.machine is not None:
            now = self._host.now()
            self._host.apply(self._verbs().read(number, queue.reading(), now=now))

    def reader_dropped(self, message: Message) -> None:
        """The reader was too slow for a message."""
        self._host.note(reader_drop(message))

    @property
    def now(self) -> float:
        """The time of the run."""
        return self._engine.now

    @property
    def alive(self) -> bool:
        """Whether the client is."""
        return self._host.machine is not None

    @property
    def held(self) -> bool:
        """Whether its broker holds what it publishes."""
        return self.alive and self._verbs().is_held()

    def later(self, delay: float, call: Callable[[None], None]) -> None:
        """Let this be called after so many seconds."""
        self._engine.at(self._engine.now + delay, call, None)


class _WaitingFlow:
    """A flow whose application awaits publish(), with so many messages at once."""

    def __init__(self, application: Application, lines: Iterator[Line], at_once: int, end: float) -> None:
        self._application = application
        self._lines = lines
        self._at_once = at_once
        self._end = end
        self._unanswered = 0
        self._sleeping = False  # until the next message is due
        self._next: Line | None = None

    def left(self, _: None) -> None:
        """A message has left, or never will."""
        self._unanswered -= 1
        self.go_on()

    def go_on(self) -> None:
        """Publish what is due."""
        while self._unanswered < self._at_once and not self._sleeping:
            if self._application.held:
                self._sleep(HELD_LOOK_EVERY)
                return
            line = next(self._lines, None)
            if line is None:
                return
            delay = line.time - self._application.now
            if delay > 0.0:
                self._next = line
                self._sleep(delay)
                return
            self._publish(line)

    def _sleep(self, delay: float) -> None:
        self._sleeping = True
        self._application.later(delay, self._due)

    def _due(self, _: None) -> None:
        self._sleeping = False
        if self._next is not None and not self._application.held:
            line, self._next = self._next, None
            self._publish(line)
        if self._next is not None:
            self._sleep(HELD_LOOK_EVERY)
        else:
            self.go_on()

    def _publish(self, line: Line) -> None:
        if self._application.now < self._end and self._application.alive:
            self._unanswered += 1
            self._application.publish(line.attributes, line.body, line.options, waiting=self)
        else:
            self._lines = iter(())


class _Reader:
    """Takes the messages of one subscription, one at a time."""

    def __init__(self, application: Application, number: int, rate_messages_per_s: float, queue_max: int) -> None:
        self._application = application
        self._number = number
        self._interval = 1.0 / rate_messages_per_s
        self._queue = ReaderQueue(queue_max)
        self._reading = self._reporting = False

    def put(self, message: Message) -> None:
        """A message has come."""
        dropped = self._queue.put(message)
        if dropped is not None:
            self._application.reader_dropped(dropped)
        if not self._reading:
            self._reading = True
            self._application.later(self._interval, self._take)
        if not self._reporting:  # not from inside the machine's own effects: as an input of its own
            self._reporting = True
            self._application.later(READING_EVERY, self._report)

    def _take(self, _: None) -> None:
        self._queue.take(1)
        self._reading = bool(self._queue.messages)
        if self._reading:
            self._application.later(self._interval, self._take)

    def _report(self, _: None) -> None:
        self._reporting = False
        self._application.read(self._number, self._queue)
