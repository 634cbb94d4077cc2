"""How numbers are written, in the terminal and on pages alike, so that the same number looks the same."""

from __future__ import annotations


def count(value: int | None) -> str:
    """A count with its thousands apart; empty where there is none."""
    return "" if value is None else f"{value:,}"


def some(value: int) -> str:
    """A count that is left out where it is zero."""
    return f"{value:,}" if value else ""


def duration(seconds: float | None) -> str:
    """A delay to three digits, in milliseconds up to a second; empty where there is none."""
    if seconds is None:
        return ""
    return f"{seconds * 1000:.3g} ms" if seconds < 0.9995 else f"{seconds:.2f} s"


def size(size_bytes: float) -> str:
    """Bytes in the unit that fits."""
    for unit, factor in (("MB", 1e6), ("kB", 1e3)):
        if size_bytes >= 0.9995 * factor:
            return f"{size_bytes / factor:.3g} {unit}"
    return f"{size_bytes:.0f} B"


def bit_rate(bits_per_s: float) -> str:
    """Bits per second in the unit that fits."""
    for unit, factor in (("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3)):
        if bits_per_s >= factor:
            return f"{bits_per_s / factor:.3g} {unit}"
    return f"{bits_per_s:.0f} bit/s"


def share(part: float, whole: float) -> str:
    """In per cent."""
    return "" if not whole else f"{100 * part / whole:.2g} %" if part < 0.995 * whole else "100 %"
