"""A publisher and a subscriber with k brokers between them, wide enough that nothing queues.

Each broker adds an exponential delay and each link a constant one, which is the model of 002 section 3.2.
"""

from __future__ import annotations

from penstock.lab.setups.paper_network import PAPER_SERVICES
from penstock.scenario.spec import BrokerSpec, ClientSpec, LinkSpec, Scenario, SubscriptionSpec
from penstock.scenario.workload import PublisherSpec, Recipe


def chain(stages: int, *, messages: int, scales: tuple[float, ...] = (), rate: float = 200.0) -> Scenario:
    """One publisher, `stages` brokers with 50 ms between them, one subscriber. `scales` are the brokers' mean times."""
    means = scales or (0.001,) * stages
    return Scenario(
        services=PAPER_SERVICES,
        name=f"chain-{stages}-{messages}" if len(set(means)) == 1 else f"chain-{stages}-{messages}-unequal",
        duration=messages / rate + 2.0,
        drain=5.0,
        broker=tuple(
            BrokerSpec(name=f"b{number}", workers=1_000, service_mean=mean) for number, mean in enumerate(means)
        ),
        link=tuple(LinkSpec(between=(f"b{a}", f"b{a + 1}"), delay=0.050, repair=False) for a in range(stages - 1)),
        client=(
            ClientSpec(
                name="publisher",
                broker="b0",
                publish=(
                    PublisherSpec(
                        rate_messages_per_s=rate,
                        start=2.0,
                        attributes={"kind": "probe", "value": Recipe(integer=(0, 9))},
                    ),
                ),
            ),
            ClientSpec(
                name="subscriber", broker=f"b{stages - 1}", subscribe=(SubscriptionSpec(where="kind = 'probe'"),)
            ),
        ),
        check=("at-most-once", "only-wanted"),
    )
