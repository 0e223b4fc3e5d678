"""The table of hooks, the driver's names, the wrappers and what the shim exports agree."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from shoal.device import cuda
from tests.device.cuda.kit import FAKE, NATIVE, Device, compiler, finish, needs_fake

SOURCES = {path.name: path.read_text() for path in sorted((NATIVE / "cuda").glob("*.cpp"))}
SYMBOLS = [tuple(line.split()) for line in (NATIVE / "cuda/symbols.txt").read_text().splitlines()]
TABLE = (NATIVE / "cuda/hooks.def").read_text()
HOOKS = re.findall(r"^(?:HOOK|ALSO)\((\w+), (\w+), (\d+), ([\w-]+)\)", TABLE, re.M)
CALLS = re.findall(r"^CALL\((\w+)\)", (NATIVE / "cuda/calls.def").read_text(), re.M)
HEADER = next(Path("/usr/local").glob("cuda*/include/cuda.h"), None)


def wrappers(text: str) -> set[str]:
    """The driver's functions that a source defines: also by its macros, once for each flavour."""
    found = set(re.findall(r"^CUresult (cu\w+)\(", text, re.M))
    bodies = dict(re.findall(r"^#define (\w+)\([^)]*\)\s*\\\n((?:.*\\\n)*.*)\n", text, re.M))
    for macro, suffix in re.findall(r"^(FLAVOUR|SYNC_FLAVOUR)\((\w*)", text, re.M):
        found.update(f"{name}{suffix}" for name in re.findall(r"CUresult (cu\w+)##suffix\(", bodies[macro]))
    return found


def exports(library: Path) -> set[str]:
    """By the ELF tables: the dynamic symbols that it defines."""
    told = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1] for line in told.splitlines()}


def test_each_hook_is_a_function_of_the_driver() -> None:
    assert len(HOOKS) > 80
    assert set(HOOKS) <= set(SYMBOLS)
    assert len(set(HOOKS)) == len(HOOKS)


def test_each_hook_has_a_wrapper_in_the_file_that_the_table_names_and_each_wrapper_is_in_the_table() -> None:
    named = {}
    for part in re.split(r"^// (?=\w+\.cpp$)", TABLE, flags=re.M)[1:]:
        file, _, lines = part.partition("\n")
        named[file] = set(re.findall(r"^HOOK\((\w+),", lines, re.M))
    defined = {name: wrappers(text) for name, text in SOURCES.items()}
    assert named == {name: found for name, found in defined.items() if found}


def test_a_function_is_hooked_in_all_its_versions_and_flavours_or_in_none() -> None:
    hooked = {symbol for symbol, *_ in HOOKS}
    bases = {base for _, base, *_ in HOOKS}
    left = sorted(symbol for symbol, base, version, _ in SYMBOLS if base in bases and symbol not in hooked)
    # The functions of CUDA 2, for addresses of 32 bits: no program of 64 bits can use them.
    assert left == [
        "cuDeviceTotalMem", "cuMemAlloc", "cuMemAllocPitch", "cuMemFree", "cuMemGetInfo", "cuMemcpyDtoD",
        "cuMemcpyDtoDAsync", "cuMemcpyDtoH", "cuMemcpyDtoHAsync", "cuMemsetD16", "cuMemsetD32", "cuMemsetD8",
    ]  # fmt: skip


def test_what_starts_work_and_what_takes_memory_is_hooked() -> None:
    hooked = {base for _, base, *_ in HOOKS}
    names = {base for _, base, version, _ in SYMBOLS}
    work = {name for name in names if re.fullmatch(r"cu(Graph)?Launch\w*|cuMem(Alloc|Create)\w*", name)}
    # Nothing runs on the device, or the memory is the host's; or the function went with CUDA 13 and Fermi before it.
    assert work - hooked == {
        "cuMemAllocHost", "cuLaunch", "cuLaunchGrid", "cuLaunchGridAsync",
        "cuLaunchCooperativeKernelMultiDevice",
    }  # fmt: skip


def test_what_the_shim_calls_is_a_function_of_the_driver_and_nothing_is_listed_that_it_does_not_call() -> None:
    text = "".join(SOURCES.values())
    assert set(CALLS) <= {symbol for symbol, *_ in SYMBOLS}
    assert [name for name in CALLS if not re.search(rf"\breal\.{name}\b", text)] == []


@needs_fake
def test_the_shim_exports_the_driver_s_names_and_nothing_else() -> None:
    assert exports(cuda.FOLDER / cuda.LIBRARY) == {symbol for symbol, *_ in SYMBOLS}


@needs_fake
def test_the_library_path_has_the_shim_under_both_of_its_names_and_nothing_else() -> None:
    assert sorted(path.name for path in cuda.FOLDER.iterdir()) == ["libcuda.so", cuda.LIBRARY]
    assert {one for one in exports(cuda.FOLDER / "libcuda.so") if not one.startswith("_")} == set()


@needs_fake
def test_lookup_gives_the_shim_s_own_function_for_each_hook_and_the_driver_s_for_any_other(tmp_path: Path) -> None:
    program = """
import json
class Info(ctypes.Structure):
    _fields_ = [("file", c.c_char_p), ("base", c.c_void_p), ("name", c.c_char_p), ("at", c.c_void_p)]
def owner(function):
    info = Info()
    assert ctypes.CDLL(None).dladdr(function, byref(info))
    return info.file.decode().split("/")[-2], info.name.decode() if info.name else ""
found = []
for symbol, base, version, flavour in json.loads(sys.stdin.read()):
    for name, more in (("cuGetProcAddress", ()), ("cuGetProcAddress_v2", (None,))):
        function = c.c_void_p()
        flags = c.c_uint64(1 if flavour == "-" else 2)
        result = getattr(cu, name)(base.encode(), byref(function), int(version), flags, *more)
        found.append([symbol, *owner(function)] if result == 0 else [symbol, "none", ""])
say(json.dumps(found))
"""
    process = Device(tmp_path).start(program, "guaranteed")
    assert process.stdin is not None
    process.stdin.write(json.dumps([one for one in SYMBOLS if one[2] != "0"]))
    process.stdin.close()
    process.stdin = None
    found = json.loads(finish(process))
    hooked = {symbol for symbol, *_ in HOOKS}
    has = exports(FAKE / cuda.LIBRARY)
    wrong = [
        (symbol, folder, name)
        for symbol, folder, name in found
        if folder != ("none" if symbol not in has else "cuda" if symbol in hooked else "fake")
        or (folder == "cuda" and name != symbol)
    ]
    assert wrong == []
    assert {symbol for symbol, folder, _ in found if folder == "cuda"} == hooked & has


@pytest.mark.skipif(HEADER is None or compiler() is None, reason="no cuda.h, or no compiler")
def test_the_layouts_are_those_of_cuda_h(tmp_path: Path) -> None:
    assert HEADER is not None
    command = compiler()
    assert command is not None
    fields = {
        "CUlaunchConfig": ("hStream", "attrs", "numAttrs"),
        "CUlaunchAttribute": ("value",),
        "CUDA_KERNEL_NODE_PARAMS": ("kernelParams", "extra", "kern", "ctx"),
        "CUDA_MEMSET_NODE_PARAMS": ("pitch", "value", "elementSize", "width", "height"),
        "CUDA_MEMCPY3D": ("srcHost", "srcDevice", "srcPitch", "dstHost", "dstDevice", "dstPitch", "Depth"),
        "CUDA_GRAPH_INSTANTIATE_PARAMS": ("hUploadStream", "result_out"),
        "CUgraphExecUpdateResultInfo": ("errorNode",),
        "CUgraphEdgeData": ("type",),
    }
    printed = "".join(
        f'printf("{name} %zu", sizeof({name}));'
        + "".join(f'printf(" %zu", offsetof({name}, {field}));' for field in names)
        + 'puts("");'
        for name, names in fields.items()
    )
    told = []
    for number, include in enumerate((f'"{HEADER}"', f'"{NATIVE}/cuda/driver.h"')):
        source = tmp_path / f"layout{number}.cpp"
        source.write_text(f"#include <cstddef>\n#include <cstdio>\n#include {include}\nint main() {{ {printed} }}\n")
        subprocess.run([*command, "-std=c++17", "-o", tmp_path / f"layout{number}", source], check=True)
        told.append(subprocess.run([tmp_path / f"layout{number}"], capture_output=True, text=True, check=True).stdout)
    assert told[0] == told[1] != ""
