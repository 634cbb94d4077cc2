"""The error text when no broker answers: what was dialled, what was wrong there, and what to do about it."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence

from penstock.live.wire.addresses import Address


def places(addresses: Sequence[Address]) -> str:
    """The brokers of a URL, for people."""
    return ", ".join(map(str, addresses))


def unreachable_text(
    addresses: Sequence[Address], problems: Mapping[Address, str], refused: Collection[Address] = ()
) -> str:
    """None of these brokers could be reached, or took us, and this is what was wrong with each."""
    if problems and len(refused) == len(problems):
        return "; ".join(f"the broker at {address} refuses us: {problem}" for address, problem in problems.items())
    tried = "; ".join(f"{address}: {problem}" for address, problem in problems.items())
    return (
        f"no broker answers at {places(addresses)} ({tried or 'no answer in time'});"
        f" start one with 'penstock up', or give the URL of another"
    )


def reason(error: Exception) -> str:
    """Why a connection could not be made."""
    if isinstance(error, OSError) and not isinstance(error, TimeoutError):
        return (os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)).lower()
    return "no answer in time"
