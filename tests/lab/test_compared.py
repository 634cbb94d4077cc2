"""Controllers side by side: each has a colour of its own in the drawings."""

from penstock.lab.pages.style import colour_scale
from penstock.lab.setups.compared import CONTROLLERS


def test_every_controller_can_be_drawn_and_told_from_the_others() -> None:
    drawn = colour_scale(CONTROLLERS)
    assert drawn["domain"] == list(CONTROLLERS)
    assert len(set(drawn["range"])) == len(CONTROLLERS)
