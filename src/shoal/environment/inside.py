"""`inside.py JSON COMMAND...`: becomes the parent of a command in an image, under bubblewrap, with the job's rights.

Run by an isolated interpreter with the rank's environment, in its run directory, inside whatever sandbox the rank has.
Nothing of Shoal is imported. What the job has of the machine, it has at the same paths; the image's own files are
read-only. Signals are passed on to the command, and its end is this process's own.
"""

# ruff: noqa: PTH109, PTH110, PTH112, PTH113, PTH115, PTH123, PTH208, S108, S606

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

_SIGNALLED = 128
_MOST_ENTRIES = 4096
_DEVICES = ("nvidia", "kfd", "dri")
_MACHINE = ("/etc/resolv.conf", "/etc/hosts")
_LEFT_OUT = ("PATH", "VIRTUAL_ENV", "PYTHONHOME", "CONDA_PREFIX", "LD_LIBRARY_PATH")
"""Variables of the server's own that mean nothing in an image, unless the manifest gives them."""
_PASSED_ON = (
    signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT,
    signal.SIGWINCH,
)  # fmt: skip
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Unusable(Exception):
    """Why the command cannot be run in the image."""


def layout(root: str, wanted: Iterable[str]) -> list[str]:
    """The image's files, read-only, with room for what is mounted at `wanted`: a directory on the way to one of these
    is made anew, with what the image has in it. Raises Unusable where the image has something else there."""
    places = {str(PurePosixPath(one)) for one in wanted}
    way = {str(above) for one in places for above in PurePosixPath(one).parents}
    words: list[str] = []
    left = ["/"]
    while left:
        folder = left.pop()
        entries = sorted(os.scandir(root + folder), key=lambda one: one.name)
        if len(entries) > _MOST_ENTRIES:
            raise Unusable(f"the image has more than {_MOST_ENTRIES} entries in {folder}, beside the job's own files")
        for entry in entries:
            path = f"{folder.rstrip('/')}/{entry.name}"
            if path in places:
                continue
            if entry.is_symlink():
                if path in way:
                    raise Unusable(f"the image has a link at {path}, where the job's own files lie")
                words += ["--symlink", os.readlink(entry.path), path]
            elif path in way:
                if not entry.is_dir():
                    raise Unusable(f"the image has a file at {path}, where the job's own files lie")
                words += ["--perms", "0755", "--dir", path]
                left.append(path)
            else:
                words += ["--ro-bind", entry.path, path]
    return words


def arguments(told: Mapping[str, Any], env: Mapping[str, str], here: str) -> list[str]:
    """Of bubblewrap, up to the command's own environment. `told` is what the server says: `root`, `mounts` (source,
    target, whether it is read-only) and `paths` of the job's user that are shown as they are."""
    binds: dict[str, tuple[str, str]] = {"/tmp": ("--tmpfs", ""), "/proc": ("--bind", "/proc")}
    binds["/sys"] = ("--ro-bind-try", "/sys")
    binds |= {path: ("--ro-bind", path) for path in _MACHINE if os.path.exists(path)}
    binds |= {target: ("--ro-bind" if read_only else "--bind", source) for source, target, read_only in told["mounts"]}
    own = [here, env.get("SHOAL_RUN", ""), env.get("SHOAL_CHECKPOINT_DIR", ""), *told["paths"]]
    binds |= {path: ("--bind", path) for path in own if path.startswith("/") and os.path.exists(path)}
    binds |= {path: ("--ro-bind", path) for path in env.get("LD_PRELOAD", "").split(":") if os.path.isfile(path)}
    words = layout(told["root"], [*binds, "/dev"])
    words += ["--dev", "/dev"]
    if os.path.isdir("/dev/shm"):
        words += ["--bind", "/dev/shm", "/dev/shm"]
    for name in sorted(os.listdir("/dev")):
        if name.startswith(_DEVICES):
            words += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    for path, (way, source) in sorted(binds.items()):
        words += [way, path] if way == "--tmpfs" else [way, source, path]
    return words


def environment(told: Mapping[str, Any], env: Mapping[str, str], own: Sequence[str], here: str) -> dict[str, str]:
    """The image's own variables, and over them the job's; `own` are `NAME=VALUE` of the image."""
    given = set(told["given"])
    found = {"PATH": _PATH}
    for one in own:
        name, _, value = one.partition("=")
        found[name] = value
    found |= {name: value for name, value in env.items() if name in given or name not in _LEFT_OUT}
    if "HOME" not in given:
        found["HOME"] = here
    if "TMPDIR" not in given and not env.get("TMPDIR", "").startswith(here):
        found["TMPDIR"] = "/tmp"
    return found


def main() -> int:
    told, command = json.loads(sys.argv[1]), sys.argv[2:]
    here = os.getcwd()
    try:
        with open(f"{told['place']}/config.json", "rb") as file:
            own = json.load(file)["env"]
        told["root"] = f"{told['place']}/rootfs"
        words = arguments(told, os.environ, here)
    except (Unusable, OSError, ValueError, KeyError) as problem:
        print(f"shoal: the image cannot be entered: {problem}", file=sys.stderr)
        return 126
    words += [
        "--remount-ro", "/", "--cap-drop", "ALL", "--die-with-parent", "--clearenv", "--chdir", told["workdir"] or here,
    ]  # fmt: skip
    for name, value in environment(told, os.environ, own, here).items():
        words += ["--setenv", name, value]
    return follow(words, command)


def follow(words: Sequence[str], command: Sequence[str]) -> int:
    """Run bubblewrap to its end, passing signals on to what it runs."""
    given, (said, tells) = os.memfd_create("image", 0), os.pipe()
    os.write(given, b"\0".join(os.fsencode(word) for word in words) + b"\0")
    os.lseek(given, 0, os.SEEK_SET)
    os.set_inheritable(tells, True)
    waiting: list[int] = []
    for each in _PASSED_ON:
        if signal.getsignal(each) is not signal.SIG_IGN:
            signal.signal(each, lambda number, _: waiting.append(number))
    child = os.fork()
    if child == 0:
        for each in (*_PASSED_ON, signal.SIGPIPE, signal.SIGXFSZ):
            if signal.getsignal(each) is not signal.SIG_IGN or each in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(each, signal.SIG_DFL)
        line = ["bwrap", "--json-status-fd", str(tells), "--args", str(given), "--", *command]
        try:
            os.execvpe("bwrap", line, {"PATH": _PATH})
        except OSError as problem:
            print(f"shoal: bwrap cannot be run: {problem.strerror}; `apt install bubblewrap`", file=sys.stderr)
        os._exit(126)
    os.close(tells)
    os.close(given)
    return _end(child, _pid(said), waiting)


def _pid(said: int) -> int | None:
    """Of the command, which bubblewrap tells first; None where it ended before."""
    with os.fdopen(os.dup(said), "rb") as file:
        line = file.readline()
    return int(json.loads(line)["child-pid"]) if line else None


def _end(child: int, pid: int | None, waiting: list[int]) -> int:
    def pass_on(number: int, _: FrameType | None) -> None:
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    for each in _PASSED_ON:
        if signal.getsignal(each) is not signal.SIG_IGN:
            signal.signal(each, pass_on)
    for number in waiting:
        pass_on(number, None)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    number = -code if code < 0 else code - _SIGNALLED
    if 0 < number < signal.NSIG:  # it ended by a signal: so does this process
        signal.signal(number, signal.SIG_DFL) if number not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), number)
    return code


if __name__ == "__main__":
    sys.exit(main())
