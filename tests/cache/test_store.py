"""What is on the disk, through every kind of end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from shoal.cache.store import Limits, ObjectInfo, Store, digest_of
from shoal.core import Conflict, Invalid

CHUNK = 8192
KEYS = [f"{at:040x}" for at in range(6)]
TENANTS = ("ann", "bob")


class Crash(BaseException):
    """The process is gone."""


def info(key: str, size: int, tag: str = "1") -> ObjectInfo:
    return ObjectInfo(key, f"s3://b/{key}", "s3://b", tag, size)


def fill(store: Store, key: str, data: bytes, tag: str = "1", number: int = 0) -> bool:
    """One chunk of an object."""
    part = data[number * store.chunk_bytes : (number + 1) * store.chunk_bytes]
    made = store.reserve(len(part))
    if made is None:
        return False
    with made:
        made.write(part)
        made.commit(info(key, len(data), tag), number)
    return True


def taken(root: Path) -> int:
    """Bytes of contents, fills and dying files as the disk counts them."""
    return sum(path.stat().st_blocks * 512 for name in ("chunks", "fills", "dying") for path in (root / name).iterdir())


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache", Limits(10 * CHUNK, files=20), chunk_bytes=CHUNK)


def test_a_file_is_read_by_its_link_alone(store: Store) -> None:
    assert fill(store, KEYS[0], b"abc")
    store.link("ann", KEYS[0])
    name = store.root / "links" / "ann" / KEYS[0]
    assert name.read_bytes() == b"abc"
    assert name.stat().st_mode & 0o777 == 0o444
    assert (store.root / "links" / "ann").stat().st_mode & 0o777 == 0o700
    assert (store.root / "chunks").stat().st_mode & 0o777 == 0o700
    assert not (store.root / "links" / "bob").exists()


def test_equal_contents_are_one_file(store: Store) -> None:
    for key in KEYS[:3]:
        fill(store, key, b"same")
    assert store.usage().files == 1
    (digest,) = store.contents()
    for key in KEYS[:3]:
        store.link("ann", key)
    store.drop(KEYS[0])
    assert store.usage().files == 1
    store.evict(digest)
    assert store.objects() == []
    assert list((store.root / "links" / "ann").iterdir()) == []


def test_a_large_object_is_chunks_of_one_version(store: Store) -> None:
    old, new = os.urandom(2 * CHUNK + 5), os.urandom(2 * CHUNK + 5)
    for number in (0, 2):
        fill(store, KEYS[0], old, "old", number)
    store.link("ann", KEYS[0])
    folder = store.root / "links" / "ann" / f"{KEYS[0]}.d"
    assert json.loads((folder / "meta").read_text()) == {"tag": "old", "size": len(old), "chunk_bytes": CHUNK}
    assert (folder / "2").read_bytes() == old[2 * CHUNK :]
    assert not (folder / "1").exists()
    reader = os.open(folder, os.O_RDONLY)
    fill(store, KEYS[0], new, "new", 1)
    store.link("ann", KEYS[0])
    assert sorted(path.name for path in folder.iterdir()) == ["1", "meta"]
    with pytest.raises(FileNotFoundError):  # who has the old version open finds none of the new one
        os.open("1", os.O_RDONLY, dir_fd=reader)
    os.close(reader)


@pytest.mark.parametrize("sent", [b"", b"ab", b"abcd"])
def test_a_wrong_length_is_kept_out(store: Store, sent: bytes) -> None:
    made = store.reserve(3)
    assert made is not None

    def write() -> None:
        with made:
            made.write(sent)
            made.commit(info(KEYS[0], 3), 0)

    with pytest.raises(Conflict, match="announced"):
        write()
    assert store.usage().bytes == 0
    assert list((store.root / "fills").iterdir()) == []


def test_no_byte_passes_the_limit(store: Store) -> None:
    assert store.reserve(10 * CHUNK + 1) is None
    held = [store.reserve(CHUNK) for _ in range(10)]
    assert None not in held
    assert store.usage().bytes == taken(store.root) == 10 * CHUNK
    assert store.reserve(0) is not None
    assert store.reserve(1) is None


def test_the_number_of_files_is_limited(tmp_path: Path) -> None:
    store = Store(tmp_path, Limits(10**9, files=3))
    assert [fill(store, key, key.encode()) for key in KEYS[:5]] == [True, True, True, False, False]


def test_the_disk_keeps_what_others_need(tmp_path: Path) -> None:
    store = Store(tmp_path, Limits(10**9, keep_free=1 << 60))
    assert store.reserve(1) is None


def test_what_is_open_counts_until_it_is_closed(store: Store) -> None:
    fill(store, KEYS[0], bytes(CHUNK))
    store.link("ann", KEYS[0])
    reader = (store.root / "links" / "ann" / KEYS[0]).open("rb")
    (digest,) = store.contents()
    store.evict(digest)
    store.reap()
    assert store.usage().dying == CHUNK
    assert reader.read() == bytes(CHUNK)
    store.close()
    again = Store(store.root, store.limits, chunk_bytes=CHUNK)
    assert again.usage().dying == CHUNK  # and a new daemon knows of it
    reader.close()
    again.reap()
    assert again.usage().bytes == taken(store.root) == 0


def test_what_is_wanted_again_before_it_is_gone_is_not_written_twice(store: Store) -> None:
    fill(store, KEYS[0], b"abc")
    store.link("ann", KEYS[0])
    reader = (store.root / "links" / "ann" / KEYS[0]).open("rb")
    store.evict(digest_of(Path(reader.name)))
    fill(store, KEYS[1], b"abc")
    assert store.usage().dying == 0
    assert store.usage().files == 1
    reader.close()


def test_two_daemons_on_one_directory(store: Store) -> None:
    other = subprocess.run(
        [sys.executable, "-c", "import sys; from pathlib import Path; from shoal.cache.store import *;"
         "Store(Path(sys.argv[1]), Limits(10**6))", store.root], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert f"pid {os.getpid()} has this cache open" in other.stderr


def test_a_place_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Invalid, match="cannot be kept here"):
        Store(tmp_path / "file", Limits(10**6))


def test_a_truncated_file_is_found_at_the_start(store: Store) -> None:
    fill(store, KEYS[0], b"abcdef")
    fill(store, KEYS[1], b"good")
    for key in KEYS[:2]:
        store.link("ann", key)
    path = store.file(digest_of(store.root / "links" / "ann" / KEYS[0]))
    store.close()
    path.chmod(0o644)
    os.truncate(path, 3)
    again = Store(store.root, store.limits, chunk_bytes=CHUNK)
    assert [held.info.key for held in again.objects()] == [KEYS[1]]
    assert [name.name for name in (store.root / "links" / "ann").iterdir()] == [KEYS[1]]


def test_a_changed_byte_is_found_before_a_link_is_made_after_another_boot(store: Store) -> None:
    fill(store, KEYS[0], b"abcdef")
    (digest,) = store.contents()
    store._index.set_fact("boot", "another")
    store.close()
    store.file(digest).chmod(0o644)
    store.file(digest).write_bytes(b"abXdef")
    again = Store(store.root, store.limits, chunk_bytes=CHUNK)
    again.link("ann", KEYS[0])
    assert again.objects() == []
    assert not list((store.root / "links").glob("*/*"))


def test_a_changed_byte_is_found_in_the_background(store: Store) -> None:
    for key in KEYS[:3]:
        fill(store, key, key.encode())
        store.link("ann", key)
    bad = digest_of(store.root / "links" / "ann" / KEYS[1])
    store.file(bad).chmod(0o644)
    store.file(bad).write_bytes(b"x" * 40)
    assert list(store.check_contents()) == [bad]
    assert not (store.root / "links" / "ann" / KEYS[1]).exists()


def test_an_index_that_is_damaged_costs_the_contents_only(store: Store) -> None:
    fill(store, KEYS[0], b"abc")
    store.link("ann", KEYS[0])
    store.close()
    for name in ("index.db-wal", "index.db-shm"):
        (store.root / name).unlink(missing_ok=True)
    (store.root / "index.db").write_bytes(b"not a database" * 100)
    again = Store(store.root, store.limits, chunk_bytes=CHUNK)
    assert again.usage().bytes == taken(store.root) == 0
    assert not list((store.root / "links").glob("*/*"))
    assert fill(again, KEYS[0], b"abc")


def test_a_lower_limit_lets_nothing_in_until_enough_is_gone(store: Store) -> None:
    for key in KEYS[:4]:
        fill(store, key, os.urandom(CHUNK))
    store.close()
    again = Store(store.root, Limits(2 * CHUNK), chunk_bytes=CHUNK)
    assert again.reserve(1) is None
    for digest in list(again.contents())[:3]:
        again.evict(digest)
    assert again.reserve(1) is not None


POINTS = (
    "before the file has its name", "before the index knows it", "after the index knows it",
    "before the file loses its name", "after the file lost its name",
)  # fmt: skip


class StoreMachine(RuleBasedStateMachine):
    """Fill, read, evict, crash at each named point, restart: no wrong byte, no leaked file, no limit passed."""

    def __init__(self) -> None:
        super().__init__()
        import tempfile

        self.folder = tempfile.TemporaryDirectory(prefix="shoal-store-")
        self.crash_at: str | None = None
        self.truth: dict[str, dict[str, bytes]] = {key: {} for key in KEYS}
        self.readers: list[tuple[object, bytes]] = []
        self.store = self.open()

    def open(self) -> Store:
        return Store(Path(self.folder.name) / "c", Limits(6 * CHUNK, files=8), chunk_bytes=CHUNK, fault=self.fault)

    def fault(self, point: str) -> None:
        if point == self.crash_at:
            raise Crash(point)

    def risky(self, action: object, point: str | None) -> None:
        self.crash_at = point
        try:
            action()  # type: ignore[operator]
        except Crash:
            self.crash_at = None
            self.store.close()
            self.store = self.open()
        self.crash_at = None

    @rule(key=st.sampled_from(KEYS), size=st.sampled_from([0, 1, 100, CHUNK, CHUNK + 1, 2 * CHUNK + 7]),
          tag=st.sampled_from("ab"), number=st.integers(0, 2), point=st.sampled_from([None, *POINTS]))  # fmt: skip
    def fill(self, key: str, size: int, tag: str, number: int, point: str | None) -> None:
        data = self.truth[key].setdefault(tag, (key[-1] + tag).encode() * size)[:size]
        self.truth[key][tag] = data if len(data) == size else (key[-1] + tag).encode() * size
        data = self.truth[key][tag][:size]
        self.truth[key][tag] = data
        if number * CHUNK < max(size, 1):
            self.risky(lambda: fill(self.store, key, data, f"{tag}{size}", number), point)

    @rule(tenant=st.sampled_from(TENANTS), key=st.sampled_from(KEYS))
    def link(self, tenant: str, key: str) -> None:
        self.store.link(tenant, key)

    @precondition(lambda self: self.store.contents())
    @rule(data=st.data(), point=st.sampled_from([None, *POINTS[3:]]))
    def evict(self, data: st.DataObject, point: str | None) -> None:
        digest = data.draw(st.sampled_from(sorted(self.store.contents())))
        self.risky(lambda: self.store.evict(digest), point)

    @rule(key=st.sampled_from(KEYS), point=st.sampled_from([None, *POINTS[3:]]))
    def drop(self, key: str, point: str | None) -> None:
        self.risky(lambda: self.store.drop(key), point)

    @rule(data=st.data())
    def open_link(self, data: st.DataObject) -> None:
        names = sorted(path for path in self.store.root.glob("links/*/**/*") if path.is_file() and path.name != "meta")
        if names:
            path = data.draw(st.sampled_from(names))
            self.readers.append((path.open("rb"), path.read_bytes()))

    @rule()
    def close_readers(self) -> None:
        for file, content in self.readers:
            assert file.read() == content  # type: ignore[attr-defined]
            file.close()  # type: ignore[attr-defined]
        self.readers = []
        self.store.reap()
        assert self.store.usage().dying == 0

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.store = self.open()

    @invariant()
    def the_limits_hold_and_are_counted_right(self) -> None:
        usage = self.store.usage()
        assert usage.bytes == taken(self.store.root) <= 6 * CHUNK
        assert usage.files <= 8
        assert usage.filling == 0

    @invariant()
    def every_link_is_a_whole_chunk_of_the_version_that_is_known(self) -> None:
        for path in self.store.root.glob("links/*/**/*"):
            if not path.is_file() or path.name == "meta":
                continue
            key = path.parent.name.removesuffix(".d") if path.parent.name.endswith(".d") else path.name
            number = int(path.name) if path.parent.name.endswith(".d") else 0
            held = self.store.find(key)
            assert held is not None
            pattern = (key[-1] + held.info.tag[0]).encode() * held.info.size
            assert path.read_bytes() == pattern[: held.info.size][number * CHUNK : (number + 1) * CHUNK]
            if path.parent.name.endswith(".d"):
                assert json.loads((path.parent / "meta").read_text())["tag"] == held.info.tag

    def teardown(self) -> None:
        for file, _ in self.readers:
            file.close()  # type: ignore[attr-defined]
        self.store.close()
        self.folder.cleanup()


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(max_examples=60, stateful_step_count=30)
