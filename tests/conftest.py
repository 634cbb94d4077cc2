"""Settings for all tests: hypothesis draws the same examples in every run and never looks at the clock."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "penstock",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("penstock")
