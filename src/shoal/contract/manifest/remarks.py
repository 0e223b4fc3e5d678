"""Remarks on likely mistakes in a valid manifest: told where it is checked and submitted, never refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatch
from itertools import pairwise

from shoal.contract.manifest.schema import JobManifest

_SHELL_SIGNS = frozenset({"&&", "||", "|", "&", ";", ">", ">>", "<", "<<", "2>", "2>&1", "&>"})
_VARIABLE = re.compile(r"\$(\{[A-Za-z_]\w*\}|[A-Za-z_]\w*|\([^\s()]+\))", re.ASCII)
_SHELL = re.compile(r"(?:.*/)?(?:ba|da|z|k|fi|c|tc)?sh", re.ASCII)
_PARTS = re.compile(r"[\s;&|<>()\"'`=]+")
_REDIRECTED = re.compile(r">>?\s*[^\s;&|<>()]+")
_WRITTEN = frozenset({"-o", "--out", "--output", "-d", "--dir", "--log", "--save"})
"""Options whose value is mostly written, not read."""


def shell_syntax(manifest: JobManifest) -> str | None:
    """The first word of the command that only a shell would understand, where no shell is asked to."""
    words = manifest.command or ()
    if any(_SHELL.fullmatch(word) for word in words):
        return None
    return next((word for word in words if word in _SHELL_SIGNS or _is_variable(word)), None)


def _is_variable(word: str) -> bool:
    """Whether it holds a variable, and nothing that makes it a program of its own, as awk's."""
    return not any(sign in word for sign in " \t\n'\"") and _VARIABLE.search(word) is not None


def unlisted_files(manifest: JobManifest, is_file: Callable[[str], bool]) -> list[str]:
    """Relative paths that the command names and that are beside the manifest, but not among its `files`. `is_file` is
    asked of paths relative to the manifest's directory."""
    if manifest.bundle is not None:
        return []
    words = manifest.command or ()
    named = [one for before, word in pairwise(("", *words)) if before not in _WRITTEN for one in _paths(word, words)]
    if manifest.entrypoint is not None:
        module = manifest.entrypoint.partition(":")[0].replace(".", "/")
        named += [f"{module}.py", f"{module}/__main__.py"]
    named += [f"{module.replace('.', '/')}.py" for module in _modules(words)]
    fetched = {item.target for item in manifest.inputs}
    return [
        word for word in dict.fromkeys(name.removeprefix("./") for name in named)
        if word and not word.startswith(("/", "-", "~")) and ".." not in word.split("/")
        and word not in fetched and is_file(word) and not _is_listed(word, manifest.files)
    ]  # fmt: skip


def _paths(word: str, words: Sequence[str]) -> list[str]:
    """What may be a path in a word: the word, or each part of what a shell is given to run."""
    return _PARTS.split(_REDIRECTED.sub(" ", word)) if any(_SHELL.fullmatch(one) for one in words) else [word]


def _modules(words: Sequence[str]) -> list[str]:
    """What `python -m` is told to run."""
    return [word for before, word in pairwise(words) if before == "-m"]


def _is_listed(path: str, files: Sequence[str]) -> bool:
    parents = [path, *(path[:at] for at, sign in enumerate(path) if sign == "/")]
    return any(
        pattern == "." or fnmatch(one, pattern.removeprefix("./").rstrip("/")) for pattern in files for one in parents
    )


def remarks(manifest: JobManifest, is_file: Callable[[str], bool]) -> list[str]:
    """What to say of a manifest, in sentences."""
    told = []
    if (word := shell_syntax(manifest)) is not None:
        told.append(f"no shell runs the command, so `{word}` is passed on as it is: "
                    "write [sh, -c, \"...\"] for variables, pipes and `&&`")  # fmt: skip
    if left := unlisted_files(manifest, is_file):
        some = ", ".join(left)
        told.append(f"the command names {some}, beside this manifest, but `files` does not: add `files: [{some}]`")
    return told
