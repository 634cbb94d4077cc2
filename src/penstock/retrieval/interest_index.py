"""Which pending interests does a publication fit? The matching engine of a broker over all of them."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.content.matching.exact_index import PredicateIndex
from penstock.content.predicate import Predicate
from penstock.overlay.packets import BrokerId
from penstock.overlay.text_work import work_of_text
from penstock.retrieval.contents import content_of
from penstock.retrieval.interest import InterestId, Interface, LooseInterest, PublishedItem


class EngineIndex:
    """An InterestIndex over predicates."""

    def __init__(self) -> None:
        self._engine = PredicateIndex()
        self._keys: dict[InterestId, int] = {}
        self._entries: dict[int, tuple[Interface, LooseInterest]] = {}
        self._next = 0

    def add(self, interest: LooseInterest, interface: Interface) -> None:
        """One more."""
        self._next += 1
        self._keys[interest.id] = self._next
        self._entries[self._next] = (interface, interest)
        self._engine.add(self._next, predicate_of(interest))

    def remove(self, interest: LooseInterest, interface: Interface) -> None:
        """One less."""
        key = self._keys.pop(interest.id)
        del self._entries[key]
        self._engine.remove(key)

    def matching(self, publication: PublishedItem) -> Iterable[tuple[Interface, Iterable[LooseInterest]]]:
        """Those that it fits, by interface."""
        if not self._entries:
            return ()
        found: dict[Interface, list[LooseInterest]] = {}
        for key in self._engine.match([content_of(publication).message.attributes])[0]:
            interface, interest = self._entries[key]
            found.setdefault(interface, []).append(interest)
        return found.items()


def fits(interest: LooseInterest, publication: PublishedItem) -> bool:
    """Whether it is what the interest looks for."""
    return predicate_of(interest).matches(content_of(publication).message.attributes)


def places_of(interest: LooseInterest) -> int:
    """The room that it takes in a table: long texts take more."""
    return work_of_text(predicate_of(interest).text)


def home_of(interest: LooseInterest) -> BrokerId:
    """The broker whose client asks."""
    return interest.id[0]  # type: ignore[index,no-any-return]  # a name


def text_of(interest: LooseInterest) -> str:
    """What it looks for, as it is written."""
    return predicate_of(interest).text


def predicate_of(interest: LooseInterest) -> Predicate:
    """What it looks for."""
    assert isinstance(interest.where, Predicate)
    return interest.where
