"""The root directory of a container image, copied by skopeo and unpacked by umoci without rights of root."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import stat
import tarfile
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from shoal.base import trees
from shoal.environment.making.tools import Failed, run

_PLACES = ("proc", "sys/devices", "sys/class", "sys/bus", "dev", "tmp", "run/shoal", "var/tmp", "etc")
"""Directories that every running system has, and that an image of a few files may lack."""
_FILES = ("etc/resolv.conf", "etc/hosts")
"""What is shown of the machine over the image's own."""
_BROKEN = (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, ValueError, KeyError, TypeError)
_MOST_ENV = 4096


def make(folder: Path, asked: Mapping[str, Any]) -> Mapping[str, Any]:
    """`image/KEY` of the tenant's folder, with `rootfs` and `env`; the key is the image's digest. What is
    `known` is there already, and was found unpacked before. Raises Failed."""
    scratch = folder / "builds" / f"image-{os.getpid()}"
    if left := trees.remove(str(scratch)):
        raise Failed(f"what an earlier try left cannot be removed: {left}")
    scratch.mkdir(parents=True)
    auth = scratch / "auth.json"
    auth.write_text(os.environ.get("DOCKER_AUTH_CONFIG") or "{}")
    env = {**os.environ, "TMPDIR": str(scratch), "REGISTRY_AUTH_FILE": str(auth)}
    env.pop("DOCKER_AUTH_CONFIG", None)
    try:
        key = _digest(asked, env)
        if key in asked["known"]:
            return {"key": key, "bytes": 0, "files": 0}
        target = folder / "image" / key
        _unpack(scratch, asked, key, env)
        target.parent.mkdir(exist_ok=True)
        if left := trees.remove(str(target)):
            raise Failed(f"what an earlier try left cannot be removed: {left}")
        (scratch / "made").rename(target)
        size, files = trees.measure(str(target))
        return {"key": key, "bytes": size, "files": files}
    finally:
        trees.remove(str(scratch))


def _digest(asked: Mapping[str, Any], env: Mapping[str, str]) -> str:
    """Of what is named: in hexadecimal. Raises Failed where another was pinned."""
    print("looks for the image", flush=True)
    raw = run([*_skopeo(asked), "inspect", "--raw", *_tls(asked, "--tls-verify"), asked["source"]], env)
    key = hashlib.sha256(raw.encode(errors="surrogateescape")).hexdigest()
    if asked["digest"] not in (None, key):
        raise Failed(f"the image has the digest sha256:{key} now, and sha256:{asked['digest']} was asked for")
    return key


def _skopeo(asked: Mapping[str, Any]) -> list[str]:
    policy = [] if any(os.path.exists(path) for path in _POLICIES) else ["--insecure-policy"]  # noqa: PTH110
    return ["skopeo", *policy, "--command-timeout", f"{asked['timeout_s']}s"]


_POLICIES = ("/etc/containers/policy.json", "/usr/share/containers/policy.json")


def _tls(asked: Mapping[str, Any], option: str) -> list[str]:
    return [f"{option}=false"] if asked["insecure"] else []


def _unpack(scratch: Path, asked: Mapping[str, Any], key: str, env: Mapping[str, str]) -> None:
    layout, made = scratch / "layout", scratch / "made"
    made.mkdir()
    pinned = asked["pinned"].replace("KEY", key) if asked["pinned"] else asked["source"]
    print("copies the image", flush=True)
    run([*_skopeo(asked), "--tmpdir", str(scratch), "copy", "--quiet", *_tls(asked, "--src-tls-verify"), pinned,
         f"oci:{layout}:image"], env)  # fmt: skip
    env_of_image = _looked_over(layout, asked["most_bytes"], asked["most_files"])
    print("unpacks the image", flush=True)
    run(["umoci", "raw", "unpack", "--rootless", "--image", f"{layout}:image", str(made / "rootfs")], env)
    _complete(made / "rootfs", asked["home"].strip("/"))
    (made / "env").write_text("\0".join(env_of_image))


def _looked_over(layout: Path, most_bytes: int, most_files: int) -> list[str]:
    """The variables that the image's programs are given. Raises Failed where it would unpack to too much: its layers
    are read once, and nothing of them is written."""
    try:
        manifest = _blob(layout, json.loads((layout / "index.json").read_bytes())["manifests"][0]["digest"])
        config = _blob(layout, manifest["config"]["digest"]).get("config") or {}
        layers = [(str(one["mediaType"]), _path(layout, one["digest"])) for one in manifest["layers"]]
    except (*_BROKEN, OSError, IndexError) as problem:
        raise Failed(f"the image's manifest is broken: {problem}") from problem
    total = count = 0
    for kind, path in layers:
        print(f"looks over the layer {path.name[:12]}", flush=True)
        if kind.endswith("zstd"):
            raise Failed("a layer is compressed by zstd, which umoci cannot unpack; push the image with gzip")
        try:
            with path.open("rb") as packed:
                plain: Any = gzip.GzipFile(fileobj=packed) if kind.endswith("gzip") else packed
                with tarfile.open(fileobj=plain, mode="r|") as archive:
                    while (member := archive.next()) is not None:
                        archive.members = []  # type: ignore[attr-defined] # it would keep them all
                        total, count = total + max(0, member.size), count + 1
                        if total > most_bytes:
                            raise Failed(f"the image unpacks to more than {most_bytes} bytes: environment.size")
                        if count > most_files:
                            raise Failed(f"the image has more than {most_files} files: environment.files")
        except (*_BROKEN, OSError) as problem:
            raise Failed(f"a layer of the image is broken: {problem}") from problem
    env = [str(one) for one in config.get("Env") or ()][:_MOST_ENV]
    return [one for one in env if "=" in one and "\0" not in one]


def _path(layout: Path, digest: str) -> Path:
    kind, _, name = digest.partition(":")
    if kind != "sha256" or len(name) != 64 or not set(name) <= set("0123456789abcdef"):
        raise ValueError(f"{digest[:80]!r} is no digest")
    return layout / "blobs" / kind / name


def _blob(layout: Path, digest: str) -> dict[str, Any]:
    found = json.loads(_path(layout, digest).read_bytes())
    if not isinstance(found, dict):
        raise ValueError("a blob is no object")
    return found


def _complete(root: Path, home: str) -> None:
    """Places for what a running system has: real ones, for the image may have a link there that leads anywhere. And one
    for the server's home, below which the job's own files are shown, if that can be."""
    os.chmod(root, 0o755)  # noqa: PTH101, S103
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        for name in _PLACES:
            _directory(folder, name)
        for name in _FILES:
            _file(folder, name)
        with suppress(OSError):
            _directory(folder, home)
    except OSError as problem:
        raise Failed(f"the image has something else than a directory in the place of one: {problem}") from problem
    finally:
        os.close(folder)


def _directory(root: int, name: str) -> None:
    for depth in range(1, name.count("/") + 2):
        path = "/".join(name.split("/")[:depth])
        above, _, last = path.rpartition("/")
        parent = trees.open_beneath(root, above or ".")
        try:
            try:
                found = os.lstat(last, dir_fd=parent)
            except FileNotFoundError:
                os.mkdir(last, 0o755, dir_fd=parent)
                continue
            if depth == name.count("/") + 1 and stat.S_ISLNK(found.st_mode):  # a link, such as /run or /var/tmp
                os.unlink(last, dir_fd=parent)
                os.mkdir(last, 0o755, dir_fd=parent)
        finally:
            os.close(parent)


def _file(root: int, name: str) -> None:
    """An empty one in the place of a link, or of nothing."""
    above, _, last = name.rpartition("/")
    parent = trees.open_beneath(root, above)
    try:
        try:
            found = os.lstat(last, dir_fd=parent)
        except FileNotFoundError:
            found = None
        if found is not None and stat.S_ISREG(found.st_mode):
            return
        if found is not None:
            os.unlink(last, dir_fd=parent)
        os.close(os.open(last, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644, dir_fd=parent))
    finally:
        os.close(parent)
