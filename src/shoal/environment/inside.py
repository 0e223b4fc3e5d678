"""`ENTER TOLD COMMAND...`: becomes the parent of a command in an image, under bubblewrap, with the job's rights.

Run by an isolated interpreter with the rank's environment, in its run directory, inside whatever sandbox the rank has.
What the job has of the machine, it has at the same paths; the image's own files are read-only. Signals go on to the
command, and its end is this process's own. It imports nothing of Shoal, and nothing that takes milliseconds.

`TOLD` is a marshalled mapping in hexadecimal: `place`, where the image was unpacked; `home`, the server's; `mounts`
(source, target, whether it is read-only); `paths` of the machine that are shown as they are; `workdir`; the names of
the variables that were `given` to the job; and the libraries of the GPU `driver`, path by name.
"""

# ruff: noqa: PTH109, PTH110, PTH112, PTH113, PTH115, PTH123, PTH208, S108

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found] # without the enums, which take milliseconds
import marshal
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from types import FrameType
    from typing import Any

_SIGNALLED = 128
_MOST_ENTRIES = 4096
_DEVICES = ("nvidia", "kfd", "dri")
_MACHINE = ("/etc/resolv.conf", "/etc/hosts")
_TEMPORARY = "/tmp"
_DRIVER = "/run/shoal"
"""Where the libraries of the machine's GPU driver are seen."""
_SYSTEM = ("/sys/devices", "/sys/class", "/sys/bus")
"""Not all of `/sys`: each file system that is mounted below it would take a mount of its own."""
_LEFT_OUT = ("PATH", "VIRTUAL_ENV", "PYTHONHOME", "CONDA_PREFIX", "LD_LIBRARY_PATH")
"""Variables of the server's own that mean nothing in an image, unless the manifest gives them."""
_PASSED_ON = (
    signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT,
    signal.SIGWINCH,
)  # fmt: skip
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Unusable(Exception):
    """Why the command cannot be run in the image."""


def layout(root: str, wanted: Iterable[str], home: str) -> list[str]:
    """The image's files, read-only, with room for what is mounted at `wanted`. Where the image has a directory for
    `home`, and a place for everything else, it is shown in one piece. Else what lies on the way to one of these is made
    anew, with what the image has in it. Raises Unusable where the image has something else there."""
    places = {os.path.normpath(one) for one in wanted}
    new = (f"{home}/", f"{_TEMPORARY}/", f"{_DRIVER}/")
    there = [one for one in (*places, home) if not one.startswith(new)]
    if all(os.path.lexists(root + one) and os.path.realpath(root + one) == root + one for one in there):
        return ["--ro-bind", root, "/", *(["--tmpfs", home] if home in there else [])]
    return ["--tmpfs", "/", *_piecewise(root, places)]


def _piecewise(root: str, places: set[str]) -> list[str]:
    way = {above for one in places for above in _parents(one)}
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
            elif entry.is_dir() and not any(os.scandir(entry.path)):
                words += ["--perms", "0755", "--dir", path]  # many are empty, and a mount takes longer
            else:
                words += ["--ro-bind", entry.path, path]
    return words


def _parents(path: str) -> Iterator[str]:
    while path != "/":
        path = path.rpartition("/")[0] or "/"
        yield path


def arguments(told: Mapping[str, Any], env: Mapping[str, str], here: str) -> list[str]:
    """Of bubblewrap, up to the command's own environment. `told` is what the server says: `root`, `mounts` (source,
    target, whether it is read-only) and `paths` of the job's user that are shown as they are."""
    binds: dict[str, tuple[str, str]] = {_TEMPORARY: ("--tmpfs", ""), "/proc": ("--bind", "/proc")}
    binds |= {path: ("--ro-bind-try", path) for path in _SYSTEM if os.path.isdir(path)}
    binds |= {path: ("--ro-bind", path) for path in _MACHINE if os.path.exists(path)}
    binds |= {target: ("--ro-bind" if read_only else "--bind", source) for source, target, read_only in told["mounts"]}
    own = [here, env.get("SHOAL_RUN", ""), env.get("SHOAL_CHECKPOINT_DIR", ""), *told["paths"]]
    binds |= {path: ("--bind", path) for path in own if path.startswith("/") and os.path.exists(path)}
    binds |= {path: ("--ro-bind", path) for path in env.get("LD_PRELOAD", "").split(":") if os.path.isfile(path)}
    if env.get("CUDA_VISIBLE_DEVICES") and told["driver"]:
        binds |= {_DRIVER: ("--tmpfs", "")}
        binds |= {f"{_DRIVER}/{name}": ("--ro-bind", path) for name, path in told["driver"].items()}
    words = layout(told["root"], [*binds, "/dev"], told["home"])
    words += ["--dev", "/dev"]
    if os.path.isdir("/dev/shm"):
        words += ["--bind", "/dev/shm", "/dev/shm"]
    for name in sorted(os.listdir("/dev")):
        if name.startswith(_DEVICES):
            words += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    for path, (way, source) in sorted(binds.items()):
        words += [way, path] if way == "--tmpfs" else [way, source, path]
    made = [words[at + 1] for at, word in enumerate(words) if word == "--tmpfs"]
    return [*words, *(word for one in made if one != _TEMPORARY for word in ("--remount-ro", one))]


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
        found["TMPDIR"] = _TEMPORARY
    if env.get("CUDA_VISIBLE_DEVICES") and told["driver"]:
        others = found.get("LD_LIBRARY_PATH")
        found["LD_LIBRARY_PATH"] = f"{_DRIVER}:{others}" if others else _DRIVER
    return found


def main() -> int:
    told, command = marshal.loads(bytes.fromhex(sys.argv[1])), sys.argv[2:]  # noqa: S302 - written by the server
    here = os.getcwd()
    try:
        with open(f"{told['place']}/env") as file:
            own = [one for one in file.read().split("\0") if one]
        told["root"] = f"{told['place']}/rootfs"
        words = arguments(told, os.environ, here)
    except (Unusable, OSError, ValueError) as problem:
        print(f"shoal: the image cannot be entered: {problem}", file=sys.stderr)
        return 126
    words += [
        "--cap-drop", "ALL", "--die-with-parent", "--clearenv", "--chdir", told["workdir"] or here,
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
    line = ["bwrap", "--json-status-fd", str(tells), "--args", str(given), "--", *command]
    own = [
        *(each for each in _PASSED_ON if signal.getsignal(each) is not signal.SIG_IGN),
        signal.SIGPIPE,
        signal.SIGXFSZ,
    ]
    try:
        child = os.posix_spawnp("bwrap", line, {"PATH": _PATH}, setsigdef=own)
    except OSError as problem:
        print(f"shoal: bwrap cannot be run: {problem.strerror}; `apt install bubblewrap`", file=sys.stderr)
        return 126
    os.close(tells)
    os.close(given)
    return _end(child, _pid(said), waiting)


def _pid(said: int) -> int | None:
    """Of the command, which bubblewrap tells first; None where it ended before."""
    with os.fdopen(os.dup(said), "rb") as file:
        line = file.readline()
    number = line.partition(b'"child-pid":')[2].strip().rstrip(b"}").partition(b",")[0].strip()
    return int(number) if number.isdigit() else None


def _end(child: int, pid: int | None, waiting: list[int]) -> int:
    def pass_on(number: int, _: FrameType | None) -> None:
        if pid is not None:
            try:  # noqa: SIM105 - contextlib takes milliseconds
                os.kill(pid, number)
            except ProcessLookupError:
                pass

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


def run() -> None:
    """To the end of the process, without the interpreter's own farewell, which takes milliseconds."""
    code = main()
    sys.stderr.flush()
    os._exit(code)
