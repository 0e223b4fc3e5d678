"""Whether the engine can keep a tenant's processes as far apart as is asked for. A level is refused, never weakened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from shoal.core import Fault, Invalid, Sandbox, Unavailable
from shoal.engine import IMAGES_CAPABILITY, MOUNTS_CAPABILITY, Engine, Gang, LaunchFailed, Mount


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


def at_the_start(least: Sandbox, *, root: bool, starts_here: bool) -> str:
    """For who starts the server: as whom jobs run that were given no sandbox of their own."""
    if not starts_here:
        return "run where the engine starts them, without a sandbox"
    if least is not Sandbox.NONE:
        return f"have the sandbox {least.value} or a stronger one"
    if root:
        return "of new tenants have the sandbox user; those of the tenant default run as root, so only admins have them"
    return "run as the server's user, without a sandbox: a token is worth as much as this user"


def sandboxed(gang: Gang, tenant: str, level: Sandbox, engine: Engine) -> Gang:
    """The gang with its tenant and level, which is no less than `user` where it runs as a user of the machine. Raises
    LaunchFailed where the engine cannot give the level (any more)."""
    level = level.at_least(Sandbox.NONE if gang.account is None else Sandbox.USER)
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
    if gang.mounts and not any(one.name == MOUNTS_CAPABILITY and one.available for one in engine.capabilities()):
        raise LaunchFailed(
            f"the engine {engine.name} shows no paths of components to jobs", fault=Fault.PLATFORM,
            where=str(gang.mounts[0].target), hint="turn off the component that needs it, or run on the engine local",
        )  # fmt: skip
    if gang.image and not any(one.name == IMAGES_CAPABILITY and one.available for one in engine.capabilities()):
        raise LaunchFailed(
            f"the engine {engine.name} runs no images", fault=Fault.PLATFORM, where=gang.image,
            hint="it did when the job was submitted: `shoal status` says why",
        )  # fmt: skip
    if (gang.tenant, gang.sandbox) == (tenant, level):
        return gang
    return replace(gang, tenant=tenant, sandbox=level)


def check_sources(mounts: Sequence[Mount], roots: Sequence[Path], extension: str) -> None:
    """Raise LaunchFailed for a mount whose source, with all links resolved, lies outside of these folders: whatever a
    manifest says, a tenant is shown nothing but what the component keeps for jobs."""
    allowed = [root.resolve() for root in roots]
    for one in mounts:
        real = one.source.resolve()
        if not any(real != root and real.is_relative_to(root) for root in allowed):
            folders = ", ".join(map(str, allowed))
            raise LaunchFailed(
                f"{extension} may show jobs nothing of {one.source}", fault=Fault.PLATFORM, where="mounts",
                hint=f"it keeps what jobs see in {folders}",
            )  # fmt: skip


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
