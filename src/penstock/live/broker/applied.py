"""What of a network file real time applies, what it does not, and why.

Only what the file really asks for is listed. Brokers in real time are processes on a real machine with real clocks:
what they send can be slowed down, what the machine is cannot be changed. `penstock up` runs the brokers and leaves
clients to you; `penstock live` runs the file's clients too, and puts link emulators on its datagram links (`emulated`).
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.live.broker.plan import UNSAID_DELAY
from penstock.live.emulation.emulated_links import needs_emulator
from penstock.scenario.spec import BrokerSpec, ClientSpec, EncodingSpec, LinkSpec, Scenario

BROKER_FAULTS_APPLIED = ("crash", "restart")  # by `penstock live`

_BROKER, _CLIENT, _LINK = BrokerSpec(name=""), ClientSpec(name="", broker=""), LinkSpec(between=("", ""))


class SettingApplied(NamedTuple):
    """One setting of a file in real time."""

    setting: str
    applied: bool
    why: str


def settings_applied(scenario: Scenario, *, emulated: bool = False) -> list[SettingApplied]:
    """What the file asks for, first what is applied; `emulated`: as `penstock live` runs it, with clients."""
    rows = [
        row
        for asked, row in (*_links(scenario, emulated), *_brokers(scenario, emulated), *_clients(scenario, emulated))
        if asked
    ]
    return sorted(rows, key=lambda row: not row.applied)


def not_applied(scenario: Scenario, *, emulated: bool = False) -> list[str]:
    """What the file asks for and real time does not do, in words."""
    return [row.setting for row in settings_applied(scenario, emulated=emulated) if not row.applied]


Row = tuple[bool, SettingApplied]  # whether the file asks for it


def _links(scenario: Scenario, emulated: bool) -> list[Row]:
    links = scenario.link
    impaired = [link for link in links if link.jitter or link.loss]
    by_emulator = [link for link in impaired if needs_emulator(link)]
    by_nobody = len(impaired) > len(by_emulator)
    return [
        _row(bool(links), "links", True, "TCP; a datagram link is UDP for data"),
        _row(
            _any(links, _LINK, "rate_bits_per_s", "queue_packets"), "rates and queues of links", True, "by the sender"
        ),
        _row(any(link.delay > UNSAID_DELAY for link in links), "delays of links", True, "added by the receiver"),
        _row(_any(links, _LINK, "send_buffer_bytes"), "send buffers of tcp links", True, "of their sockets"),
        _row(
            _any(links, _LINK, "segment_bytes", "receive_window", "wire_packets", "along"),
            "segments and wires of tcp links",
            False,
            "they are those of this machine",
        ),
        _row(_any(links, _LINK, "cost"), "costs of links", True, "as in the simulator"),
        _row(
            bool(by_emulator),
            "jitter and loss of datagram links",
            emulated,
            "by link emulators" if emulated else "only 'penstock live' puts link emulators between brokers",
        ),
        _row(by_nobody, "jitter and loss of shaped and reliable links", False, "they are TCP, which loses nothing"),
        _row(
            _any(links, _LINK, "duplicate", "reorder"),
            "duplicated and reordered packets",
            False,
            "only in the simulator",
        ),
        _row(bool(scenario.tcp), "TCP flows beside the brokers", False, "only in the simulator, and in the lab"),
    ]


def _brokers(scenario: Scenario, emulated: bool) -> list[Row]:
    brokers = scenario.broker
    costs = ("service_mean", "slow_share", "slow_mean", "delivery_cost", "send_cost")
    crowded = _any(brokers, _BROKER, "workers", "ingress_packets", *costs)
    fields = ("clock_offset", "clock_drift")
    clock = _any(brokers, _BROKER, *fields) or _any(scenario.client, _CLIENT, *fields)
    crashes = any(fault.kind in BROKER_FAULTS_APPLIED for fault in scenario.fault)
    others = any(fault.kind not in BROKER_FAULTS_APPLIED for fault in scenario.fault)
    faults = others or _any(brokers, _BROKER, "joins_at") or (crashes and not emulated)
    return [
        _row(_any(brokers, _BROKER, "listen"), "addresses of brokers", True, "others get the ports that are left"),
        _row(bool(scenario.lanes), "lanes", True, "as in the simulator"),
        _row(bool(scenario.services), "settings of services", True, "as in the simulator"),
        _row(bool(scenario.classes), "classes", True, "as in the simulator"),
        _row(
            bool(scenario.stream),
            "streams",
            True,
            "as in the simulator, where brokers can store (--data, --store)",
        ),
        _row(bool(scenario.store), "store", not emulated, "in a folder of the run" if emulated else "a schema each"),
        _row(scenario.encoding != EncodingSpec(), "encoding", True, "as in the simulator"),
        _row(crowded, "workers and service times", False, "a broker is as fast as this machine"),
        _row(_any(brokers, _BROKER, "disk_delay"), "delays of disks", False, "a disk is as fast as this machine's"),
        _row(clock, "clocks", False, "all use the clock of this machine"),
        _row(crashes and emulated, "crashes of brokers", True, "they are killed, and started again"),
        _row(faults, "other faults" if emulated else "faults", False, "kill a broker, or play them in 'penstock sim'"),
    ]


def _clients(scenario: Scenario, emulated: bool) -> list[Row]:
    clients = scenario.client
    limited = _any(clients, _CLIENT, "access_rate_bits_per_s", "queue_packets")
    theirs = "as the file says" if emulated else "they are yours to start; 'penstock live' runs them"
    return [
        _row(bool(clients), "subscriptions and publications of clients", emulated, theirs),
        _row(limited, "rates and queues of clients", True, "for clients that connect under the file's names"),
        _row(_any(clients, _CLIENT, "access_delay"), "access delays of clients", False, "not emulated"),
    ]


def _row(asked: bool, setting: str, applied: bool, why: str) -> Row:
    return asked, SettingApplied(setting, applied, why)


def _any(specs: tuple[object, ...], usual: object, *fields: str) -> bool:
    return any(getattr(spec, field) != getattr(usual, field) for spec in specs for field in fields)
