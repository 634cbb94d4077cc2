"""Where a new durable subscription begins, from what people write to what travels.

earliest, latest        the same words
10m                     "ago:600.0": so long ago; s, m, h or d
1731738000000000        "tick:1731738000000000": from this tick on
2026-11-16T06:00:00Z    "time:1794808800.0": in seconds since 1970; without a zone it counts as UTC
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from penstock.errors import InvalidOption
from penstock.streams.packets import TICK_MAX

LENGTH_MAX = 64
SECONDS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_REMEDY = "write earliest, latest, how long ago (10m, 2h), a tick, or a time (2026-11-16T06:00:00Z)"
_AGO = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\s*([smhd])", re.ASCII)
_TICK = re.compile(r"\d+", re.ASCII)


def start_on_wire(text: str, option: str = "start_at") -> str:
    """The form that travels; empty means latest. Raises InvalidOption, of the option under which it was given."""
    word = text.strip().lower()
    if len(word) > LENGTH_MAX:
        raise InvalidOption(option, f"has {len(word)} characters; {_REMEDY}")
    if word in ("", "earliest", "latest"):
        return word or "latest"
    ago = _AGO.fullmatch(word)
    if ago is not None:
        return f"ago:{float(ago[1]) * SECONDS[ago[2]]!r}"
    if _TICK.fullmatch(word):
        if int(word) > TICK_MAX:
            raise InvalidOption(option, f"{word} is beyond the last tick there can be; {_REMEDY}")
        return f"tick:{int(word)}"
    return f"time:{_seconds(text.strip(), option)!r}"


def _seconds(text: str, option: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
        seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise InvalidOption(option, f"cannot be {text!r}; {_REMEDY}") from None
    if seconds < 0.0:
        raise InvalidOption(option, f"{text} is before 1970; {_REMEDY}")
    return seconds
