"""Directory trees that others may write to, also while they are looked at: reached by descriptors, never by long paths.

No link is followed, no other file system is entered, and nothing calls itself: a tree may be as deep as it likes. At
most three descriptors are open at a time. Supervisors use this file as well, without the package around it: it needs
nothing but light parts of the standard library.
"""

# ruff: noqa: PTH208 - `pathlib` takes longer to load than a supervisor to start, and knows no descriptors

from __future__ import annotations

import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MOST = 20_000_000
"""The maximum number of entries that one walk looks at."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPENAT2 = 437
_NO_SYMLINKS_BENEATH = 0x04 | 0x08
_AT_EMPTY_PATH = 0x1000


class TooLarge(OSError):
    """The walk was given up: the tree has too many entries, or moves too much."""


def open_beneath(root: int, path: str) -> int:
    """Open a directory below another, following no link on the way and never leaving it. Raises OSError."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    how = (ctypes.c_uint64 * 3)(_FOLDER, 0, _NO_SYMLINKS_BENEATH)
    found = libc.syscall(_OPENAT2, root, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how))
    if found >= 0:
        return int(found)
    if ctypes.get_errno() not in (errno.ENOSYS, errno.EPERM):  # EPERM: a filter of system calls that is older than it
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)
    return open_by_component(root, path)


def open_by_component(root: int, path: str) -> int:
    """The same on a kernel without `openat2`."""
    parts = path.split("/")
    if path.startswith("/") or ".." in parts:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
    folder = os.dup(root)
    for part in parts:
        if part in ("", "."):
            continue
        try:
            below = os.open(part, _FOLDER, dir_fd=folder)
        finally:
            os.close(folder)
        folder = below
    return folder


def walk(root: int, *, most: int = MOST, mend: bool = False) -> Iterator[tuple[int, str, os.stat_result | None]]:
    """Each entry below an open directory, as the descriptor of its directory, its name, and what it is; a directory a
    second time, with None, once what is below it was seen. What cannot be entered is passed over. `mend`: directories
    get the rights that are missing to their owner. Raises TooLarge after `most` entries."""
    folder = os.dup(root)
    try:
        here = os.fstat(folder)
        inside: list[str] = []
        seen = 0
        way = [("", here.st_ino, inside)]  # to where the walk is: names, inodes, and the directories not yet entered
        enter = True
        while True:
            if enter:
                enter = False
                with os.scandir(folder) as entries:
                    for entry in entries:
                        seen += 1
                        try:
                            found = entry.stat(follow_symlinks=False)
                        except OSError:  # gone
                            continue
                        if found.st_dev != here.st_dev:
                            continue
                        yield folder, entry.name, found
                        if stat.S_ISDIR(found.st_mode):
                            inside.append(entry.name)
                        if seen > most:
                            raise TooLarge(errno.EFBIG, f"more than {most} entries")
            if inside:
                name = inside.pop()
                try:
                    below, inode = _enter(folder, name, here.st_dev, mend=mend)
                except OSError:
                    yield folder, name, None
                    continue
                os.close(folder)
                folder, inside, enter = below, [], True
                way.append((name, inode, inside))
                continue
            name, _, _ = way.pop()
            if not way:
                return
            depth = len(way)
            above = _leave(folder, way[-1][1], here.st_dev)
            if above is None:  # it was moved while it was looked at: from the top again, as far as that still holds
                seen += depth
                above = _again(root, way, here.st_dev)
            os.close(folder)
            folder, inside = above, way[-1][2]
            if len(way) == depth:
                yield folder, name, None
    finally:
        os.close(folder)


def _enter(folder: int, name: str, device: int, *, mend: bool = False) -> tuple[int, int]:
    """A directory in a directory, and its inode."""
    if mend and os.geteuid() != 0:
        handle = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        try:
            os.chmod(f"/proc/self/fd/{handle}", 0o700)  # noqa: PTH101
        finally:
            os.close(handle)
    below = os.open(name, _FOLDER, dir_fd=folder)
    found = os.fstat(below)
    if found.st_dev != device:
        os.close(below)
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), name)
    return below, found.st_ino


def _leave(folder: int, inode: int, device: int) -> int | None:
    """The directory above, if it is still the one that the walk came from."""
    try:
        above, found = _enter(folder, "..", device)
    except OSError:
        return None
    if found == inode:
        return above
    os.close(above)
    return None


def _again(root: int, way: list[tuple[str, int, list[str]]], device: int) -> int:
    """The last directory on the way that is still where it was; the way ends there."""
    folder = os.dup(root)
    for at, (name, inode, _) in enumerate(way[1:], start=1):
        try:
            below, found = _enter(folder, name, device)
        except OSError:
            below, found = -1, -1
        if found != inode:
            if below >= 0:
                os.close(below)
            del way[at:]
            break
        os.close(folder)
        folder = below
    return folder


def measure(path: str, *, most: int = MOST) -> tuple[int, int]:
    """The bytes that a tree takes on disk, and how many entries it has: at least, where it has more than `most`. Holes
    take nothing. A tree that is not there takes nothing either."""
    total = count = 0
    try:
        root = os.open(path, _FOLDER)
    except OSError:
        return 0, 0
    try:
        for _, _, found in walk(root, most=most):
            if found is not None:
                total += found.st_blocks * 512
                count += 1
    except OSError:
        pass
    finally:
        os.close(root)
    return total, count


def held_open(pids: Iterable[int], devices: Iterable[int]) -> tuple[int, int]:
    """The same of files that have no name any more, and that processes have open or mapped, on file systems."""
    found = {}
    wanted = set(devices)
    for pid in pids:
        for path in _held(pid):
            try:
                one = os.stat(path)  # noqa: PTH116
            except OSError:  # closed
                continue
            if one.st_nlink == 0 and one.st_dev in wanted and stat.S_ISREG(one.st_mode):
                found[one.st_dev, one.st_ino] = one.st_blocks * 512
    return sum(found.values()), len(found)


def _held(pid: int) -> Iterator[str]:
    try:
        yield from [f"/proc/{pid}/fd/{name}" for name in os.listdir(f"/proc/{pid}/fd")]
        with open(f"/proc/{pid}/maps", "rb") as maps:  # noqa: PTH123
            for line in maps:
                if line.endswith(b" (deleted)\n"):
                    yield f"/proc/{pid}/map_files/{line.split(b' ', 1)[0].decode()}"
    except OSError:  # it ended
        return


def remove(path: str) -> str | None:
    """Remove a tree, or a file. What is left of it, and why; None when nothing is. A tree that is not there is no
    trouble, and what cannot be removed does not keep the rest."""
    try:
        root = os.open(path, _FOLDER)
    except FileNotFoundError:
        return None
    except NotADirectoryError:  # also a link
        try:
            os.unlink(path)  # noqa: PTH108
        except OSError as problem:
            return _told(path, problem)
        return None
    except OSError as problem:
        return _told(path, problem)
    left: str | None = None
    try:
        for folder, name, found in walk(root, mend=True):
            try:
                if found is None:
                    os.rmdir(name, dir_fd=folder)
                elif not stat.S_ISDIR(found.st_mode):
                    os.unlink(name, dir_fd=folder)
            except FileNotFoundError:
                continue
            except OSError as problem:
                left = left or _told(path, problem)
    except OSError as problem:
        left = left or _told(path, problem)
    finally:
        os.close(root)
    try:
        os.rmdir(path)  # noqa: PTH106
    except FileNotFoundError:
        return None
    except OSError as problem:
        return left or _told(path, problem)
    return None


def _told(path: str, problem: OSError) -> str:
    return f"{path}: {problem.strerror}"


def grant(folder: int, uid: int, gid: int) -> None:
    """Give an open directory, and what is in it, to a user alone, and to a group. A way through it that its user has
    opened to others stays open. Left as they are: devices, and files of others that have a second name, which may be a
    file that was never meant. Raises OSError."""
    found = os.fstat(folder)
    through = found.st_mode & 0o011 if found.st_uid == uid else 0
    if found.st_uid != uid:  # it is given last: what was cut short begins again
        for inside, name, held in walk(folder):
            if held is not None and held.st_uid != uid:
                _give(inside, name, uid, gid)
        os.fchown(folder, uid, gid)
    os.fchmod(folder, 0o700 | through)


def _give(folder: int, name: str, uid: int, gid: int) -> None:
    """By a descriptor: what is looked at is what is given, whatever has the name by then."""
    import ctypes

    try:
        handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        return
    try:
        found = os.fstat(handle)
        if stat.S_ISBLK(found.st_mode) or stat.S_ISCHR(found.st_mode):
            return
        if found.st_nlink != 1 and not stat.S_ISDIR(found.st_mode):
            return
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.fchownat(handle, b"", uid, gid, _AT_EMPTY_PATH) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), name)
    finally:
        os.close(handle)
