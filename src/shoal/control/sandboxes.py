"""Whether the engine can keep a tenant's processes as far apart as is asked for. A level is refused, never weakened."""

from __future__ import annotations

from dataclasses import replace

from shoal.core import Fault, Invalid, Sandbox, Unavailable
from shoal.engine import Engine, Gang, LaunchFailed


def require_sandbox(level: Sandbox, engine: Engine) -> None:
    """Raise Unavailable where the engine cannot give the level; the message says why."""
    why = _missing(level, engine)
    if why is not None:
        raise Unavailable(
            f"the sandbox {level.value} cannot be had: {why}", where="sandbox",
            hint="`shoal doctor` says what can be; with `--sandbox none` jobs run as the server's user",
        )  # fmt: skip


def usual_sandbox(engine: Engine, *, root: bool) -> Sandbox:
    """Of a tenant for which none was asked. Where the server is root and the engine starts processes here, a user of
    the tenant's own: also where that cannot be had, so that it is refused instead of weakened."""
    starts_here = any(one.name == Sandbox.USER.capability for one in engine.capabilities())
    return Sandbox.USER if root and starts_here else Sandbox.NONE


def sandboxed(gang: Gang, tenant: str, level: Sandbox, engine: Engine) -> Gang:
    """The gang with its tenant and level. Raises LaunchFailed where the engine cannot give the level (any more)."""
    why = _missing(level, engine)
    if why is not None:
        raise LaunchFailed(
            f"the sandbox {level.value} cannot be had: {why}", fault=Fault.PLATFORM, where=f"tenant {tenant}",
            hint="`shoal doctor` says what can be",
        )  # fmt: skip
    if not gang.network and level is not Sandbox.BUBBLEWRAP:  # it was lowered since the job was submitted
        raise LaunchFailed(
            f"the sandbox {level.value} does not keep a job from the network", fault=Fault.PLATFORM,
            where=f"tenant {tenant}", hint="give the tenant the sandbox bubblewrap again",
        )  # fmt: skip
    return replace(gang, tenant=tenant, sandbox=level)


def require_apart(network: bool, level: Sandbox) -> None:
    """Raise Invalid for a job without `network` whose tenant has no sandbox that can keep it from that."""
    if not network and level is not Sandbox.BUBBLEWRAP:
        raise Invalid(
            f"only the sandbox bubblewrap keeps a job from the network, and its tenant has {level.value}",
            where="network", hint="leave it out, or ask for that sandbox (shoal tenant set NAME --sandbox bubblewrap)",
        )  # fmt: skip


def _missing(level: Sandbox, engine: Engine) -> str | None:
    if level is Sandbox.NONE:
        return None
    for one in engine.capabilities():
        if one.name == level.capability:
            return None if one.available else one.detail
    return f"the engine {engine.name} has no sandboxes"
