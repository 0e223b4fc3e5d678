"""Several devices in one process, and kernels that wait for each other: none of them holds another up for long."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from shoal.device.page import Page
from tests.device.cuda.kit import EAGER, Device, finish, line_of, needs_fake, resume, tenant
from tests.device.cuda.test_gating import HOLDS
from tests.device.kit import until

pytestmark = needs_fake

NEVER = 1 << 60
UUIDS = [f"GPU-fafafafa-fafa-fafa-fafa-fafafafafa{last}" for last in ("fa", "fb", "fc")]

TWO = """
first = setup()
flag = memory(4)
write(flag, bytes(4))
contexts = [first.context]
functions = [first["wait"]]
for number in range(1, int(sys.argv[1])):
    context, module, function = c.c_void_p(), c.c_void_p(), c.c_void_p()
    check(cu.cuDevicePrimaryCtxRetain(byref(context), number))
    check(cu.cuCtxSetCurrent(context))
    check(cu.cuModuleLoadData(byref(module), PTX.encode()))
    check(cu.cuModuleGetFunction(byref(function), module, b"set"))
    contexts.append(context)
    functions.append(function)
for context, function in zip(contexts, functions):
    check(cu.cuCtxSetCurrent(context))
    launch(function, 1, 1, flag)
for context in contexts:
    check(cu.cuCtxSetCurrent(context))
    check(cu.cuCtxSynchronize())
say("done")
sys.stdin.readline()
"""


def pages(device: Device, count: int) -> list[Page]:
    made = [Page.create(device.folder / f"page{number}", device=UUIDS[number]) for number in range(count)]
    for one in made:
        one.set_rules(replace(EAGER, stuck_ns=NEVER))
    return made


def test_a_kernel_on_one_device_that_waits_for_one_on_another_does_not_hold_it_up(tmp_path: Path) -> None:
    device = Device(tmp_path)
    first, second = pages(device, 2)
    named = f"{first.path}:{second.path}"
    process = device.start(TWO, "best-effort", "2", page=named, fake_devices="2", ways="slice")
    assert line_of(process) == "done\n"
    assert [(tenant(one, process).launches, tenant(one, process).pending) for one in (first, second)] == [
        (1, 0),
        (1, 0),
    ]
    assert [tenant(one, process).shares for one in (first, second)] == [0, 0]
    resume(process)


def test_each_device_has_its_own_quota_and_one_without_a_page_is_not_gated_and_said(tmp_path: Path) -> None:
    device = Device(tmp_path)
    first, second = pages(device, 2)
    program = """
check(cu.cuInit(0))
contexts = [c.c_void_p() for _ in range(3)]
for number, context in enumerate(contexts):
    check(cu.cuDevicePrimaryCtxRetain(byref(context), number))
told = []
for context in contexts:
    check(cu.cuCtxSetCurrent(context))
    told.append([check(cu.cuMemAlloc_v2(byref(c.c_uint64()), c.c_size_t(6 << 20)), 0, 2) for _ in range(2)])
say(told)
sys.stdin.readline()
"""
    named = f"{first.path}:{second.path}"
    process = device.start(program, "guaranteed", page=named, fake_devices="3", memory=str(10 << 20))
    assert line_of(process) == "[[0, 2], [0, 2], [0, 0]]\n"
    assert [tenant(one, process).memory_used for one in (first, second)] == [6 << 20] * 2
    assert process.stdin is not None
    _, err = process.communicate("\n", timeout=60)
    assert err == f"shoal: this process has no place at the device {UUIDS[2]}: launches there are not gated\n"


def test_overdue_work_of_its_own_passes_guaranteed_work_at_last(tmp_path: Path) -> None:
    """The guaranteed kernel waits behind the one that waits for the second: only the second can end it all."""
    device = Device(tmp_path)
    program = """
s = setup()
flag = memory(4)
write(flag, bytes(4))
launch(s["wait"], 1, 1, flag, stream=stream())
say("spins")
sys.stdin.readline()
launch(s["nothing"], 1, 1, stream=stream())
c.c_uint32.from_address(flag.value).value = 1
check(cu.cuCtxSynchronize())
say("done")
sys.stdin.readline()
"""
    serves = 's = setup()\nlaunch(s["nothing"], 1, 1)\nsay("launched")\ncheck(cu.cuCtxSynchronize())\n'
    with device.page(replace(EAGER, stuck_ns=NEVER)) as page:
        train = device.start(program, "best-effort", ways="slice")
        assert line_of(train) == "spins\n"
        until(lambda: device.kernels() == ["wait"], "it runs")
        serve = device.start(serves, "guaranteed")
        assert line_of(serve) == "launched\n"
        until(lambda: tenant(page, serve).pending == 1, "it waits behind")
        assert train.stdin is not None
        train.stdin.write("\n")
        train.stdin.flush()
        assert line_of(train) == "done\n"
        assert tenant(page, train).shares == 1
        finish(serve)
        resume(train)


COLLECTIVE = """
s = setup()
say("ready")
sys.stdin.readline()
launch(s[sys.argv[1]], 1, 1, stream=stream())
say("launched")
check(cu.cuCtxSynchronize())
sys.stdin.readline()
"""


def test_kernels_of_collectives_pass_and_are_counted_and_others_wait(tmp_path: Path) -> None:
    device = Device(tmp_path)
    with device.page(replace(EAGER, stuck_ns=NEVER)) as page:
        for name, passes in (
            ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", True), ("_Z19ncclDevKernel_Reduceu", True), ("lessnccl", False)
        ):  # fmt: skip
            train = device.start(COLLECTIVE, "best-effort", name)
            assert line_of(train) == "ready\n"
            serve = device.start(HOLDS, "guaranteed")
            assert line_of(serve) == "holds\n"
            until(lambda one=serve: "wait" in device.kernels(one.pid), "the device is held")
            assert train.stdin is not None
            train.stdin.write("\n")
            train.stdin.flush()
            if passes:
                assert line_of(train) == "launched\n"
                assert (tenant(page, train).collectives, tenant(page, train).pending) == (1, 1)
                assert tenant(page, train).outstanding_ns > 0
            else:
                until(lambda one=train: tenant(page, one).waiting, "it waits")
                assert tenant(page, train).collectives == 0
            resume(serve)
            resume(train)
