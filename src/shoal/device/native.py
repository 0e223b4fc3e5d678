"""libshoaldevice, bound: the policy, the page, the gate and the kernel profiles, as front ends use them.

Structures mirror `native/device/policy.h` and `page.h`; `library` checks the sizes when it loads. Nothing here fails at
import: `capability` says what is missing where there was no compiler.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path

from shoal.core import Capability, Unavailable

DIRECTORY = Path(__file__).parent / "_native"
ABI = 3
PAGE_MAGIC, PAGE_VERSION = 0x53484456, 2
SLOTS = 64
LANES = 32
_BUILD_IT = "install a C++17 compiler (apt-get install g++), then install Shoal again"
_CONSEQUENCE = "devices cannot be shared: programs run without a gate"

u32, u64, pointer = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_void_p


class Struct(ctypes.Structure):
    """Prints its fields."""

    def __repr__(self) -> str:
        values = ", ".join(f"{field[0]}={getattr(self, field[0])!r}" for field in self._fields_)
        return f"{type(self).__name__}({values})"


class NativeRules(Struct):
    _fields_ = [
        *((name, u64) for name in (
            "bound_ns", "grace_ns", "grace_most_ns", "idle_ns", "idle_bound_ns", "stuck_ns", "quantum_ns",
            "max_wait_ns",
        )),
        ("min_share_pm", u32), ("reserved", u32),
    ]  # fmt: skip


class NativeTenant(Struct):
    _fields_ = [
        *((name, u32) for name in ("cls", "weight", "pending", "waiting")),
        *(
            (name, u64)
            for name in (
                "last_active_ns",
                "progress_ns",
                "gap_ns",
                "outstanding_ns",
                "running_ns",
                "used_ns",
                "overdue_ns",
            )
        ),
    ]


class NativeDecision(Struct):
    _fields_ = [("verdict", u32), ("cause", u32), ("look_at_ns", u64)]


class NativeProfile(Struct):
    _fields_ = [
        *((name, u64) for name in (
            "whole_ns", "whole_dev_ns", "slice_ns", "slice_dev_ns", "ticket_ns", "ticket_whole_ns",
        )),
        *((name, u32) for name in ("slice_blocks", "seen", "wave_blocks", "firsts")),
    ]  # fmt: skip


class NativePlan(Struct):
    _fields_ = [("way", u32), ("blocks", u32), ("cost_ns", u64), ("violates", u32), ("reserved", u32)]


class Process(Struct):
    _fields_ = [("pid", u32), ("start_time", u64), ("pid_space", u64)]


class Key(Struct):
    _fields_ = [("hash", u64), ("grid", u32 * 3), ("block", u32 * 3)]


class Lane(Struct):
    _fields_ = [("submitted", u32), ("done", u32)]


class Slot(Struct):
    _fields_ = [
        *((name, u64) for name in ("owner", "ready", "start_time", "pid_space")),
        *((name, u32) for name in ("cls", "weight", "lanes", "waiting")),
        *((name, u64) for name in (
            "last_active_ns", "progress_ns", "gap_ns", "outstanding_ns", "running_ns", "used_ns", "waiting_since_ns",
            "claim_ns", "ran_ns", "memory_quota", "memory_used", "launches", "pieces", "violations", "shares",
            "collectives", "kernels", "variants", "parts",
        )),
        ("waited_ns", u64 * 4), ("name", ctypes.c_char * 48), ("lane", Lane * LANES), ("padding", ctypes.c_char * 104),
    ]  # fmt: skip


class Header(Struct):
    _fields_ = [
        *((name, u32) for name in ("magic", "version", "slots", "lanes")),
        ("size", u64), ("memory_total", u64), ("device", ctypes.c_char * 64), ("rules", NativeRules),
        *((name, u64) for name in ("rules_epoch", "turn", "fair_ns", "best_effort")),
        ("top", u32), ("padding", ctypes.c_char * 52),
    ]  # fmt: skip


class PageStruct(Struct):
    _fields_ = [("header", Header), ("slot", Slot * SLOTS)]


Running = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.POINTER(Process))
"""Whether a process runs, where it is not the kernel that knows: in tests and simulations."""


def library() -> ctypes.CDLL:
    """Raises Unavailable, which says what to install."""
    found = _load(DIRECTORY)
    if isinstance(found, str):
        raise Unavailable(f"no gate for devices here: {found}", hint=_BUILD_IT)
    return found


def capability(directory: Path = DIRECTORY) -> Capability:
    found = _load(directory)
    if isinstance(found, str):
        return Capability("device gate", False, f"{found}; {_BUILD_IT}", _CONSEQUENCE)
    return Capability("device gate", True, str(directory / "libshoaldevice.so"))


@functools.cache
def _load(directory: Path) -> ctypes.CDLL | str:
    path = directory / "libshoaldevice.so"
    if not path.exists():
        return f"{path.name} was not built"
    try:
        found = ctypes.CDLL(str(path), use_errno=True)
        found.shoal_device_abi.restype = u32
        abi = found.shoal_device_abi()
    except (OSError, AttributeError) as problem:
        return f"{path} cannot be loaded: {problem}"
    layout = (u64 * 5)()
    if abi == ABI:
        found.shoal_page_layout(layout)
    mirrored = [ctypes.sizeof(one) for one in (PageStruct, Header, Slot, Lane)] + [Slot.lane.offset]
    if list(layout) != mirrored:
        return f"{path} is another version's"
    _declare(found)
    return found


def _declare(found: ctypes.CDLL) -> None:
    text, size, flag = ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int
    rules, tenants = ctypes.POINTER(NativeRules), ctypes.POINTER(NativeTenant)
    signatures: dict[str, tuple[object, tuple[object, ...]]] = {
        "shoal_device_now": (u64, ()),
        "shoal_default_rules": (NativeRules, ()),
        "shoal_decide": (NativeDecision, (rules, tenants, size, size, u64, u64, u64)),
        "shoal_bound": (u64, (rules, tenants, size, u64)),
        "shoal_next_gap": (u64, (rules, u64, u64)),
        "shoal_start": (u64, (rules, u64, u32, u64)),
        "shoal_learn": (None, (ctypes.POINTER(NativeProfile), u32, u32, u64)),
        "shoal_choose": (NativePlan, (ctypes.POINTER(NativeProfile), u32, u64, u64)),
        "shoal_page_create": (pointer, (text, text, u64, rules)),
        "shoal_page_open": (pointer, (text,)),
        "shoal_page_close": (None, (pointer,)),
        "shoal_page_error": (text, (flag,)),
        "shoal_page_write_rules": (flag, (text, rules)),
        "shoal_page_rules": (None, (pointer, rules)),
        "shoal_page_join": (flag, (pointer, ctypes.POINTER(Process), pointer, u32, u32, u64, text, u64)),
        "shoal_page_leave": (None, (pointer, u32)),
        "shoal_page_reap": (u32, (pointer, pointer)),
        "shoal_seen_new": (pointer, (pointer,)),
        "shoal_seen_free": (None, (pointer,)),
        "shoal_page_snapshot": (u32, (pointer, u64, pointer, tenants)),
        "shoal_this_process": (None, (ctypes.POINTER(Process),)),
        "shoal_is_running": (flag, (ctypes.POINTER(Process),)),
        "shoal_gate_get": (pointer, ()),
        "shoal_gate_why": (text, ()),
        "shoal_gate_owner": (u64, (pointer,)),
        "shoal_gate_open_lane": (u32, (pointer,)),
        "shoal_gate_close_lane": (None, (pointer, u32)),
        "shoal_gate_of": (pointer, (text,)),
        "shoal_gate_beside": (flag, (pointer,)),
        "shoal_gate_pass": (None, (pointer,)),
        "shoal_gate_pass_piece": (u32, (pointer, u32, u64)),
        "shoal_gate_submit": (u32, (pointer, u32)),
        "shoal_gate_acquire": (u32, (pointer, u32, u64)),
        "shoal_gate_release": (None, (pointer, u32, u32, u64)),
        "shoal_gate_cancel": (None, (pointer, u32, u32)),
        "shoal_gate_done": (None, (pointer, u32, u32)),
        "shoal_gate_bound": (u64, (pointer,)),
        "shoal_gate_allocate": (flag, (pointer, u64)),
        "shoal_gate_deallocate": (None, (pointer, u64)),
        "shoal_gate_memory": (flag, (pointer, ctypes.POINTER(u64), ctypes.POINTER(u64))),
        "shoal_gate_cost": (ctypes.c_double, (pointer, u32, u32)),
        "shoal_profiles_open": (pointer, (text,)),
        "shoal_profiles_look": (None, (pointer, ctypes.POINTER(Key), ctypes.POINTER(NativeProfile))),
        "shoal_profiles_note": (None, (pointer, ctypes.POINTER(Key), u32, u32, u64)),
        "shoal_hash": (u64, (text, u64, u64)),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(found, name)
        function.restype, function.argtypes = result, arguments
