"""Independent random generators, each derived from the run's seed and the names of its user.

`generator(7, "north", "recovery")` gives the same numbers in every process and on every machine, and a new draw in one
part disturbs no other part: that is what makes two runs comparable after a change.
"""

from __future__ import annotations

from hashlib import blake2b
from random import Random


def generator(seed: int, *names: str | int) -> Random:
    """A generator of its own for this user of randomness."""
    return Random(derive(seed, *names))


def derive(seed: int, *names: str | int) -> int:
    """A 64-bit number that depends on every argument; types count, so that 1 and "1" are different names."""
    digest = blake2b(digest_size=8, person=b"penstock-rng")
    for part in (seed, *names):
        text = repr(part).encode()
        digest.update(len(text).to_bytes(4, "big") + text)
    return int.from_bytes(digest.digest(), "big")
