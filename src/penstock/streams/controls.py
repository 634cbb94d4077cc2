"""Congestion control of all pubends that pass through one broker: who asks, who answers, and whose rate changes (PDCC).

Timers: PUBEND_QUERY, for each pubend here that somebody wants, or whose rate is limited; EDGE_LAG, for each that our
readers read, `lag_alert` after a query.
State: see `pdcc`, for each pubend, and `recovery_pace`, for each link. Bound: as many as there are relays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.kernel.link import Link
from penstock.kernel.machine import Effect, Send
from penstock.kernel.packet import Packet
from penstock.kernel.timers import ServiceTimers
from penstock.overlay.packets import BrokerId
from penstock.streams.config import StreamsConfig
from penstock.streams.packets import Dcq, Uca
from penstock.streams.pdcc import PubendControl, RelayControl, control_lane, read_alert
from penstock.streams.pubend import Pubend
from penstock.streams.recovery_pace import RecoveryPace
from penstock.streams.relay import Relay
from penstock.streams.relays import Relays
from penstock.streams.timers import StreamTimer


class Controls:
    """PDCC in one broker."""

    def __init__(
        self,
        config: StreamsConfig,
        timers: ServiceTimers,
        relays: Relays,
        pubends: Mapping[str, Pubend],
        *,
        broker: BrokerId,
        name_of: Callable[[BrokerId], str],
    ) -> None:
        self._config = config
        self._broker = broker
        self._name_of = name_of
        self._timers = timers
        self._relays = relays
        self._pubends = pubends  # those of this broker
        self._on_way: dict[str, RelayControl] = {}
        self._at_source: dict[str, PubendControl] = {}
        self._paces: dict[Link, RecoveryPace] = {}  # by the link that pubends come over
        self.handlers: dict[type[Packet], Callable[..., list[Effect]]] = {Dcq: self._query, Uca: self._alert}

    def begin(self, pubend: str, *, now: float) -> None:
        """A pubend here is ready: its first query has its time."""
        if self._config.pubend_control:
            self._timers.set(StreamTimer.PUBEND_QUERY, now + self._config.query_interval, pubend)

    def expired(self, pubend: str, *, now: float) -> list[Effect]:
        """A pubend here asks whether all can keep up, and takes more if nobody complains."""
        relay, here = self._relays.get(pubend), self._pubends.get(pubend)
        if here is None or here.removed:
            self._at_source.pop(pubend, None)
            return []
        self._timers.set(StreamTimer.PUBEND_QUERY, now + self._config.query_interval, pubend)
        if relay is None or not here.ready:
            return []
        effects = self._relays.silence(relay, now) if relay.downstream else []  # who says little must not seem slow
        control = self._at_source.get(pubend)
        if control is None or control.epoch != relay.epoch:
            control = self._at_source[pubend] = PubendControl(pubend, relay.epoch, self._config, relay.newest)
        changed = control.looked(offered=here.offered(now), now=now)
        if changed:
            effects += changed + here.limit(control.limit(self._name_of), now=now)
        if relay.downstream:
            effects.append(Send(tuple(relay.downstream), control.query(relay.newest), control_lane(self._config)))
        return effects

    def rate_of(self, pubend: str) -> float | None:
        """How many publications per second a pubend here takes; None: as many as come."""
        control = self._at_source.get(pubend)
        return None if control is None else control.rate

    def _query(self, packet: Dcq, sender: Link, now: float) -> list[Effect]:
        relay = self._relays.get(packet.pubend)
        if relay is None or sender != relay.upstream or packet.epoch != relay.epoch:
            return []
        control = self._control(relay)
        if relay.has_readers and self._config.control_rule == "measured" and not control.waits:
            self._timers.set(StreamTimer.EDGE_LAG, now + self._config.lag_alert, relay.pubend)
        return control.queried(packet, now=now)

    def looked(self, pubend: str, *, now: float) -> list[Effect]:
        """A while ago a pubend has asked: has what it spoke of come?"""
        relay = self._relays.get(pubend)
        if relay is None or not relay.has_readers:
            return []
        return self._control(relay).looked(self._recovery_pace(relay, now), now=now)

    def _recovery_pace(self, relay: Relay, now: float) -> float | None:
        """How fast all recover that come over the same link, if this one does."""
        link = relay.upstream
        if link is None:
            return None
        if link not in self._paces:
            used = {one.upstream: None for one in self._relays}
            self._paces = {of: pace for of, pace in self._paces.items() if of in used}
            self._paces[link] = RecoveryPace(self._config)
        beside = [one for one in self._relays if one.upstream == link and one.has_readers]
        pace = self._paces[link].look(beside, now=now)
        return pace if self._paces[link].is_behind(relay) else None

    def _alert(self, packet: Uca, sender: Link, now: float) -> list[Effect]:
        relay = self._relays.get(packet.pubend)
        if relay is None or sender not in relay.downstream or packet.epoch != relay.epoch:
            return []
        if not relay.at_source:
            return self._control(relay).alerted(read_alert(packet))
        here, control = self._pubends.get(packet.pubend), self._at_source.get(packet.pubend)
        if here is None or control is None:
            return []
        effects = control.alerted(packet, offered=here.arrivals(now), message_bytes=here.message_bytes, now=now)
        return effects + here.limit(control.limit(self._name_of), now=now)

    def _control(self, relay: Relay) -> RelayControl:
        control = self._on_way.get(relay.pubend)
        if control is None or control.relay is not relay:
            self._on_way = {name: one for name, one in self._on_way.items() if self._relays.get(name) is one.relay}
            control = self._on_way[relay.pubend] = RelayControl(relay, self._config, self._broker)
        return control
