"""The JSON of commands: their arguments, and the reports that answer them. What others wrote may be anything at all."""

from __future__ import annotations

from typing import Any

import msgspec


class UnreadableJson(ValueError):
    """It is no JSON, or none that we take."""


def read_json(data: bytes, kind: Any = Any) -> Any:
    """What it says, as this type; raises UnreadableJson."""
    try:
        return msgspec.json.decode(data or b"{}", type=kind)
    except RecursionError:
        raise UnreadableJson("it is nested too deeply") from None
    except (msgspec.MsgspecError, ValueError) as error:
        raise UnreadableJson(str(error)) from None
