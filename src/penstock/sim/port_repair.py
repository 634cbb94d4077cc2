"""Link repair at one end of a simulated datagram link: numbers, requests and repeats on the pipe below.

A simulated datagram carries one packet. As live, the kinds that travel as datagrams are numbered and repaired, and the
rest is not; but here the rest crosses the same pipe, and what it has of a head tells the last number (`LinkTail`, as
the head of a datagram costs nothing in the simulator). A packet that the pipe's full queue dropped gets no number.
Control messages of services overtake data in the pipe, so they are counted apart: two channels, each a `LinkRepair`.

There is no handshake here. Each life of a host is an epoch that its datagrams name: who hears a new one begins anew.

What the wire lost is recorded as dropped only when no copy of it has come within `settled_after`, so that the trace
says of each packet how it ended. A lost message is recorded at once too, so that one can see how long repair takes.
"""

from __future__ import annotations

from typing import Any, Protocol

from penstock.kernel.packet import Lane, Packet
from penstock.kernel.queue import OWN_BOUNDS
from penstock.kernel.trace import Record, dropped_record
from penstock.overlay.egress import dropped
from penstock.overlay.records import LostOnLink
from penstock.overlay.repair.config import RepairConfig
from penstock.overlay.repair.controls import LinkControl, LinkTail, encode_control
from penstock.overlay.repair.link_repair import LinkRepair
from penstock.overlay.repair.queue_delay import stamp_of
from penstock.sim.engine import Engine
from penstock.sim.pipes import Pipe

HEAD_BYTES = 16  # of a datagram that is here for repair alone; others' heads cost nothing in the simulator
CONFIG = RepairConfig()
CHANNELS = (False, True)  # of data, and of what does not wait behind it
NEVER = float("inf")


class Above(Protocol):
    """The port that this is a part of."""

    peer: str

    def alive(self) -> bool: ...

    def hand_on(self, packet: Packet, lane: Lane) -> None: ...

    def note(self, record: Record) -> None: ...


class SimulatedDatagram:
    """What crosses the pipe: a packet, numbered or not, or link control."""

    __slots__ = ("channel", "control", "epoch", "lane", "number", "packet", "refused", "repeated", "stamp", "tails")

    def __init__(
        self,
        epoch: int,
        packet: Packet | None,
        lane: Lane,
        channel: bool = False,
        number: int = -1,
        stamp: int = 0,
        repeated: bool = False,
    ) -> None:
        self.epoch = epoch  # of the sender; of the receiver, in a request
        self.packet = packet
        self.lane = lane
        self.channel = channel
        self.number = number  # below 0: it has none
        self.stamp = stamp
        self.repeated = repeated
        self.refused = False
        self.control: LinkControl | None = None
        self.tails: tuple[LinkControl | None, ...] = ()


class PortRepair:
    """One end of the link."""

    def __init__(self, engine: Engine, port: Above) -> None:
        self.control_bytes = 0  # sent for repair: requests and tails
        self.control_packets = 0
        self.recovered = 0  # of what the wire lost, what a repeat brought there
        self.lost_packets = 0  # numbered ones that the wire lost, first copies alone
        self._engine = engine
        self._port = port
        self._epoch = 0
        self._heard_epoch: int | None = None
        self._awaited: dict[tuple[int, bool, int], tuple[Packet, Lane, str]] = {}  # lost, and perhaps repaired yet
        self._armed_at = NEVER
        self.channels: dict[bool, LinkRepair[tuple[Packet, Lane]]] = {}
        self._past_repaired = self._past_given_up = self._past_resent_bytes = 0  # before the present lives
        self.restart()

    def join(self, out: Pipe, other: PortRepair) -> None:
        """Where our datagrams go, and who is at the other end."""
        self._out = out
        self._other = other

    def restart(self) -> None:
        """A new life of the host: it knows nothing of before."""
        self._past_repaired, self._past_given_up = self.repaired, self.given_up
        self._past_resent_bytes += sum(one.sending.resent_bytes for one in self.channels.values())
        self._epoch += 1
        self._heard_epoch = None
        self.channels = {channel: LinkRepair(CONFIG, first=0 if self._epoch == 1 else None) for channel in CHANNELS}

    @property
    def repaired(self) -> int:
        """How many datagrams came because we asked for them."""
        return self._past_repaired + sum(one.receiving.repaired for one in self.channels.values())

    @property
    def given_up(self) -> int:
        """How many never came, though we asked, or were not asked for."""
        return self._past_given_up + sum(one.receiving.given_up for one in self.channels.values())

    def counts(self) -> dict[str, int]:
        """What the trace counts, by name; bytes are those that repair has put on the wire."""
        again = sum(one.sending.resent_bytes for one in self.channels.values())
        return {
            "datagrams repaired": self.repaired,
            "datagrams given up": self.given_up,
            "repair bytes": self._past_resent_bytes + again + self.control_bytes,
        }

    # Out.

    def send(self, packet: Packet, lane: Lane, size_bytes: int) -> None:
        """Put a packet on the wire, with a number if it is one that is repaired."""
        urgent, now, out = lane in OWN_BOUNDS, self._engine.now, self._out
        if not packet.as_datagram:
            self._send_plain(packet, lane, size_bytes, urgent)
            return
        repair = self.channels[urgent]
        leaves = now if urgent else out.idle_at()
        datagram = SimulatedDatagram(self._epoch, packet, lane, urgent, repair.sending.next_number, stamp_of(leaves))
        out.send(datagram, size_bytes, urgent)
        if not datagram.refused:
            repair.sent((packet, lane), size_bytes, now if urgent else out.idle_at())
            self._arm(repair.sending.tail_at)

    def _send_plain(self, packet: Packet, lane: Lane, size_bytes: int, urgent: bool) -> None:
        """One that is not repaired; it tells the last numbers, unless some of them may still wait behind it."""
        datagram = SimulatedDatagram(self._epoch, packet, lane)
        if self._out.idle_at() <= self._engine.now:
            datagram.tails = tuple(one.sending.untold_tail() for one in self.channels.values())
        self._out.send(datagram, size_bytes, urgent)

    def lost(self, datagram: SimulatedDatagram, cause: str) -> None:
        """What we sent ended on the wire."""
        packet, lane = datagram.packet, datagram.lane
        if packet is None:
            record = dropped_record("pipe", cause, self._port.peer, lane, type(datagram.control).__name__, None, 0)
            self._port.note(record)
        elif datagram.number < 0 or cause == "queue full":
            datagram.refused = True
            if not datagram.repeated:
                self._port.note(dropped("pipe", cause, self._port.peer, lane, packet))
        elif not datagram.repeated:
            key = (datagram.epoch, datagram.channel, datagram.number)
            self.lost_packets += 1
            self._awaited[key] = (packet, lane, cause)
            self._note_loss(packet)
            self._engine.at(self._engine.now + CONFIG.settled_after, self._settle, key)

    def _note_loss(self, packet: Packet) -> None:
        message = packet.carried()
        if message is not None:
            who = message.identity
            self._port.note(LostOnLink(self._port.peer, who.publisher, who.incarnation, who.count))

    def _settle(self, key: tuple[int, bool, int]) -> None:
        """Nobody will send it again: it is lost, if no copy has come."""
        lost = self._awaited.pop(key, None)
        if lost is not None:
            packet, lane, cause = lost
            self._port.note(dropped("pipe", cause, self._port.peer, lane, packet))

    def _tell(self, channel: bool, control: LinkControl, epoch: int) -> None:
        datagram = SimulatedDatagram(epoch, None, Lane.CONTROL, channel)
        datagram.control = control
        size_bytes = HEAD_BYTES + len(encode_control(control))
        self.control_bytes += size_bytes
        self.control_packets += 1
        self._out.send(datagram, size_bytes, True)

    # In.

    def arrive(self, datagram: SimulatedDatagram) -> None:
        """Something has come in over the wire."""
        port, packet = self._port, datagram.packet
        if not port.alive():
            if packet is not None:
                self._came(datagram)
                port.hand_on(packet, datagram.lane)
            return
        if packet is None:
            self._heard(datagram)
            return
        self._know(datagram.epoch)
        now, new = self._engine.now, True
        if datagram.number < 0:
            for repair, tail in zip(self.channels.values(), datagram.tails, strict=False):
                if tail is not None:
                    repair.heard(tail, now)
                    self._arm(repair.receiving.due)
        elif datagram.epoch == self._heard_epoch:
            repair = self.channels[datagram.channel]
            new = repair.arrived(datagram.number, now, stamp=datagram.stamp, repeated=datagram.repeated)
            self._arm(repair.receiving.due)
            if new:
                self._came(datagram)
        else:
            new = not datagram.repeated  # of an earlier life; whether its first copy came nobody knows
        if new:
            port.hand_on(packet, datagram.lane)

    def _heard(self, datagram: SimulatedDatagram) -> None:
        """Link control: of the sender's epoch if it tells the last number, of ours if it asks."""
        control = datagram.control
        assert control is not None
        if isinstance(control, LinkTail):
            self._know(datagram.epoch)
        elif datagram.epoch != self._epoch:
            return
        for number, (packet, lane) in self.channels[datagram.channel].heard(control, self._engine.now):
            stamp = stamp_of(self._engine.now)
            again = SimulatedDatagram(self._epoch, packet, lane, datagram.channel, number, stamp, True)
            self._out.send(again, packet.size_bytes(), True)
        self._arm(self.channels[datagram.channel].deadline())

    def _came(self, datagram: SimulatedDatagram) -> None:
        """A copy has come: its sender's record of a loss is void."""
        other = self._other
        if other._awaited:
            key = (datagram.epoch, datagram.channel, datagram.number)
            other.recovered += other._awaited.pop(key, None) is not None

    def _know(self, epoch: int) -> None:
        """Who sends in a new life counts from the beginning."""
        if epoch == self._heard_epoch:
            return
        if self._heard_epoch is not None and epoch > self._heard_epoch:
            self._past_repaired, self._past_given_up = self.repaired, self.given_up
            for repair in self.channels.values():
                repair.peer_restarted()
        if self._heard_epoch is None or epoch > self._heard_epoch:
            self._heard_epoch = epoch

    # Time.

    def _arm(self, deadline: float) -> None:
        if deadline < self._armed_at:
            self._armed_at = max(deadline, self._engine.now)
            self._engine.at(self._armed_at, self._rang, self._armed_at)

    def _rang(self, at: Any) -> None:
        if at != self._armed_at:
            return
        self._armed_at = NEVER
        if not self._port.alive():
            return
        for channel, repair in self.channels.items():
            for control in repair.wake(self._engine.now):
                epoch = self._epoch if isinstance(control, LinkTail) else self._heard_epoch
                self._tell(channel, control, epoch or 0)
            self._arm(repair.deadline())
