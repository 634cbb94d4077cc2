"""What one sender has to spend, and how its income follows the network (003 sections 4.2.2 and 4.2.3).

A salary comes every period; what is saved is capped. Whoever wants to send and cannot pay is *blocked*. At the next
salary the period of whoever was blocked changes: if the dearest message that it bought cost less than the threshold the
network is not congested, and the period becomes T Tu/(T + Tu), which is one salary more in every update interval Tu;
otherwise it doubles (the AIMD of TCP, erratum F5). If it could buy nothing, the price that it could not pay counts
(F6). Whoever was not blocked keeps its period.

Whoever can pay buys with probability 1/price. With `even_chance` these probabilities are added up instead, and each
time that they reach one more there is a purchase: as many in the long run, but no sender is luckier than another. An
account that gets a part of a salary gets the same part of the chances: 1/(price - 1) purchases for each refusal are
divided, so k accounts that share are together as one.

Salaries are paid when somebody looks (`settle`), so an account that rests needs no timer. After a rest savings are full
and the period is as it was.

State: a handful of numbers.
"""

from __future__ import annotations

from math import exp2, floor
from random import Random

from penstock.pricing.benefit import HALF_LIFE
from penstock.pricing.config import PricingConfig


class Account:
    """The money of one flow of one client."""

    __slots__ = (
        "_chance",
        "_config",
        "_dearest",
        "_remembered_at",
        "_sent",
        "_update_interval",
        "balance",
        "blocked",
        "blocked_price",
        "blocked_since",
        "next_salary",
        "period",
    )

    def __init__(self, config: PricingConfig, update_interval: float, phase: float, now: float) -> None:
        self.balance = config.first_balance
        self.period = config.first_period
        self.next_salary = now + phase * self.period
        self.blocked = False  # since the last salary
        self.blocked_price = 0.0  # what could not be paid
        self.blocked_since: float | None = None  # since when the present message waits for money
        self._chance = phase  # of this purchase, added up over refusals
        self._dearest = 0.0  # purchase since the last salary
        self._config = config
        self._update_interval = update_interval
        self._sent = 0.0  # lately
        self._remembered_at = now

    def settle(self, now: float, share: float = 1.0) -> None:
        """Pay what is due; `share` is the part of a salary that this account gets."""
        if self.next_salary > now + self._config.first_period + self._config.period_max:  # the clock was set back
            self.next_salary = now + self.period
        if self.next_salary > now:
            return
        salary = share * self._config.salary
        self._pay(salary)
        self._adapt()
        self.next_salary += self.period
        if self.next_salary <= now:  # it has rested: nothing was bought since
            missed = floor((now - self.next_salary) / self.period) + 1
            self._pay(salary, missed)
            self.next_salary += missed * self.period

    def _pay(self, salary: float, times: int = 1) -> None:
        savings = self._config.savings
        if self._config.cap == "after":
            self.balance = min(self.balance + times * salary, savings)
        else:
            self.balance = min(min(self.balance, savings) + (times - 1) * salary, savings) + salary

    def _adapt(self) -> None:
        """The period of whoever was blocked changes."""
        if self.blocked:
            price = self._dearest or self.blocked_price
            if price < self._config.threshold:
                period = self.period * self._update_interval / (self.period + self._update_interval)
            else:
                period = 2.0 * self.period
            self.period = min(max(period, self._config.period_min), self._config.period_max)
        self.blocked = False
        self.blocked_price = self._dearest = 0.0

    def can_pay(self, price: float, now: float) -> bool:
        """Whether there is enough; if not, its owner is blocked."""
        if self.balance >= price:
            return True
        self.block(price, now)
        return False

    def block(self, price: float, now: float) -> None:
        """It wants to send, and cannot."""
        self.blocked = True
        self.blocked_price = max(self.blocked_price, price)
        if self.blocked_since is None:
            self.blocked_since = now

    def may_buy(self, price: float, random: Random, share: float = 1.0) -> bool:
        """Whether chance lets it buy now what it can pay; `share` as in `settle`."""
        if not self._config.randomised or price <= 1.0:
            return True
        tries = price if share == 1.0 else 1.0 + (price - 1.0) / share  # for each purchase
        if not self._config.even_chance:
            return random.random() * tries < 1.0
        self._chance += 1.0 / tries
        if self._chance < 1.0:
            return False
        self._chance -= 1.0
        return True

    def buy(self, price: float, now: float) -> None:
        """Spend it."""
        assert self.balance >= price, "nothing leaves that is not paid"
        self.balance -= price
        self._dearest = max(self._dearest, price)
        self.blocked_since = None
        self._sent = self.sent_lately(now) + 1.0
        self._remembered_at = now

    def sent_lately(self, now: float) -> float:
        """How many messages were bought, of which half is forgotten every half-life."""
        return self._sent * exp2(-max(0.0, now - self._remembered_at) / HALF_LIFE)
