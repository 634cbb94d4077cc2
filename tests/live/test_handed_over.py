"""What was handed over and is not known to have arrived: never too little, and never much to remember."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidPacket
from penstock.live.wire.handed_over import WRITES_MAX, HandedOver

writes = st.lists(st.tuples(st.integers(1, 20), st.integers(0, 20)).map(lambda pair: (pair[0], min(pair))), max_size=30)


@given(writes, st.integers(0, 600))
def test_the_count_is_what_no_acknowledgement_covers_and_at_most_a_write_more(
    written: list[tuple[int, int]], acknowledged: int
) -> None:
    handed_over = HandedOver()
    for packets, messages in written:
        handed_over.wrote(packets, messages)
    acknowledged = min(acknowledged, handed_over.packets)
    handed_over.arrived(acknowledged)
    covered = total = 0
    for packets, messages in written:
        total += packets
        covered += messages if total <= acknowledged else 0
    assert handed_over.messages_unknown == sum(messages for _, messages in written) - covered
    handed_over.arrived(handed_over.packets)
    assert handed_over.messages_unknown == 0


def test_writes_beyond_the_bound_are_acknowledged_together() -> None:
    handed_over = HandedOver()
    for _ in range(3 * WRITES_MAX):
        handed_over.wrote(1, 1)
    assert len(handed_over._writes) == WRITES_MAX
    handed_over.arrived(2 * WRITES_MAX)
    assert handed_over.messages_unknown == 2 * WRITES_MAX + 1  # never too few
    handed_over.arrived(3 * WRITES_MAX)
    assert handed_over.messages_unknown == 0


@pytest.mark.parametrize("acknowledged", [11, 4])
def test_more_than_was_sent_or_less_than_before_cannot_be(acknowledged: int) -> None:
    handed_over = HandedOver()
    handed_over.wrote(10, 10)
    handed_over.arrived(5)
    with pytest.raises(InvalidPacket, match=f"{acknowledged} packets are acknowledged"):
        handed_over.arrived(acknowledged)
