"""Reports of links: everybody hears of every link, nobody can lie for long, and what is not said again expires."""

from __future__ import annotations

from math import inf, nan

import pytest

from penstock.content.message import DEFAULT_LIMITS
from penstock.errors import InvalidPacket
from penstock.kernel.machine import Effect
from penstock.kernel.trace import InputRefused
from penstock.overlay.link_reports import BURST, JUMP_MAX, NUMBER_MAX, VALUE_MAX, LinkReport, LinkReports
from penstock.overlay.packets import BrokerId
from penstock.overlay.routing import Routing
from penstock.testing import Pump, broker_network

EDGES = ((0, 1), (1, 2), (2, 3))
SOON = 0.2  # a few intervals
EXPIRED = 4.0


class Network:
    """Brokers in a row; each says of its links what `says` holds."""

    def __init__(self, edges: tuple[tuple[int, int], ...] = EDGES) -> None:
        self.pump: Pump = broker_network(edges)
        self.says: dict[BrokerId, dict[BrokerId, float]] = {}
        self.heard = 0
        for number in range(1 + max(map(max, edges))):
            self.reports(number).use(lambda now, number=number: self.says.get(number, {}), self._changed)
        for name in self.pump.machines:
            self.pump.link_changed(name, 0, up=True)

    def _changed(self, now: float) -> list[Effect]:
        self.heard += 1
        return []

    def reports(self, number: int) -> LinkReports:
        return self.pump.machines[f"b{number}"].machine(LinkReports)  # type: ignore[attr-defined, no-any-return]

    def routing(self, number: int) -> Routing:
        return self.pump.machines[f"b{number}"].machine(Routing)  # type: ignore[attr-defined, no-any-return]

    def value(self, at: int, hop: tuple[int, int]) -> float:
        return self.reports(at).value(hop, self.pump.now)

    def forged(self, origin: int, *, at: int, via: int, number: int, value: float, to: int, later: int = 0) -> None:
        """Somebody hands a report of `origin` to broker `at`, over its link to `via`."""
        life = self.routing(origin).incarnation + later
        packet = LinkReport(origin, life, number, ((to, value),))
        self.pump.receive(f"b{at}", packet, sender=self.pump.link(f"b{at}", f"b{via}"))

    def refusals(self, at: int) -> list[str]:
        return [record.problem for record in self.pump.records_of(f"b{at}", InputRefused)]  # type: ignore[attr-defined]


@pytest.fixture
def network() -> Network:
    made = Network()
    made.says = {0: {1: 1.0}, 1: {0: 2.0, 2: 3.0}, 2: {1: 4.0, 3: 5.0}, 3: {2: 6.0}}
    made.pump.advance(SOON)
    return made


def test_everybody_hears_of_every_link(network: Network) -> None:
    for at in range(4):
        assert [network.value(at, hop) for hop in ((0, 1), (1, 2), (2, 3), (3, 2))] == [1.0, 3.0, 5.0, 6.0]
        assert network.reports(at).status().silent == ()
        assert network.reports(at).status().refused == 0


def test_what_does_not_change_is_said_once_in_a_keepalive_and_changes_at_once(network: Network) -> None:
    sent: list[LinkReport] = []
    network.pump.loses = lambda flight: isinstance(flight.packet, LinkReport) and bool(sent.append(flight.packet))
    network.pump.advance(3.0)
    assert len(sent) <= 4 * 3 * 4  # brokers, links, seconds: whatever happens on them
    sent.clear()
    network.says[3] = {2: 7.0}
    network.pump.advance(0.11)
    assert network.value(0, (3, 2)) == 7.0


def test_a_broker_that_stops_is_recorded_once_and_its_numbers_expire_and_count_again_when_it_speaks(
    network: Network,
) -> None:
    network.pump.loses = lambda flight: isinstance(flight.packet, LinkReport) and flight.packet.origin == 3
    network.pump.advance(EXPIRED)
    assert network.value(0, (3, 2)) == 0.0
    assert network.reports(0).status().silent == ()  # a failed link that nobody has noticed yet, perhaps
    network.pump.advance(EXPIRED)
    assert network.reports(0).status().silent == ("3",)
    network.pump.advance(EXPIRED)
    assert network.refusals(0) == ["it has long said nothing of its links"]
    network.pump.loses = lambda flight: False
    network.pump.advance(1.5)
    assert network.value(0, (3, 2)) == 6.0
    assert network.reports(0).status().silent == ()


def test_a_broker_that_left_is_forgotten_and_one_that_restarted_is_believed(network: Network) -> None:
    network.pump.change("b2", "b3", up=False)
    network.pump.advance(SOON)
    network.says[3] = {2: 9.0}
    assert 3 not in network.reports(0)._heard or network.value(0, (3, 2)) == 6.0
    network.pump.advance(EXPIRED)
    assert network.reports(0).status().silent == ()
    network.pump.change("b2", "b3", up=True)
    network.pump.advance(2.0)
    assert network.value(0, (3, 2)) == 9.0


@pytest.mark.parametrize("value", [nan, inf, -1.0, 2 * VALUE_MAX])
def test_an_absurd_number_is_refused_and_changes_nothing_and_goes_no_further(network: Network, value: float) -> None:
    network.forged(3, at=2, via=3, number=1_000, value=value, to=2)
    network.pump.run()
    assert network.value(2, (3, 2)) == network.value(0, (3, 2)) == 6.0
    assert network.refusals(2) == [f"it says {value} of its link to broker 2"]
    assert network.refusals(1) == []
    assert network.reports(2).status().refused == 1


def test_links_that_are_not_on_the_map_are_left_out_and_recorded_if_that_lasts(network: Network) -> None:
    network.says[3] = {0: 8.0, 2: 7.0}
    network.pump.advance(SOON)
    assert (network.value(0, (3, 2)), network.value(0, (3, 0))) == (7.0, 0.0)
    assert network.refusals(0) == []
    network.pump.advance(EXPIRED)
    assert network.refusals(0) == ["it reports on a link to broker 0 that is not there"]


def test_of_a_neighbour_only_its_own_words_count(network: Network) -> None:
    network.forged(1, at=2, via=3, number=1_000, value=9.0, to=2)
    assert network.value(2, (1, 2)) == 3.0


def test_a_report_of_another_life_or_of_nobody_is_ignored(network: Network) -> None:
    network.forged(0, at=2, via=1, number=1_000, value=9.0, to=1, later=1)
    network.pump.receive("b2", LinkReport(77, 1, 1, ((1, 9.0),)), sender=network.pump.link("b2", "b1"))
    assert network.value(2, (0, 1)) == 1.0
    assert 77 not in network.reports(2)._heard


def test_whoever_is_spoken_for_outbids_the_forger(network: Network) -> None:
    network.forged(3, at=1, via=0, number=50_000, value=9.0, to=2)
    network.pump.run()
    assert network.value(1, (3, 2)) == 9.0
    network.pump.advance(SOON)
    assert network.value(0, (3, 2)) == network.value(1, (3, 2)) == 6.0
    assert network.refusals(3) == ["somebody else reports on our links"]


@pytest.mark.parametrize("number", [NUMBER_MAX - 1, 10 + 2 * JUMP_MAX])
def test_a_number_far_ahead_is_believed_by_nobody_and_its_victim_goes_on(network: Network, number: int) -> None:
    """Or the next number of the victim would be none that its neighbours can read."""
    sent: list[LinkReport] = []
    network.pump.loses = lambda flight: isinstance(flight.packet, LinkReport) and bool(sent.append(flight.packet))
    network.forged(1, at=1, via=0, number=number, value=9.0, to=2)
    network.forged(3, at=1, via=0, number=number, value=9.0, to=2)
    assert network.value(1, (3, 2)) == 6.0
    network.says[1] = {0: 2.0, 2: 8.0}
    network.pump.advance(EXPIRED)
    assert network.value(3, (1, 2)) == 8.0
    assert "somebody else reports on our links" in network.refusals(1)
    for packet in sent:
        assert packet.checked(DEFAULT_LIMITS).number < JUMP_MAX


def test_a_number_that_was_made_up_before_the_first_true_one_counts_until_it_expires(network: Network) -> None:
    del network.reports(1)._heard[3]
    network.forged(3, at=1, via=0, number=NUMBER_MAX - 1, value=9.0, to=2)
    assert network.value(1, (3, 2)) == 9.0
    network.pump.advance(2 * EXPIRED)
    assert network.value(1, (3, 2)) == 6.0


@pytest.mark.parametrize("value", [nan, 9.0])
def test_whoever_floods_in_anothers_name_silences_nobody_but_itself(network: Network, value: float) -> None:
    for number in range(100, 100 + 3 * int(BURST)):
        network.forged(0, at=2, via=3, number=number, value=value, to=1)
    network.says[0] = {1: 2.5}
    network.pump.advance(SOON)
    network.pump.advance(SOON)
    assert network.value(2, (0, 1)) == 2.5
    network.pump.change("b2", "b3", up=False)
    assert len(network.reports(2)._heard[0]._budgets) == 1


def test_a_broker_that_reports_too_often_is_left_unheard_for_a_while(network: Network) -> None:
    for number in range(100, 100 + 3 * int(BURST)):
        network.forged(3, at=2, via=3, number=number, value=float(number), to=2)
    assert network.value(2, (3, 2)) < 100 + BURST + 1
    assert "it reports on its links more often than it may" in network.refusals(2)
    assert len(network.refusals(2)) <= 20


def test_a_clock_that_is_set_back_does_not_keep_old_numbers_alive(network: Network) -> None:
    assert network.reports(0).value((3, 2), network.pump.now - 10.0) == 0.0


def test_the_listener_is_told_of_news_from_elsewhere_by_a_timer_of_its_own(network: Network) -> None:
    """What follows from them is no packet of the neighbour that told them: credit counts by that."""
    before = network.heard
    network.forged(3, at=2, via=3, number=1_000, value=9.0, to=2)
    assert network.heard == before
    network.pump.advance(0.0)
    assert network.heard > before


def test_packets_that_cannot_be_are_refused_by_the_codec() -> None:
    for packet in (
        LinkReport(0, 1, 1 << 60, ()),
        LinkReport(1 << 40, 1, 1, ()),
        LinkReport(0, 1, 1, ((2, 1.0), (1, 1.0))),
        LinkReport(0, 1, 1, ((-2, 1.0),)),
    ):
        with pytest.raises(InvalidPacket):
            packet.checked(DEFAULT_LIMITS)
