"""`shoal cache serve`, and what can be asked of a running cache."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.base.console.command import CommandContext, command
from shoal.cache.commands.decide import use_one_thread
from shoal.core import Invalid

if TYPE_CHECKING:
    from shoal.cache.daemon import Connection

_PANEL = "A running cache"
_TAKES = ("json", "home")
RootOption = Annotated[
    Path | None,
    typer.Option(
        "--root", help="The cache's directory (SHOAL_CACHE, else the server's at home, else /var/cache/shoal)."
    ),
]
TokenOption = Annotated[str | None, typer.Option("--token", help="The admin's, where the cache asks for one.")]
SetArgument = Annotated[str, typer.Argument(metavar="URL", help="A data set, or an object of it.")]
OptionsOption = Annotated[
    str, typer.Option("--options", help="JSON: the options of its file system, such as an endpoint.")
]


def register(app: typer.Typer) -> None:
    command(app, "serve", ("json",), rich_help_panel=_PANEL)(serve)
    for name, function in (
        ("status", status), ("top", top), ("explain", explain), ("pin", pin), ("unpin", unpin), ("warm", warm),
        ("drop", drop),
        ("mount", mount), ("doctor", doctor),
    ):  # fmt: skip
        command(app, name, _TAKES, rich_help_panel=_PANEL)(function)


def serve(
    context: CommandContext,
    root: RootOption = None,
    size: Annotated[str, typer.Option("--size", help="Bytes on the disk, such as 200GiB.")] = "10GiB",
    files: Annotated[int, typer.Option("--files", min=1, help="Files at most.")] = 1_000_000,
    keep_free: Annotated[str, typer.Option("--keep-free", help="Bytes that the disk keeps for others.")] = "1GiB",
    weight: Annotated[
        list[str] | None, typer.Option("--weight", help="TENANT=WEIGHT, 1 unless given. Several times.")
    ] = None,
    every: Annotated[float, typer.Option("--round", min=0.1, help="Seconds between decisions.")] = 10.0,
    recheck: Annotated[
        float, typer.Option("--recheck", min=1.0, help="Seconds for which a source's word on rights holds.")
    ] = 60.0,
    fill_rate: Annotated[str, typer.Option("--fill-rate", help="Bytes a second from sources; 0: no limit.")] = "0",
    policy: Annotated[str, typer.Option("--policy", "-p", help="pf or mmf.")] = "pf",
    chunk: Annotated[str, typer.Option("--chunk", help="Larger objects are kept in pieces of this.")] = "64MiB",
    wait: Annotated[
        float, typer.Option("--wait", min=0.0, help="Seconds that a job waits for the first part of an input.")
    ] = 30.0,
    mounted: Annotated[
        str, typer.Option("--mount", help="Inputs shown through FUSE where not cached: large, always or never.")
    ] = "large",
    secret_file: Annotated[
        Path | None, typer.Option("--secret-file", help="Tenants prove their names by tokens made of it.")
    ] = None,
) -> None:
    """Serve a cache on this node: one process and one Unix socket, until it is interrupted.

    A tenant is a user of this machine unless tokens say otherwise. Readers of what is cached do not need this
    process."""
    use_one_thread()
    from shoal.cache.daemon import Daemon, Planning, Settings, SharedCache
    from shoal.cache.door.node import DEFAULT_ROOT
    from shoal.cache.policy import POLICIES
    from shoal.cache.store import Limits, Store

    if policy not in POLICIES:
        raise Invalid(f"there is no policy {policy!r}", where="--policy", hint=", ".join(POLICIES))
    path = Path(root or os.environ.get("SHOAL_CACHE") or DEFAULT_ROOT).absolute()
    secret = None if secret_file is None else _secret(secret_file)
    limits = Limits(_bytes(size, "--size"), files, _bytes(keep_free, "--keep-free"))
    store = Store(path, limits, chunk_bytes=max(_bytes(chunk, "--chunk"), 4096))
    planning = Planning(policy, every, weights=_weights(weight or []))
    settings = Settings(
        planning, recheck, fill_bytes_per_s=_bytes(fill_rate, "--fill-rate"), wait_s=wait,
        mount_bytes=_mounted(mounted),
    )  # fmt: skip
    try:
        made = Daemon(SharedCache(store, settings), secret)
    except OSError as error:  # of a disk that is full
        raise Invalid(f"the cache cannot be served: {error.strerror or error}", where=str(path)) from error
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    made.start()
    context.line(
        {"root": str(path), "pid": os.getpid()}, lambda: print(f"serving {path} (pid {os.getpid()})", flush=True)
    )
    stop.wait()
    made.close()


def status(context: CommandContext, root: RootOption = None, token: TokenOption = None) -> None:
    """Tenants, data sets, bytes held, hit ratios, and the certificate of the last decision."""
    found = _asked(_root(context, root), token, "status")
    context.show(found, lambda: _print_status(found))


def top(
    context: CommandContext, root: RootOption = None, token: TokenOption = None,
    every: Annotated[float, typer.Option("--every", min=0.1, help="Seconds between two looks.")] = 2.0,
    looks: Annotated[int, typer.Option("--looks", min=0, help="Then end; 0: until interrupted.")] = 0,
) -> None:  # fmt: skip
    """The status again and again. With --json a line for each look."""
    done = 0
    while True:
        found = _asked(_root(context, root), token, "status")
        if sys.stdout.isatty() and not context.json:
            print("\033[2J\033[H", end="")
        context.line(found, lambda found=found: _print_status(found))  # type: ignore[misc]
        done += 1
        if done == looks:
            return
        time.sleep(every)


def explain(context: CommandContext, data: SetArgument, root: RootOption = None, token: TokenOption = None) -> None:
    """Why this much of a data set is kept, for whom, and what would change that."""
    found = _asked(_root(context, root), token, "explain", url=data)
    context.show(found, lambda: print(found["text"]))


def pin(context: CommandContext, data: SetArgument, root: RootOption = None, token: TokenOption = None) -> None:
    """Keep all of a data set, whatever the policy says. What is pinned is no longer shared out."""
    _asked(_root(context, root), token, "pin", url=data)
    context.show({"pinned": data}, lambda: print(f"{data} is pinned"))


def unpin(context: CommandContext, data: SetArgument, root: RootOption = None, token: TokenOption = None) -> None:
    """Leave a data set to the policy again."""
    _asked(_root(context, root), token, "unpin", url=data)
    context.show({"unpinned": data}, lambda: print(f"{data} is no longer pinned"))


def warm(
    context: CommandContext, data: SetArgument, root: RootOption = None, token: TokenOption = None,
    options: OptionsOption = "{}",
    rate: Annotated[str, typer.Option("--rate", help="Bytes a second that will be read of it.")] = "100MiB",
) -> None:  # fmt: skip
    """Say that a data set will be read, and start to fetch the part of it that is wanted."""
    from shoal.cache.sources import client_options

    given = client_options(data, _json(options))
    found = _asked(
        _root(context, root), token, "declare", url=data, options=given, bytes_per_s=_bytes(rate, "--rate"), fetch=True
    )
    context.show(found, lambda: print(f"{data}: {found['objects']} objects, {found['bytes']} bytes"))


def drop(context: CommandContext, data: SetArgument, root: RootOption = None, token: TokenOption = None) -> None:
    """Evict what is held of a data set. It comes back when it is read."""
    found = _asked(_root(context, root), token, "drop", url=data)
    context.show({"dropped": found}, lambda: print(f"{found} objects are dropped"))


def mount(
    context: CommandContext, data: SetArgument,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="An empty directory.")],
    root: RootOption = None, token: TokenOption = None, options: OptionsOption = "{}",
) -> None:  # fmt: skip
    """Show a data set as a read-only directory, for programs that know nothing of the cache, until it is interrupted.

    Reads through FUSE are several times slower than those of cached files: `shoal cache doctor` measures how much. With
    --json one line says that it is there."""
    from shoal.cache.door.filesystem import ShoalFileSystem
    from shoal.cache.door.mount import mount as show

    protocol, split, _ = data.partition("://")
    made = ShoalFileSystem(
        target_protocol=protocol if split else "file", target_options=_json(options),
        cache_root=str(_root(context, root)), token=token,
    )  # fmt: skip
    show(made, data, folder, begin=lambda: context.line(
        {"url": data, "folder": str(folder), "pid": os.getpid()},
        lambda: print(f"{data} is in {folder} until this command is interrupted (fusermount3 -u {folder})", flush=True),
    ))  # fmt: skip


def doctor(context: CommandContext, root: RootOption = None) -> None:
    """What works on this machine, and what its absence costs."""
    from shoal.cache.probe import probe

    found = [
        {"name": one.name, "available": one.available, "detail": one.detail, "consequence": one.consequence}
        for one in probe(_root(context, root))
    ]

    def shown() -> None:
        for one in found:
            mark = "yes" if one["available"] else "no "
            print(f"{mark}  {one['name']}: {one['detail']}")
            if not one["available"]:
                print(f"     without it {one['consequence']}")

    context.show(found, shown)


def _root(context: CommandContext, root: Path | None) -> Path:
    """Named, or that of the server at home."""
    from shoal.cache.daemon.protocol import ROOT_FILE
    from shoal.cache.door.node import DEFAULT_ROOT

    named = root or os.environ.get("SHOAL_CACHE")
    if not named:
        with suppress(OSError):
            named = (context.folder() / ROOT_FILE).read_text()
    return Path(named or DEFAULT_ROOT)


def connect(root: Path, token: str | None) -> Connection:
    """Raises Unavailable where no cache runs."""
    from shoal.cache.daemon import Connection, admin_token

    return Connection(root, "", token or admin_token(root))


def _asked(root: Path, token: str | None, do: str, **given: Any) -> Any:
    connection = connect(root, token)
    try:
        return connection.ask(do, **given)
    finally:
        connection.close()


def _print_status(found: dict[str, Any]) -> None:
    from shoal.base.console import output

    used, limits, last = found["used"], found["limits"], found["decision"]
    gap = "none yet" if last["gap"] is None else f"{last['gap']:.3%}"
    print(f"{output.size(used['bytes'])} of {output.size(limits['bytes'])}, {used['files']} files; gap {gap}")
    if found["broken"]:
        print(found["broken"])
    output.put(output.table(
        ["tenant", "held", "read", "saved", "hits", "own part"],
        [
            [one["tenant"], output.size(int(one["held_bytes"])), output.size(int(one["read_bytes"])),
             _signed(int(one["saved_bytes"])), "-" if one["hit_ratio"] is None else f"{one['hit_ratio']:.0%}",
             _over(last["tenants"].get(one["tenant"]))]
            for one in found["tenants"]
        ],
    ))  # fmt: skip
    output.put(output.table(
        ["data set", "size", "held", "wanted"],
        [
            [one["set"], output.size(one["bytes"]), output.size(one["held_bytes"]),
             "pinned" if one["pinned"] else f"{one['wanted']:.0%}"]
            for one in found["sets"]
        ],
        cut_middle=["data set"],
    ))  # fmt: skip


def _signed(count: int) -> str:
    """Loads that were not read again save less than nothing."""
    from shoal.base.console import output

    return f"{'-' if count < 0 else ''}{output.size(abs(count))}"


def _over(told: dict[str, float] | None) -> str:
    return "-" if told is None else f"{told['over_own_part']:.2f}x"


def _bytes(text: str, where: str) -> int:
    """Of `200GiB`, at least a MiB, or of a 0."""
    from pydantic_core import PydanticCustomError

    from shoal.contract.manifest.quantities import read_size

    if text == "0":
        return 0
    try:
        return read_size(text)
    except PydanticCustomError as error:
        raise Invalid(error.message(), where=where, hint=(error.context or {}).get("hint")) from None


def _mounted(which: str) -> float:
    """From which size on an input is mounted."""
    from shoal.cache.daemon.cache import LARGE_INPUT
    from shoal.cache.probe import can_mount

    sizes = {"large": float(LARGE_INPUT), "always": 0.0, "never": float("inf")}
    if which not in sizes:
        raise Invalid(f"{which!r} is none of them", where="--mount", hint=", ".join(sizes))
    return sizes[which] if can_mount() is None else float("inf")


def _weights(given: list[str]) -> dict[str, float]:
    found = {}
    for one in given:
        name, _, value = one.rpartition("=")
        try:
            found[name] = float(value)
        except ValueError:
            name = ""
        if not name or not 0 <= found[name] < float("inf"):
            raise Invalid("TENANT=WEIGHT is meant", where="--weight")
    return found


def _secret(path: Path) -> bytes:
    try:
        found = path.read_bytes().strip()
    except OSError as error:
        raise Invalid(f"cannot be read: {error.strerror}", where=str(path)) from error
    if len(found) < 16:
        raise Invalid("the secret is shorter than 16 bytes", where=str(path))
    return found


def _json(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise Invalid("a JSON object is meant", where="--options")
    return found
