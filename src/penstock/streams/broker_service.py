"""Streams in a broker: the machine that joins its parts.

    hosting      the pubends of this broker (publisher-hosting broker, PHB, in 001)
    relays       for each pubend that somebody here or behind us wants: what is known of it (intermediate, IB)
    edge         durable subscriptions of our clients (subscriber-hosting, SHB); share_edge, members of shared names
    publishing   publications of our clients on their way to a pubend; reads, slices of the log on their way back
    commands     add, ls, info, trim, rm, verify, survey, begin
    directory    who hosts what

A broker plays all these roles at once. Packets between two brokers that are not neighbours travel in `Routed`, hop by
hop along the shortest path, and may get lost: whoever waits asks again.

Timers: see `timers`. REFRESH runs while there is anything to refresh.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from penstock.content.message import Message
from penstock.errors import NotPossibleHere
from penstock.kernel.link import Link
from penstock.kernel.machine import Effect, Send
from penstock.kernel.packet import Lane, Packet
from penstock.kernel.service import Context
from penstock.kernel.storage import StorageResult, Ticket
from penstock.kernel.timers import Key
from penstock.overlay.egress import dropped
from penstock.overlay.packets import BrokerId
from penstock.overlay.routing import Routing
from penstock.streams.commands import Commands
from penstock.streams.config import StreamsConfig
from penstock.streams.controls import Controls
from penstock.streams.directory import Directory
from penstock.streams.edge import Edge
from penstock.streams.hosting import Hosting, declared_at, not_hosted
from penstock.streams.packets import (
    BROKER_PACKETS,
    FROM_CLIENT,
    Acknowledge,
    Advert,
    AdvertsWanted,
    Command,
    CommandAnswer,
    DurableLeave,
    DurableSubscribe,
    ForPubend,
    Item,
    LogSlice,
    Payload,
    Progress,
    ProgressStored,
    PublishAnswer,
    PublishRequest,
    PublishStored,
    PublishWaits,
    ReadLog,
    Register,
    Registered,
    Renew,
    Resume,
    Routed,
    SessionEnded,
    SharedHandout,
    ShareSettle,
    StreamCommand,
    StreamPublish,
    Take,
    Tick,
    Unregister,
    Verdicts,
    VerdictsStored,
    stream_of,
)
from penstock.streams.pubend import Forgotten, Pubend
from penstock.streams.publishing import Publishing
from penstock.streams.read_requests import ReadRequests
from penstock.streams.relay import Relay
from penstock.streams.relays import Relays
from penstock.streams.share_edge import ShareEdge
from penstock.streams.share_failed import Answered
from penstock.streams.status import StreamsStatus, relay_status
from penstock.streams.stored_progress import StoredProgress
from penstock.streams.timers import StreamTimer

GREET_AFTER = 0.1  # seconds after a link came up: by then its other end has said Hello
SETTLED_AFTER = 5.0  # seconds of life in which a stream that nobody knows may only not be known yet
HOPS = 64


class StreamBroker:
    """The machine of streams in a broker's node."""

    packet_kinds: tuple[type[Packet], ...] = (*BROKER_PACKETS, *FROM_CLIENT)

    def __init__(self, context: Context) -> None:
        self._config = context.settings(StreamsConfig)
        self._routing = context.below(Routing)
        self._broker: BrokerId = context.number
        self._life = context.incarnation
        self._links = context.links
        self._random = context.random("adverts")
        self._timers = context.timers
        self._plan = context.brokers or {}
        self._exits: Mapping[BrokerId, Link] = {}
        self._requests = context.random("requests").getrandbits(48)  # an answer to an earlier life answers nothing here
        self._started = False
        self._seconds = 0.0  # of life, in whole refresh intervals
        self._refreshing = False
        self._links_up: dict[Link, None] = {}
        self._greeted: dict[Link, None] = {}  # neighbours that have told us their adverts
        declared = declared_at(context.name, self._config)
        if declared and not context.has_storage:
            problem = f"stream '{declared[0][0]}' has a pubend at broker '{context.name}', which stores nothing"
            raise NotPossibleHere(problem, "give the broker a folder to store in (--data)")
        self._directory = Directory(
            self._broker, context.name, self._life, context.has_storage, self._config, self._reachable
        )
        self._stores = context.has_storage
        self._hosting = Hosting(context.storage, declared, self._made(context), self.send_to)
        self._relays = Relays(
            self._life,
            self._config,
            context.timers,
            self._directory,
            self._hosting.pubends,
            self._routing.exits,
        )
        self._edge = self._relays.edge = Edge(self, self._config, context.timers)
        self._share_edge = ShareEdge(self, self._edge)
        self._controls = Controls(
            self._config,
            context.timers,
            self._relays,
            self._hosting.pubends,
            broker=self._broker,
            name_of=self._directory.name_of,
        )
        self._publishing = Publishing(self)
        self._reads = ReadRequests(self)
        self._stored_progress = StoredProgress(context.timers)
        self._published: dict[str, Pubend] = {}  # pubends that have got something to write from the present batch
        self._commands = Commands(self, self._directory, context.timers, self._broker_named)
        self._from_neighbours: dict[type[Packet], Callable[..., list[Effect]]] = {
            Advert: self._advert,
            AdvertsWanted: self._adverts_wanted,
            Routed: self._routed,
            **self._relays.handlers,
            **self._controls.handlers,
        }

    # Inputs.

    def receive(self, packets: Sequence[Packet], *, sender: Link, now: float) -> list[Effect]:
        effects = self._look(now)
        self._publishing.look_again()
        for packet in packets:
            handle = self._from_neighbours.get(type(packet))
            if handle is None:
                effects += self._from_client(packet, sender, now)
            elif self._routing.is_neighbour(sender):
                effects += handle(packet, sender, now)
            else:  # it will say Hello soon
                effects.append(dropped("ingress", "sender unknown", "", packet.travels_in(), packet))
        return effects + self._write(now)

    def _write(self, now: float) -> list[Effect]:
        """What has come together goes to disk together."""
        if not self._published:
            return []
        pubends, self._published = self._published, {}
        return [effect for pubend in pubends.values() for effect in pubend.write(now)]

    def link_changed(self, link: Link, *, up: bool, now: float) -> list[Effect]:
        if up:
            self._links_up[link] = None
            self._timers.set(StreamTimer.ADVERT, now + GREET_AFTER * self._random.uniform(1.0, 2.0))
            return self._start(now)
        self._links_up.pop(link, None)
        self._greeted.pop(link, None)
        effects = self._edge.link_down(link, now=now)
        self._publishing.link_down(link)
        self._reads.link_down(link)
        self._commands.link_down(link)
        self._relays.link_down(link, now=now)
        return effects + self._look(now)

    def completed(self, ticket: Ticket, result: StorageResult, *, now: float) -> list[Effect]:
        return (self._hosting.completed(ticket, result, now=now) or []) + self._look(now)

    def expired(self, timer: int, key: Key, *, now: float) -> list[Effect]:
        effects = self._look(now)
        pubend = str(key[0]) if key else ""
        match timer:
            case StreamTimer.REFRESH:
                effects += self._refresh(now)
            case StreamTimer.ADVERT:
                effects += self._greet(now)
            case StreamTimer.JOIN | StreamTimer.NACK | StreamTimer.PUBEND_SILENCE:
                effects += self._relays.expired(timer, pubend, now=now)
            case StreamTimer.PUBEND_QUERY:
                effects += self._controls.expired(pubend, now=now)
            case StreamTimer.EDGE_LAG:
                effects += self._controls.looked(pubend, now=now)
            case StreamTimer.PROGRESS:
                effects += self._edge.progress(pubend, now=now)
            case StreamTimer.CONFIRM:
                effects += [sent for told in self._stored_progress.take() for sent in self._sent(*told)]
            case StreamTimer.COMMAND:
                effects += self._commands.overdue(int(key[0]))
            case _ if pubend in self._hosting.pubends:
                effects += self._hosting.pubends[pubend].expired(StreamTimer(timer), now=now)
        return effects

    def status(self) -> StreamsStatus:
        relays = tuple(map(relay_status, self._relays))
        return StreamsStatus(tuple(one.status() for one in self._hosting.all()), relays, len(self._edge))

    # From clients.

    def _from_client(self, packet: Packet, link: Link, now: float) -> list[Effect]:
        match packet:
            case StreamPublish():
                return self._publishing.publish(packet, link, self._client_at(link), now=now)
            case Take():
                return self._edge.take(packet, link) + self._settle_reader(link, packet.subscription, now)
            case Acknowledge():
                return self._edge.acknowledge(packet, link, now=now)
            case DurableSubscribe():
                effects = self._edge.subscribe(packet, link, self._client_at(link), now=now)
                self._refresh_soon(now)
                return effects + self._settle_reader(link, packet.subscription, now)
            case Resume():
                return self._edge.resume(packet, link) + self._settle_reader(link, packet.subscription, now)
            case ShareSettle():
                return self._share_edge.settle(packet, link, now=now)
            case DurableLeave():
                return self._edge.leave(link, packet.subscription, now=now)
            case ReadLog():
                return self._reads.ask(packet, link, now=now)
            case StreamCommand():
                return self._commands.receive(packet, link, now=now)
        raise AssertionError(f"no handler for {type(packet).__name__}")

    def _client_at(self, link: Link) -> str:
        info = self._links.get(link)
        return f"link {link}" if info is None else info.peer

    def _settle_reader(self, link: Link, number: int, now: float) -> list[Effect]:
        return [effect for relay in self._edge.behind(link, number) for effect in self._relays.settle(relay, now)]

    # From neighbours.

    def _advert(self, packet: Advert, sender: Link, now: float) -> list[Effect]:
        self._greeted[sender] = None
        effects = self._directory.receive(packet, sender, self._neighbours(), now=now)
        streams = dict.fromkeys(stream for stream, _, _, _ in packet.pubends)
        for relay in self._relays:
            if not relay.at_source and stream_of(relay.pubend) in streams:
                epoch = self._directory.epoch_of(relay.pubend)
                effects += self._relays.renew(relay.pubend, epoch, now=now)
        self._refresh_soon(now)
        return effects

    def _adverts_wanted(self, packet: AdvertsWanted, sender: Link, now: float) -> list[Effect]:
        return self._directory.neighbour_up(sender, now=now)

    def _routed(self, packet: Routed, sender: Link, now: float) -> list[Effect]:
        if packet.to == self._broker:
            return self._payload(packet.payload, packet.origin, now)
        link = self._exits.get(packet.to)
        if link is None or packet.hops_left == 0:
            cause = "no way" if link is None else "hop limit"
            return [dropped("ingress", cause, "", packet.travels_in(), packet)]
        onward = Routed(packet.to, packet.origin, packet.hops_left - 1, packet.payload)
        return [Send((link,), onward, packet.travels_in())]

    def _payload(self, payload: Payload, origin: BrokerId, now: float) -> list[Effect]:
        """Something that was meant for us."""
        match payload:
            case PublishAnswer():
                return self._publishing.answered(payload, now=now)
            case PublishStored():
                return self._publishing.stored(payload, now=now)
            case PublishWaits():
                return self._publishing.waits(payload)
            case Registered():
                whose = self._edge.asked_by(payload.request)
                effects = self._edge.registered(payload, now=now)
                return effects + (self._settle_reader(*whose, now) if whose is not None else [])
            case SessionEnded():
                return self._edge.session_ended(payload, now=now)
            case ProgressStored():
                return self._edge.stored(payload, now=now)
            case SharedHandout():
                return self._share_edge.handed_out(payload)
            case VerdictsStored():
                return self._share_edge.stored(payload)
            case LogSlice():
                return self._reads.answered(payload)
            case CommandAnswer():
                return self._commands.answered(payload)
            case Command():
                return self._command(payload, origin, now)
        assert isinstance(payload, ForPubend)
        return self._for_pubend(payload, origin, now)

    def _for_pubend(self, payload: ForPubend, origin: BrokerId, now: float) -> list[Effect]:
        pubend = self._hosting.pubends.get(payload.pubend)
        if pubend is None:
            refusal = not_hosted(payload)
            return [] if refusal is None else self.send_to(origin, refusal, now=now)
        match payload:
            case PublishRequest():
                self._published[pubend.name] = pubend
                return pubend.publish(payload, origin, write=False, now=now)
            case Register():
                return pubend.register(payload, origin, now=now)
            case Unregister():
                return pubend.unregister(payload, origin, now=now)
            case Renew():
                return pubend.renew(payload, origin, now=now)
            case Progress():
                return pubend.progress(payload, origin, now=now)
            case Verdicts():
                return pubend.verdicts(payload, origin, now=now)
            case ReadLog():
                return pubend.read_log(payload, origin, now=now)

    def _command(self, command: Command, origin: BrokerId, now: float) -> list[Effect]:
        if command.verb == "add":
            if not self._stores:
                problem = "this broker stores nothing; give it a folder to store in (--data)"
                return self.send_to(origin, CommandAnswer(command.request, b"", problem), now=now)
            return self._hosting.add(command, origin, now=now)
        pubend = self._hosting.pubend_of(command)
        if pubend is None:
            problem = "this broker hosts no such pubend"
        elif command.verb == "rm" and self._hosting.declares(pubend.name) and not self._hosting.removes_name(command):
            problem = "the network file declares this stream; take it out there"
        else:
            return pubend.command(command, origin, now=now)
        return self.send_to(origin, CommandAnswer(command.request, b"", problem), now=now)

    # What pubends here want (`pubend.Outlet`).

    def send_to(self, broker: BrokerId, payload: Payload, *, now: float) -> list[Effect]:
        if broker == self._broker:
            return self._payload(payload, broker, now)
        told = (
            self._stored_progress.gather(broker, payload, now=now) if isinstance(payload, ProgressStored) else payload
        )
        return [] if told is None else self._sent(broker, told)

    def _sent(self, broker: BrokerId, payload: Payload) -> list[Effect]:
        packet = Routed(broker, self._broker, HOPS, payload)
        link = self._exits.get(broker)
        if link is None:
            return [dropped("egress", "no way", "", packet.travels_in(), packet)]
        return [Send((link,), packet, packet.travels_in())]

    def committed(self, pubend: Pubend, data: Sequence[Item], *, now: float) -> list[Effect]:
        return self._relays.committed(pubend, data, now=now)

    def store_elsewhere(
        self, stream: str, key: str, publication_id: str, message: Message, answered: Answered, *, now: float
    ) -> list[Effect]:
        effects = self._publishing.store(stream, key, publication_id, message, answered, now=now)
        return effects + self._write(now)

    def pubend_ready(self, pubend: Pubend, *, now: float) -> list[Effect]:
        self._directory.host(self._hosting.hosted())
        effects = self._directory.refresh(self._neighbours(), now=now)
        effects += self._relays.renew(pubend.name, pubend.epoch, now=now)
        self._relays.need(pubend.name)
        self._controls.begin(pubend.name, now=now)
        self._refresh_soon(now)
        return effects + self._hosting.ready(pubend, now=now)

    def pubend_gone(self, pubend: Pubend, *, now: float) -> list[Effect]:
        self._relays.gone(pubend)
        return []

    def pubend_removed(self, pubend: Pubend, then: Forgotten, *, now: float) -> list[Effect]:
        effects = self._edge.pubend_replaced(pubend.name, now=now) + self._hosting.forget(pubend, then)
        self._relays.drop(pubend.name)
        self._directory.host(self._hosting.hosted())
        return effects + self._directory.refresh(self._neighbours(), now=now)

    def slice_read(
        self, pubend: Pubend, token: int, first: Tick, upto: Tick, items: Sequence[Item], *, now: float
    ) -> list[Effect]:
        return self._relays.slice_read(pubend, token, first, upto, items, now=now)

    def slice_failed(self, pubend: Pubend, token: int, *, now: float) -> list[Effect]:
        self._relays.slice_failed(pubend, token, now=now)
        return []

    # What the edge, publishing and commands need (`home_broker`).

    def pubends(self, stream: str) -> tuple[int, str, bool]:
        count = self._directory.count_of(stream)
        if count:
            return count, "", False
        problem, passes = self._hosting.opening(stream)
        return (0, problem, passes) if problem else (0, self._directory.unknown_stream(stream), self._young)

    def host(self, pubend: str) -> BrokerId | None:
        broker = self._directory.find(pubend)
        return broker if broker is not None and self._reachable(broker) else None

    def unreachable(self, pubend: str) -> str:
        return self._directory.problem_of(pubend)

    def relay(self, pubend: str) -> Relay | None:
        return self._relays.need(pubend)

    def interest_changed(self, relay: Relay, *, now: float) -> list[Effect]:
        self._relays.interest_changed(relay, now)
        self._refresh_soon(now)
        return []

    def next_request(self) -> int:
        self._requests += 1
        return self._requests

    # Time and the network.

    def _start(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        if not self._started:
            self._started = True
            self._refresh_soon(now)
        if self._stores and not self._hosting.started:
            effects += self._hosting.start()
        return effects

    @property
    def _young(self) -> bool:
        alone = all(info.broker is None for info in self._links.values())  # nobody else could know of a stream
        return self._seconds < SETTLED_AFTER and not alone

    def _refresh_soon(self, now: float) -> None:
        if not self._refreshing:
            self._refreshing = True
            self._timers.set(StreamTimer.REFRESH, now + self._config.refresh_interval)

    def _refresh(self, now: float) -> list[Effect]:
        self._seconds += self._config.refresh_interval
        self._refreshing = False
        effects = self._start(now) + self._greet(now)
        effects += self._directory.refresh(self._neighbours(), now=now)
        effects += self._edge.refresh(now=now)
        effects += self._relays.refresh(now=now)
        if len(self._relays) or len(self._edge) or self._hosting.pubends or self._young or self._ungreeted():
            self._refresh_soon(now)
        return effects

    def _greet(self, now: float) -> list[Effect]:
        """Ask new neighbours who hosts what."""
        return [Send((link,), AdvertsWanted(), Lane.CONTROL) for link in self._ungreeted()]

    def _ungreeted(self) -> list[Link]:
        return [link for link in self._neighbours() if link not in self._greeted]

    def _look(self, now: float) -> list[Effect]:
        """Follow the map of the network."""
        exits = self._routing.exits()
        if exits is self._exits:
            return []
        self._exits = exits
        for link in [link for link in self._greeted if not self._routing.is_neighbour(link)]:
            del self._greeted[link]
        return self._relays.follow()

    def _neighbours(self) -> list[Link]:
        return [link for link in self._links_up if self._routing.is_neighbour(link)]

    def _reachable(self, broker: BrokerId) -> bool:
        return broker == self._broker or broker in self._routing.exits()

    def _broker_named(self, name: str) -> BrokerId | None:
        known = self._directory.broker_named(name)
        return known if known is not None else self._plan.get(name)

    def _made(self, context: Context) -> Callable[[str, int, int], Pubend]:
        def make(stream: str, number: int, of: int) -> Pubend:
            return Pubend(
                stream,
                number,
                of,
                storage=context.storage,
                config=self._config.of(stream),
                timers=context.timers,
                random=context.random(f"{stream}/{number}"),
                outlet=self,
                traced=context.traced,
            )

        return make
