"""Downloads against a scripted server: what stands at the end, whatever happens on the way."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import httpx
import pytest

from shoal.core import Conflict, Invalid, NotFound, ShoalError

from .test_client import JOB, Server, failed, ok

DATA = bytes(range(256)) * 20


def listing(*paths: str, kind: str = "file") -> httpx.Response:
    files = [{"path": one, "kind": kind, "size_bytes": 1, "modified_at": 1.0, "kept": True} for one in paths]
    return ok({"files": files, "next": None})


def piece(data: bytes, size: int = len(DATA), version: str = "v1", sha256: str | None = None) -> httpx.Response:
    headers = {
        "x-shoal-size": str(size), "x-shoal-version": version,
        "x-shoal-sha256": sha256 or hashlib.sha256(data).hexdigest(),
    }  # fmt: skip
    return httpx.Response(200, content=data, headers=headers)


def download(server: Server, to: Path, path: str = "model") -> list[Any]:
    with server.client(patience_s=0) as client:
        return list(client.download("x", path, to=to))


def offsets(server: Server) -> list[str]:
    return [one.url.params["offset"] for one in server.requests if one.url.path.endswith("/file")]


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_pieces_become_one_file_with_its_name_at_the_end(tmp_path: Path) -> None:
    def look(_: httpx.Request) -> httpx.Response:
        (name,) = left(tmp_path)
        assert name.startswith(".model.")
        return piece(DATA[1000:])

    server = Server(ok(), listing("model"), piece(DATA[:1000]), look)
    steps = download(server, tmp_path)
    assert [one.done_bytes for one in steps] == [1000, len(DATA), len(DATA)]
    assert [one.sha256 for one in steps] == [None, None, hashlib.sha256(DATA).hexdigest()]
    assert offsets(server) == ["0", "1000"]
    assert server.requests[-1].url.params["version"] == "v1"
    assert left(tmp_path) == ["model"]
    assert (tmp_path / "model").read_bytes() == DATA


def test_an_interrupted_one_goes_on_where_it_was(tmp_path: Path) -> None:
    (tmp_path / "model").write_text("old")
    with pytest.raises(ShoalError):
        download(Server(ok(), listing("model"), piece(DATA[:1000]), failed(500)), tmp_path)
    assert (tmp_path / "model").read_text() == "old"
    server = Server(ok(), listing("model"), piece(DATA[:1000]), piece(DATA[1000:]))
    assert download(server, tmp_path)[-1].sha256 == hashlib.sha256(DATA).hexdigest()
    assert offsets(server) == ["0", "1000"]
    assert left(tmp_path) == ["model"]


def test_another_version_begins_anew(tmp_path: Path) -> None:
    new = DATA[::-1]
    server = Server(
        ok(), listing("model"), piece(DATA[:1000]), failed(409), piece(new[:2000], version="v2"),
        piece(new[2000:], version="v2"),
    )  # fmt: skip
    assert download(server, tmp_path)[-1].sha256 == hashlib.sha256(new).hexdigest()
    assert offsets(server) == ["0", "1000", "0", "2000"]
    assert left(tmp_path) == ["model"]
    assert (tmp_path / "model").read_bytes() == new


def test_a_file_that_never_stands_still_is_given_up(tmp_path: Path) -> None:
    changes = [one for n in range(3) for one in (piece(b"x", 2, f"v{n}"), piece(b"", 2, f"v{n}"))]
    with pytest.raises(Conflict, match="ends early"):
        download(Server(ok(), listing("model"), *changes), tmp_path)
    assert "model" not in left(tmp_path)


def test_a_damaged_piece_is_no_part_of_it(tmp_path: Path) -> None:
    with pytest.raises(ShoalError, match="did not arrive as it was sent"):
        download(Server(ok(), listing("model"), piece(b"abc", 6), piece(b"xyz", 6, sha256="0" * 64)), tmp_path)
    server = Server(ok(), listing("model"), piece(b"abc", 6), piece(b"def", 6))
    download(server, tmp_path)
    assert (tmp_path / "model").read_text() == "abcdef"


def test_a_name_that_leads_out_is_refused(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    for name in ("../evil", "/evil", "a/../../evil"):
        with pytest.raises(Invalid):
            download(Server(ok(), listing(name), piece(b"evil", 4)), inside, path="")
    assert left(tmp_path) == []


def test_a_directory_keeps_its_shape_and_has_a_name_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    answers = [ok({**JOB, "name": "job"}), listing("out/a", "out/b/c"), piece(b"a", 1), piece(b"c", 1)]
    with Server(*answers).client() as client:
        assert [one.target for one in client.download("x", "out") if one.sha256] == ["out/a", "out/b/c"]
    with Server(*answers).client() as client:
        assert [one.target for one in client.download("x") if one.sha256] == ["job/out/a", "job/out/b/c"]
    assert (tmp_path / "out" / "b" / "c").read_text() == "c"


def test_an_empty_file_is_a_file_and_a_link_is_none(tmp_path: Path) -> None:
    (step, last) = download(Server(ok(), listing("model"), piece(b"", 0)), tmp_path)
    assert (step.done_bytes, last.sha256) == (0, hashlib.sha256(b"").hexdigest())
    assert (tmp_path / "model").read_bytes() == b""
    with pytest.raises(Invalid, match="is no regular file"):
        download(Server(ok(), listing("model", kind="link")), tmp_path)
    with pytest.raises(NotFound):
        download(Server(ok(), failed(404)), tmp_path)
