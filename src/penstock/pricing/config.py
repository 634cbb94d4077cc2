"""Settings of priced sending: [services.pricing] of brokers, [client.pricing] of a client.

Amounts are dollars, as in the paper (003 section 6): a salary of 10, savings of at most 20, a fee of 1 a message.
What the paper leaves open is our own: the threshold of the salary rule, the first period and the bounds of the period,
the first balance.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from penstock.kernel.choices import check_choices
from penstock.pricing.benefit import BenefitName
from penstock.pricing.costs import CostName

CLASSES_MAX = 64
AMOUNT_MAX = 1_000_000


class PricedClass(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Messages that are priced: [[class]] of a network file. A message of several classes belongs to the first."""

    where: str
    flow_control: Literal["pricing"] = "pricing"
    benefit: BenefitName = "sent"


class PricingConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a broker prices its links, and buys for its clients."""

    classes: tuple[PricedClass, ...] = ()  # what [[class]] of a file says
    lines: tuple[tuple[int, int], ...] = ()  # the pairs of brokers that reliable links of the file join; none: any link
    soft_limit: float = 100.0  # messages in the buffer of a link
    cost: CostName = "exponential"
    fee: float = 1.0  # of each message; 0: none, one of the alternatives that 003 4.2.3 rejects
    link_fee: float = 0.0  # of each link on its way; the other one
    salary: float = 10.0
    savings: float = 20.0  # and what a link costs at its soft limit
    cap: Literal["after", "before"] = "after"  # savings are cut when the salary has been paid, or before (F4)
    threshold: float = 15.0  # a purchase as dear as this says that there is congestion
    first_balance: float = 1.0
    first_period: float = 1.0  # seconds between salaries
    period_min: float = 0.005
    period_max: float = 1.0
    randomised: bool = True  # a message that can be paid is sent with probability 1/price
    even_chance: bool = True  # and chance is kept to: after so many refusals the next is no refusal
    patient: bool = True  # senders try less often where prices have been high for long, so that many need no more room
    own_links_now: bool = True  # a broker's own links cost what they cost at this moment, if that is more than was told
    held_max: int = 16  # messages of one client that wait at its broker
    flows_max: int = 64  # sets of receivers of one client that have an account of their own
    samples: int = 5  # looks at the buffers in each interval

    def __post_init__(self) -> None:
        positive = ("soft_limit", "salary", "savings", "threshold", "first_period", "period_min", "period_max")
        for name in (*positive, "held_max", "flows_max", "samples"):
            if not 0 < getattr(self, name) <= AMOUNT_MAX:
                raise ValueError(f"{name} must be above 0, and at most {AMOUNT_MAX}")
        for name in ("fee", "link_fee", "first_balance"):
            if not 0.0 <= getattr(self, name) <= self.savings:
                raise ValueError(f"{name} must not be negative, nor above savings: nobody could pay it")
        if self.period_min > self.period_max:
            raise ValueError("period_min must not be above period_max")
        if len(self.classes) > CLASSES_MAX:
            raise ValueError(f"{len(self.classes)} classes; the limit is {CLASSES_MAX}")
        check_choices(self)


class PricingClientConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds of one client."""

    waiting_max: int = 1_000  # messages that wait in the client
    waits_for_classes: bool = True  # what is published waits until the broker has said which content is priced

    def __post_init__(self) -> None:
        if self.waiting_max < 1:
            raise ValueError("waiting_max must be at least 1")
