"""How large are delay differences? The scale b of the two-Laplace law, fitted to differences of consecutive delays.

The law itself, with its density, its quantiles and what the paper slips on, is `kernel.delay_laws`; here are the two
estimators of appendix A, over arrays of any length.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def scale_of(differences: ArrayLike) -> float:
    """b = (2/3) mean |x|: the estimator of appendix A.0.3. It is unbiased, because E|x| = 3 b / 2 (erratum O5)."""
    return float(2.0 / 3.0 * np.mean(np.abs(np.asarray(differences, dtype=np.float64))))


def likeliest_scale_of(differences: ArrayLike) -> float:
    """The root of (A.5), which the paper replaces by its expectation: b = (sum|x| + b^2 sum 1/(b + |x|)) / (2 n)."""
    sizes = np.abs(np.asarray(differences, dtype=np.float64))
    scale = scale_of(sizes)
    for _ in range(100):
        if scale == 0.0:
            break
        following = float(np.mean(sizes) + scale**2 * np.mean(1.0 / (scale + sizes))) / 2.0
        if abs(following - scale) <= 1e-12 * scale:
            return following
        scale = following
    return scale
