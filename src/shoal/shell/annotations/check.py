"""Tries annotations against the real commands: whether each option is taken, whether nothing but what is declared is
written, and whether the claims about splitting hold, on random text with a fixed seed."""

from __future__ import annotations

import random
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shoal.shell.annotations.model import Annotation, Kind, Option, Split
from shoal.shell.pieces import added

_LIMIT_S = 20
_UNKNOWN = (
    "unrecognized option",
    "invalid option",
    "unknown option",
    "illegal option",
    "unknown predicate",
    "not an option",
)
_VALUES = ("1", "a", "utf-8", "name")


@dataclass(frozen=True, slots=True)
class Claim:
    command: str
    claim: str
    holds: bool
    detail: str = ""


def try_all(annotations: Mapping[str, Sequence[Annotation]], seed: int = 1) -> list[Claim]:
    """All claims of all commands that are installed here."""
    return [claim for found in annotations.values() for one in found for claim in try_one(one, seed)]


def try_one(annotation: Annotation, seed: int = 1) -> Iterator[Claim]:
    if shutil.which(annotation.name) is None:
        yield Claim(annotation.title, "it is installed here", False, "it cannot be tried")
        return
    with tempfile.TemporaryDirectory(prefix="shoal-annotation-") as name:
        folder = Path(name)
        texts = [_text(random.Random(seed + number)) for number in range(2)]  # noqa: S311 - reproducible text
        for number, text in enumerate(texts):
            (folder / f"in{number}").write_bytes(text)
        if annotation.cwd and annotation.subcommand:
            _run([annotation.name, "init"], folder)
        for option in annotation.options:
            yield from _try_option(annotation, option, folder)
        if not annotation.writes:
            yield _try_reading(annotation, folder, texts)
        if annotation.across:
            yield _try_across(annotation, folder, texts)
        if annotation.join is not Split.NEVER:
            yield _try_join(annotation, folder, texts)
        if annotation.split is Split.CONCAT and annotation.operands and annotation.operands[-1].kind is Kind.INPUT:
            yield _try_concat(annotation, folder)


def _text(random_: random.Random) -> bytes:
    words = ["alpha", "beta", "gamma", "delta", "a", "1", "22", "x:y", ""]
    return b"".join(" ".join(random_.choices(words, k=4)).encode() + b"\n" for _ in range(200))


def _run(words: Sequence[str], folder: Path, data: bytes = b"") -> tuple[int, bytes, bytes]:
    try:
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C", "HOME": str(folder)}
        done = subprocess.run(
            words, cwd=folder, input=data, capture_output=True, timeout=_LIMIT_S, check=False, env=environment
        )
    except (subprocess.TimeoutExpired, OSError) as error:
        return -1, b"", str(error).encode()
    return done.returncode, done.stdout, done.stderr


def _fixed(annotation: Annotation) -> list[str]:
    """Values for the operands before the inputs."""
    return [
        "a"
        for one in annotation.operands
        if one.kind in (Kind.TEXT, Kind.PROGRAM) and not one.many and not one.optional
    ]


def _words(annotation: Annotation) -> list[str]:
    return [annotation.name, *([annotation.subcommand] if annotation.subcommand else [])]


def _try_option(annotation: Annotation, option: Option, folder: Path) -> Iterator[Claim]:
    for name in option.names:
        value = [] if option.kind is None or option.optional else ["in0" if option.kind is Kind.INPUT else _VALUES[0]]
        inputs = ["in0"] if any(one.kind in (Kind.INPUT, Kind.FOLDER) for one in annotation.operands) else []
        _, _, complaint = _run([*_words(annotation), name, *value, *_fixed(annotation), *inputs], folder, b"1\n")
        text = complaint.decode(errors="replace")
        told = next(
            (line for line in text.splitlines() if any(one in line for one in _UNKNOWN) and name.lstrip("-") in line),
            "",
        )
        yield Claim(annotation.title, f"takes {name}", not told, told[:120])


def _try_reading(annotation: Annotation, folder: Path, texts: Sequence[bytes]) -> Claim:
    before = _state(folder)
    inputs = ["in0"] if any(one.kind in (Kind.INPUT, Kind.FOLDER) for one in annotation.operands) else []
    _run([*_words(annotation), *_fixed(annotation), *inputs], folder, texts[1])
    return Claim(annotation.title, "writes no file", _state(folder) == before)


def _state(folder: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in sorted(folder.iterdir()) if one.is_file()}


def _try_across(annotation: Annotation, folder: Path, texts: Sequence[bytes]) -> Claim:
    words = [*_words(annotation), *_fixed(annotation)]
    whole = _run(words, folder, b"".join(texts))[1]
    pieces = b"".join(_run(words, folder, one)[1] for one in texts)
    return Claim(
        annotation.title, "works on pieces of its input", whole == pieces, f"{len(whole)} and {len(pieces)} bytes"
    )


def _try_join(annotation: Annotation, folder: Path, texts: Sequence[bytes]) -> Claim:
    words = [*_words(annotation), *_fixed(annotation)]
    whole = _run(words, folder, b"".join(texts))[1]
    pieces = [_run(words, folder, one)[1] for one in texts]
    if annotation.join is Split.SUM:
        joined = added(pieces)
    elif annotation.join is Split.MERGE:
        for number, one in enumerate(pieces):
            (folder / f"piece{number}").write_bytes(one)
        joined = _run([words[0], "-m", *words[1:], "piece0", "piece1"], folder)[1]
    else:
        joined = _run(words, folder, b"".join(pieces))[1]
    return Claim(
        annotation.title, f"outputs of pieces are joined ({annotation.join})", whole == joined,
        f"{len(whole)} and {len(joined)} bytes",
    )  # fmt: skip


def _try_concat(annotation: Annotation, folder: Path) -> Claim:
    words = [*_words(annotation), *_fixed(annotation)]
    whole = _run([*words, "in0", "in1"], folder)[1]
    adds = [words[0], *annotation.split_adds, *words[1:]]
    pieces = b"".join(_run([*adds, one], folder)[1] for one in ("in0", "in1"))
    return Claim(
        annotation.title, "its files may be dealt out", whole == pieces, f"{len(whole)} and {len(pieces)} bytes"
    )
