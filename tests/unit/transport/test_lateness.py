"""How long to wait for a message that should have come: as long as such messages came late by themselves."""

from penstock.transport.ledgers.lateness import LOST_AFTER, LOST_AFTER_MAX, Lateness


def test_nobody_waits_longer_where_nothing_comes_late():
    assert Lateness().wait == LOST_AFTER


def test_the_wait_covers_what_links_bring_late_and_forgets_it():
    lateness = Lateness()
    for _ in range(50):
        lateness.came(0.09)
    assert 0.09 <= lateness.wait < 0.1
    for _ in range(100):
        lateness.came(0.001)
    assert lateness.wait == LOST_AFTER


def test_no_lateness_makes_the_wait_endless():
    lateness = Lateness()
    for _ in range(50):
        lateness.came(1e9)
        lateness.came(-1e9)
    assert lateness.wait <= LOST_AFTER_MAX
