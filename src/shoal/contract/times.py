"""Times that a person names: so long ago, or on a day at an hour."""

from __future__ import annotations

import time
from datetime import datetime

from shoal.core import Invalid


def since(text: str, *, where: str = "--since") -> float:
    """The Unix time that is so long ago, or that is named in ISO 8601, local unless it has a zone. Raises Invalid."""
    from pydantic_core import PydanticCustomError

    from shoal.contract.manifest.quantities import read_duration

    try:
        return time.time() - read_duration(text)
    except PydanticCustomError as error:
        try:
            return max(0.0, datetime.fromisoformat(text).timestamp())
        except (ValueError, OverflowError, OSError):
            hint = "90s, 15m, 2h or 1d ago; 2026-11-22T14:30, also with a zone"
            raise Invalid(f"{text!r} is no duration and no time", where=where, hint=hint) from error
