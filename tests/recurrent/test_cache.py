"""The cache of kernels: damaged, read-only, full, of another processor, shared by two processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.recurrent.cells import library
from shoal.recurrent.layers.kernel import compile_kernel
from shoal.recurrent.llvm.cache import KernelCache, cache_folder, key_of
from shoal.recurrent.llvm.target import TARGETS, fitting, host_target
from shoal.recurrent.nest.ir import Sizes
from shoal.recurrent.nest.transform import Schedule
from shoal.recurrent.numbers import NumberType


def compiled(cache: KernelCache) -> None:
    target = host_target()
    assert target is not None
    compile_kernel(library.rnn(), Sizes(3, 5), NumberType.FP32, Schedule(1, 1, 1, False, 1), target, cache)


def test_a_kernel_is_found_again(tmp_path: Path) -> None:
    first, second = KernelCache(tmp_path), KernelCache(tmp_path)
    compiled(first)
    compiled(second)
    assert (first.hits, first.misses, second.hits, second.misses) == (0, 1, 1, 0)
    assert second.remarks == []


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-1], lambda data: b"", lambda data: data[:99] + bytes([data[99] ^ 1]) + data[100:]]
)
def test_a_damaged_entry_is_compiled_anew_and_reported_once(damage: object, tmp_path: Path) -> None:
    compiled(KernelCache(tmp_path))
    (entry,) = tmp_path.iterdir()
    whole = entry.read_bytes()
    entry.write_bytes(damage(whole))  # type: ignore[operator]
    cache = KernelCache(tmp_path)
    compiled(cache)
    assert cache.misses == 1
    assert cache.remarks == [f"{entry} is damaged; the kernel was compiled anew"]
    assert entry.read_bytes() == whole


def test_where_nothing_can_be_written_kernels_stay_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = KernelCache(tmp_path / "file" / "kernels")
    compiled(cache)
    compiled(cache)
    assert len(cache.remarks) == 1
    assert "kernels stay in memory" in cache.remarks[0]


def test_a_kernel_is_found_only_for_the_same_features_and_compiler() -> None:
    keys = {key_of("text", target, version) for target in TARGETS.values() for version in ("1", "2")}
    assert len(keys) == 2 * len(TARGETS)
    assert key_of("other", TARGETS["avx2"], "1") not in keys


def test_no_kernel_is_made_for_what_the_processor_lacks() -> None:
    avx2 = frozenset("avx avx2 fma f16c bmi bmi2 sse4.2 popcnt".split())  # noqa: SIM905
    assert [one.name for one in fitting("x86_64", avx2)] == ["avx2", "sse2"]
    assert [one.name for one in fitting("x86_64", frozenset())] == ["sse2"]
    wide = avx2 | {"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512vnni"}
    assert fitting("x86_64", wide)[0].name == "avx512-vnni"
    assert fitting("x86_64", wide | {"avx512bf16"})[0].name == "avx512-bf16"
    assert [one.name for one in fitting("aarch64", frozenset({"neon"}))] == ["neon"]


def test_two_processes_may_compile_the_same_kernel_at_once(tmp_path: Path) -> None:
    program = (
        "from pathlib import Path; import sys; from tests.recurrent.test_cache import compiled, KernelCache\n"
        "cache = KernelCache(Path(sys.argv[1])); compiled(cache); print(cache.remarks)"
    )
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{root}:{root / 'src'}"}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path)], env=environment, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    assert [one.communicate()[0].strip() for one in running] == ["[]", "[]"]
    assert [one.suffix for one in tmp_path.iterdir()] == [".o"]


def test_the_folder_is_the_users_own() -> None:
    assert cache_folder({"XDG_CACHE_HOME": "/x"}) == Path("/x/shoal/kernels")
    assert cache_folder({}).parts[-3:] == (".cache", "shoal", "kernels")
