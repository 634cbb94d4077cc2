"""Readers that walk together get what each would get alone."""

from __future__ import annotations

from random import Random

import pytest

from penstock.content.language.parser import parse_predicate
from penstock.content.message import Identity, make_message
from penstock.kernel.machine import Effect, Send
from penstock.streams import reader_group
from penstock.streams.interest import filters_of
from penstock.streams.known import Known
from penstock.streams.packets import Item, StreamDelivery
from penstock.streams.reader import Cursor, Reader
from penstock.streams.reader_group import ReaderGroup

PUBEND = "orders/0"


def a_reader(number: int, where: str, credit: int, position: int, since: int) -> Reader:
    predicate = parse_predicate(where)
    reader = Reader(
        *(1, number),
        stream="orders",
        name=f"name-{number}",
        where=where,
        predicate=predicate,
        filters=filters_of([predicate]),
        start="",
        takeover=False,
        identity="somebody",
    )
    reader.credit = credit
    cursor = reader.cursors[PUBEND] = Cursor(PUBEND, since, -1)
    cursor.begin(position)
    cursor.walked = True
    return reader


def some_readers(random: Random) -> list[Reader]:
    wheres = ["TRUE", "n < 5", "n = 3", "n IN (1, 8)", "m = 1"]
    return [
        a_reader(
            number,
            random.choice(wheres),
            random.choice([0, 1, 5, 1_000]),
            random.choice([0, 0, 0, 7, 20]),
            random.choice([1, 1, 2]),
        )
        for number in range(random.randrange(1, 30))
    ]


def what_happens(seed: int) -> tuple[list[list[tuple[int, bool]]], dict[int, int]]:
    """Everything that is sent, reader by reader, and where each stands in the end."""
    random = Random(seed)
    readers = some_readers(random)
    group = ReaderGroup(PUBEND)
    for reader in readers:
        group.add(reader)
    known = Known(bytes_max=1 << 20, runs_max=100)
    sent: list[Effect] = []
    first = 1
    for count in range(1, 20):
        last = first + random.randrange(1, 600)
        ticks = sorted(random.sample(range(first, last + 1), random.randrange(0, last - first + 1)))
        data: list[Item] = [
            (tick, make_message(Identity("p", 1, tick), {"n": random.randrange(10), "m": random.randrange(3)}))
            for tick in ticks
        ]
        if random.random() < 0.9:
            known.learn(first, last, random.choice([1, 2, 2, 2]), data)
        if random.random() < 0.05:
            known.learn_gone(last)
        if random.random() < 0.2 and len(readers) > 1:
            left = readers.pop(random.randrange(len(readers)))
            group.remove(left)
            assert left not in group
        if random.random() < 0.3:
            for reader in readers:
                reader.credit += random.choice([0, 10])
                reader.received(reader.sent)
        sent += group.advance(known)
        places = group.before(known.head)
        assert len(group) == len(readers), count
        assert all(position < known.head for position, _ in places)
        first = last + 1
    ends = {reader.number: reader.cursors[PUBEND].position for reader in readers}
    return [taken(sent, number) for number in range(30)], ends


def taken(sent: list[Effect], number: int) -> list[tuple[int, bool]]:
    """The ticks that one reader was sent, and the ends of its gaps; each delivery begins where the last one ended."""
    found: list[tuple[int, bool]] = []
    upto = None
    for effect in sent:
        assert isinstance(effect, Send)
        assert isinstance(effect.packet, StreamDelivery)
        if effect.packet.subscription == number:
            assert upto in (None, effect.packet.after)
            upto = effect.packet.upto
            found += [(upto, True)] if effect.packet.gap else [(tick, False) for tick, _ in effect.packet.items]
    return found


@pytest.mark.parametrize("seed", range(60))
def test_together_they_get_what_each_gets_alone(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_group, "FEW", 1_000)
    alone = what_happens(seed)
    monkeypatch.setattr(reader_group, "FEW", 0)
    together = what_happens(seed)
    assert together == alone, f"seed {seed}"
