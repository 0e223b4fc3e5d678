"""Needs of a gang's sandbox from the engine: its user, its directories, and unpacking with its rights."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from shoal.core import Fault, Sandbox
from shoal.engine import sandbox
from shoal.engine.local import bundle
from shoal.engine.local.environment import TEMPORARY, sandbox_environment
from shoal.engine.protocol import MOUNTS, Gang, HomeShown, LaunchFailed

_TMP = Path("/tmp")  # noqa: S108


class Sandboxes:
    """Of one engine's home. A gang without a sandbox changes nothing."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._users = sandbox.Users(home)

    def open(self) -> None:
        self._users.open()

    def prepare(self, gang: Gang, rank_dirs: list[Path]) -> None:
        """Give the gang's directories to its user. Raises OSError, and LaunchFailed for mounts or a home that cannot be
        shown. Blocks."""
        check_mounts(gang, self._home)
        if gang.sandbox is Sandbox.NONE:
            return
        rights = self._rights(gang)
        if gang.home is not HomeShown.NO and gang.account is not None and not sandbox.opens(gang.account.home):
            what = (
                f"its user's home cannot be shown: root may not enter {gang.account.home}, as on NFS that squashes root"
            )
            hint = "ask the admin for the sandbox `user`, in which the home is there with its user's rights"
            raise LaunchFailed(what, fault=Fault.USER, where=gang.name, hint=hint)
        if gang.home is not HomeShown.NO and rights.own is None:
            what = "its user's home cannot be shown: it is not there, or not that user's own"
            raise LaunchFailed(what, fault=Fault.USER, where=gang.name, hint="leave out `home`")
        for path in gang.directories():
            sandbox.grant_tree(path, rights.uid, rights.gid)
        if gang.account is not None:
            sandbox.grant_tree(gang.run_dir.absolute() / TEMPORARY, rights.uid, rights.gid)
        for path in rank_dirs:
            sandbox.open_to(path, self._group(gang))

    def environment(self, gang: Gang, env: dict[str, str]) -> dict[str, str]:
        """The rank's environment, where it has a user of its own: that one's name and directories."""
        if gang.sandbox is Sandbox.NONE:
            return env
        run_dir, account = gang.run_dir.absolute(), gang.account
        if account is None:
            return sandbox_environment(env, run_dir, gang.tenant, _temporary(gang))
        seen = gang.home is not HomeShown.NO or gang.sandbox is not Sandbox.BUBBLEWRAP
        own = sandbox_environment(env, account.home if seen else run_dir, account.name, _temporary(gang))
        return {**own, "SHELL": account.shell}

    def spec(self, gang: Gang, rank_dir: Path) -> dict[str, Any] | None:
        """What the rank's supervisor is told; None without a sandbox."""
        if gang.sandbox is Sandbox.NONE:
            return None
        run_dir, *checkpoints = gang.directories()
        keep = [run_dir, rank_dir, *checkpoints]
        made = sandbox.plan(
            gang.sandbox, self._rights(gang), self._home, keep, network=gang.network, mounts=gang.mounts
        )
        if self._own_tmp(gang, made, [self._home, *keep, *sandbox.runtime_folders()]):
            made["shown"].append((f"{run_dir}/{TEMPORARY}", str(_TMP), False))
        if gang.account is not None:
            if gang.sandbox is Sandbox.USER:
                made["devices"] = sandbox.devices()
            if (session := sandbox.session_of(gang.account.name)) is not None:
                made["pam"] = session
        return {**made, "temporary": _temporary(gang), "directory": str(gang.directory or run_dir)}

    @staticmethod
    def _own_tmp(gang: Gang, made: Mapping[str, Any], needed: Sequence[Path]) -> bool:
        """Whether a user of the machine, who has files in `/tmp` already, sees the job's own in its place: unless
        something lies there that the job needs."""
        if gang.account is None or gang.sandbox is Sandbox.BUBBLEWRAP:
            return False
        named = [Path(path) for _, path in made["mounts"]]
        others = [one.target for one in gang.mounts] + ([] if gang.directory is None else [gang.directory])
        return not any(path.is_relative_to(_TMP) for path in (*needed, *named, *others, gang.account.home))

    def _rights(self, gang: Gang) -> sandbox.Rights:
        if gang.account is None:
            return sandbox.Rights.of_tenant(self._users.uid(gang.tenant, gang.division))
        return sandbox.Rights.of(gang.account, self._group(gang), gang.home)

    def _group(self, gang: Gang) -> int:
        """The number of a group that no other gang's user is in."""
        if gang.account is None:
            return self._users.uid(gang.tenant, gang.division)
        return self._users.uid(f"@{gang.account.uid}")  # no tenant's name begins so

    async def unpack(self, gang: Gang, path: Path) -> None:
        """Unpack the gang's bundle into its run directory, as its user: earlier phases may have left links
        there. Raises as `bundle.unpack`."""
        most = gang.limits.unpacked_bytes
        if gang.sandbox is Sandbox.NONE:
            await asyncio.to_thread(bundle.unpack, path, gang.run_dir, limit_bytes=most)
            return
        rights = self._rights(gang)
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
                    # The user may not pass the home; by the descriptor it need not.
                    inside = Path(f"/proc/self/fd/{folder}")
                    bundle.unpack(
                        path, inside, limit_bytes=most, acting=partial(sandbox.acting_as, rights.uid, rights.gid)
                    )
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
