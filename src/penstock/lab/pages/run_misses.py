"""Why some missed what they did, as far as the file or the links say it: sentences below the table of clients."""

from __future__ import annotations

from penstock.lab.pages.numbers import count
from penstock.lab.pages.run_numbers import RunNumbers
from penstock.lab.pages.run_planned import crashes, killed, killed_brokers


def misses_explained(numbers: RunNumbers) -> list[str]:
    """Why some missed what they did, as far as the file or the links say it; a sentence each."""
    told = []
    scenario = numbers.scenario
    kills = crashes(scenario)
    for client in numbers.clients:
        if client.missed and client.broker in killed_brokers(kills):
            struck = " and ".join(killed(scenario, fault) for fault in kills if fault.broker == client.broker)
            told.append(
                f"{client.name} missed {count(client.missed)}: {struck}. What is published meanwhile for subscriptions"
                " without a stream is gone."
            )
    for pair in numbers.narrow:
        if pair.thinned and pair.missed:
            told.append(
                f"{pair.client} missed {count(pair.missed)}: {count(min(pair.thinned, pair.missed))} were withheld at a"
                " full link, and both ends were told."
            )
    return told
