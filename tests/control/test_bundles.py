"""Uploads of working files, straight into the store."""

from __future__ import annotations

import io
import os
import tarfile
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from shoal.contract.records import NewEvent, TenantRecord
from shoal.control.home.bundles import BundleLimits, Bundles
from shoal.core import Invalid, ManualClock, Overloaded, Quota
from shoal.store import Store, open_store


@pytest.fixture
def store() -> Iterator[Store]:
    store = open_store("sqlite://", clock=ManualClock(1000.0), inline=True)
    store.acquire("test")
    yield store
    store.close()


def archive(name: str, size: int = 100) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        info = tarfile.TarInfo(name)
        info.size = size
        tar.addfile(info, io.BytesIO(bytes(size)))
    return file.getvalue()


SIZE = len(archive("a"))


async def chunks(data: bytes) -> AsyncIterator[bytes]:
    yield data[:50]
    yield data[50:]


async def bundles(store: Store, folder: Path, clock: ManualClock | None = None, **limits: int) -> Bundles:
    for name in ("ada", "bob"):
        await store.put_tenant(TenantRecord(name, 1.0, Quota(), 0.0), NewEvent(0.0, "tenant.created", "admin"))
    return Bundles(store, clock or ManualClock(1000.0), folder, BundleLimits(**limits))


async def test_one_content_is_one_file_and_a_record_for_each_tenant(store: Store, tmp_path: Path) -> None:
    made = await bundles(store, tmp_path)
    first = await made.add(chunks(archive("a")), tenant="ada", actor="ada")
    again = await made.add(chunks(archive("a")), tenant="ada", actor="ada")
    other = await made.add(chunks(archive("a")), tenant="bob", actor="bob")
    assert first == again
    assert first.digest == other.digest
    assert [path.name for path in tmp_path.iterdir()] == [first.digest.removeprefix("sha256:")]
    assert [one.tenant for one in store.bundles()] == ["ada", "bob"]
    assert store.bundle("ada", first.digest) == first
    assert store.bundle("cid", first.digest) is None


async def test_a_bundle_is_on_disk_with_its_name_and_no_flush_holds_up_the_loop(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await bundles(store, tmp_path)
    flush, flushed = os.fsync, []

    def note(descriptor: int) -> None:
        flushed.append((Path(f"/proc/self/fd/{descriptor}").readlink().name, threading.get_ident()))
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    await made.add(chunks(archive("a")), tenant="ada", actor="ada")
    (file, _), (folder, _) = flushed
    assert file.startswith(".upload-")
    assert folder == tmp_path.name
    assert threading.get_ident() not in {thread for _, thread in flushed}


async def test_what_is_too_large_leaves_nothing(store: Store, tmp_path: Path) -> None:
    made = await bundles(store, tmp_path, upload_bytes=SIZE)
    await made.add(chunks(archive("a")), tenant="ada", actor="ada")
    with pytest.raises(Invalid, match="larger than"):
        await made.add(chunks(archive("b") + b"x"), tenant="ada", actor="ada")
    with pytest.raises(Invalid, match="cannot be unpacked"):
        await made.add(chunks(b"x" * 100), tenant="ada", actor="ada")
    assert len(list(tmp_path.iterdir())) == len(store.bundles()) == 1


async def test_a_tenant_has_so_many_and_no_more(store: Store, tmp_path: Path) -> None:
    made = await bundles(store, tmp_path, count=2)
    for name in ("a", "b", "a"):  # the third is the first again
        await made.add(chunks(archive(name)), tenant="ada", actor="ada")
    with pytest.raises(Overloaded, match="tenant ada has 2 bundles already"):
        await made.add(chunks(archive("c")), tenant="ada", actor="ada")
    await made.add(chunks(archive("c")), tenant="bob", actor="bob")
    assert len(list(tmp_path.iterdir())) == 3


async def test_a_tenant_has_so_many_bytes_and_no_more(store: Store, tmp_path: Path) -> None:
    made = await bundles(store, tmp_path, stored_bytes=2 * SIZE)
    for name in ("a", "b"):
        await made.add(chunks(archive(name)), tenant="ada", actor="ada")
    with pytest.raises(Overloaded, match="would have over"):
        await made.add(chunks(archive("c")), tenant="ada", actor="ada")


async def test_the_last_use_is_kept_to_the_hour(store: Store, tmp_path: Path) -> None:
    clock = ManualClock(1000.0)
    made = await bundles(store, tmp_path, clock)
    digest = (await made.add(chunks(archive("a")), tenant="ada", actor="ada")).digest
    for later, used_at in ((3599.0, 1000.0), (1.0, 4600.0)):
        clock.advance(later)
        await made.use("ada", digest)
        found = store.bundle("ada", digest)
        assert found is not None
        assert found.used_at == used_at
    await made.use("ada", None)
    await made.use("bob", digest)
    assert len(store.bundles()) == 1
