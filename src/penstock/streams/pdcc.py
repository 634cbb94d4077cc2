"""PDCC joined: queries go down, alerts come up, and the pubend takes publications no faster than all can keep up.

At the pubend's broker (`PubendControl`): every `query_interval` a numbered query goes to all who have joined; an alert
may lower the rate, quiet raises it (`matched_rate`). On the way (`RelayControl`): queries are passed on, and alerts
gathered into one (`alert_minima`). At an edge (`RelayControl` too): a query is answered with an alert if data wait on
their way, or while the edge recovers (`lag_watch`). Queries and alerts travel as control, so they overtake data.

With `control_rule = "paper"` rates follow 001's equations (`publish_rate`), and so do alerts (`horizon_watch`).

State: a few numbers for each pubend. Nothing waits for an answer: feedback that is missing never throttles anybody.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from penstock.kernel.machine import Effect, Send
from penstock.kernel.packet import Lane
from penstock.overlay.packets import BrokerId
from penstock.streams.alert_minima import NOBODY, Alert, AlertMinima
from penstock.streams.config import StreamsConfig
from penstock.streams.horizon_watch import HorizonWatch
from penstock.streams.lag_watch import LagWatch
from penstock.streams.matched_rate import MatchedRate
from penstock.streams.packets import Dcq, Tick, Uca
from penstock.streams.publish_limit import PublishLimit
from penstock.streams.publish_rate import PublishRate
from penstock.streams.records import AlertReceived, HorizonMeasured, PublishRateChanged
from penstock.streams.relay import Relay

TICKS_PER_MILLISECOND = 1_000


class RelayControl:
    """The part of a relay, and of an edge."""

    def __init__(self, relay: Relay, config: StreamsConfig, broker: BrokerId = NOBODY) -> None:
        self.relay = relay
        self._broker = broker  # this one, as our alerts name it
        self._config = config
        self._lane = control_lane(config)
        self._watch = HorizonWatch(config)
        self._lag_watch = LagWatch(config)
        self._minima = AlertMinima()
        self._asked = 0  # the highest number of a query: there is no alert to a later one
        self._nacked = 0  # how often we had asked for something by the last query

    @property
    def waits(self) -> bool:
        """Whether `looked` will be called for an earlier query."""
        return self._lag_watch.waits

    def queried(self, packet: Dcq, *, now: float) -> list[Effect]:
        """Pass a query on, and answer it for our own readers, now or when `looked` is called."""
        relay = self.relay
        self._asked = max(self._asked, packet.sequence)
        effects: list[Effect] = []
        if relay.downstream:
            effects.append(Send(tuple(relay.downstream), packet, self._lane))
        if not relay.has_readers:
            return effects
        behind = self._recovering()
        alert = self._watch.queried(packet.sequence, packet.newest, relay.horizon, recovering=behind, now=now)
        self._lag_watch.queried(packet, now=now)
        if self._watch.pace is not None:
            window = relay.window.ticks
            effects.append(
                HorizonMeasured(relay.pubend, relay.horizon, packet.newest, self._watch.pace, behind, window)
            )
        return effects + self._alert(alert) if self._config.control_rule == "paper" else effects

    def looked(self, recovery_pace: float | None, *, now: float) -> list[Effect]:
        """A while after a query; `recovery_pace`: if we recover, how fast all do that come over the same link."""
        heard_pace = self._lag_watch.look(self.relay.newest, now=now)
        return self._alert(self._lag_watch.alert(heard_pace, recovery_pace, now=now))

    def _alert(self, alert: Alert | None) -> list[Effect]:
        """One of our own, if any."""
        if alert is None:
            return []
        return self.alerted(alert._replace(keeping_up_edge=self._broker, recovering_edge=self._broker))

    def _recovering(self) -> bool:
        if not self._config.recovering_by_nacks:
            return self.relay.recovering
        before, self._nacked = self._nacked, self.relay.nacked
        return self._nacked > before

    def alerted(self, alert: Alert) -> list[Effect]:
        """One from below, or of our own."""
        if alert.sequence > self._asked:
            return []
        up = self._minima.add(alert)
        if up is None or self.relay.upstream is None:
            return []
        paces = (_told(up.keeping_up), _told(up.recovering))
        edges = (_named(up.keeping_up, up.keeping_up_edge), _named(up.recovering, up.recovering_edge))
        packet = Uca(self.relay.pubend, self.relay.epoch, up.sequence, *paces, *edges, up.lag)
        return [Send((self.relay.upstream,), packet, self._lane)]


class PubendControl:
    """The part of a pubend.

    Its queries are numbered from the newest tick on, in milliseconds: so a pubend that was started again goes on above
    the numbers of its life before, which relays remember.
    """

    def __init__(self, pubend: str, epoch: int, config: StreamsConfig, newest: Tick) -> None:
        self.epoch = epoch
        self._rate: PublishRate | MatchedRate = (
            PublishRate(config) if config.control_rule == "paper" else MatchedRate(config)
        )
        self._pubend = pubend
        self._sequence = newest // TICKS_PER_MILLISECOND
        self._last: tuple[Uca, float] | None = None  # the last alert, and when it came

    @property
    def rate(self) -> float | None:
        """Publications per second that it takes; None: as many as come."""
        return self._rate.rate

    def limit(self, name_of: Callable[[BrokerId], str]) -> PublishLimit | None:
        """The same with its reason: what the last alert said, of those who keep up if any does."""
        if self._rate.rate is None or self._last is None:
            return None
        alert, at = self._last
        recovering = alert.keeping_up is None
        pace = alert.recovering if recovering else alert.keeping_up
        edge = alert.recovering_edge if recovering else alert.keeping_up_edge
        name = "" if edge is None else name_of(edge)
        return PublishLimit(self._rate.rate, self._rate.since, name, recovering, pace or 0.0, at)

    def query(self, newest: Tick) -> Dcq:
        """The next query."""
        self._sequence += 1
        return Dcq(self._pubend, self.epoch, self._sequence, newest)

    def alerted(self, packet: Uca, *, offered: float, message_bytes: float, now: float) -> list[Effect]:
        """An alert has come up; `offered`: messages per second that publishers send, of this size."""
        if packet.sequence > self._sequence:
            return []
        self._last = (packet, now)
        before = self.rate
        if isinstance(self._rate, MatchedRate):
            self._rate.message_bytes = message_bytes
        self._rate.alerted(read_alert(packet), offered=offered, next_query=self._sequence + 1, now=now)
        effects: list[Effect] = [
            AlertReceived(self._pubend, packet.sequence, _shown(packet.keeping_up), _shown(packet.recovering))
        ]
        return [*effects, self._changed("alert")] if self.rate != before else effects

    def looked(self, *, offered: float, now: float) -> list[Effect]:
        """Time has passed: the rate may rise."""
        return [self._changed("quiet")] if self._rate.raise_if_quiet(offered=offered, now=now) else []

    def _changed(self, cause: str) -> PublishRateChanged:
        return PublishRateChanged(self._pubend, -1.0 if self.rate is None else self.rate, cause)


def control_lane(config: StreamsConfig) -> Lane:
    """Where queries and alerts travel."""
    return Lane.CONTROL if config.control_first else Lane.STREAM


def read_alert(packet: Uca) -> Alert:
    """An alert as it came over a link."""
    keeping_up_edge, recovering_edge = (
        NOBODY if edge is None else edge for edge in (packet.keeping_up_edge, packet.recovering_edge)
    )
    paces = _meant(packet.keeping_up), _meant(packet.recovering)
    return Alert(packet.sequence, *paces, keeping_up_edge, recovering_edge, packet.lag)


def _told(pace: float) -> float | None:
    return None if pace == inf else max(0.0, pace)


def _named(pace: float, edge: BrokerId) -> BrokerId | None:
    return None if pace == inf or edge == NOBODY else edge


def _meant(pace: float | None) -> float:
    return inf if pace is None else pace


def _shown(pace: float | None) -> float:
    return -1.0 if pace is None else pace
