"""A criterion's outcome in words: the verdict, the bound, and the value as a person wants to read it."""

from __future__ import annotations

from penstock.lab.engine.experiment import Finding


def verdict(finding: Finding) -> str:
    """One word: holds or fails; a goal says that it is one, and what is not gated at this scale is only reported."""
    if not finding.gated:
        return f"only at {' and '.join(finding.criterion.scales)} scale"
    word = "holds" if finding.passed else "fails"
    return word if finding.criterion.kind == "paper" else f"{word} (goal)"


def verdict_style(finding: Finding) -> str:
    """Which of the three colours a verdict has."""
    return "note" if not finding.gated else "holds" if finding.passed else "fails"


def bound_text(low: float | None, high: float | None) -> str:
    """The bound in words."""
    if low is not None and high is not None:
        return shown(low) if low == high else f"{shown(low)} to {shown(high)}"
    return f"at least {shown(low)}" if low is not None else f"at most {shown(high)}" if high is not None else "report"


def shown(value: float | None) -> str:
    """A number to four digits, its thousands apart."""
    if value is None or value != value:
        return "not measured"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
