"""What is decided without effects: names of images, what makes room, and the way into an environment."""

from __future__ import annotations

import io
import json
import marshal
import os
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from shoal.contract.manifest import parse_manifest
from shoal.core import Invalid, Sandbox
from shoal.engine import Mount
from shoal.environment.activate import in_conda, in_image, in_venv
from shoal.environment.driver import driver_files, libraries_of, listed
from shoal.environment.inside import Unusable, arguments, environment, layout
from shoal.environment.keeping import ROOM, to_remove
from shoal.environment.locked import _MOST_BYTES, read_locked
from shoal.environment.places import folder_of
from shoal.environment.reference import read_image
from shoal.environment.section import EnvironmentJob

HEX = "a" * 64


@pytest.mark.parametrize(
    ("text", "source", "digest", "host"),
    [
        ("oci:/images/a", "oci:/images/a", None, None),
        (f"oci:/images/a:v1@sha256:{HEX}", "oci:/images/a:v1", HEX, None),
        ("docker-archive:/a.tar", "docker-archive:/a.tar", None, None),
        ("ghcr.io/team/train:v2", "docker://ghcr.io/team/train:v2", None, "ghcr.io"),
        ("localhost:5000/a", "docker://localhost:5000/a", None, "localhost:5000"),
        (f"ghcr.io/a:v1@sha256:{HEX}", f"docker://ghcr.io/a@sha256:{HEX}", HEX, "ghcr.io"),
    ],
)
def test_names_of_images(text: str, source: str, digest: str | None, host: str | None) -> None:
    found = read_image(text)
    assert (found.source, found.digest, found.host) == (source, digest, host)
    assert found.name == (
        source if host is None else source.removeprefix("docker://").partition("@")[0].partition(":v")[0]
    )
    assert found.local is (host is None)


@pytest.mark.parametrize(
    "text",
    [
        "", "debian", "debian:12", "library/debian", "oci:images/a", "oci:/a/../../etc", "docker-daemon:a", "dir:/a",
        "docker://ghcr.io/a", "ghcr.io/A", "--help", "ghcr.io/a --tls-verify=false", "ghcr.io/a@sha256:abc",
        "containers-storage:x", "oci-archive:/a.tar", "ghcr.io/../a",
    ],
)  # fmt: skip
def test_what_is_no_image(text: str) -> None:
    with pytest.raises(ValueError, match="oci:DIR, docker-archive:FILE, or REGISTRY/NAME"):
        read_image(text)


@given(st.text(max_size=60))
def test_no_text_reads_as_an_image_of_another_transport(text: str) -> None:
    try:
        found = read_image(text)
    except ValueError:
        return
    assert found.source.startswith(("oci:/", "docker-archive:/", "docker://"))
    assert not found.source.startswith("-")


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({}, "one of venv, conda, uv, image says where the software is"),
        ({"venv": "/a", "conda": "b"}, "here is venv and conda"),
        ({"venv": "a"}, "no absolute path"),
        ({"venv": "/a/../b"}, r"has a `\.\.`"),
        ({"conda": "-x"}, "no name of a conda environment"),
        ({"conda": "a/b"}, "'a/b' is no absolute path"),
        ({"conda": "/a/../b"}, r"'/a/../b' has a `\.\.`"),
        ({"uv": "/uv.lock"}, "not among the job's files"),
        ({"uv": "../uv.lock"}, r"has a `\.\.`"),
        ({"uv": "poetry.lock"}, "is no uv.lock"),
        ({"uv": "uv.lock", "extras": ["--index-url=http://x"]}, "pattern"),
        ({"venv": "/a", "extras": ["gpu"]}, "only a lock file has extras"),
        ({"venv": "/a", "workdir": "/b"}, "only an image has mounts and a workdir"),
        ({"venv": "/a\nb"}, "pattern"),
        ({"image": "debian"}, "is no image"),
        ({"LANG": "C"}, "Extra inputs"),
    ],
)
def test_sections_that_are_refused(section: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        EnvironmentJob.model_validate(section)


def test_the_field_of_a_manifest_is_the_section_of_the_extension() -> None:
    short = parse_manifest("name: a\ncommand: [b]\nenvironment: {venv: /v}")
    long = parse_manifest("name: a\ncommand: [b]\nextensions: {environment: {venv: /v}}")
    assert short == long
    assert parse_manifest(short.canonical_json()) == short
    assert short.extensions == {"environment": {"venv": "/v"}}
    with pytest.raises(Invalid, match="it stands in `extensions` as well"):
        parse_manifest("name: a\ncommand: [b]\nenvironment: {venv: /v}\nextensions: {environment: {venv: /v}}")


@dataclass(frozen=True)
class Kept:
    id: str
    bytes: int
    used_at: float


kept = st.lists(
    st.builds(Kept, st.integers(0, 99).map(str), st.integers(0, 1000), st.floats(0, 1e9)), unique_by=lambda one: one.id
)


@given(kept, st.sets(st.integers(0, 99).map(str)), st.integers(0, 20_000))
def test_what_was_not_used_for_longest_makes_room_and_no_more_than_needed(
    found: list[Kept], used: set[str], limit: int
) -> None:
    removed = to_remove(found, used, limit)
    assert not set(removed) & used
    left = [one for one in found if one.id not in removed]
    room = limit * ROOM
    free = [one for one in left if one.id not in used]
    assert sum(one.bytes for one in left) <= room or not free
    if removed:
        last = next(one for one in found if one.id == removed[-1])
        assert sum(one.bytes for one in left) + last.bytes > room
        assert all(last.used_at <= one.used_at for one in free)


def test_folders_of_tenants_are_apart_and_what_the_server_made_is_too(tmp_path: Path) -> None:
    found = {folder_of(tmp_path, tenant, level) for tenant in ("a", "a-server") for level in Sandbox}
    assert len(found) == 4


# --- the way in ---


def run(argv: tuple[str, ...], **env: str) -> subprocess.CompletedProcess[str]:
    told = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **env}
    return subprocess.run(argv, env=told, capture_output=True, text=True, check=False)


def fake_venv(path: Path) -> Path:
    (path / "bin").mkdir(parents=True)
    for name in ("python", "tool"):
        (path / "bin" / name).write_text(f'#!/bin/sh\necho "{name} of {path.name}" "$VIRTUAL_ENV$CONDA_PREFIX" "$@"\n')
        (path / "bin" / name).chmod(0o755)
    return path


def test_programs_of_a_virtual_environment_come_first(tmp_path: Path) -> None:
    path = fake_venv(tmp_path / "my venv; touch pwned")
    done = run((*in_venv(str(path)), "python", "a b", "$(id)"), PYTHONHOME="/x", CONDA_PREFIX="/y")
    assert done.stdout == f"python of {path.name} {path} a b $(id)\n"
    assert run((*in_venv(str(path)), "sh", "-c", "exit 7")).returncode == 7
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("path", ["/nowhere", "/etc", "/etc/passwd"])
def test_a_virtual_environment_that_cannot_be_entered_says_so(path: str) -> None:
    done = run((*in_venv(path, hint=". Ask ada"), "true"))
    assert done.returncode == 126
    assert f"the environment {path} has no bin/python that user {os.getuid()}" in done.stderr
    assert done.stderr.endswith(". Ask ada\n")


def test_a_conda_environment_is_found_by_name_and_by_prefix(tmp_path: Path) -> None:
    roots = [tmp_path / "one", tmp_path / "two"]
    prefix = fake_venv(roots[1] / "envs" / "train")
    (prefix / "conda-meta").mkdir()
    scripts = prefix / "etc" / "conda" / "activate.d"
    scripts.mkdir(parents=True)
    (scripts / "a.sh").write_text("export FROM_SCRIPT=yes; set -- changed\n")
    enter = in_conda("train", [str(one) for one in roots])
    named = (*enter, "sh", "-c", "tool x; echo $FROM_SCRIPT $CONDA_DEFAULT_ENV")
    assert run(named, VIRTUAL_ENV="/x").stdout == f"tool of train {prefix} x\nyes train\n"
    assert run((*in_conda(str(prefix), [str(tmp_path)]), "tool")).stdout == f"tool of train {prefix}\n"
    home = (*in_conda("train", ["~/two"]), "tool")
    assert run(home, HOME=str(tmp_path)).stdout == f"tool of train {prefix}\n"
    missing = run((*in_conda("other", [str(one) for one in roots]), "tool"))
    assert (missing.returncode, missing.stdout) == (126, "")
    assert "there is no conda environment other that user" in missing.stderr
    assert run((*in_conda("base", []), "tool")).returncode == 126
    assert missing.stderr.endswith("can read\n")
    assert run((*in_conda("other", [], hint=". Ask ada"), "tool")).stderr.endswith("can read. Ask ada\n")


def test_an_image_is_entered_with_what_the_server_says_of_it(tmp_path: Path) -> None:
    mounts = (Mount(Path("/kept"), Path("/data"), read_only=True), Mount(Path("/w"), Path("/w"), read_only=False))
    line = in_image(
        tmp_path, home=Path("/srv/shoal"), mounts=mounts, paths=["/scratch"], workdir="/w",
        given=["B", "A"], driver={"libcuda.so.1": "/lib/libcuda.so.1"},
    )  # fmt: skip
    assert line[0] == str(Path(sys.executable).resolve())
    assert line[1:4] == ("-I", "-S", "-c")
    assert len(line) == 6
    assert marshal.loads(bytes.fromhex(line[5])) == {
        "place": str(tmp_path), "home": "/srv/shoal", "paths": ["/scratch"], "workdir": "/w", "given": ["A", "B"],
        "driver": {"libcuda.so.1": "/lib/libcuda.so.1"}, "mounts": [("/data", "/data", True), ("/w", "/w", False)],
    }  # fmt: skip


# --- the lock file ---


def bundle(path: Path, **files: bytes) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name.replace("__", "/"))
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def test_the_key_is_that_of_the_content(tmp_path: Path) -> None:
    given = {"uv.lock": b"a", "pyproject.toml": b"b"}
    first = read_locked(bundle(tmp_path / "1", **given, other=b"1"), "uv.lock")
    assert first.files == given
    assert read_locked(bundle(tmp_path / "2", other=b"2", **given), "uv.lock").key == first.key
    changed = [{**given, "uv.lock": b"c"}, {**given, "pyproject.toml": b"c"}, {**given, ".python-version": b"3.12"}]
    keys = {read_locked(bundle(tmp_path / "3", **one), "uv.lock").key for one in changed}
    assert len(keys | {first.key, read_locked(tmp_path / "1", "uv.lock", ("--extra", "x")).key}) == 5


def test_a_lock_file_that_is_not_there_or_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"there is no sub/uv\.lock among the job's files"):
        read_locked(bundle(tmp_path / "1", **{"uv.lock": b"a", "pyproject.toml": b"b"}), "sub/uv.lock")
    with tarfile.open(tmp_path / "2", "w") as archive:
        for name in ("uv.lock", "pyproject.toml"):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
            archive.addfile(link)
    with pytest.raises(Invalid, match=r"there is no uv\.lock"):
        read_locked(tmp_path / "2", "uv.lock")
    (tmp_path / "3").write_bytes(b"no archive")
    with pytest.raises(Invalid, match="the job's files cannot be read") as unread:
        read_locked(tmp_path / "3", "uv.lock")
    with pytest.raises(Invalid, match=rf"uv\.lock is larger than {_MOST_BYTES >> 20} MiB") as large:
        read_locked(bundle(tmp_path / "4", **{"uv.lock": bytes(_MOST_BYTES + 1)}), "uv.lock")
    with pytest.raises(Invalid, match=r"there is no pyproject\.toml") as lacks:
        read_locked(bundle(tmp_path / "5", **{"uv.lock": b""}), "uv.lock")
    assert [one.value.where for one in (unread, large, lacks)] == ["files", "environment.uv", "environment.uv"]
    assert lacks.value.hint == "name it with its project in the manifest: files: [pyproject.toml, uv.lock]"


# --- inside an image ---

names = st.sampled_from(["a", "b", "c", "etc", "home"])
paths = st.lists(names, min_size=1, max_size=3).map(lambda parts: "/" + "/".join(parts))


@given(st.sets(paths, max_size=8), st.sets(paths, min_size=1, max_size=4))
def test_the_image_is_shown_whole_but_for_the_jobs_own_places(has: set[str], wanted: set[str]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as root:
        for path in has:
            Path(root + path).mkdir(parents=True, exist_ok=True)
        words = layout(root, wanted, "/nowhere")
        shown = {words[at + 2] for at, word in enumerate(words) if word == "--ro-bind"}
        made = {words[at + 1] for at, word in enumerate(words) if word == "--dir"}
        assert not shown & wanted
        for path in wanted:  # nothing read-only covers a place of the job
            above = {str(one) for one in Path(path).parents} | {path}
            assert not shown & above
        for path in has:
            own = {str(one) for one in Path(path).parents} | {path}
            assert own & (shown | wanted | made)


@pytest.mark.parametrize("kind", ["link", "file"])
def test_an_image_with_something_else_where_the_jobs_files_lie(tmp_path: Path, kind: str) -> None:
    (tmp_path / "home").symlink_to("/etc") if kind == "link" else (tmp_path / "home").touch()
    with pytest.raises(Unusable, match=f"the image has a {kind} at /home"):
        layout(str(tmp_path), ["/home/ada/run"], "/nowhere")


def test_variables_of_the_image_and_of_the_job() -> None:
    told = {"given": ["A", "LD_LIBRARY_PATH"], "driver": {}}
    env = {
        "A": "job",
        "PATH": "/server",
        "HOME": "/root",
        "VIRTUAL_ENV": "/v",
        "LD_LIBRARY_PATH": "/given",
        "RANK": "0",
    }
    found = environment(told, env, ["PATH=/image", "A=image", "B=image=1"], "/run/dir")
    assert found == {
        "PATH": "/image", "A": "job", "B": "image=1", "HOME": "/run/dir", "LD_LIBRARY_PATH": "/given", "RANK": "0",
        "TMPDIR": "/tmp",
    }  # fmt: skip
    assert (
        environment({"given": ["PATH", "HOME"], "driver": {}}, {"PATH": "/mine", "HOME": "/h"}, ["PATH=/image"], "/r")[
            "PATH"
        ]
        == "/mine"
    )


# --- the driver ---

LOADER = """3 libs found in cache `/etc/ld.so.cache'
\tlibcuda.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libcuda.so.1
\tlibcuda.so.1 (libc6) => /lib/i386-linux-gnu/libcuda.so.1
\tlibcudart.so.12 (libc6,x86-64) => /usr/local/cuda/lib64/libcudart.so.12
\tlibnvidia-ml.so.1 (libc6,x86-64, OS ABI: Linux 2.3.99) => /lib/x86_64-linux-gnu/libnvidia-ml.so.1
"""


def test_the_drivers_libraries_are_in_the_loaders_list() -> None:
    names = ("libcuda.so.1", "libnvidia-ml.so.1")
    assert listed(LOADER) == {name: f"/lib/x86_64-linux-gnu/{name}" for name in names}


def test_the_loaders_list_is_read_on_both_kinds_of_machine_and_links_are_followed(tmp_path: Path) -> None:
    library = tmp_path / "libcuda.so.550.1"
    library.touch()
    (tmp_path / "libcuda.so.1").symlink_to(library.name)
    told = f"\tlibcuda.so.1 (libc6,AArch64) => {tmp_path}/libcuda.so.1\n\tlibnvoptix.so.1 (libc6,AArch64) => /gone.so\n"
    assert {*listed(told)} == {"libcuda.so.1", "libnvoptix.so.1"}
    assert driver_files([], ["/bin/echo", "-n", told]) == {"libcuda.so.1": str(library)}


def test_of_devices_those_of_all_are_mounted() -> None:
    def edits(name: str) -> dict[str, object]:
        return {"containerEdits": {"mounts": [{"hostPath": f"/lib/{name}"}]}}

    devices = [{"name": "all", **edits("liball.so")}, {"name": "0", **edits("libzero.so")}, "junk", {"name": "all"}]
    assert libraries_of({"kind": "nvidia.com/gpu", "devices": devices, **edits("libx.so.1")}) == [
        "/lib/libx.so.1", "/lib/liball.so",
    ]  # fmt: skip
    assert libraries_of({"kind": "nvidia.com/gpu"}) == libraries_of([]) == []


@pytest.mark.parametrize("suffix", ["json", "yaml", "yml"])
def test_the_drivers_libraries_are_those_of_the_container_device_interface(tmp_path: Path, suffix: str) -> None:
    library = tmp_path / "libcuda.so.550.1"
    library.touch()
    (tmp_path / "libcuda.so.1").symlink_to(library.name)
    (tmp_path / "libother.so.1").symlink_to("elsewhere")
    mounts = [
        {"hostPath": str(path), "containerPath": str(path)} for path in (library, "/gone/libcuda.so.2", "/bin/sh")
    ]
    spec = {"kind": "nvidia.com/gpu", "devices": [{"name": "0"}], "containerEdits": {"mounts": mounts}}
    folder = tmp_path / "cdi"
    folder.mkdir()
    (folder / f"nvidia.{suffix}").write_text(json.dumps(spec))
    (folder / f"broken.{suffix}").write_text("{[")
    (folder / f"other.{suffix}").write_text(json.dumps({**spec, "kind": "other.com/gpu"}))
    found = driver_files([folder, tmp_path / "none"], ["false"])
    assert found == {"libcuda.so.550.1": str(library), "libcuda.so.1": str(library)}
    assert driver_files([tmp_path / "none"], ["/nowhere/ldconfig"]) == {}


def test_a_job_with_a_gpu_sees_the_drivers_libraries(tmp_path: Path) -> None:
    library = tmp_path / "libcuda.so.1"
    library.touch()
    (tmp_path / "root").mkdir()
    told = {"root": str(tmp_path / "root"), "home": "/home/shoal", "mounts": [], "paths": [], "given": [],
            "driver": {"libcuda.so.1": str(library)}}  # fmt: skip
    words = arguments(told, {"CUDA_VISIBLE_DEVICES": "0"}, str(tmp_path))
    at = words.index("/run/shoal/libcuda.so.1")
    assert words[at - 2 : at] == ["--ro-bind", str(library)]
    assert (
        environment(told, {"CUDA_VISIBLE_DEVICES": "0"}, ["LD_LIBRARY_PATH=/a"], "/r")["LD_LIBRARY_PATH"]
        == "/run/shoal:/a"
    )
    assert "/run/shoal/libcuda.so.1" not in arguments(told, {"CUDA_VISIBLE_DEVICES": ""}, str(tmp_path))


def test_an_image_is_shown_what_the_job_has_with_the_rights_that_it_has(tmp_path: Path) -> None:
    places = {name: tmp_path / name for name in ("root", "data", "keeps", "scratch", "run", "checkpoints")}
    for place in places.values():
        place.mkdir()
    libraries = [tmp_path / "a.so", tmp_path / "b.so"]
    for library in libraries:
        library.touch()
    told = {
        "root": str(places["root"]), "home": "/home/shoal", "driver": {"libcuda.so.1": str(libraries[0])}, "given": [],
        "mounts": [(str(places["data"]), "/data", True), (str(places["keeps"]), "/keeps", False)],
        "paths": [str(places["scratch"]), "/nowhere"],
    }  # fmt: skip
    env = {
        "SHOAL_RUN": str(places["run"]), "SHOAL_CHECKPOINT_DIR": str(places["checkpoints"]),
        "LD_PRELOAD": ":".join(map(str, libraries)), "CUDA_VISIBLE_DEVICES": "0",
    }  # fmt: skip
    words = arguments(told, env, str(places["run"]))
    shown = {words[at + 2]: (word, words[at + 1]) for at, word in enumerate(words) if word in ("--bind", "--ro-bind")}
    wanted = {"/data": ("--ro-bind", str(places["data"])), "/keeps": ("--bind", str(places["keeps"]))}
    wanted |= {str(places[name]): ("--bind", str(places[name])) for name in ("scratch", "run", "checkpoints")}
    wanted |= {str(library): ("--ro-bind", str(library)) for library in libraries}
    assert wanted.items() <= shown.items()
    assert "/nowhere" not in words
    kept = environment({"given": ["TMPDIR"], "driver": {}}, {"TMPDIR": "/mine"}, [], "/r")
    assert kept["TMPDIR"] == "/mine"
    assert environment({"given": [], "driver": {}}, {"TMPDIR": "/r/tmp"}, [], "/r")["TMPDIR"] == "/r/tmp"
