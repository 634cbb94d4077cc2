"""What routing believes, and how much work it does for one neighbour: the guards that need no keys.

Lives. A broker's incarnation is the time of its start in milliseconds (small numbers in the simulator), so one that
lies more than a day ahead of our clock is a lie. A later life of a broker that we know is accepted at a low rate from
each neighbour: brokers seldom restart.

Strangers. The plan of a network names its brokers. Room for origins that it does not name is small (`strangers_max`):
files of different age may meet in one network, five hundred brokers that do not exist may not.

Work. Each neighbour has a budget of news (`news_rate`, `news_burst`: neighbours, filters and versions that its packets
name) and of answers to its summaries; what is over it is left out, and the hashes in Hellos bring it again if it was
honest. The map is worked out again as often as `map_rate` allows; until then the last one counts.

Room. Interest has a bound in total. When it is reached, only origins below an equal share of it may grow.

State: four buckets for each link that had a neighbour, and when a full table was last recorded. Bound: `LINKS_MAX`.
"""

from __future__ import annotations

from collections.abc import Collection

from penstock.kernel.link import Link
from penstock.kernel.machine import Effect
from penstock.kernel.packet import Packet
from penstock.kernel.token_bucket import TokenBucket
from penstock.kernel.trace import InputRefused, LimitReached
from penstock.overlay.config import RoutingConfig
from penstock.overlay.packets import BrokerId, Interest, LinkState, Summary

LIFE_SLACK = 86_400_000  # milliseconds that an incarnation may lie ahead of our clock
HELLO_SLACK = LIFE_SLACK + 3_600_000  # a neighbour that was made to outbid a lie stays a neighbour
OUTBID_EVERY = 1.0  # seconds between two new lives of our own that a liar can force on us
LIVES_BURST, LIVES_RATE = 64, 1.0  # later lives of known brokers, from one neighbour; more in a large plan
CONFIRM_BURST, CONFIRM_RATE = 2_000, 1_000.0  # requests for confirmation, from one neighbour
SUMMARIES_BURST, SUMMARIES_RATE = 8, 2.0  # that we send to one neighbour
ANSWERS_BURST = 16  # summaries in a row that are answered in full
RECORD_EVERY = 1.0  # seconds between two records of one kind about one link
LINKS_MAX = 1024  # links whose budgets are remembered
NEWS_WAITING_MAX = 4096  # changes of interest of one neighbour that wait their turn
WORK_BYTES = 64  # of an entry, for each of which it counts one more


class _Budget:
    """What one neighbour may still make us do."""

    __slots__ = ("answers", "confirm", "lives", "news", "summaries")

    def __init__(self, config: RoutingConfig, lives_burst: float, now: float) -> None:
        self.news = TokenBucket(config.news_rate, config.news_burst, now)
        self.answers = TokenBucket(config.news_rate, config.news_burst, now)
        self.lives = TokenBucket(LIVES_RATE, lives_burst, now)
        self.confirm = TokenBucket(CONFIRM_RATE, CONFIRM_BURST, now)
        self.summaries = TokenBucket(SUMMARIES_RATE, SUMMARIES_BURST, now)


class Guard:
    """Says no, in routing's name."""

    def __init__(self, config: RoutingConfig, planned: Collection[BrokerId] | None) -> None:
        self._config = config
        self._planned = None if planned is None else frozenset(planned)
        self.lives_burst = max(LIVES_BURST, 2 * len(self._planned or ()))  # all brokers may restart at once
        self._budgets: dict[Link, _Budget] = {}
        self._map = TokenBucket(config.map_rate, 2 * config.map_rate, 0.0)
        self._recorded: dict[tuple[str, Link], float] = {}

    # Who may exist, in which life.

    def plausible(self, incarnation: int, now: float, *, slack: int = LIFE_SLACK) -> bool:
        """Whether a broker may have begun this life: not later than now, give or take a day.

        The clock alone decides. Were our own life a bound, each lie that we outbid would make a larger one plausible.
        """
        return incarnation <= int(now * 1000) + slack

    def stranger(self, broker: BrokerId) -> bool:
        """Whether no plan names this broker."""
        return self._planned is not None and broker not in self._planned

    def later_life(self, link: Link, now: float) -> bool:
        """Whether one more later life may be believed of this neighbour's word; takes it from its budget."""
        return self._budget(link, now).lives.take(now)

    # How much work.

    def news(self, link: Link, entries: int, now: float) -> bool:
        """Whether a packet with so much news is within the neighbour's budget; takes it from there."""
        return _take(self._budget(link, now).news, entries, now)

    def answer(self, link: Link, entries: int, now: float) -> bool:
        """Whether a summary may be answered with so many entries; to look what is missing costs something too."""
        cost = min(entries or self._config.news_burst / ANSWERS_BURST, self._config.news_burst / 2)
        return self._budget(link, now).answers.take(now, cost)

    def summary(self, link: Link, now: float) -> bool:
        """Whether we may send one more summary."""
        return self._budget(link, now).summaries.take(now)

    def confirm(self, link: Link, now: float) -> bool:
        """Whether one more request for confirmation is within the neighbour's budget."""
        return self._budget(link, now).confirm.take(now)

    def map(self, lines: int, now: float) -> bool:
        """Whether a map of so many lines may be worked out again."""
        return _take(self._map, 1 + lines, now)

    # How much room.

    def interest_room(self, held: int, added: int, in_all: int, origins: int) -> bool:
        """Whether an origin that takes `held` of `in_all` room may have more: there is some, or it has its share."""
        limit = self._config.interest_room_max
        return in_all + added <= limit or held + added <= limit // max(1, origins)

    # What is recorded of it, and how often.

    def limit(self, table: str, limit: int, link: Link, now: float) -> list[Effect]:
        """The record of a limit that this neighbour has hit; nothing if the last one is fresh."""
        return [LimitReached(table, limit)] if self._fresh(table, link, now) else []

    def refusal(self, link: Link, problem: str, now: float) -> list[Effect]:
        """The record of something wrong from this neighbour; nothing if the last one is fresh."""
        return [InputRefused(f"link {link}", problem)] if self._fresh("", link, now) else []

    def _fresh(self, what: str, link: Link, now: float) -> bool:
        last = self._recorded.get((what, link))
        if last is not None and 0.0 <= now - last < RECORD_EVERY:
            return False
        if len(self._recorded) >= LINKS_MAX:
            self._recorded.clear()
        self._recorded[what, link] = now
        return True

    def _budget(self, link: Link, now: float) -> _Budget:
        """It outlives the neighbour's connection, or a new connection would be a new budget."""
        budget = self._budgets.get(link)
        if budget is None:
            if len(self._budgets) >= LINKS_MAX:
                self._budgets.clear()
            budget = self._budgets[link] = _Budget(self._config, self.lives_burst, now)
        return budget


def work_of(packet: Interest) -> int:
    """How much work interest makes: for each entry, and more for a long one, which has many places in the index."""
    return 1 + sum(1 + len(entry) // WORK_BYTES for entry in (*packet.added, *packet.removed))


def news_in(packet: Packet) -> int:
    """How much a packet of routing may tell us: itself, and the neighbours or versions that it names.

    Interest waits its turn instead (`work_of`).
    """
    if isinstance(packet, LinkState):
        return 1 + len(packet.neighbours)
    return 1 + len(packet.known) if isinstance(packet, Summary) else 1


def _take(bucket: TokenBucket, cost: float, now: float) -> bool:
    """What costs more than a full bucket takes a full bucket."""
    return bucket.take(now, min(cost, bucket.depth))
