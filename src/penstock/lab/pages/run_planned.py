"""What the file planned for a run: when its traffic begins, and which brokers it kills."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from penstock.pipeline.extent import CUT_OFF
from penstock.scenario.spec import FaultSpec, Scenario

Row = dict[str, Any]


def traffic_begins(scenario: Scenario, published: Iterable[int]) -> int:
    """The second of the run that is the file's second 0, by the first second in which something was published."""
    starts = [one.start for client in scenario.client for one in client.publish if "stream" not in one.options]
    return max(0, min(published, default=0) - int(min(starts, default=0.0)))


def without_planned(checks: Sequence[Row], scenario: Scenario) -> tuple[list[Row], list[str]]:
    """The checks, but for processes that were killed because the file says so; of these, sentences."""
    struck = crashes(scenario)
    found, planned = [], []
    for check in checks:
        names = re.findall(r"the records of (.*)-\d+ end at", check["example"])
        if check["check"] == CUT_OFF and check["count"] <= len(struck) and names and names[0] in killed_brokers(struck):
            planned = [f"{killed(scenario, fault)}, as the file says; its last records are lost" for fault in struck]
        else:
            found.append(check)
    return found, planned


def crashes(scenario: Scenario) -> list[FaultSpec]:
    """The file's kills of brokers."""
    return [fault for fault in scenario.fault if fault.kind == "crash"]


def killed_brokers(faults: Iterable[FaultSpec]) -> set[str | None]:
    """Whom they strike."""
    return {fault.broker for fault in faults}


def killed(scenario: Scenario, crash: FaultSpec) -> str:
    """When, and until when, in words."""
    again = [
        fault.at
        for fault in scenario.fault
        if fault.kind == "restart" and fault.broker == crash.broker and fault.at >= crash.at
    ]
    until = f" and started again at {min(again):g} s" if again else ""
    return f"broker {crash.broker} was killed at {crash.at:g} s{until}"
