"""What a program's environment must hold, what the machine has, and which programs cannot go in slices."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shoal.core import Unavailable
from shoal.device import opencl


@pytest.fixture
def layer() -> Path:
    path = opencl.DIRECTORY / opencl.LAYER
    if not path.exists():
        pytest.skip(f"{path.name} was not built")
    return path


def test_without_the_layer_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(opencl, "DIRECTORY", tmp_path)
    said = opencl.capability()
    assert not said.available
    assert "opencl-headers" in said.detail
    assert said.consequence == "OpenCL programs run without a gate"
    with pytest.raises(Unavailable, match="was not built"):
        opencl.environment()


def test_without_a_loader_it_says_so(layer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opencl, "LOADER", "libNoSuchThing.so.1")
    said = opencl.capability()
    assert not said.available
    assert said.detail.startswith("there is no OpenCL loader, libNoSuchThing.so.1 (apt-get install")


def test_without_a_device_it_says_so(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path))
    said = opencl.capability()
    assert not said.available
    assert said.detail.startswith("there is no OpenCL device")
    assert said.consequence == "there is nothing for OpenCL programs to share"


def test_the_devices_are_told_with_names_of_their_own(environment: dict[str, str]) -> None:
    found = opencl.devices()
    assert found
    assert len({one.name for one in found}) == len(found)
    assert all(one.memory > 0 and one.platform and one.kind in ("cpu", "gpu", "accelerator") for one in found)
    assert found[0].model in opencl.capability().detail


def test_the_environment_keeps_other_layers_outside(layer: Path) -> None:
    assert opencl.environment(base={}) == {"OPENCL_LAYERS": str(layer), "PYOPENCL_NO_CACHE": "1"}
    other = opencl.environment("gpu#1", base={"OPENCL_LAYERS": f"/opt/trace.so:{layer}"})
    assert other["OPENCL_LAYERS"] == f"/opt/trace.so:{layer}"
    assert other["SHOAL_DEVICE_OPENCL"] == "gpu#1"
    assert opencl.environment(base=os.environ)["OPENCL_LAYERS"].endswith(str(layer))


WAITS = "a loop seems to wait for other work-groups"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("while (atomic_add(&x[0], 0) < 4);", WAITS),
        ("while (atomic_load(&x[0]) != 1) { y++; }", WAITS),
        ("while (*flag == 0);", WAITS),
        ("while (*flag == 0) { mem_fence(CLK_GLOBAL_MEM_FENCE); }", WAITS),
        ("do { barrier(CLK_GLOBAL_MEM_FENCE); } while (x[0] < 9);", WAITS),
        ("do ; while (x[0] < 9);", WAITS),
        ("do { if (y) { y = 1; } } while (atomic_or(&x[0], 0) < 9);", WAITS),
        ("for (;;) { if (atom_or(&x[0], 0)) break; }", WAITS),
        ("for (int i = 0; atomic_or(&x[0], 0) < 9; i++) y += i;", WAITS),
        ("while (1) { y = atomic_load(&x[0]); if (y) return; }", WAITS),
        ("if (y) { y = 2; } while (x[0] != 3);", WAITS),
        ("for (; *flag; );", WAITS),
        ("enqueue_kernel(q, f, r, ^{ y = 1; });", "it launches kernels from the device"),
        ("ndrange_t r = ndrange_1D(4);", "it launches kernels from the device"),
        ('asm("mov %ctaid.x");', "it holds assembly, which may read group ids"),
        (
            "y = __nvvm_read_ptx_sreg_ctaid_x();",
            "it calls __nvvm_read_ptx_sreg_ctaid_x, which the layer cannot replace",
        ),
        ("y = _Z12get_group_idj(0);", "it calls _Z12get_group_idj, which the layer cannot replace"),
        ("y = sub_group_reduce_add(y);", "it uses sub-groups, whose size may differ between builds"),
        ("\n#define get_group_id(d) 3\n", "it defines get_group_id itself"),
        ("\n# undef get_global_size\n", "it defines get_global_size itself"),
        ('\n#include "more.cl"\n', "it includes files, which the layer does not read"),
        # These can.
        ("while (y < 9) y++;", None),
        ("while (y) { y >>= 1; }", None),
        ("do { y -= 1; } while (y > 0);", None),
        ("do { y--; } while (y); while (y < 3) { y = y + 1; }", None),
        ("for (int i = 0; i < 9; ++i);", None),
        ("for (int k = 8; k > 0; k >>= 1) { barrier(CLK_LOCAL_MEM_FENCE); }", None),
        ("for (;;) { int o = x[0]; if (atomic_cmpxchg(&x[0], o, o + 1) == o) break; }", None),
        ("while (atomic_cmpxchg(&x[0], 0, 1) != 0);", None),
        ("for (int i = 0; i < 9; i++) atomic_add(&x[i], 1);", None),
        ("// while (*flag);\n/* #include <a> */ y = 'a'; printf(\"sub_group while (*flag);\");", None),
        ("// goes on \\\n while (*flag);\n y = 1;", None),
        ("int asmodeus = get_group_id(0);", None),
        ("while (true) { y += 1; if (y > 9) break; }", None),
    ],
)
def test_what_cannot_go_in_slices_is_found_in_the_text(layer: Path, body: str, reason: str | None) -> None:
    source = f"kernel void f(global volatile int *x, global int *flag, int y) {{ {body} x[get_global_id(0)] = y; }}"
    assert opencl.refusal(source) == reason


@pytest.mark.parametrize("options", ["-Dget_group_id=7", "-cl-fast-relaxed-math -D get_group_id"])
def test_options_that_define_what_is_replaced_are_refused(layer: Path, options: str) -> None:
    assert opencl.refusal("kernel void f() {}", options) == "an option defines what the layer replaces"
    assert opencl.refusal("kernel void f() {}", "-DN=4 -D get_group_ids=3") is None
