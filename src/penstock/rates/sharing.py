"""A home broker's clients and the links that limit them: who may send now, who waits a moment, what is withheld.

A message goes to a set of brokers. Of these, the ones behind no limited link get it at once. The others are parted by
their first limited link: each part is a *job*. A job leaves when the client can pay for that link, and for all others
on the way of at least one broker of the job; brokers behind a link that it cannot pay at that moment are left out, and
that is counted. So a copy crosses each limited link once, and pays for it once. What is not affected by a link never
waits for it.

A job that no broker of it can be paid for waits, in a line of all jobs with the same links, for `wait` seconds at most.
A burst may wait; a line in which somebody has stood for as long is kept short, so that who always sends too much does
not wait for nothing. Lines of one client take turns, but none passes another to the same broker: a job stands back
while an earlier one waits for a broker that it could reach now, so each broker gets a client's messages in order.

That is *thin*. A client may choose otherwise (`terms`). With *drop* no job waits. With *wait* a job waits until all its
brokers can be paid for, and none is left out; the broker gives the client no more credit while anything of it waits, so
what waits is bounded by that. When a client leaves, what waits stays in line, for LINGER seconds at most.

State: for each limited link a purse for each client, for each client its lines. Bounds: LINES_MAX lines of a client
with BURST_JOBS each; beyond these a job does not wait, and is withheld.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf
from random import Random
from typing import NamedTuple

from penstock.content.message import Message
from penstock.kernel.link import Link
from penstock.kernel.packet import Lane
from penstock.overlay.packets import BrokerId
from penstock.overlay.spanning_tree import Hop
from penstock.rates.config import WhenFull
from penstock.rates.purse import SharePurse
from penstock.rates.rate_table import RateTable

LINES_MAX = 64
BURST_SECONDS = 4.0  # a line that stands for longer is no burst
LINE_JOBS = 2  # in a line that was not empty for long: enough to use what comes at any moment
BURST_JOBS = 500  # in one that was: a burst may wait
LINGER = 10.0  # seconds
SPLITS_MAX = 10_000
UNLIMITED = 1e15  # bytes per second
HEAD_BYTES, BROKER_BYTES = 20, 3  # of a copy: overlay.packets.Publication

Way = Callable[[BrokerId], tuple[Hop, ...]]
Payer = Link | str  # a client, or a group of them
Withhold = Callable[[Link, Hop, BrokerId, Message, float], None]  # client, link, broker, message, now


class Copy(NamedTuple):
    """A message for a set of brokers, that may leave now."""

    message: Message
    lane: Lane
    destinations: tuple[BrokerId, ...]


class JobPart(NamedTuple):
    """Brokers behind the same limited links."""

    hops: tuple[Hop, ...]
    destinations: tuple[BrokerId, ...]


class JobPlan(NamedTuple):
    """The brokers of a set that have the same first limited link."""

    hops: tuple[Hop, ...]  # all limited links on their ways
    parts: tuple[JobPart, ...]  # the ones with fewest links first


class _Job(NamedTuple):
    message: Message
    lane: Lane
    plan: JobPlan
    until: float
    whole: bool  # whether it leaves for all its brokers or for none
    number: int  # of this client's jobs


class _Line(deque[_Job]):
    """Jobs with the same links, since when there have been any, and until when."""

    def __init__(self, now: float) -> None:
        super().__init__()
        self.since = self.last = now

    def wait(self, job: _Job, forgotten_after: float, now: float) -> None:
        """One more; what was long ago does not count."""
        if not self and not 0.0 <= now - self.last < forgotten_after:
            self.since = now
        self.last = now
        self.append(job)

    def hurried(self, until: float) -> _Line:
        """The same jobs, none of which waits longer than that."""
        line = _Line(self.since)
        line.last = self.last
        line.extend(job._replace(until=min(job.until, until)) for job in self)
        return line


class _Client:
    __slots__ = ("_awaited", "jobs", "lines")

    def __init__(self) -> None:
        self.lines: dict[tuple[Hop, ...], _Line] = {}  # the one whose turn it is stands first
        self.jobs = 0
        self._awaited: dict[BrokerId, dict[int, None]] = {}  # by broker, the jobs that wait for it, the first one first

    def wait(self, job: _Job, line: _Line, forgotten_after: float, now: float) -> None:
        """A job waits."""
        line.wait(job, forgotten_after, now)
        self.jobs += 1
        for destination in _brokers(job):
            self._awaited.setdefault(destination, {})[job.number] = None

    def take(self, line: _Line) -> _Job:
        """The first job of a line waits no more."""
        job = line.popleft()
        self.jobs -= 1
        for destination in _brokers(job):
            numbers = self._awaited[destination]
            del numbers[job.number]
            if not numbers:
                del self._awaited[destination]
        return job

    def awaits(self, destination: BrokerId, before: int) -> bool:
        """Whether an earlier job waits for this broker."""
        numbers = self._awaited.get(destination)
        return numbers is not None and next(iter(numbers)) < before


class _Funds(dict[Hop, bool]):
    """Which links a client can pay for at one moment; each purse is asked once."""

    def __init__(self, can_pay: Callable[[Hop], bool]) -> None:
        super().__init__()
        self._can_pay = can_pay

    def __missing__(self, hop: Hop) -> bool:
        found = self[hop] = self._can_pay(hop)
        return found

    def pay(self, hops: Iterable[Hop]) -> bool:
        """Whether all of these can be paid for."""
        return all(map(self.__getitem__, hops))


class Sharing:
    """All clients of one home broker."""

    def __init__(self, rates: RateTable, wait: float, withhold: Withhold, random: Random) -> None:
        self._rates = rates
        self._random = random
        self._wait = wait
        self._withhold = withhold
        self._purses: dict[Hop, dict[Payer, SharePurse]] = {}
        self._payers: dict[Link, str] = {}  # of clients that share a purse with others
        self._clients: dict[Link, _Client] = {}
        self._terms: dict[Link, WhenFull] = {}  # of clients that do not thin
        self._gone: dict[Link, None] = {}  # who left while something of theirs waited
        self._splits: dict[tuple[BrokerId, ...], tuple[tuple[BrokerId, ...], tuple[JobPlan, ...]]] = {}
        self._split_at = -1
        self._jobs = 0  # that there ever were

    def forget_ways(self) -> None:
        """The map has changed."""
        self._splits.clear()

    def rate_changed(self, hop: Hop, now: float) -> list[Link]:
        """A link has another rate, for all at once: or who sends while it is low would wait longer than others, and all
        would soon send at the same moments. Returns the clients of whom something waits."""
        rate = self._rates.rate(hop)
        purses = self._purses.get(hop, {})
        if rate is not None:
            for purse in purses.values():
                purse.set_share(rate, now)
        return [client for client, owner in self._clients.items() if owner.jobs and self._payer(client) in purses]

    def forget_link(self, hop: Hop) -> None:
        """Nobody limits this link any more."""
        self._purses.pop(hop, None)

    def client_came(self, client: Link) -> None:
        """A client begins at this link; it thins unless it says otherwise."""
        self._gone.pop(client, None)
        self._terms.pop(client, None)

    def pays_as(self, client: Link, group: str) -> None:
        """The client shares its purses with all others of this group."""
        self._payers[client] = group

    def _payer(self, client: Link) -> Payer:
        return self._payers.get(client, client)

    def agree(self, client: Link, when_full: WhenFull) -> None:
        """The client says what becomes of its messages for which there is no room."""
        self._terms[client] = when_full

    def terms(self, client: Link) -> WhenFull:
        """What becomes of them."""
        return self._terms.get(client, "thin") if client not in self._gone else "thin"

    def client_gone(self, client: Link, now: float) -> None:
        """What waits for its share may still leave: most clients that send one message close right after it."""
        gone = self._clients.get(client)
        if gone is None or not gone.jobs:
            self._forget_client(client)
            return
        for hops, line in gone.lines.items():
            gone.lines[hops] = line.hurried(now + LINGER)
        self._gone[client] = None

    def _forget_client(self, client: Link) -> None:
        self._clients.pop(client, None)
        self._terms.pop(client, None)
        payer = self._payer(client)
        self._payers.pop(client, None)
        for purses in self._purses.values() if payer not in self._payers.values() else ():
            purses.pop(payer, None)

    def jobs(self, client: Link | None = None) -> int:
        """How many wait, of one client or of all."""
        if client is not None:
            return self._clients[client].jobs if client in self._clients else 0
        return sum(owner.jobs for owner in self._clients.values())

    def admit(self, client: Link, copy: Copy, way: Way, now: float) -> list[Copy]:
        """A client's message for these brokers: what may leave now, of it and of what waited before it."""
        free, plans = self._split(copy.destinations, way)
        leaving: list[Copy] = []
        self._jobs += 1
        owner = self._clients.get(client)
        if free and owner is not None and owner.jobs and any(owner.awaits(one, self._jobs) for one in free):
            leaving += self.serve(client, now)  # a link limits nobody any more: what waited for it goes first
            owner = self._clients.get(client)
            late = {one: way(one)[:1] for one in free if owner is not None and owner.awaits(one, self._jobs)}
            plans += tuple(JobPlan(hops, (JobPart(hops, (one,)),)) for one, hops in late.items() if hops)
            free = tuple(one for one in free if not late.get(one))
        if free:
            leaving.append(Copy(copy.message, copy.lane, free))
        whole = self._terms.get(client) == "wait"
        until = inf if whole else now + self._wait
        funds = self._funds(client, copy.message.size_bytes, now)
        for plan in plans:
            job = _Job(copy.message, copy.lane, plan, until, whole, self._jobs)
            leaving += self._try_or_wait(client, job, funds, now)
        return leaving

    def limits(self, destinations: tuple[BrokerId, ...], way: Way) -> bool:
        """Whether any of these brokers is behind a limited link."""
        return bool(self._split(destinations, way)[1])

    def serve(self, client: Link, now: float) -> list[Copy]:
        """What may leave now of what waits; each line has its turn."""
        owner = self._clients.get(client)
        leaving: list[Copy] = []
        served = owner is not None
        funds = self._funds(client, 0, now)
        while owner is not None and served:
            served = False
            for hops in [hops for hops, line in owner.lines.items() if line]:
                line = owner.lines[hops]
                while line and line[0].until <= now and not _payable(line[0], funds):
                    self._give_up(client, owner.take(line), now)
                    served = True  # who stood back for it may go
                if line and _payable(line[0], funds) and not _stands_back(owner, line[0], funds):
                    leaving.append(self._leave(client, owner.take(line), funds, now))
                    served = True
                    line.last = now
                    owner.lines[hops] = owner.lines.pop(hops)  # to the end
        if client in self._gone and (owner is None or not owner.jobs):
            del self._gone[client]
            self._forget_client(client)
        return leaving

    def ready_at(self, client: Link, now: float) -> float | None:
        """When something of this client may leave or is given up; None if nothing waits."""
        owner = self._clients.get(client)
        if owner is None:
            return None
        heads = [line[0] for line in owner.lines.values() if line]
        if not heads:
            return None
        funds = self._funds(client, 0, now)
        limiting = dict.fromkeys(hop for job in heads for hop in job.plan.hops)
        solvent_at = {hop: self._solvent_at(client, hop) for hop in limiting}
        # Who stands back is served together with whom it stands back for; the earliest of all never does.
        times = (min(_payable_at(job, solvent_at), job.until) for job in heads if not _stands_back(owner, job, funds))
        return min(times, default=None)

    # One job.

    def _try_or_wait(self, client: Link, job: _Job, funds: _Funds, now: float) -> list[Copy]:
        owner = self._clients.get(client) or _Client()
        line = owner.lines.get(job.plan.hops)
        if not line and _payable(job, funds) and not _stands_back(owner, job, funds):
            return [self._leave(client, job, funds, now)]
        if self._full(line, owner, self.terms(client), now):
            self._give_up(client, job, now)
            return []
        self._clients[client] = owner
        if line is None:
            line = owner.lines[job.plan.hops] = _Line(now)
        owner.wait(job, line, self._wait, now)
        return []

    def _full(self, line: _Line | None, owner: _Client, terms: WhenFull, now: float) -> bool:
        """Whether no more may wait: bursts may for a while, but nobody shall stand in line all the time."""
        if terms != "thin":
            return terms == "drop"
        if line is None:
            if len(owner.lines) >= LINES_MAX:
                owner.lines = {hops: waiting for hops, waiting in owner.lines.items() if waiting}
            return self._wait <= 0.0 or len(owner.lines) >= LINES_MAX
        return len(line) >= (BURST_JOBS if 0.0 <= now - line.since < max(self._wait, BURST_SECONDS) else LINE_JOBS)

    def _funds(self, client: Link, size_bytes: int, now: float) -> _Funds:
        return _Funds(lambda hop: self._purse(client, hop, size_bytes, now).can_pay(now))

    def _solvent_at(self, client: Link, hop: Hop) -> float:
        purse = self._purses.get(hop, {}).get(self._payer(client))
        return -inf if purse is None else purse.solvent_at()

    def _leave(self, client: Link, job: _Job, funds: _Funds, now: float) -> Copy:
        """Pay for whom it can be paid, once for each link, and leave out the others."""
        going: list[BrokerId] = []
        crossing: dict[Hop, int] = {}
        size_bytes = job.message.size_bytes
        for part in job.plan.parts:
            unpaid = [hop for hop in part.hops if hop not in crossing]
            lacking = [hop for hop in unpaid if not funds[hop]]
            if lacking:
                for destination in part.destinations:
                    self._withhold(client, lacking[0], destination, job.message, now)
                continue
            for hop in part.hops:
                crossing[hop] = crossing.get(hop, 0) + len(part.destinations)
            going += part.destinations
        for hop, brokers in crossing.items():
            self._purse(client, hop, size_bytes, now).pay(HEAD_BYTES + BROKER_BYTES * brokers + size_bytes, now)
            del funds[hop]
        return Copy(job.message, job.lane, tuple(sorted(going)))

    def _give_up(self, client: Link, job: _Job, now: float) -> None:
        for part in job.plan.parts:
            lacking = [hop for hop in part.hops if not self._can_pay(client, hop, now)]
            for destination in part.destinations:
                self._withhold(client, (lacking or part.hops)[0], destination, job.message, now)

    def _can_pay(self, client: Link, hop: Hop, now: float) -> bool:
        purse = self._purses.get(hop, {}).get(self._payer(client))
        return purse is None or purse.can_pay(now)

    def _purse(self, client: Link, hop: Hop, size_bytes: int, now: float) -> SharePurse:
        rate = self._rates.rate(hop)
        if rate is None:  # it was forgotten while somebody waited for it
            return SharePurse(UNLIMITED, HEAD_BYTES + size_bytes, now, used=UNLIMITED)
        purses = self._purses.get(hop)
        if purses is None:
            purses = self._purses[hop] = {}
        payer = self._payer(client)
        purse = purses.get(payer)
        if purse is None:
            used = rate if self._rates.is_new(hop, now) else 0.0
            purse = purses[payer] = SharePurse(
                rate, HEAD_BYTES + size_bytes, now, used=used, chance=self._random.random()
            )
        purse.set_share(rate, now)
        return purse

    # Ways.

    def _split(self, destinations: tuple[BrokerId, ...], way: Way) -> tuple[tuple[BrokerId, ...], tuple[JobPlan, ...]]:
        """The brokers behind no limited link, and the others by their first one; known while the links are these."""
        if self._split_at != self._rates.changes or len(self._splits) >= SPLITS_MAX:
            self._split_at = self._rates.changes
            self._splits.clear()
        found = self._splits.get(destinations)
        if found is None:
            found = self._splits[destinations] = _parted(destinations, way, self._rates)
        return found


def _payable(job: _Job, funds: _Funds) -> bool:
    """Whether at least one broker of it can be paid for, or all if it leaves whole."""
    return funds.pay(job.plan.hops) if job.whole else any(funds.pay(part.hops) for part in job.plan.parts)


def _stands_back(owner: _Client, job: _Job, funds: _Funds) -> bool:
    """Whether an earlier job waits for a broker that this one would reach now."""
    return owner.jobs > 0 and any(
        owner.awaits(destination, job.number)
        for part in job.plan.parts
        if job.whole or funds.pay(part.hops)
        for destination in part.destinations
    )


def _payable_at(job: _Job, solvent_at: Mapping[Hop, float]) -> float:
    """When it leaves if nothing is paid before."""
    parts = (job.plan.hops,) if job.whole else (part.hops for part in job.plan.parts)
    return min(max(map(solvent_at.__getitem__, hops)) for hops in parts)


def _brokers(job: _Job) -> Iterator[BrokerId]:
    return (destination for part in job.plan.parts for destination in part.destinations)


def _parted(
    destinations: Sequence[BrokerId], way: Way, rates: RateTable
) -> tuple[tuple[BrokerId, ...], tuple[JobPlan, ...]]:
    free: list[BrokerId] = []
    jobs: dict[Hop, dict[tuple[Hop, ...], list[BrokerId]]] = {}
    for destination in destinations:
        hops = tuple(hop for hop in way(destination) if hop in rates)
        if hops:
            jobs.setdefault(hops[0], {}).setdefault(hops, []).append(destination)
        else:
            free.append(destination)
    plans = []
    for parts in jobs.values():
        hops = tuple(sorted({hop: None for part in parts for hop in part}))
        ordered = sorted(parts.items(), key=lambda item: (len(item[0]), item[0]))
        plans.append(JobPlan(hops, tuple(JobPart(part, tuple(brokers)) for part, brokers in ordered)))
    return tuple(free), tuple(plans)
