"""Streams in a broker: the machine that joins its parts.

    hosting      the pubends of this broker (publisher-hosting broker, PHB, in 001)
    relays       for each pubend that somebody here or behind us wants: what is known of it (intermediate, IB)
    edge         durable subscriptions of our clients (subscriber-hosting, SHB)
    publishing   publications of our clients on their way to a pubend
    commands     add, ls, info, trim, rm, verify
    directory    who hosts what

A broker plays all these roles at once. Packets between two brokers that are not neighbours travel in `Routed`, hop by
hop along the shortest path, and may get lost: whoever waits asks again. After every input that told us something, the
cursors of our readers move on, and what is still missing is asked for upstream, or read from the log if the pubend is
here (`_settle`).

Timers: see `timers`. REFRESH runs while there is anything to refresh.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

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
from penstock.streams.directory import Directory
from penstock.streams.edge import Edge
from penstock.streams.hosting import Hosting, Made
from penstock.streams.packets import (
    BROKER_PACKETS,
    FROM_CLIENT,
    ITEMS_MAX,
    Acknowledge,
    Advert,
    AdvertsWanted,
    Command,
    CommandAnswer,
    DurableLeave,
    DurableSubscribe,
    Item,
    Join,
    JoinRefresh,
    JoinWanted,
    Knowledge,
    Leave,
    Nack,
    Payload,
    Progress,
    ProgressStored,
    PublishAnswer,
    PublishRequest,
    Register,
    Registered,
    Renew,
    Resume,
    Routed,
    SessionEnded,
    StreamCommand,
    StreamPublish,
    Take,
    Tick,
    Unregister,
    stream_of,
)
from penstock.streams.pubend import Pubend
from penstock.streams.publishing import Publishing
from penstock.streams.relay import Relay
from penstock.streams.status import StreamsStatus, relay_status
from penstock.streams.ticks import TickRanges
from penstock.streams.timers import StreamTimer

GREET_AFTER = 0.1  # seconds after a link came up: by then its other end has said Hello
SETTLED_AFTER = 5.0  # seconds of life in which a stream that nobody knows may only not be known yet
JOIN_DELAY = 0.002  # seconds for which changes of interest are gathered
READ_AGAIN = 0.2  # seconds after the log could not be read
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
        self._timers = context.timers
        self._plan = context.brokers or {}
        self._exits: Mapping[BrokerId, Link] = {}
        self._requests = 0
        self._started = False
        self._seconds = 0.0  # of life, in whole refresh intervals
        self._refreshing = False
        self._links_up: dict[Link, None] = {}
        self._greeted: dict[Link, None] = {}  # neighbours that have told us their adverts
        self._relays: dict[str, Relay] = {}
        self._tokens = 0
        declared = _declared_at(context.name, self._config)
        if declared and not context.has_storage:
            problem = f"stream '{declared[0][0]}' has a pubend at broker '{context.name}', which stores nothing"
            raise NotPossibleHere(problem, "give the broker a folder to store in (--data)")
        self._directory = Directory(
            self._broker, context.name, self._life, context.has_storage, self._config, self._reachable
        )
        self._stores = context.has_storage
        self._hosting = Hosting(context.storage, declared, self._made(context), self.send_to)
        self._edge = Edge(self, self._config, context.timers)
        self._publishing = Publishing(self)
        self._commands = Commands(self, self._directory, context.timers, self._broker_named)
        self._from_neighbours: dict[type[Packet], Callable[..., list[Effect]]] = {
            Advert: self._advert,
            AdvertsWanted: self._adverts_wanted,
            Join: self._join,
            JoinRefresh: self._join_refresh,
            JoinWanted: self._join_wanted,
            Leave: self._leave,
            Knowledge: self._knowledge,
            Nack: self._nack,
            Routed: self._routed,
        }

    # Inputs.

    def receive(self, packets: Sequence[Packet], *, sender: Link, now: float) -> list[Effect]:
        effects = self._look(now)
        for packet in packets:
            handle = self._from_neighbours.get(type(packet))
            if handle is None:
                effects += self._from_client(packet, sender, now)
            elif self._routing.is_neighbour(sender):
                effects += handle(packet, sender, now)
            else:  # it will say Hello soon
                effects.append(dropped("ingress", "sender unknown", "", packet.travels_in(), packet))
        return effects

    def link_changed(self, link: Link, *, up: bool, now: float) -> list[Effect]:
        if up:
            self._links_up[link] = None
            self._timers.set(StreamTimer.ADVERT, now + GREET_AFTER)
            return self._start(now)
        self._links_up.pop(link, None)
        self._greeted.pop(link, None)
        effects = self._edge.link_down(link, now=now)
        self._publishing.link_down(link)
        self._commands.link_down(link)
        for relay in list(self._relays.values()):
            relay.leave(link)
            effects += self.interest_changed(relay, now=now)
        return effects + self._look(now)

    def completed(self, ticket: Ticket, result: StorageResult, *, now: float) -> list[Effect]:
        return (self._hosting.completed(ticket, result, now=now) or []) + self._look(now)

    def expired(self, timer: int, key: Key, *, now: float) -> list[Effect]:
        effects = self._look(now)
        pubend = str(key[0]) if key else ""
        relay = self._relays.get(pubend)
        match timer:
            case StreamTimer.REFRESH:
                effects += self._refresh(now)
            case StreamTimer.ADVERT:
                effects += self._greet(now)
            case StreamTimer.JOIN if relay is not None:
                effects += relay.tell_join()
            case StreamTimer.NACK if relay is not None:
                effects += self._settle(relay, now)
            case StreamTimer.PROGRESS:
                effects += self._edge.progress(pubend, now=now)
            case StreamTimer.COMMAND:
                effects += self._commands.overdue(int(key[0]))
            case StreamTimer.PUBEND_SILENCE if relay is not None:
                effects += self._silence(relay, now)
            case _ if pubend in self._hosting.pubends:
                effects += self._hosting.pubends[pubend].expired(StreamTimer(timer), now=now)
        return effects

    def status(self) -> StreamsStatus:
        relays = tuple(map(relay_status, self._relays.values()))
        return StreamsStatus(tuple(one.status() for one in self._hosting.all()), relays, len(self._edge))

    # From clients.

    def _from_client(self, packet: Packet, link: Link, now: float) -> list[Effect]:
        match packet:
            case StreamPublish():
                return self._publishing.publish(packet, link, now=now)
            case Take():
                return self._edge.take(packet, link) + self._settle_reader(link, packet.subscription, now)
            case Acknowledge():
                return self._edge.acknowledge(packet, link, now=now)
            case DurableSubscribe():
                effects = self._edge.subscribe(packet, link, self._links[link].peer, now=now)
                self._refresh_soon(now)
                return effects + self._settle_reader(link, packet.subscription, now)
            case Resume():
                return self._edge.resume(packet, link) + self._settle_reader(link, packet.subscription, now)
            case DurableLeave():
                return self._edge.leave(link, packet.subscription, now=now)
            case StreamCommand():
                return self._commands.receive(packet, link, now=now)
        raise AssertionError(f"no handler for {type(packet).__name__}")

    def _settle_reader(self, link: Link, number: int, now: float) -> list[Effect]:
        relays = [self._relays[pubend] for pubend in self._edge.pubends_of(link, number) if pubend in self._relays]
        return [effect for relay in relays for effect in self._settle(relay, now)]

    # From neighbours.

    def _advert(self, packet: Advert, sender: Link, now: float) -> list[Effect]:
        self._greeted[sender] = None
        effects = self._directory.receive(packet, sender, self._neighbours(), now=now)
        for stream in dict.fromkeys(one[0] for one in packet.pubends):
            for relay in [relay for relay in self._relays.values() if stream_of(relay.pubend) == stream]:
                effects += self._renewed(relay, now)
        self._refresh_soon(now)
        return effects

    def _renewed(self, relay: Relay, now: float) -> list[Effect]:
        """A pubend may be another one under the same name."""
        epoch = self._directory.epoch_of(relay.pubend)
        if epoch in (0, relay.epoch):
            return []
        effects = self._edge.pubend_replaced(relay.pubend, now=now)
        self._relays.pop(relay.pubend, None)
        return effects

    def _adverts_wanted(self, packet: AdvertsWanted, sender: Link, now: float) -> list[Effect]:
        return self._directory.neighbour_up(sender, now=now)

    def _join(self, packet: Join, sender: Link, now: float) -> list[Effect]:
        relay = self.relay(packet.pubend)
        if relay is None or sender == relay.upstream:
            return []
        effects = relay.join(packet, sender, now=now) + self.interest_changed(relay, now=now)
        return effects + (self._silence(relay, now) if relay.at_source else [])

    def _join_refresh(self, packet: JoinRefresh, sender: Link, now: float) -> list[Effect]:
        relay = self.relay(packet.pubend)
        if relay is None or sender == relay.upstream:
            return []
        return relay.refreshed(packet, sender, now=now)

    def _join_wanted(self, packet: JoinWanted, sender: Link, now: float) -> list[Effect]:
        relay = self._relays.get(packet.pubend)
        return relay.tell_join(again=True) if relay is not None and relay.upstream == sender else []

    def _leave(self, packet: Leave, sender: Link, now: float) -> list[Effect]:
        relay = self._relays.get(packet.pubend)
        if relay is None:
            return []
        relay.leave(sender)
        return self.interest_changed(relay, now=now)

    def _knowledge(self, packet: Knowledge, sender: Link, now: float) -> list[Effect]:
        relay = self._relays.get(packet.pubend)
        if relay is None:
            return []
        effects = relay.learn(packet, sender, now=now)
        self._silence_later(relay, now)
        return effects + self._settle(relay, now)

    def _nack(self, packet: Nack, sender: Link, now: float) -> list[Effect]:
        relay = self.relay(packet.pubend)
        if relay is None or sender == relay.upstream:
            return []
        return relay.nack(packet, sender, now=now) + self._settle(relay, now)

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
                return self._publishing.answered(payload)
            case Registered():
                effects = self._edge.registered(payload, now=now)
                relay = self._relays.get(payload.pubend)
                return effects + (self._settle(relay, now) if relay is not None else [])
            case SessionEnded():
                return self._edge.session_ended(payload, now=now)
            case ProgressStored():
                return self._edge.stored(payload, now=now)
            case CommandAnswer():
                return self._commands.answered(payload)
            case Command():
                return self._command(payload, origin, now)
        return self._for_pubend(payload, origin, now)

    def _for_pubend(self, payload: Payload, origin: BrokerId, now: float) -> list[Effect]:
        assert isinstance(payload, PublishRequest | Register | Unregister | Renew | Progress)
        pubend = self._hosting.pubends.get(payload.pubend)
        if pubend is None:
            return self._no_pubend(payload, origin, now)
        match payload:
            case PublishRequest():
                return pubend.publish(payload, origin, now=now)
            case Register():
                return pubend.register(payload, origin, now=now)
            case Unregister():
                return pubend.unregister(payload, origin, now=now)
            case Renew():
                return pubend.renew(payload, origin, now=now)
            case Progress():
                return pubend.progress(payload, origin, now=now)

    def _no_pubend(self, payload: Payload, origin: BrokerId, now: float) -> list[Effect]:
        """Somebody takes us for the host of a pubend that we do not have, or have not opened yet."""
        if isinstance(payload, PublishRequest):
            problem = f"{payload.pubend} is not at this broker, or not open yet"
            answer = PublishAnswer(payload.request, payload.pubend, 0, problem, True)
            return self.send_to(origin, answer, now=now)
        if isinstance(payload, Register):
            problem = f"{payload.pubend} is not at this broker, or not open yet"
            refusal = Registered(payload.request, payload.pubend, payload.name, problem=problem, again=True)
            return self.send_to(origin, refusal, now=now)
        return []

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
        packet = Routed(broker, self._broker, HOPS, payload)
        link = self._exits.get(broker)
        if link is None:
            return [dropped("egress", "no way", "", packet.travels_in(), packet)]
        return [Send((link,), packet, packet.travels_in())]

    def committed(self, pubend: Pubend, data: Sequence[Item], *, now: float) -> list[Effect]:
        relay = self.relay(pubend.name)
        if relay is None:
            return []
        effects = relay.committed(data, data[-1][0])
        self._timers.set(StreamTimer.PUBEND_SILENCE, now + self._config.silence_first, pubend.name)
        return effects + self._settle(relay, now)

    def pubend_ready(self, pubend: Pubend, *, now: float) -> list[Effect]:
        self._directory.host(self._hosting.hosted())
        effects = self._directory.refresh(self._neighbours(), now=now)
        relay = self._relays.get(pubend.name)
        if relay is not None and relay.epoch != pubend.epoch:
            effects += self._edge.pubend_replaced(pubend.name, now=now)
            self._relays.pop(pubend.name, None)
        self.relay(pubend.name)
        self._refresh_soon(now)
        return effects + self._hosting.ready(pubend, now=now)

    def pubend_gone(self, pubend: Pubend, *, now: float) -> list[Effect]:
        relay = self._relays.get(pubend.name)
        if not pubend.ready:
            effects = self._edge.pubend_replaced(pubend.name, now=now) + self._hosting.forget(pubend)
            self._relays.pop(pubend.name, None)
            self._directory.host(self._hosting.hosted())
            return effects + self._directory.refresh(self._neighbours(), now=now)
        if relay is not None:
            relay.known.learn_gone(pubend.gone)
        return []

    def slice_read(
        self, pubend: Pubend, token: int, first: Tick, upto: Tick, items: Sequence[Item], *, now: float
    ) -> list[Effect]:
        relay = self._relays.get(pubend.name)
        asked = relay.reading.pop(token, None) if relay is not None else None
        if relay is None or asked is None:
            return []
        if upto < first:  # nothing is settled there, or it is gone
            relay.known.learn_gone(pubend.gone)
            return []
        inside = [item for item in items if item[0] <= asked[1]]
        room, kept = self._config.answer_bytes, 0
        for _, message in inside:
            room -= message.size_bytes
            if room < 0 and kept:
                break
            kept += 1
        cut = kept < len(inside) or (len(items) == len(inside) and upto < asked[1])
        if kept < len(inside):
            upto = inside[kept - 1][0]
        elif len(items) > len(inside):
            upto = items[len(inside)][0] - 1
        effects = relay.read(first, upto, inside[:kept], cut=cut)
        return effects + self._settle(relay, now)

    def slice_failed(self, pubend: Pubend, token: int, *, now: float) -> list[Effect]:
        relay = self._relays.get(pubend.name)
        if relay is not None and relay.reading.pop(token, None) is not None:
            self._timers.set(StreamTimer.NACK, now + READ_AGAIN, pubend.name)
        return []

    # What the edge, publishing and commands need (`edge.Way`).

    def pubends(self, stream: str) -> tuple[int, str, bool]:
        count = self._directory.count_of(stream)
        if count:
            return count, "", False
        return 0, self._directory.unknown_stream(stream), self._young

    def host(self, pubend: str) -> BrokerId | None:
        broker = self._directory.find(pubend)
        return broker if broker is not None and self._reachable(broker) else None

    def unreachable(self, pubend: str) -> str:
        return self._directory.problem_of(pubend)

    def relay(self, pubend: str) -> Relay | None:
        relay = self._relays.get(pubend)
        if relay is not None:
            return relay
        here = self._hosting.pubends.get(pubend)
        epoch = here.epoch if here is not None and here.ready else self._directory.epoch_of(pubend)
        if not epoch:
            return None
        relay = self._relays[pubend] = Relay(pubend, epoch, self._life, self._config)
        relay.at_source = here is not None
        if here is not None:
            relay.known.learn_gone(here.gone)
        else:
            relay.upstream = self._upstream(pubend)
        return relay

    def interest_changed(self, relay: Relay, *, now: float) -> list[Effect]:
        self._timers.set(StreamTimer.JOIN, now + JOIN_DELAY, relay.pubend)
        self._refresh_soon(now)
        if relay.at_source and relay.interest:
            self._timers.set(StreamTimer.PUBEND_SILENCE, now + JOIN_DELAY, relay.pubend)
        return []

    def next_request(self) -> int:
        self._requests += 1
        return self._requests

    # Knowledge.

    def _settle(self, relay: Relay, now: float) -> list[Effect]:
        """Let readers have what is known now, and ask for what they, or neighbours, still miss."""
        effects = self._edge.advance(relay)
        wanted = self._edge.wanted(relay)
        for first, last in relay.asked():
            wanted.add(first, last)
        pubend = self._hosting.pubends.get(relay.pubend)
        if pubend is not None:
            return effects + self._read_log(relay, pubend, wanted, now)
        effects += relay.ask(wanted, now=now)
        at = relay.nacks.next_at()
        if at is not None:
            self._timers.set(StreamTimer.NACK, at, relay.pubend)
        return effects

    def _read_log(self, relay: Relay, pubend: Pubend, wanted: TickRanges, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for first, last in relay.reading.values():
            wanted.remove(first, last)
        for first, last in list(wanted):
            if len(relay.reading) >= self._config.reads_max:
                break
            self._tokens += 1
            relay.reading[self._tokens] = (first, last)
            effects += pubend.read(first, relay.known.head, count=ITEMS_MAX // 2, token=self._tokens, now=now)
        return effects

    def _silence(self, relay: Relay, now: float) -> list[Effect]:
        """Tell everybody of the newest silence."""
        pubend = self._hosting.pubends.get(relay.pubend)
        effects: list[Effect] = []
        if pubend is not None and pubend.ready:
            effects += relay.committed((), pubend.horizon(now))
            if relay.interest:
                self._timers.set(StreamTimer.PUBEND_SILENCE, now + self._config.silence_interval, relay.pubend)
        else:
            effects += relay.push(silence=True)
        return effects + self._settle(relay, now)

    def _silence_later(self, relay: Relay, now: float) -> None:
        if relay.lagging():
            self._timers.set(StreamTimer.PUBEND_SILENCE, now + self._config.silence_interval, relay.pubend)

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
        return self._seconds < SETTLED_AFTER

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
        for relay in list(self._relays.values()):
            relay.expire(now)
            effects += relay.refresh()
            effects += self._settle(relay, now)
            if relay.idle and not relay.at_source:
                effects += relay.move(None)
                del self._relays[relay.pubend]
        if self._relays or len(self._edge) or self._hosting.pubends or self._young or self._ungreeted():
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
        effects: list[Effect] = []
        for link in [link for link in self._greeted if not self._routing.is_neighbour(link)]:
            del self._greeted[link]
        for relay in self._relays.values():
            if not relay.at_source:
                effects += relay.move(self._upstream(relay.pubend))
        return effects

    def _neighbours(self) -> list[Link]:
        return [link for link in self._links_up if self._routing.is_neighbour(link)]

    def _upstream(self, pubend: str) -> Link | None:
        host = self._directory.find(pubend)
        return self._routing.exits().get(host) if host is not None else None

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
                config=self._config,
                timers=context.timers,
                random=context.random(f"{stream}/{number}"),
                outlet=self,
            )

        return make


def _declared_at(broker: str, config: StreamsConfig) -> Made:
    return [
        (stream, number, len(hosts))
        for stream, hosts in config.declared.items()
        for number, host in enumerate(hosts)
        if host == broker
    ]
