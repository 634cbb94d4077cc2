"""What a simulated application does with streams: it publishes to them, and reads under durable names.

A message that it publishes is answered later: stored, refused, or nobody knows. Flows with `repeats` choose their own
publication_ids; what nobody knows of they publish again under the same id until it is stored or refused, and some of
what was stored they publish a second time, half of these with another body, which must be refused.

A reader takes messages at once, or at the rate that its subscription names. Whatever comes and is not taken counts as
not read. It acknowledges a message when it asks for the next one, or several at once (`ack = "manual"`), and keeps its
position in a notebook under the durable name, where the next reader of that name finds it, in whatever client: so
subscriptions move. A subscription that is refused is tried again; one that was taken over is not. All that happens is
told to the checkers as facts. Members of shared names are played by `shared_application`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from penstock import services
from penstock.content.message import Identity, Message, make_message
from penstock.kernel.machine import Effect, Outcome, Refused, Reported, Unknown
from penstock.kernel.randomness import generator
from penstock.overlay.verbs import Verbs
from penstock.scenario.spec import ClientSpec, SubscriptionSpec
from penstock.scenario.stream_facts import (
    Acknowledging,
    GapRead,
    MessageRead,
    PositionSeen,
    PublisherCrashed,
    ReadingBegan,
    ReadingEnded,
    ReadingInForce,
    ReadingRefused,
    StoreAsked,
    StoreConfirmed,
    StoreRefused,
    StreamFact,
)
from penstock.scenario.stream_tally import StreamTallies, StreamTally, tally_of
from penstock.sim.engine import Engine
from penstock.sim.host import Host
from penstock.sim.shared_application import SharedApplication
from penstock.streams.message import StreamMessage
from penstock.streams.packets import Position, Tick

TRY_AGAIN = 1.0  # seconds after a refusal, or after an outcome that nobody knows
REPEAT_WITHIN = 3.0  # seconds after a message was stored

Notebook = dict[tuple[str, str], tuple[Position, ...]]  # (stream, durable name) -> what its last reader has kept


@dataclass
class _Publication:
    """One message, and what it was published with."""

    message: Message
    options: dict[str, Any]
    repeats: float  # how likely it is to be published once more


@dataclass
class _Reader:
    """One durable subscription of this client."""

    number: int
    spec: SubscriptionSpec
    live: bool = False  # from subscribe to unsubscribe
    served: bool = False
    waiting: list[StreamMessage] = field(default_factory=list)
    taking: bool = False
    taken: int = 0  # since the last acknowledgement
    newest: dict[str, Tick] = field(default_factory=dict)  # taken and not acknowledged, by pubend


class StreamApplication:
    """The part of one client's application that uses streams."""

    def __init__(
        self,
        spec: ClientSpec,
        seed: int,
        engine: Engine,
        host: Host,
        verbs: Callable[[], Verbs],
        next_message: Callable[[], Identity],  # the identity of one more publication
        next_ticket: Callable[[], int],
        tell: Callable[[StreamFact], None],
        notebook: Notebook,
        published_at: Mapping[Identity, float],  # of every message of the run
    ) -> None:
        self._name = spec.name
        self._engine = engine
        self._host = host
        self._verbs = verbs
        self._next_message = next_message
        self._next_ticket = next_ticket
        self._tell = tell
        self._notebook = notebook
        self._random = generator(seed, spec.name, "streams")
        self.unanswered = 0  # publications
        self.tallies: StreamTallies = {}
        self._published_at = published_at
        self._answers: dict[int, Callable[[Outcome], None]] = {}
        self._readers = {
            number: _Reader(number, subscription)
            for number, subscription in enumerate(spec.subscribe)
            if subscription.options.get("durable") and not subscription.options.get("share")
        }
        shared = {
            number: subscription
            for number, subscription in enumerate(spec.subscribe)
            if subscription.options.get("durable") and subscription.options.get("share")
        }
        draws = generator(seed, spec.name, "shared")
        self._shared = SharedApplication(spec.name, shared, draws, engine, host, verbs, self._ask, tell)

    def reads(self, number: int) -> bool:
        """Whether this subscription is one of a stream."""
        return number in self._readers or number in self._shared

    def _ask(self, answer: Callable[[Outcome], None]) -> int:
        """A ticket, whose answer goes there."""
        ticket = self._next_ticket()
        self._answers[ticket] = answer
        return ticket

    def answered(self, ticket: int, outcome: Outcome) -> bool:
        """A verb of ours was answered; False: it is not ours."""
        answer = self._answers.pop(ticket, None)
        if answer is None:
            return False
        answer(outcome)
        return True

    def crashed(self) -> None:
        """The client is gone, with all that was under way; what it has kept is in the notebook."""
        self._answers.clear()
        self.unanswered = 0
        self._tell(PublisherCrashed(self._name))
        self._shared.crashed()
        for reader in self._readers.values():
            if reader.live:
                reader.live = reader.served = False
                self._tell(ReadingEnded((self._name, reader.number)))

    def finish(self) -> None:
        """The run is over: say where the readers are."""
        for reader in self._readers.values():
            self._keep(reader)

    # Publishing.

    def publish(self, message: Message, options: dict[str, Any], repeats: float) -> None:
        """Let this message be stored."""
        chosen = f"{self._name}-{message.identity.count}" if repeats else ""
        self._publish(_Publication(message, {**options, "publication_id": chosen}, repeats))

    def _publish(self, publication: _Publication) -> None:
        if self._host.machine is None:
            return
        ticket, options = self._next_ticket(), publication.options
        self._tally(publication).offered += 1
        self.unanswered += 1
        self._answers[ticket] = partial(self._stored, publication)
        self._tell(StoreAsked(options["stream"], options["publication_id"], publication.message))
        chosen = services.options(options, services.publication_options())
        effects = self._verbs().publish((publication.message,), chosen, tickets=(ticket,), now=self._host.now())
        self._host.apply(effects)

    def _stored(self, publication: _Publication, outcome: Outcome) -> None:
        identity, chosen = publication.message.identity, publication.options["publication_id"]
        self.unanswered -= 1
        tally = self._tally(publication)
        if isinstance(outcome, Reported):
            tally.stored += 1
            tally.delays.append(self._engine.now - self._published_at[identity])
            self._tell(StoreConfirmed(identity, outcome.report["pubend"], outcome.report["tick"]))
            if chosen and self._random.random() < publication.repeats:
                delay = self._random.uniform(0.0, REPEAT_WITHIN)
                self._later(delay, partial(self._again, publication, self._random.random() < 0.5))
            return
        assert isinstance(outcome, Refused), f"a publication was answered with {outcome}"
        unknown = isinstance(outcome, Unknown)
        tally.not_stored += 1
        self._tell(StoreRefused(identity, outcome.problem, unknown))
        if unknown and chosen:
            self._later(TRY_AGAIN, partial(self._again, publication, False))

    def _tally(self, publication: _Publication) -> StreamTally:
        return tally_of(self.tallies, publication.options["stream"])

    def _again(self, publication: _Publication, changed: bool) -> None:
        """The same under the same id, or another body, which must be refused."""
        before = publication.message
        body = before.body + b"changed" if changed else before.body
        message = make_message(self._next_message(), before.attributes, body)
        self._publish(_Publication(message, publication.options, 0.0))

    # Reading.

    def subscribe(self, number: int) -> None:
        """Begin to read; begin again if that is refused."""
        if number in self._shared:
            self._shared.subscribe(number)
            return
        reader = self._readers[number]
        reader.live = True
        self._subscribe(reader)

    def _subscribe(self, reader: _Reader) -> None:
        if not reader.live or reader.served or self._host.machine is None:
            return
        spec, options = reader.spec, reader.spec.options
        kept = self._notebook.get(_name(spec), ()) if spec.from_kept else ()
        name = (options["stream"], options["durable"], spec.where, options.get("start_at", ""))
        self._tell(ReadingBegan((self._name, reader.number), *name, kept))
        if kept:
            self._machine().present(reader.number, kept)
        ticket = self._next_ticket()
        self._answers[ticket] = partial(self._subscribed, reader)
        chosen = services.options(options)
        self._host.apply(
            self._verbs().subscribe(reader.number, spec.where, chosen, ticket=ticket, now=self._host.now())
        )

    def _subscribed(self, reader: _Reader, outcome: Outcome) -> None:
        if not reader.live:
            return
        if isinstance(outcome, Refused):
            self._tell(ReadingRefused((self._name, reader.number), outcome.problem))
            delay = TRY_AGAIN * self._random.uniform(0.5, 1.5)  # rivals part company
            self._later(delay, partial(self._subscribe, reader))
            return
        reader.served = True
        self._tell(ReadingInForce((self._name, reader.number), self._machine().positions(reader.number)))

    def stopped(self, number: int, problem: str) -> None:
        """A broker serves it no longer: somebody else reads under this name."""
        if number in self._shared:
            self._shared.stopped(number, problem)
        reader = self._readers.get(number)
        if reader is not None and reader.served:
            reader.live = reader.served = False
            self._tell(ReadingRefused((self._name, number), problem))

    def unsubscribe(self, number: int) -> None:
        """Read no more; the position stays in the notebook."""
        if number in self._shared:
            self._shared.unsubscribe(number)
            return
        reader = self._readers[number]
        if not reader.live or self._host.machine is None:
            return
        self._keep(reader)
        reader.live = reader.served = False
        self._tell(ReadingEnded((self._name, number)))
        ticket = self._next_ticket()
        self._answers[ticket] = lambda outcome: None
        self._host.apply(self._verbs().unsubscribe(number, ticket=ticket, now=self._host.now()))

    def delivered(self, number: int, message: StreamMessage) -> None:
        """A message has come."""
        if number in self._shared:
            self._shared.delivered(number, message)
            return
        reader = self._readers[number]
        reader.waiting.append(message)
        self._take_soon(reader)

    def gap(self, number: int, pubend: str, first: Tick, last: Tick) -> None:
        """Something was told to be gone."""
        if number in self._shared:
            self._shared.gap(number, pubend, first, last)
            return
        self._tell(GapRead((self._name, number), pubend, first, last))

    def _take_soon(self, reader: _Reader) -> None:
        if reader.waiting and not reader.taking:
            reader.taking = True
            rate = reader.spec.reads_messages_per_s
            self._later(1.0 / rate if rate else 0.0, partial(self._take, reader))

    def _take(self, reader: _Reader) -> None:
        """The next message, or all that wait if the reader is quick."""
        reader.taking = False
        if self._host.machine is None or not reader.served:
            reader.waiting.clear()
            return
        taken = reader.waiting[: 1 if reader.spec.reads_messages_per_s else None]
        del reader.waiting[: len(taken)]
        if reader.spec.options.get("ack") != "manual":  # it asks for these, so it is done with those before
            self._acknowledge(reader)
        tally = tally_of(self.tallies, *_name(reader.spec))
        tally.read += len(taken)
        for message in taken:
            tally.delays.append(self._engine.now - self._published_at[message.identity])
            self._tell(MessageRead((self._name, reader.number), message))
            reader.newest[message.pubend] = message.tick
        reader.taken += len(taken)
        self._apply(self._machine().taken(reader.number, len(taken), now=self._host.now()))
        self._keep(reader)
        if reader.spec.options.get("ack") == "manual":
            if reader.taken >= reader.spec.acknowledge_every:
                self._acknowledge(reader)
        elif not reader.waiting:
            self._acknowledge(reader)
        self._take_soon(reader)

    def _acknowledge(self, reader: _Reader) -> None:
        newest, reader.newest, reader.taken = reader.newest, {}, 0
        for pubend, tick in newest.items():
            self._tell(Acknowledging((self._name, reader.number), pubend, tick, False))
            ticket = self._next_ticket()
            self._answers[ticket] = partial(self._acknowledged, reader, pubend, tick)
            self._apply(self._machine().acknowledge(reader.number, pubend, tick, ticket=ticket, now=self._host.now()))

    def _acknowledged(self, reader: _Reader, pubend: str, tick: Tick, outcome: Outcome) -> None:
        if not isinstance(outcome, Refused):
            self._tell(Acknowledging((self._name, reader.number), pubend, tick, True))

    def _keep(self, reader: _Reader) -> None:
        """Write down where the reader is."""
        if reader.served and self._host.machine is not None:
            positions = tuple(self._machine().positions(reader.number))
            kept = {pubend: (epoch, tick) for pubend, epoch, tick in self._notebook.get(_name(reader.spec), ())}
            for pubend, epoch, tick in positions:  # another reader may be further, where one takes over from the other
                kept[pubend] = max(kept.get(pubend, (epoch, 0)), (epoch, tick))
            self._notebook[_name(reader.spec)] = tuple((pubend, *kept[pubend]) for pubend in sorted(kept))
            self._tell(PositionSeen((self._name, reader.number), positions))

    def _apply(self, effects: list[Effect]) -> None:
        """Let a verb of the machine of streams take effect."""
        assert self._host.machine is not None
        self._host.apply(self._host.machine.route(effects))

    def _machine(self) -> Any:
        assert self._host.machine is not None
        return self._host.machine.machines["streams"]

    def _later(self, delay: float, call: Callable[[], None]) -> None:
        """As an input of its own, never from inside the machine's effects."""
        self._engine.at(self._engine.now + delay, lambda _: call(), None)


def _name(spec: SubscriptionSpec) -> tuple[str, str]:
    return spec.options["stream"], spec.options["durable"]
