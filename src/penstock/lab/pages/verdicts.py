"""A criterion's outcome in words: the verdict, the bound, and the value as a person wants to read it."""

from __future__ import annotations

from penstock.lab.engine.experiment import Finding


def verdict(finding: Finding) -> str:
    """One word: holds or fails; a goal says that it is one. What has no bound, or cannot fail, tested nothing."""
    if not finding.gated:
        return f"only at {' and '.join(finding.criterion.scales)} scale"
    if finding.passed and not bounded(finding.criterion.low, finding.criterion.high):
        return "reported"
    word = "holds" if finding.passed else "fails"
    return word if finding.criterion.kind == "paper" else f"{word} ({finding.criterion.kind})"


def verdict_style(finding: Finding) -> str:
    """Which of the three colours a verdict has."""
    counted = finding.gated and finding.criterion.kind != "illustration"
    tested = counted and bounded(finding.criterion.low, finding.criterion.high)
    return "fails" if counted and not finding.passed else "holds" if tested else "note"


def bounded(low: float | None, high: float | None) -> bool:
    """Whether there is anything that a value could fail."""
    return low is not None or high is not None


def bound_text(low: float | None, high: float | None) -> str:
    """The bound in words."""
    if low is not None and high is not None:
        return shown(low) if low == high else f"{shown(low)} to {shown(high)}"
    return f"at least {shown(low)}" if low is not None else f"at most {shown(high)}" if high is not None else "no bound"


def shown(value: float | None) -> str:
    """A number to four digits, its thousands apart."""
    if value is None or value != value:
        return "not measured"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
