"""Facts for the API about how the server was started."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from shoal.core import Capability


@dataclass(frozen=True, slots=True)
class Told:
    """`settings` gives name, value, default and meaning of each; `doctor` looks at the machine, and blocks."""

    settings: Callable[[], Sequence[tuple[str, Any, Any, str]]] = tuple
    doctor: Callable[[], Sequence[Capability]] = tuple
    one_look: asyncio.Lock = field(default_factory=asyncio.Lock)
