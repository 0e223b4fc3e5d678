"""The usage file of a gateway, as a program reads it that knows the documented lines only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shoal.core import Money
from shoal.serve.usage import Share, UsageRecord


def read(file: Path) -> list[UsageRecord]:
    """In order; a line that was torn when the gateway was killed is left out."""
    records = []
    for line in file.read_bytes().splitlines():
        try:
            records.append(record(json.loads(line)))
        except ValueError:
            continue
    return records


def record(stored: Mapping[str, Any]) -> UsageRecord:
    shares = tuple(
        Share(
            one["tenant"], one["use_s"], one["overhead_s"], Money(one["use_micro_usd"]),
            Money(one["overhead_micro_usd"]), Money(one["idle_micro_usd"]),
        )
        for one in stored["shares"]
    )  # fmt: skip
    return UsageRecord(stored["start"], stored["end"], stored["slots"], Money(stored["bill_micro_usd"]), shares)
