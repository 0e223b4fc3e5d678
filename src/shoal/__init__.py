"""Shoal: many tenants share a few accelerators.

Guaranteed work runs as if it were alone, best-effort work fills every gap, and nobody changes their code.
Importing this package imports nothing heavy: `shoal.Client` and `shoal.AsyncClient` are loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["AsyncClient", "Client", "__version__"]

if TYPE_CHECKING:
    from shoal.sdk import AsyncClient, Client


def __getattr__(name: str) -> Any:
    if name in ("Client", "AsyncClient"):
        from shoal import sdk

        return getattr(sdk, name)
    raise AttributeError(f"module 'shoal' has no attribute {name!r}")
