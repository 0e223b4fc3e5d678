"""Fetching and storing: whole or not at all, again without harm, and through a real job."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import fsspec
import pytest

from shoal.control.attempts import data
from shoal.control.attempts.data import copy, main
from shoal.control.home.vault import Vault
from shoal.core import Unavailable


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.txt").write_bytes(b"a" * 3)
    (folder / "deep" / "b.bin").write_bytes(bytes(range(256)))
    return folder


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_tree_and_a_file_arrive_whole_and_twice_is_no_harm(scheme: str, source: Path, tmp_path: Path) -> None:
    for _ in range(2):
        copy(str(source), f"{scheme}{tmp_path}/there/tree")
        copy(str(source / "a.txt"), f"{scheme}{tmp_path}/there/deeper/file")
    assert tree(tmp_path / "there" / "tree") == tree(source)
    assert (tmp_path / "there" / "deeper" / "file").read_bytes() == b"aaa"
    assert list((tmp_path / "there").rglob("*.part")) == []


def test_to_an_object_store_and_back(source: Path, tmp_path: Path) -> None:
    copy(str(source), "memory://bucket/tree")
    assert fsspec.filesystem("memory").cat_file("/bucket/tree/a.txt") == b"aaa"
    copy("memory://bucket/tree", str(tmp_path / "back"))
    assert tree(tmp_path / "back") == tree(source)


def test_a_server_that_does_not_answer_is_not_called_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConnectionError, match="cannot be reached"):
        copy("http://127.0.0.1:1/x", str(tmp_path / "x"))


def test_what_is_missing_is_named_unless_it_is_optional(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    moves = f'[{{"from": "{source}/a.txt", "to": "{tmp_path}/one"}}, {{"from": "/none", "to": "{tmp_path}/two"}}]'
    assert main(["download", moves]) == 1
    assert "/none" in capsys.readouterr().out
    copy("/none", str(tmp_path / "two"), optional=True)
    copy("file:///none", str(tmp_path / "two"), optional=True)
    assert not (tmp_path / "two").exists()
    with pytest.raises(FileNotFoundError):
        copy("memory://none", str(tmp_path / "two"))


def test_the_helper_process_loads_nothing_heavy(source: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from shoal.control.attempts.data import main; "
        f'main(["store", \'[{{"from": "{source}", "to": "{tmp_path}/out"}}]\']); '
        "print(sorted({'fastapi', 'sqlalchemy', 'pydantic', 'fsspec', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("left", [b"", b"short", bytes(44)])
def test_a_vault_does_without_no_key_and_half_a_key(tmp_path: Path, left: bytes) -> None:
    (tmp_path / "secret.key").write_bytes(left)
    for use in (lambda vault: vault.seal("x"), lambda vault: vault.derive("x")):
        with pytest.raises(Unavailable, match=r"the key of the secrets is damaged"):
            use(Vault(tmp_path / "secret.key"))
    assert (tmp_path / "secret.key").read_bytes() == left


def test_a_vault_opens_what_it_sealed_and_says_when_its_key_was_changed(tmp_path: Path) -> None:
    vault = Vault(tmp_path / "secret.key")
    sealed = vault.seal("pässword")
    assert "pässword".encode() not in sealed
    assert (tmp_path / "secret.key").stat().st_mode & 0o777 == 0o600
    assert Vault(tmp_path / "secret.key").open(sealed) == "pässword"
    (tmp_path / "secret.key").unlink()
    other = Vault(tmp_path / "secret.key")
    with pytest.raises(Unavailable, match="cannot be decrypted"):
        other.open(sealed)


@pytest.mark.parametrize(("error", "told"), [(OSError(), "OSError"), (OSError("it is full"), "it is full")])
def test_an_error_is_told_in_its_words_or_by_its_name(
    error: OSError, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(data, "copy", fails)
    assert data.main(["download", '[{"from": "a", "to": "b"}]']) == 1
    assert capsys.readouterr().out == f"download: a -> b: {told}\n"
