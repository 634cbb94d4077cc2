"""Losses in bursts."""

from itertools import groupby
from random import Random

import pytest

from penstock.kernel.gilbert import GilbertLoss


@pytest.mark.parametrize(("loss", "burst"), [(0.05, 8.0), (0.2, 3.0)])
def test_so_many_are_lost_and_so_many_in_a_row(loss, burst):
    random, wire = Random(3), GilbertLoss(loss, burst)
    fates = [wire.loses(random.random()) for _ in range(200_000)]
    lengths = [len(list(run)) for lost, run in groupby(fates) if lost]
    assert sum(fates) / len(fates) == pytest.approx(loss, rel=0.1)
    assert sum(lengths) / len(lengths) == pytest.approx(burst, rel=0.1)


def test_a_wire_that_loses_nothing_never_goes_bad():
    wire = GilbertLoss(0.0, 5.0)
    assert not any(wire.loses(draw / 100) for draw in range(100))
