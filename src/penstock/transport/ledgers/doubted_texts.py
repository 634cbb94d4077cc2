"""Of which texts it is worth waiting for a message that a record cannot tell of.

A record has a hash of each string. To LIKE, string ranges and `<>` that says nothing, so of all messages that did not
come in between it cannot tell whether they are ours and overtaken, or somebody else's. To wait for each of them held
six of ten messages of a LIKE subscription, nearly always in vain. So a text is waited for once; if it did not come
then, never again, until a message with it comes late after all. Where texts are never the same most waits are in vain
too: when TEXTS_MAX were, no other is waited for.

State: codes of texts that were waited for in vain. Bound: TEXTS_MAX. No messages, no timers.
"""

from __future__ import annotations

from collections.abc import Collection

from penstock.content.message import Attributes
from penstock.transport.ledgers.sketch import CODERS, STRING, Columns

TEXTS_MAX = 1_024
Texts = tuple[int, ...]  # codes of a record, of the columns whose texts matter, in the order of names


class DoubtedTexts:
    """What one client has learned of texts."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = names  # columns of whose texts filters want to know more than a hash
        self._in_vain: set[Texts] = set()

    def places(self, columns: Columns) -> tuple[int, ...]:
        """Where these texts stand in a record with these columns."""
        return tuple([at for at, (name, kind) in enumerate(columns) if kind == STRING and name in self._names])

    def worth_waiting(self, texts: Texts) -> bool:
        """Whether to wait for a message with these texts; without any, the doubt has another reason."""
        if not texts:
            return True
        if texts in self._in_vain or len(self._in_vain) >= TEXTS_MAX:
            return False
        self._in_vain.add(texts)
        return True

    def came(self, attributes: Attributes) -> None:
        """A message that was in doubt has come."""
        texts = [(name, attributes[name]) for name in self._names if isinstance(attributes.get(name), str)]
        self._in_vain.discard(tuple([CODERS[STRING](text) for _, text in sorted(texts)]))
