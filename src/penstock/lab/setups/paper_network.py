"""What the networks of 002 and 000 have in common: brokers tell each other Bloom encodings (B-DRP, 002 section 2.7)."""

from __future__ import annotations

from typing import Any

PAPER_SERVICES: dict[str, Any] = {"routing": {"interest": "encoded"}}
