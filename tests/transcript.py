"""What nodes send each other, as lines that a person can read: `penstock.testing.Pump`, with links that take time.

    0.020  b0 -> b1   Hello of broker 0, versions 5f1c
           b1: NeighbourChanged neighbour=0 up=True cause=hello

A line for each packet, when it arrives, and for each timer that does something; indented, what the node did at that:
deliveries, answers and records. `note` writes a line of one's own. Kinds of packets and records in `hide` are left out,
but for packets that lead to something that is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum

from msgspec import Struct

from penstock.content.envelope import DATA, opened
from penstock.content.language.expression import name_text, value_text
from penstock.content.message import Message
from penstock.kernel.machine import Deliver, Done, Effect, Refused, Send
from penstock.kernel.packet import Packet
from penstock.overlay.credit import Credit
from penstock.overlay.link_reports import LinkReport
from penstock.overlay.packets import (
    Answer,
    Attach,
    Delivery,
    Hello,
    Interest,
    LinkState,
    Publication,
    Publish,
    Subscribe,
    Summary,
    Unsubscribe,
)
from penstock.pricing.packets import Bought, PricedPublication, PricedPublish
from penstock.testing import ClientMachine, Flight, Pump
from penstock.transport.config import papers_config
from penstock.transport.ledgers.record import VERSION, decode_data_header
from penstock.transport.wire import control_messages as control
from penstock.transport.wire.header import decode_header

DELAY = 0.010  # seconds that a link takes
NOTED = ("Published", "Subscribed")  # records of what a test does itself, and notes


class _Timed(Flight):
    """A packet under way that knows when it arrives."""

    arrives = 0.0


class Transcript(Pump):
    """Pumps machines in time and writes down what happens, from `begin` on."""

    def __init__(self, shows: str, *, hide: tuple[str, ...] = (), delay: float = DELAY) -> None:
        super().__init__()
        self._lines = [shows]
        self._hide = (*hide, *NOTED)
        self._delay = delay
        self._began: float | None = None
        self._waiting: str | None = None  # a line that is written as soon as something comes of it

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def begin(self) -> None:
        """Write from now on, and count time from here."""
        self._began = self.now

    def note(self, line: str) -> None:
        """A line about what the test does."""
        if self._began is not None:
            self._lines.append(f"{self.now - self._began:6.3f}  -- {line}")

    # Time: packets arrive a delay after they were sent, machines wake at their deadlines.

    def apply(self, name: str, effects: Iterable[Effect]) -> None:
        for effect in effects:
            super().apply(name, [effect])
            sent = effect.packet if isinstance(effect, Send) else None
            if type(sent or effect).__name__ in self._hide:
                continue
            self._flush()
            if sent is None:
                self._write(f"{'':8}{name}: {effect_text(effect)}")
        self.flights = [flight if isinstance(flight, _Timed) else self._timed(flight) for flight in self.flights]

    def deliver(self, place: int = 0) -> Flight:
        flight = self.flights[place]
        lost = "lost: " if self.loses(flight) else ""
        self._waiting = self._stamped(f"{flight.sender} -> {flight.receiver}", lost + packet_text(flight.packet))
        if flight.kind not in self._hide:
            self._flush()
        super().deliver(place)
        self._waiting = None
        return flight

    def run(self) -> None:
        while self.flights:
            self._step(float("inf"))

    def advance(self, seconds: float) -> None:
        until = self.now + seconds
        while self._step(until):
            pass
        self.now = until

    def _step(self, until: float) -> bool:
        """The next arrival or deadline, whichever comes first; False if neither comes in time."""
        deadlines = [(at, name) for name, machine in self.machines.items() if (at := machine.deadline()) is not None]
        at, name = min(deadlines, default=(float("inf"), ""))
        arrival = self._arrival()
        if min(at, arrival) > until:
            return False
        self.now = max(self.now, min(at, arrival))
        if arrival <= at:
            self.deliver()
        else:
            self._waiting = self._stamped(name, f"timer {', '.join(self._due(name))}")
            self.apply(name, self.machines[name].wake(now=self.now))
            self._waiting = None
        return True

    def _arrival(self) -> float:
        first = self.flights[0] if self.flights else None
        return first.arrives if isinstance(first, _Timed) else float("inf")

    def _timed(self, flight: Flight) -> _Timed:
        timed = _Timed(*flight)
        timed.arrives = self.now + self._delay
        return timed

    def _due(self, name: str) -> list[str]:
        """The timers that wake a node now; nothing but a transcript wants to see them, so they have no public name."""
        machine = self.machines[name]
        node = machine.node if isinstance(machine, ClientMachine) else machine
        timers = node.timers._current.items()
        return [key[1].name for key, (at, _) in timers if at <= self.now and isinstance(key[1], IntEnum)]

    # Lines.

    def _flush(self) -> None:
        if self._waiting is not None:
            self._write(self._waiting)
            self._waiting = None

    def _stamped(self, who: str, what: str) -> str:
        return f"{self.now - (self._began or 0.0):6.3f}  {who:12} {what}"

    def _write(self, line: str) -> None:
        if self._began is not None:
            self._lines.append(line.rstrip())


# Packets in a line each.


def packet_text(packet: Packet) -> str:
    """The kind and what matters of it."""
    text = _TEXTS.get(type(packet))
    return type(packet).__name__ + (" " + text(packet) if text is not None else _fields(packet))


def _interest(packet: Interest) -> str:
    size = f"+{len(packet.added)} -{len(packet.removed)}" if packet.base else f"snapshot of {len(packet.added)}"
    return f"of broker {packet.origin}, version {packet.base} to {packet.version}: {size}"


def _link_state(packet: LinkState) -> str:
    neighbours = ", ".join(f"{broker} at cost {cost}" for broker, cost in packet.neighbours) or "none"
    return f"of broker {packet.origin}, version {packet.version}: neighbours {neighbours}"


def _summary(packet: Summary) -> str:
    return "; ".join(f"broker {known[0]}: links {known[2]}, interest {known[3]}" for known in packet.known)


def _publication(packet: Publication | PricedPublication) -> str:
    brokers = ", ".join(map(str, packet.destinations))
    return f"{message_text(packet.message)} for brokers {brokers}; {packet.hops_left} hops left"


def _delivery(packet: Delivery) -> str:
    return f"{message_text(packet.message)} for subscriptions {', '.join(map(_number, packet.subscriptions))}"


def _publish(packet: Publish) -> str:
    return f"{message_text(packet.message)} in lane {packet.lane.name}"


def _hello(packet: Hello) -> str:
    return f"of broker {packet.broker}, versions {packet.versions_hash >> 48:04x}"


def _subscribe(packet: Subscribe) -> str:
    where = packet.where if len(packet.where) <= 60 else packet.where[:57] + "..."
    return f"{_number(packet.subscription)}: {where}"


def _credit(packet: Credit) -> str:
    return f"lane {packet.lane.name}: {packet.bytes_in_all:,} bytes in all"


def _prices(packet: LinkReport) -> str:
    return ", ".join(f"to {neighbour}: {value:.2f}" for neighbour, value in packet.values)


_TEXTS: dict[type[Packet], Callable[..., str]] = {
    Hello: _hello,
    LinkState: _link_state,
    Interest: _interest,
    Summary: _summary,
    Publication: _publication,
    Attach: lambda packet: packet.client,
    Subscribe: _subscribe,
    Unsubscribe: lambda packet: _number(packet.subscription),
    Answer: lambda packet: packet.problem or "accepted",
    Publish: _publish,
    Delivery: _delivery,
    Credit: _credit,
    PricedPublish: lambda packet: f"{packet.number}: {message_text(packet.message)}",
    PricedPublication: lambda packet: _publication(packet),
    Bought: lambda packet: ", ".join(map(str, packet.numbers)),
    LinkReport: lambda packet: f"of broker {packet.origin}: " + _prices(packet),
}


def _number(subscription: int) -> str:
    """A subscription of the application, or one of a service's own."""
    return str(subscription) if subscription < 1 << 30 else "own"


def message_text(message: Message) -> str:
    """An application's message, or a transport's control message."""
    kind = message.attributes.get("_t")
    if not isinstance(kind, str):
        return _content(message)
    header, inside = opened(message)
    if kind == DATA:
        ours = header[:1] == bytes([VERSION])
        read = decode_data_header(header) if ours else decode_header(header, 0, entry_bits=papers_config().record_bits)
        return f"{_content(inside)} [sequence {read.sequence}, record of {read.record_size}]"
    if kind == control.REQUEST:
        key = control.decode_control(header, control.Request).key
    elif kind == control.REPAIR:
        key = control.decode_control(header, control.Repair).key
    else:
        return f"[{kind} of {message.identity.publisher}]"
    return f"[{kind} of {message.identity.publisher}: {key.publisher}, sequence {key.sequence}]"


def _content(message: Message) -> str:
    content = ", ".join(f"{name_text(name)}={value_text(value)}" for name, value in message.attributes.items())
    size = f" +{len(message.body):,} bytes" if message.body else ""
    return f"{message.identity.publisher}#{message.identity.count} ({content}){size}"


def effect_text(effect: Effect) -> str:
    """What a node did, apart from sending."""
    if isinstance(effect, Deliver):
        return f"delivered to subscription {effect.subscription}: {_content(effect.message)}"
    if isinstance(effect, Done):
        return "answered: " + (effect.outcome.problem if isinstance(effect.outcome, Refused) else "accepted")
    return type(effect).__name__ + _fields(effect)


def _fields(struct: Struct) -> str:
    values = [(name, getattr(struct, name)) for name in struct.__struct_fields__]
    shown = [f"{name}={round(value, 4) if isinstance(value, float) else value}" for name, value in values]
    return "".join(f" {each}" for each in shown)
