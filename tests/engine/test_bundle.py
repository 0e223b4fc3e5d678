"""Archives that want too much, and those that are none."""

from __future__ import annotations

import contextlib
import gzip
import io
import lzma
import tarfile
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core import Invalid
from shoal.engine import bundle
from shoal.engine.bundle import Contents

MIB = 1 << 20


def tar(path: Path, *members: tuple[str, int], mode: str = "w") -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, size in members:
            info = tarfile.TarInfo(name)
            info.size = size
            archive.addfile(info, io.BytesIO(bytes(size)))
    return path


def refused(path: Path, limit_bytes: int = 64 * MIB) -> str:
    """Why; the same for looking and for unpacking, and little was written by then."""
    target = path.parent / "out"
    with pytest.raises(Invalid) as looked:
        bundle.inspect(path, limit_bytes=limit_bytes)
    with pytest.raises(Invalid) as unpacked:
        bundle.unpack(path, target, limit_bytes=limit_bytes)
    assert str(looked.value) == str(unpacked.value)
    assert sum(one.stat().st_size for one in target.rglob("*")) <= limit_bytes if target.exists() else True
    return looked.value.what


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_what_an_archive_holds_is_counted_and_unpacked(tmp_path: Path, mode: str) -> None:
    path = tar(tmp_path / "a", ("one", 1000), ("below/two", 2000), mode=mode)
    assert bundle.inspect(path, limit_bytes=MIB) == Contents(2, 1000 + 2000 + 2 * 512)
    bundle.unpack(path, tmp_path / "out", limit_bytes=MIB)
    assert (tmp_path / "out/below/two").stat().st_size == 2000


def test_a_bomb_is_refused_before_it_goes_off(tmp_path: Path) -> None:
    path = tar(tmp_path / "a", *((f"{n}", 8 * MIB) for n in range(8)), mode="w:gz")
    assert path.stat().st_size < MIB
    assert refused(path) == "the archive is refused: it unpacks to more than 200 times its size"
    assert refused(path, 10 * MIB) == "the archive is refused: it unpacks to more than 10 MiB"
    assert len(list((tmp_path / "out").iterdir())) <= 2


def test_a_few_zeros_are_no_bomb(tmp_path: Path) -> None:
    path = tar(tmp_path / "a", ("zeros", 15 * MIB), mode="w:gz")
    assert bundle.MAX_RATIO * path.stat().st_size < 15 * MIB
    assert bundle.inspect(path, limit_bytes=64 * MIB).members == 1


def test_just_the_limit_is_allowed(tmp_path: Path) -> None:
    path = tar(tmp_path / "a", ("x", 1024))
    assert bundle.inspect(path, limit_bytes=1024 + 512).unpacked_bytes == 1024 + 512
    assert "more than 0 MiB" in refused(path, 1024 + 511)


def test_too_many_members_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "MAX_MEMBERS", 3)
    bundle.inspect(tar(tmp_path / "a", *((f"{n}", 0) for n in range(3))), limit_bytes=MIB)
    assert "more than 3 members" in refused(tar(tmp_path / "b", *((f"{n}", 0) for n in range(4))))


def test_a_header_that_claims_a_huge_extension_is_not_read(tmp_path: Path) -> None:
    """Its gigabytes would be taken into memory before the first member is known."""
    head = tarfile.TarInfo("pax")
    head.type, head.size = tarfile.XHDTYPE, 4 << 30
    path = tmp_path / "a"
    with gzip.open(path, "wb") as file:
        file.write(head.tobuf(tarfile.GNU_FORMAT) + bytes(MIB))
    assert refused(path) == "the archive cannot be unpacked: a header claims more than the archive may hold"


@pytest.mark.parametrize("name", ["../escaped", "a/../../escaped"])
def test_an_archive_that_leaves_its_directory_is_refused(tmp_path: Path, name: str) -> None:
    assert "escaped' is a device, or is or points to something outside" in refused(tar(tmp_path / "a", (name, 3)))


def test_nothing_at_all_is_no_bundle(tmp_path: Path) -> None:
    path = tar(tmp_path / "a")
    with pytest.raises(Invalid, match="the archive is empty"):
        bundle.inspect(path, limit_bytes=MIB)


@pytest.mark.parametrize(
    "data", [b"", b"this is no archive", b"\x1f\x8bgarbage", b"BZhgarbage", b"\xfd7zXZ\0garbage", lzma.compress(b"x")]
)
def test_garbage_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a").write_bytes(data)
    assert refused(tmp_path / "a").startswith("the archive cannot be unpacked: ")


@given(st.binary(max_size=3000), st.integers(0, 3000), st.sampled_from(["w", "w:gz", "w:bz2", "w:xz"]))
def test_whatever_is_damaged_is_refused_or_read(damage: bytes, at: int, mode: str) -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:  # type: ignore[call-overload]
        info = tarfile.TarInfo("x")
        info.size = 5000
        archive.addfile(info, io.BytesIO(bytes(range(250)) * 20))
    data = bytearray(file.getvalue())
    data[at : at + len(damage)] = damage
    with tempfile.NamedTemporaryFile() as temporary:
        temporary.write(data)
        temporary.flush()
        path = Path(temporary.name)
        with contextlib.suppress(Invalid):
            assert bundle.inspect(path, limit_bytes=MIB).members
