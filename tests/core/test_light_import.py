"""`import shoal` costs next to nothing, so that training scripts can afford its hooks."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {
    "alembic", "anyio", "cryptography", "fastapi", "fsspec", "httptools", "httpx", "numpy", "orjson", "pandas",
    "prometheus_client", "psycopg", "pydantic", "pynvml", "rich", "scipy", "sklearn", "sqlalchemy", "starlette",
    "structlog", "torch", "typer", "uvicorn", "uvloop", "yaml",
}  # fmt: skip
MOST_NEW_MODULES = 150
"""The standard library's own share (dataclasses, decimal, typing ...) is about 60 for the whole vocabulary."""


def modules_after(statement: str) -> frozenset[str]:
    """What a fresh interpreter has loaded because of the statement. `-I`: nothing of this process's environment."""
    code = f"import sys; before = set(sys.modules); {statement}; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    return frozenset(done.stdout.split())


@pytest.mark.parametrize("module", ["shoal", "shoal.core", "shoal.train", "shoal.engine"])
def test_importing_the_light_parts_imports_nothing_heavy(module: str) -> None:
    loaded = modules_after(f"import {module}")
    assert module in loaded
    assert {name.partition(".")[0] for name in loaded} & HEAVY == set()
    assert len(loaded) <= MOST_NEW_MODULES


def test_the_bare_package_and_the_training_hooks_do_not_even_load_the_vocabulary() -> None:
    for module in ("shoal", "shoal.train"):
        assert "shoal.core" not in modules_after(f"import {module}")


def test_the_client_is_loaded_on_first_use() -> None:
    assert "shoal.sdk" in modules_after("import shoal; shoal.Client")
    assert "shoal.sdk" not in modules_after("import shoal; dir(shoal)")


def test_an_unknown_name_is_an_attribute_error() -> None:
    code = "import shoal; shoal.Cleint"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "module 'shoal' has no attribute 'Cleint'" in done.stderr
