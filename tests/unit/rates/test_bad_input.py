"""What fair rates do with what cannot be known, cannot be, or is a lie (docs/protocols/network-rates.md)."""

from __future__ import annotations

from math import inf, nan

import msgspec
import pytest

from narrow_line import Notes, network, run
from penstock.errors import InvalidPacket
from penstock.kernel.link import LinkLoad
from penstock.kernel.packet import Packet
from penstock.kernel.trace import InputRefused
from penstock.overlay.codec import Codec, encode
from penstock.overlay.node import Node
from penstock.rates.broker_service import RatesBroker
from penstock.rates.config import RatesConfig
from penstock.rates.meter import LinkMeter
from penstock.rates.packets import (
    VERSION_MAX,
    LinkRate,
    Note,
    RateHeard,
    ReaderRate,
    ReadersWithheld,
    WithheldFrom,
    WithheldNotice,
)
from penstock.rates.service import RATES
from penstock.scenario.spec import FaultSpec, Scenario
from penstock.sim.run import simulate
from penstock.testing import Pump, a_message, attach, broker_network, publish

NOTE = Note("p", ("b1", "b2"), 10.0, "b2", 5, 100, 1.0)


# What cannot be known.


def test_a_link_of_which_the_host_says_nothing_has_no_capacity() -> None:
    meter = LinkMeter(0.05, LinkLoad(), 0.0)
    for step in range(1, 200):
        meter.note("p", 1_000, 0.05 * step)
        assert meter.look(LinkLoad(offered_bytes=1_000 * step), 0.05 * step) is None
    assert meter.capacity is None


def test_a_packet_that_takes_longer_than_a_look_shows_how_slow_its_link_is() -> None:
    meter = LinkMeter(0.05, LinkLoad(), 0.0)
    for second in range(1, 2_402):
        meter.note("p", 300, float(second))
        left = 300 if second >= 2_400 else 0
        meter.look(LinkLoad(300 * second, left, 0, float(min(second, 2_400))), float(second))
    assert meter.capacity == pytest.approx(1 / 8), "1 bit/s"


def test_a_lump_that_leaves_at_once_does_not_make_a_link_faster() -> None:
    meter = LinkMeter(0.05, LinkLoad(), 0.0)
    offered = left = 0
    for step in range(1, 60):
        offered += 1_000
        if not 20 <= step < 40:  # TCP waits for one segment, and has all behind it
            left = offered
        meter.note("p", 1_000, 0.05 * step)
        meter.look(LinkLoad(offered, left, 0, 0.05 * step), 0.05 * step)
        if step > 1:
            assert meter.capacity is not None
            assert meter.capacity <= 21_000.0
    assert meter.capacity == pytest.approx(20_000.0, rel=0.1)


def narrowed(bits: float) -> Scenario:
    """As `network`, but the narrow link becomes as slow as that only when all know of each other."""
    scenario = network(1e6)
    return msgspec.structs.replace(
        scenario, fault=(FaultSpec(at=3.0, kind="link_rate", link=("b", "c"), rate_bits_per_s=bits),)
    )


@pytest.mark.parametrize("bits", [1.0, 1e11])
def test_a_link_that_is_absurdly_slow_or_fast_costs_nobody_else_anything(bits: float) -> None:
    notes = Notes()
    result = simulate(narrowed(bits), 1, trace=notes)
    published = sum(tally.published for tally in result.clients.values())
    assert notes.got["near"] == published
    if bits > 1.0:
        assert notes.got["far"] == published
        assert notes.withheld == notes.lost == 0


@pytest.mark.parametrize("broker", ["a", "b"])
@pytest.mark.parametrize("seconds", [-1_000.0, -1.0, 1.0, 1_000.0])
def test_a_clock_that_jumps_at_home_or_at_the_link_stalls_nothing(broker: str, seconds: float) -> None:
    scenario = network(200_000.0)
    step = FaultSpec(at=4.0, kind="clock_step", broker=broker, seconds=seconds)
    notes = run(msgspec.structs.replace(scenario, fault=(step,)))
    assert notes.got["near"] > 0.95 * notes.published, "neighbours lose each other when a clock leaps ahead"
    assert notes.got.total() + notes.lost + notes.withheld == 2 * notes.published
    assert notes.got["far"] > 0.85 * 7.0 * 200_000 / 8 / 300


def test_a_home_that_knows_nothing_of_rates_is_held_at_the_link_and_the_others_keep_their_shares() -> None:
    scenario = network(200_000.0)
    first, *others = scenario.broker
    unaware = msgspec.structs.replace(first, services={"rates": RatesConfig(enabled=False)})
    clients = tuple(
        msgspec.structs.replace(one, broker="b") if one.name in ("p1", "p2") else one for one in scenario.client
    )
    notes = run(msgspec.structs.replace(scenario, broker=(unaware, *others), client=clients))
    assert notes.got["near"] == notes.published
    assert notes.withheld_of["p0"] == 0
    assert notes.got["far"] + notes.lost + notes.withheld == notes.published
    fair = notes.got["far"] / 3.0
    far = [notes.got_from["far", f"p{number}"] for number in range(3)]
    assert far[0] < 1.3 * fair
    assert min(far[1:]) > 0.9 * fair


# What cannot be, and lies.


@pytest.mark.parametrize(
    "packet",
    [
        LinkRate(1, 1, 2, 1, nan),
        LinkRate(1, 1, 2, 1, inf),
        LinkRate(1, 1, 2, 1, 0.0),
        LinkRate(1, 1, 2, 1, -5.0),
        LinkRate(1, 1, 2, VERSION_MAX, 5.0),
        RateHeard(1, 2, VERSION_MAX, 0),
        ReaderRate(1, nan),
        ReaderRate(1, -1.0),
        WithheldFrom(0, 1, (msgspec.structs.replace(NOTE, rate=nan),)),
        WithheldFrom(0, 1, (msgspec.structs.replace(NOTE, messages=-1),)),
        ReadersWithheld(1, 1, (msgspec.structs.replace(NOTE, seconds=inf),)),
        ReadersWithheld(1, 1, (NOTE,) * 51),
    ],
)
def test_absurd_packets_are_refused_by_the_codec(packet: Packet) -> None:
    with pytest.raises(InvalidPacket):
        Codec(RATES.packets).decode(encode(packet))


def bus() -> Pump:
    """b0 - b1 - b2 and b0 - b3; a writer at b0, readers at b2 and b3."""
    pump = broker_network([(0, 1), (1, 2), (0, 3)])
    attach(pump, "p", "b0")
    attach(pump, "r", "b2", "n > 0")
    attach(pump, "s", "b3", "n > 0")
    pump.advance(2.0)
    publish(pump, "p", a_message(1))
    pump.advance(0.1)
    return pump


def limits(pump: Pump, name: str) -> dict[tuple[int, int], float]:
    """The links that this broker believes to be limited."""
    node = pump.machines[name]
    assert isinstance(node, Node)
    return node.machine(RatesBroker)._rates.links()


FORGED = {
    "of another life": LinkRate(1, 99, 2, 1, 5.0),
    "of a broker that nobody knows": LinkRate(77, 1, 2, 1, 5.0),
    "of a link that is not there": LinkRate(1, 1, 3, 1, 5.0),
    "of the broker that gets it": LinkRate(0, 1, 1, 1, 5.0),
    "of a home that nobody knows": RateHeard(0, 1, 1, 77),
    "of a version that was never told": RateHeard(0, 1, VERSION_MAX - 1, 1),
    "of slow readers in another life": ReadersWithheld(1, 99, (NOTE,)),
    "from a home that nobody knows": WithheldFrom(0, 77, (NOTE,)),
}


@pytest.mark.parametrize("what", FORGED)
def test_forged_word_changes_nothing(what: str) -> None:
    pump = bus()
    pump.receive("b0", FORGED[what], sender=pump.link("b0", "b1"))
    assert limits(pump, "b0") == {}
    assert pump.in_flight(LinkRate, RateHeard, WithheldNotice) == []


@pytest.mark.parametrize(
    "packet", [LinkRate(1, 1, 2, 1, 5.0), ReadersWithheld(1, 1, (NOTE,)), WithheldFrom(0, 1, (NOTE,))]
)
def test_word_of_the_wrong_neighbour_changes_nothing(packet: Packet) -> None:
    pump = bus()
    pump.receive("b0", packet, sender=pump.link("b0", "b3"))
    assert limits(pump, "b0") == {}
    assert pump.in_flight(type(packet), WithheldNotice) == []
    if isinstance(packet, LinkRate):
        assert "to which it is not the way" in str(pump.records_of("b0", InputRefused))


def test_a_liar_on_the_way_limits_what_passes_it_and_no_longer_than_a_word_counts() -> None:
    pump = bus()
    pump.receive("b0", LinkRate(1, 1, 2, VERSION_MAX - 1, 0.001), sender=pump.link("b0", "b1"))
    assert limits(pump, "b0") == {(1, 2): 0.001}
    for count in range(2, 30):
        publish(pump, "p", a_message(count))
        pump.advance(0.2)
    assert len(pump.got("s")) == 29
    assert [message.identity.count for _, message in pump.got("r")][-1] == 29, "nobody said it again"
    assert limits(pump, "b0") == {}


def test_a_reader_that_says_absurd_things_hurts_itself_alone() -> None:
    pump = bus()
    client = pump.link("b2", "r")
    pump.receive("b2", ReaderRate(999, 5.0), ReaderRate(1, 1e-300), sender=client)
    pump.receive("b2", ReaderRate(1, 1e-300), sender=pump.link("b2", "b1"))
    for count in range(2, 30):
        publish(pump, "p", a_message(count))
        pump.advance(0.2)
    assert len(pump.got("s")) == 29
    assert [message.identity.count for _, message in pump.got("r")][-1] == 29
