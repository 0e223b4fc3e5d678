"""Images of a few files, written by hand as an OCI layout."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
import sys
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

BUSYBOX = Path("/bin/busybox")
TOOLS = ("skopeo", "umoci", "bwrap")
needs_images = pytest.mark.skipif(
    not BUSYBOX.exists() or any(shutil.which(one) is None for one in TOOLS),
    reason="needs skopeo, umoci, bubblewrap and busybox-static",
)
needs_uv = pytest.mark.skipif(
    not (Path(sys.executable).parent / "uv").exists() and shutil.which("uv") is None, reason="needs uv"
)
WORDS = ("sh", "true", "cat", "ls", "id", "env", "sleep", "pwd", "touch", "mount", "echo", "test", "kill", "grep")


def member(name: str, data: bytes = b"", *, mode: int = 0o755, kind: bytes = tarfile.REGTYPE, link: str = "") -> Any:
    made = tarfile.TarInfo(name)
    made.mode, made.type, made.linkname, made.size = mode, kind, link, len(data)
    return made, data


def folder(name: str, mode: int = 0o755) -> Any:
    return member(name, mode=mode, kind=tarfile.DIRTYPE)


def busybox() -> list[Any]:
    """A root directory in which a shell runs."""
    links = [member(f"bin/{word}", kind=tarfile.SYMTYPE, link="busybox") for word in WORDS]
    return [folder("bin"), member("bin/busybox", BUSYBOX.read_bytes()), *links]


def layer(members: Iterable[Any]) -> bytes:
    """As a gzipped archive."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for made, data in members:
            archive.addfile(made, io.BytesIO(data))
    return gzip.compress(packed.getvalue(), 1, mtime=0)


def write_image(path: Path, layers: Sequence[bytes], *, env: Sequence[str] = (), tag: str = "latest") -> str:
    """An OCI layout; returns the digest of its manifest, in hexadecimal."""
    blobs = path / "blobs" / "sha256"
    blobs.mkdir(parents=True, exist_ok=True)

    def put(data: bytes, kind: str) -> dict[str, Any]:
        name = hashlib.sha256(data).hexdigest()
        (blobs / name).write_bytes(data)
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{name}", "size": len(data)}

    plain = [gzip.decompress(one) for one in layers]
    config = {
        "architecture": "amd64", "os": "linux", "config": {"Env": list(env)},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(one).hexdigest()}" for one in plain]},
        "history": [{"created_by": "hand"} for _ in plain],
    }  # fmt: skip
    manifest = {
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": put(json.dumps(config).encode(), "config.v1+json"),
        "layers": [put(one, "layer.v1.tar+gzip") for one in layers],
    }  # fmt: skip
    described = put(json.dumps(manifest).encode(), "manifest.v1+json")
    index = {
        "schemaVersion": 2,
        "manifests": [{**described, "annotations": {"org.opencontainers.image.ref.name": tag}}],
    }
    (path / "index.json").write_text(json.dumps(index))
    (path / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return str(described["digest"]).removeprefix("sha256:")
