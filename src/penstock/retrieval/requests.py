"""What clients ask for and what neighbours send, checked before anything is done with it."""

from __future__ import annotations

from collections.abc import Callable, Container
from math import inf

from penstock.content.language.parser import parse_predicate
from penstock.content.predicate import Predicate
from penstock.errors import InvalidPredicate
from penstock.kernel.token_bucket import TokenBucket
from penstock.overlay.attached_client import AttachedClient
from penstock.overlay.packets import BrokerId
from penstock.overlay.text_work import work_of_text
from penstock.retrieval.broker_outlet import DAMAGED
from penstock.retrieval.config import RetrievalConfig
from penstock.retrieval.contents import hash_of, public_content
from penstock.retrieval.interest import LooseInterest, oldest_upload
from penstock.retrieval.packets import CarriedPublication, HomeLife, InterestName, RetrievalInterest, RetrieveRequest

TEXTS_MAX = 10_000  # predicates of others that are remembered; a long one counts as many
READ_RATE, READ_BURST = 1_000.0, 10_000.0  # texts that are new to us, for each neighbour
NEIGHBOURS_MAX = 1_000  # whose rates are remembered
ROUNDING = 0.001  # seconds that two parts of a lifetime may lack of the whole


class InvalidRequest(Exception):
    """It is refused; the text says why."""


def read_request(
    packet: RetrieveRequest,
    client: AttachedClient,
    config: RetrievalConfig,
    next_name: Callable[[], InterestName],
    moved: bool,
    now: float,
) -> LooseInterest:
    """A client's request as an interest of ours; raises InvalidRequest. Moved: its chain comes from another home."""
    whole = packet.left + packet.elapsed
    if packet.max > config.items_max:
        raise InvalidRequest(f"at most {config.items_max} items in one lifetime (items_max)")
    if not packet.once and not config.lifetime_min - ROUNDING <= whole <= config.lifetime_max + ROUNDING:
        limits = f"from {config.lifetime_min:g} s to {config.lifetime_max:g} s (lifetime_min, lifetime_max)"
        raise InvalidRequest(f"a lifetime of {whole:g} s; it may be {limits}")
    if packet.left > config.lifetime_max + ROUNDING:
        raise InvalidRequest(
            f"it waits {packet.left:g} s for answers; the limit lifetime_max is {config.lifetime_max:g} s"
        )
    if packet.once and packet.freshness == 0.0:
        raise InvalidRequest("it asks neither for what is there nor for what comes later")
    try:
        predicate = parse_predicate(packet.where)
    except InvalidPredicate as error:
        raise InvalidRequest(str(error)) from None
    problem = client.inbox_problem(predicate)
    if problem:
        raise InvalidRequest(problem)
    moved_at = -inf
    if moved or packet.moved is not None:
        moved_at = now - (0.0 if moved else packet.moved or 0.0) + config.moved_slack
    lifetime = 0.0 if packet.once else whole
    return LooseInterest(
        id=next_name(),
        max=packet.max or config.items_max,
        deadline=now + packet.left,
        oldest=oldest_upload(
            config.freshness_rule, now=now - packet.elapsed, lifetime=lifetime, freshness=packet.freshness
        ),
        refreshed=packet.refreshed,
        where=predicate,
        moved_at=moved_at,
    )


class InterestReader:
    """Reads the interests of other brokers."""

    def __init__(self, own: HomeLife, plan: Container[BrokerId] | None, config: RetrievalConfig) -> None:
        self._own = own  # our id, and our life
        self._plan = plan  # all brokers there are, if that is known
        self._config = config
        self._texts: dict[str, Predicate] = {}
        self._texts_work = 0
        self._budgets: dict[BrokerId, TokenBucket] = {}  # of neighbours

    def read(self, packet: RetrievalInterest, own_names: int, neighbour: BrokerId, now: float) -> LooseInterest | None:
        """None: it is over, or one of ours that has come back; raises InvalidRequest."""
        home, life, number = packet.name
        if home == self._own[0] and (life, number) > (self._own[1], own_names):
            raise InvalidRequest("an interest under our own name that we never had")
        if self._plan is not None and home not in self._plan:
            raise InvalidRequest(f"an interest of broker {home}, which there is not")
        if packet.left > self._config.lifetime_max:
            limit = f"the limit lifetime_max is {self._config.lifetime_max:g} s"
            raise InvalidRequest(f"an interest for {packet.left:g} s; {limit}")
        if packet.left <= 0.0 or home == self._own[0]:
            return None
        return LooseInterest(
            id=packet.name,
            max=min(packet.max, self._config.items_max),
            deadline=now + packet.left,
            oldest=now - packet.age,
            refreshed=packet.refreshed,
            where=self._predicate(packet.where, neighbour, now),
            moved_at=-inf if packet.moved is None else now - packet.moved,
            listed=packet.listed,
        )

    def _predicate(self, where: str, neighbour: BrokerId, now: float) -> Predicate:
        """Of a text; to read a new one takes time, so a neighbour may bring some each second."""
        found = self._texts.get(where)
        if found is None:
            work = work_of_text(where)
            if not self._budget(neighbour, now).take(now, work):
                raise InvalidRequest("too many new texts at once")
            try:
                found = parse_predicate(where)
            except InvalidPredicate as error:
                raise InvalidRequest(str(error)) from None
            if self._texts_work + work > TEXTS_MAX:
                self._texts.clear()
                self._texts_work = 0
            self._texts[where] = found
            self._texts_work += work
        return found

    def _budget(self, neighbour: BrokerId, now: float) -> TokenBucket:
        found = self._budgets.get(neighbour)
        if found is None:
            if len(self._budgets) >= NEIGHBOURS_MAX:
                self._budgets.clear()
            found = self._budgets[neighbour] = TokenBucket(READ_RATE, READ_BURST, now)
        return found


def content_problem(packet: CarriedPublication, cached_hash: bytes | None, bytes_max: int) -> str:
    """Why a publication is not what it says it is; the hash is that of what we have under its identity."""
    message = packet.message
    if hash_of(message) != packet.content_hash:
        return DAMAGED
    if public_content(message) is not message:
        return "not for everybody"
    if message.size_bytes > bytes_max:
        return "too large to cache"
    if cached_hash is not None and cached_hash != packet.content_hash:
        return "another content under this identity"
    return ""
