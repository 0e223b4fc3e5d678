"""Manifests that are right and hardly do what they mean."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.contract.manifest import JobManifest, remarks

BESIDE = {"train.py", "lib/data.py", "in.csv", "pkg/__main__.py"}


def told(command: Any = None, **fields: Any) -> list[str]:
    made = {"name": "x", **fields} | ({} if command is None else {"command": command})
    return remarks(JobManifest.model_validate(made), BESIDE.__contains__)


@pytest.mark.parametrize(
    ("command", "word"),
    [
        ("echo $HOME && ls | wc -l", "$HOME"),
        ("ls | wc", "|"),
        (["echo", "${HOME}/x"], "${HOME}/x"),
        (["make", "all", ">", "log"], ">"),
        ("echo $(hostname)", "$(hostname)"),
    ],
)
def test_what_only_a_shell_understands_is_told(command: Any, word: str) -> None:
    (text,) = told(command)
    assert f"`{word}`" in text
    assert "sh, -c" in text


@pytest.mark.parametrize(
    "command",
    [
        ["sh", "-c", "echo $HOME && ls"],
        ["/bin/bash", "-ec", "ls | wc"],
        ["awk", "{print $NF}", "x"],
        ["grep", "a|b", "x"],
        ["echo", "5$", "a$1"],
    ],
)
def test_what_a_shell_or_the_program_itself_reads_is_not(command: list[str]) -> None:
    assert told(command) == []


@pytest.mark.parametrize(
    ("command", "files", "missing"),
    [
        (["python3", "train.py"], [], "train.py"),
        (["python3", "./train.py", "lib/data.py"], ["train.py"], "lib/data.py"),
        (["sh", "-c", "python3 train.py<in.csv"], [], "train.py, in.csv"),
        (["python3", "-m", "train"], [], "train.py"),
    ],
)
def test_a_file_beside_the_manifest_that_is_not_listed_is_named(
    command: list[str], files: list[str], missing: str
) -> None:
    (text,) = told(command, files=files)
    assert f"the command names {missing}, beside this manifest" in text


@pytest.mark.parametrize(
    ("command", "fields"),
    [
        (["python3", "train.py"], {"files": ["train.py"]}),
        (["python3", "train.py"], {"files": ["*.py"]}),
        (["python3", "lib/data.py"], {"files": ["lib"]}),
        (["python3", "lib/data.py"], {"files": ["."]}),
        (["python3", "other.py"], {}),
        (["python3", "train.py"], {"bundle": "sha256:" + "0" * 64}),
        (["python3", "train.py"], {"inputs": [{"from": "/data/train.py", "to": "train.py"}]}),
        (["cp", "a", "--output", "in.csv"], {}),
        (["sh", "-c", "echo x > in.csv; ls >>train.py"], {}),
        (["echo", "../train.py", "/train.py"], {}),
    ],
)
def test_a_file_that_comes_along_or_is_not_there_is_not(command: list[str], fields: dict[str, Any]) -> None:
    assert told(command, **fields) == []


def test_an_entrypoint_names_its_module() -> None:
    assert "train.py" in told(entrypoint="train:main")[0]
    assert "pkg/__main__.py" in told(entrypoint="pkg")[0]
