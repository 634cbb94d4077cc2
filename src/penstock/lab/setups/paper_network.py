"""What the papers' networks have in common.

No paper's brokers know of fair rates of links. Those of 002 and 000 tell each other Bloom encodings (B-DRP, 002 section
2.7).
"""

from __future__ import annotations

from typing import Any

NO_RATES: dict[str, Any] = {"rates": {"enabled": False}}
PAPER_SERVICES: dict[str, Any] = {**NO_RATES, "routing": {"interest": "encoded"}}
