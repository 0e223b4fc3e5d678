"""Views of jobs' inputs: what a name leads to while objects come and go."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shoal.cache.daemon.mounts import start_mount
from shoal.cache.store import Limits, ObjectInfo, Store
from shoal.cache.store.views import View, Views, mounts_of, tenant_folder

CHUNK = 64 * 1024


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "c", Limits(8 * CHUNK, 100), chunk_bytes=CHUNK)


def fill(store: Store, key: str, data: bytes) -> str:
    made = store.reserve(len(data))
    assert made is not None
    with made:
        made.write(data)
        return made.commit(ObjectInfo(key, f"file:///{key}", "file:///", "1", len(data)), 0)


def shown(store: Store, *, mounted: bool) -> View:
    view = store.views.make("ann", "j-1.1", "file:///set", os.geteuid(), {"a": "a", "b": "sub/b"})
    if mounted:
        view.rest.mkdir()
        store.views.mount(view)
    return view


def test_what_comes_and_goes_is_a_file_and_a_way_to_the_source(store: Store) -> None:
    view = shown(store, mounted=True)
    name = view.files / "sub" / "b"
    assert name.readlink() == view.rest / "sub" / "b"
    digest = fill(store, "b", b"data")
    assert name.is_symlink()  # no tenant of this view may read it yet
    store.link("bob", "b")
    assert name.is_symlink()
    for _ in range(2):  # the second time it is there already
        store.link("ann", "b")
        assert name.read_bytes() == b"data"
        assert not name.is_symlink()
    assert view.linked == {"b"}
    with name.open("rb") as file:
        store.evict(digest)
        assert name.is_symlink()
        store.reap()
        assert store.usage().bytes == 4096
        assert file.read() == b"data"
    store.reap()
    assert store.usage().bytes == 0
    assert sorted(path.name for path in view.folder.iterdir()) == ["files", "names", "rest"]


def test_what_a_job_was_linked_without_a_mount_counts_until_its_view_ends(store: Store) -> None:
    view = shown(store, mounted=False)
    digest = fill(store, "a", b"data")
    store.link("ann", "a")
    store.evict(digest)
    store.reap()
    assert (view.files / "a").read_bytes() == b"data"
    assert (store.usage().bytes, store.usage().dying) == (4096, 4096)
    assert fill(store, "a", b"data") == digest  # wanted again, it is not written twice
    assert store.usage().dying == 0
    store.evict(digest)
    store.views.release("ann", "j-1.1")
    store.reap()
    assert store.usage().bytes == 0
    assert store.views.all() == []
    assert not view.folder.parent.exists()


def test_a_view_that_is_released_while_its_mount_starts_leaves_nothing(store: Store, tmp_path: Path) -> None:
    view = shown(store, mounted=False)
    store.views.release("ann", "j-1.1")
    assert not start_mount(view, store.root, f"file://{tmp_path}", {}, os.geteuid(), "")
    store.views.mount(view)
    assert not view.folder.exists()
    assert store.views.all() == []


@pytest.mark.parametrize("mounted", [True, False])
def test_what_is_forbidden_or_damaged_is_in_no_view(store: Store, mounted: bool) -> None:
    view = shown(store, mounted=mounted)
    digests = [fill(store, "a", b"data"), fill(store, "b", b"more")]
    for key in ("a", "b"):
        store.link("ann", key)
    store.unlink("bob", "a")
    assert (view.files / "a").read_bytes() == b"data"
    store.unlink("ann", "a")
    path = store.file(digests[1])
    path.chmod(0o644)
    path.write_bytes(b"less")
    assert list(store.check_contents()) == [digests[1]]
    for name in ("a", "sub/b"):
        assert (view.files / name).is_symlink() is mounted
        assert not (view.files / name).is_file()


def test_views_are_found_again_after_a_restart(store: Store, tmp_path: Path) -> None:
    view = shown(store, mounted=True)
    fill(store, "a", b"data")
    store.link("ann", "a")
    half = view.folder.with_name("half")
    half.mkdir()
    bare = view.folder.parent.with_name("j-2.1")
    bare.mkdir()
    store.close()
    again = Store(tmp_path / "c", Limits(8 * CHUNK, 100), chunk_bytes=CHUNK)
    (found,) = again.views.all()
    assert (found.tenant, found.name, found.part_of) == ("ann", "j-1.1", "file:///set")
    assert (found.linked, found.mounted, found.names) == ({"a"}, True, {"a": "a", "b": "sub/b"})
    assert not half.exists()
    assert not bare.exists()
    assert list(mounts_of(tmp_path / "c" / "views", "ann", "j-1.1")) == [view.rest]
    again._index.set_fact("boot", "another")
    again.close()
    assert Store(tmp_path / "c", Limits(8 * CHUNK, 100), chunk_bytes=CHUNK).views.all() == []


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "/etc/passwd", "a/../../b", "a//b", "a/", "x" * 256, "nul\0"])
def test_names_that_lead_elsewhere_are_left_out(tmp_path: Path, name: str) -> None:
    views = Views(tmp_path / "views")
    view = views.make("a/../b.", "j-1.1", "s3://b/set", os.geteuid(), {"good": "good", "bad": name})
    assert view.names == {"good": "good"}
    assert view.folder.is_relative_to(tmp_path / "views")
    assert tenant_folder(tmp_path / "views", "a/../b.") == view.folder.parents[1]


def test_a_name_that_is_a_folder_of_another_spoils_nothing(store: Store) -> None:
    view = store.views.make("ann", "j-1.1", "s3://b/set", os.geteuid(), {"a": "x", "b": "x/y"})
    for key in ("a", "b"):
        fill(store, key, key.encode())
        store.link("ann", key)
    assert (view.files / "x").read_bytes() == b"a"
    assert view.linked == {"a"}
    assert view.folder.stat().st_mode & 0o777 == 0o755
    assert view.folder.parent.stat().st_mode & 0o777 == 0o700
