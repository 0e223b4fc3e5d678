"""Whether the engine can keep a tenant's processes as far apart as is asked for. A level is refused, never weakened."""

from __future__ import annotations

from dataclasses import replace

from shoal.core import Fault, Sandbox, Unavailable
from shoal.engine import Engine, Gang, LaunchFailed


def require_sandbox(level: Sandbox, engine: Engine) -> None:
    """Raise Unavailable where the engine cannot give the level; the message says why."""
    why = _missing(level, engine)
    if why is not None:
        raise Unavailable(
            f"the sandbox {level.value} cannot be had: {why}", where="sandbox", hint="`shoal doctor` says what can be"
        )


def sandboxed(gang: Gang, tenant: str, level: Sandbox, engine: Engine) -> Gang:
    """The gang with its tenant and level. Raises LaunchFailed where the engine cannot give the level (any more)."""
    why = _missing(level, engine)
    if why is not None:
        raise LaunchFailed(
            f"the sandbox {level.value} cannot be had: {why}", fault=Fault.PLATFORM, where=f"tenant {tenant}",
            hint="`shoal doctor` says what can be",
        )  # fmt: skip
    return replace(gang, tenant=tenant, sandbox=level)


def _missing(level: Sandbox, engine: Engine) -> str | None:
    if level is Sandbox.NONE:
        return None
    for one in engine.capabilities():
        if one.name == level.capability:
            return None if one.available else one.detail
    return f"the engine {engine.name} has no sandboxes"
