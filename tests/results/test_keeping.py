"""Which files are meant, what they are called, what may go, and files whose owner does his worst."""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.results.keeping.contents import Contents, contents_at
from shoal.results.keeping.names import Wanted, artifact_id, check_name, check_path
from shoal.results.keeping.retention import Kept, to_remove
from shoal.results.keeping.take import Content, NotTaken, Stopped, Tree, content_of, copy, find

part = st.text("ab.*?[]", min_size=1, max_size=4).filter(lambda one: one not in (".", "..", "**"))
plain = st.text("abc", min_size=1, max_size=3)
paths = st.lists(plain, min_size=1, max_size=4).map(tuple)


@given(paths, st.lists(st.sampled_from(["*", "a*", "?", "[ab]*", "abc", "a"]), min_size=1, max_size=4))
def test_a_pattern_means_what_it_means_to_pathlib(parts: tuple[str, ...], pattern: list[str]) -> None:
    wanted = Wanted("/".join(pattern))
    begins = [parts[:end] for end in range(1, len(parts) + 1)]
    same = any(len(one) == len(pattern) and PurePosixPath(*one).match("/".join(pattern)) for one in begins)
    assert wanted.covers(parts) is same


@given(paths)
def test_two_stars_are_any_number_of_directories(parts: tuple[str, ...]) -> None:
    assert Wanted(f"**/{parts[-1]}").covers(parts)
    assert Wanted(f"{parts[0]}/**").covers(parts)
    assert not Wanted("*").covers((".hidden", *parts))
    assert not Wanted("**/x").covers(parts)


@given(st.lists(part, min_size=1, max_size=4), paths)
def test_a_name_is_always_a_path_below_a_directory(pattern: list[str], parts: tuple[str, ...]) -> None:
    for wanted in (Wanted("/".join(pattern)), Wanted("/".join(pattern), "best/one")):
        fixed = wanted.fixed
        name = wanted.name_of((*fixed, *parts))
        assert check_name(name) == name
        assert name.startswith("best/one/") or wanted.name is None


@pytest.mark.parametrize("wrong", ["../x", "/etc/passwd", "a/../../b", "a\x00b", "a\nb", "**/**/**/**/**/x"])
def test_paths_that_lead_out_are_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"x|passwd|b"):
        check_path(wrong)


@pytest.mark.parametrize("wrong", ["", ".", "a//b", "../a", "/a", "a/", "a\x1b[2J", "x" * 600])
def test_names_that_are_no_paths_are_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match="is no name"):
        check_name(wrong)


def kept(number: int, name: str, *, at: float, job: str = "j-1", pinned: bool = False) -> Kept:
    return Kept(f"f-{number}", "red", job, "train", 1, name, "0" * 64, 1, at, pinned)


entries = st.lists(
    st.tuples(st.sampled_from(["a", "b"]), st.floats(0, 100), st.sampled_from(["j-1", "j-2", ""]), st.booleans()),
    max_size=20,
)


@given(entries, st.integers(0, 3))
def test_pinned_ones_stay_and_the_newest_of_each_name(found: list[tuple[str, float, str, bool]], versions: int) -> None:
    all_of = [kept(at, name, at=when, job=job, pinned=pin) for at, (name, when, job, pin) in enumerate(found)]
    gone = {one.id for one in to_remove(all_of, now=100.0, keep_s=50.0, versions=versions)}
    assert not {one.id for one in all_of if one.pinned} & gone
    for one in all_of:
        newer = [other for other in all_of if not other.pinned and other.job and other.name == one.name
                 and (other.taken_at, other.job) > (one.taken_at, one.job)]  # fmt: skip
        if one.pinned:
            continue
        if one.taken_at < 50.0:
            assert one.id in gone
        elif not versions or not one.job:
            assert one.id not in gone
        elif len(newer) >= versions:
            assert one.id in gone


def test_an_id_is_of_its_place() -> None:
    assert artifact_id("a", "j", 1, "x") == artifact_id("a", "j", 1, "x") != artifact_id("b", "j", 1, "x")


# --- files ---


def never() -> bool:
    return False


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    (tmp_path / "runs/j-1/1").mkdir(parents=True)
    return Tree(tmp_path, ("runs", "j-1", "1"))


def below(tree: Tree) -> Path:
    return tree.home.joinpath(*tree.parts)


def test_what_is_no_regular_file_is_refused_at_once(tree: Tree, tmp_path: Path) -> None:
    run = below(tree)
    (tmp_path / "secret").write_text("another's")
    os.mkfifo(run / "pipe")
    (run / "link").symlink_to(tmp_path / "secret")
    (run / "out").symlink_to(tmp_path)
    for path, said in (("pipe", "no regular file"), ("link", "link"), ("out/secret", "link"), ("no", "no such file")):
        with pytest.raises(NotTaken, match=said):
            list(find(tree, Wanted(path)))
        with pytest.raises(NotTaken):
            copy(tree, tuple(path.split("/")), tmp_path / "copy", most=100, stop=never)
    (run / "good").write_text("mine")
    assert [one.parts for one in find(tree, Wanted("**"))] == [("good",)]


def test_another_name_of_another_users_file_is_refused(tree: Tree) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make files of others")
    run = below(tree)
    (run / "theirs").write_text("root's")
    os.link(run / "theirs", run / "twice")
    os.chown(run, 12345, 12345)
    with pytest.raises(NotTaken, match="not the job's"):
        list(find(tree, Wanted("theirs")))
    with pytest.raises(NotTaken, match="not the job's"):
        content_of(tree, ("twice",), most=100, stop=never)


def test_a_sparse_file_is_refused_before_it_is_read(tree: Tree, tmp_path: Path) -> None:
    with (below(tree) / "huge").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(NotTaken, match="1099511627776 bytes"):
        copy(tree, ("huge",), tmp_path / "copy", most=1 << 20, stop=never)
    assert not (tmp_path / "copy").exists()


def test_a_file_that_changes_is_refused_and_one_that_rests_is_whole(tree: Tree, tmp_path: Path) -> None:
    path, over = below(tree) / "log", threading.Event()
    data = os.urandom(3 << 20)
    path.write_bytes(data)
    assert copy(tree, ("log",), tmp_path / "copy", most=4 << 20, stop=never) == Content(
        hashlib.sha256(data).hexdigest(), len(data)
    )
    assert (tmp_path / "copy").read_bytes() == data

    def write() -> None:
        with path.open("r+b", buffering=0) as file:
            while not over.is_set():
                file.seek(0)
                file.write(os.urandom(64))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with pytest.raises(NotTaken, match="changes while it is read"):
            copy(tree, ("log",), tmp_path / "copy", most=4 << 20, stop=never)
    finally:
        over.set()
        writer.join()
    assert not (tmp_path / "copy").exists()


def test_a_server_that_leaves_gives_up(tree: Tree, tmp_path: Path) -> None:
    (below(tree) / "x").write_text("x")
    with pytest.raises(Stopped):
        copy(tree, ("x",), tmp_path / "copy", most=100, stop=lambda: True)
    assert not (tmp_path / "copy").exists()


def test_directories_that_are_swapped_for_links_lead_nowhere(tree: Tree, tmp_path: Path) -> None:
    run, over = below(tree), threading.Event()
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/x").write_text("another's")
    (run / "d").mkdir()
    (run / "d/x").write_text("mine")

    def swap() -> None:
        while not over.is_set():
            (run / "d").rename(run / "e")
            (run / "d").symlink_to(tmp_path / "theirs")
            (run / "d").unlink()
            (run / "e").rename(run / "d")

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        for _ in range(50):
            try:
                copy(tree, ("d", "x"), tmp_path / "copy", most=100, stop=never)
            except NotTaken:
                continue
            assert (tmp_path / "copy").read_text() == "mine"
    finally:
        over.set()
        swapper.join()


# --- contents ---


@pytest.fixture(params=["", "local", "memory"])
def contents(request: pytest.FixtureRequest, tmp_path: Path) -> Contents:
    urls = {"": "", "local": f"local://{tmp_path}/store", "memory": f"memory://{tmp_path.name}/store"}
    return contents_at(urls[request.param], tmp_path / "own")


def test_contents_are_apart_by_tenant_and_come_back_as_they_were(contents: Contents, tmp_path: Path) -> None:
    data = os.urandom(100_000)
    digest = hashlib.sha256(data).hexdigest()
    for tenant in ("red", "blue"):
        source = tmp_path / "source"
        source.write_bytes(data)
        contents.put(tenant, digest, source)
        assert not source.exists()
    assert sorted(contents.listed()) == [("blue", digest), ("red", digest)]
    assert contents.read("red", digest, 99_990, 100) == data[99_990:]
    contents.remove("red", digest)
    contents.remove("red", digest)
    assert list(contents.listed()) == [("blue", digest)]
    with pytest.raises(OSError, match=digest):
        contents.read("red", digest, 0, 1)


def test_a_place_that_cannot_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        contents_at(str(tmp_path / "file/store"), tmp_path)
    with pytest.raises((ValueError, ImportError)):
        contents_at("nosuch://bucket", tmp_path)
