"""What a gang's sandbox needs of the engine: the tenant's user, its directories, and unpacking with its rights."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

from shoal.core import Fault, Sandbox
from shoal.engine import sandbox
from shoal.engine.local import bundle
from shoal.engine.local.environment import TEMPORARY, sandbox_environment
from shoal.engine.protocol import MOUNTS, Gang, LaunchFailed


class Sandboxes:
    """Of one engine's home. A gang without a sandbox changes nothing."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._users = sandbox.Users(home)

    def open(self) -> None:
        self._users.open()

    def prepare(self, gang: Gang, rank_dirs: list[Path]) -> None:
        """Give the gang's directories to its tenant's user. Raises OSError, and LaunchFailed for mounts that cannot
        be shown. Blocks."""
        check_mounts(gang, self._home)
        if gang.sandbox is Sandbox.NONE:
            return
        uid = self._uid(gang)
        for path in gang.directories():
            sandbox.grant_tree(path, uid)
        for path in rank_dirs:
            sandbox.open_to(path, uid)

    def environment(self, gang: Gang, env: dict[str, str]) -> dict[str, str]:
        """The rank's environment, where its tenant has a user: that one's name and directories."""
        if gang.sandbox is Sandbox.NONE:
            return env
        return sandbox_environment(env, gang.run_dir.absolute(), gang.tenant, _temporary(gang))

    def spec(self, gang: Gang, rank_dir: Path) -> dict[str, Any] | None:
        """What the rank's supervisor is told; None without a sandbox."""
        if gang.sandbox is Sandbox.NONE:
            return None
        run_dir, *checkpoints = gang.directories()
        keep = [run_dir, rank_dir, *checkpoints]
        return {
            **sandbox.plan(gang.sandbox, self._uid(gang), self._home, keep, network=gang.network, mounts=gang.mounts),
            "temporary": _temporary(gang),
        }

    def _uid(self, gang: Gang) -> int:
        return self._users.uid(gang.tenant, gang.division)

    async def unpack(self, gang: Gang, path: Path) -> None:
        """Unpack the gang's bundle into its run directory, as its tenant's user: earlier phases may have left links
        there. Raises as `bundle.unpack`."""
        most = gang.limits.unpacked_bytes
        if gang.sandbox is Sandbox.NONE:
            await asyncio.to_thread(bundle.unpack, path, gang.run_dir, limit_bytes=most)
            return
        uid = self._uid(gang)
        done = asyncio.get_running_loop().create_future()
        loop = asyncio.get_running_loop()

        def tell(problem: BaseException | None) -> None:
            if not done.done():
                done.set_result(problem)

        def work() -> None:
            problem: BaseException | None = None
            try:
                folder = os.open(gang.run_dir, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    # The tenant's user may not pass the home; by the descriptor it need not.
                    inside = Path(f"/proc/self/fd/{folder}")
                    bundle.unpack(path, inside, limit_bytes=most, acting=lambda: sandbox.acting_as(uid))
                finally:
                    os.close(folder)
            except BaseException as error:
                problem = error
            loop.call_soon_threadsafe(tell, problem)

        threading.Thread(target=work, name="unpack", daemon=True).start()  # of its own: see `acting_as`
        problem = await done
        if problem is not None:
            raise problem


def check_mounts(gang: Gang, home: Path) -> None:
    """Raises LaunchFailed for a mount that is not where mounts may be, or whose source is not there."""
    for one in gang.mounts:
        if one.target != one.source and not _beneath(one.target, home / MOUNTS):
            raise _unmountable(gang, f"{one.target} is neither its source nor in {home / MOUNTS}")
        if one.target != one.source and gang.sandbox is Sandbox.NONE:
            raise _unmountable(gang, f"{one.source} is seen at {one.target} in a sandbox only")
        try:
            if one.source.resolve(strict=True) != one.source:
                raise _unmountable(gang, f"{one.source} is reached by a link")
        except OSError as error:
            raise _unmountable(gang, f"{one.source}: {error.strerror}") from error


def _beneath(path: Path, folder: Path) -> bool:
    return path.is_absolute() and ".." not in path.parts and path != folder and path.is_relative_to(folder)


def _unmountable(gang: Gang, what: str) -> LaunchFailed:
    return LaunchFailed(f"it cannot be shown a path: {what}", fault=Fault.PLATFORM, where=gang.name)


def _temporary(gang: Gang) -> str:
    """Where the gang's temporary files go: in bubblewrap `/tmp` is its own."""
    return "/tmp" if gang.sandbox is Sandbox.BUBBLEWRAP else f"{gang.run_dir.absolute()}/{TEMPORARY}"  # noqa: S108
