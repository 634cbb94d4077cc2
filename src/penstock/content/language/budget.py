"""A budget of steps: how much work one predicate may make, wherever its text came from.

A text of some hundred characters can ask for seconds of work: alternatives multiply, lists are held against lists,
patterns are slid along strings. So whoever works on a predicate is given a budget and spends it as it goes. A step is
about as much as comparing two constraints, a microsecond or less. Steps are counted and no time is measured: a text
that is refused here is refused everywhere, today and tomorrow, and a test can look for the worst text there is.

What happens at the end is for the caller to say. A text that cannot be brought into normal form is refused
(PredicateTooLarge). A relation that could not be decided in time is simply not proven (`relations`).
"""

from __future__ import annotations

from penstock.errors import PredicateTooLarge


class Budget:
    """So many steps; `spent` says how many of them are used."""

    __slots__ = ("_left", "steps")

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self._left = steps

    @property
    def spent(self) -> int:
        """How many steps were asked for so far, the one that was too many among them."""
        return self.steps - self._left

    def spend(self, steps: int = 1) -> None:
        """Before the work is done. Raises PredicateTooLarge if there are not so many left."""
        self._left -= steps
        if self._left < 0:
            raise PredicateTooLarge(
                f"the predicate takes more than {self.steps} steps to bring into normal form, the limit steps_max:"
                f" leave out what stands there twice, use IN and NOT IN for lists of values, or subscribe with several"
                f" shorter predicates"
            )
