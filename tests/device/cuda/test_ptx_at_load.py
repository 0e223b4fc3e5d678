"""PTX that a best-effort program loads gets variants first, once for each text, and whatever fails it is loaded."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.device.cuda.kit import Device, needs_fake

pytestmark = needs_fake

PTX = """.version 8.0
.target sm_80
.address_size 64

.visible .entry blocks(
    .param .u64 blocks_param_0
)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [blocks_param_0];
    cvta.to.global.u64 %rd2, %rd1;
    mov.u32 %r1, %ctaid.x;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd2, %rd3;
    st.global.u32 [%rd4], %r1;
    ret;
}
"""
PROGRAM = """
s = setup(sys.argv[1])
out = memory(8 * 64)
write(out, bytes(8 * 64))
launch(s["blocks"], 64, 32, out)
check(cu.cuCtxSynchronize())
say(words(out, 64)[63])
"""


def helper(folder: Path, then: str) -> str:
    program = folder / "helper"
    program.write_text(
        f"#!{sys.executable}\nfrom pathlib import Path\nPath(__file__ + '.log').open('a').write('ran\\n')\n{then}"
    )
    program.chmod(0o755)
    return str(program)


def runs(program: str) -> int:
    return Path(program + ".log").read_text().count("ran") if Path(program + ".log").exists() else 0


def test_the_variants_are_made_once_and_used(tmp_path: Path) -> None:
    device = Device(tmp_path)
    program = helper(tmp_path, "from shoal.device.ptx.jit import main\nmain()\n")
    with device.page():
        for _ in range(2):
            for cls in ("guaranteed", "best-effort"):
                device.forget()
                told = device.run(PROGRAM, cls, PTX, transform=program, cache=str(tmp_path), ways="slice")
                assert told == "64000000064\n"
                names = {name for _, name, *_ in device.log()}
                assert names == ({"blocks"} if cls == "guaranteed" else {"blocks__shoal_slice"})
    assert runs(program) == 1


FROM_FILE = """
check(cu.cuInit(0))
device, context, module, function = c.c_int(), c.c_void_p(), c.c_void_p(), c.c_void_p()
check(cu.cuDevicePrimaryCtxRetain(byref(context), device))
check(cu.cuCtxSetCurrent(context))
say(cu.cuModuleLoad(byref(module), b"/nowhere"))
check(cu.cuModuleLoad(byref(module), sys.argv[1].encode()))
check(cu.cuModuleGetFunction(byref(function), module, b"blocks"))
out = memory(8 * 64)
write(out, bytes(8 * 64))
launch(function, 64, 32, out)
check(cu.cuCtxSynchronize())
say(words(out, 64)[63])
"""


def test_a_text_in_a_file_gets_them_too(tmp_path: Path) -> None:
    device = Device(tmp_path)
    program = helper(tmp_path, "from shoal.device.ptx.jit import main\nmain()\n")
    (tmp_path / "kernels.ptx").write_text(PTX)
    with device.page():
        for cls, name in (("best-effort", "blocks__shoal_slice"), ("guaranteed", "blocks"), (None, "blocks")):
            device.forget()
            told = device.run(
                FROM_FILE, cls, str(tmp_path / "kernels.ptx"), transform=program, cache=str(tmp_path), ways="slice"
            )
            assert told == "301\n64000000064\n"
            assert {one for _, one, *_ in device.log()} == {name}
    assert runs(program) == 1


def test_a_helper_that_fails_writes_nonsense_or_is_absent_changes_nothing(tmp_path: Path) -> None:
    device = Device(tmp_path)
    with device.page():
        for number, then in enumerate(
            ("raise SystemExit(1)", "import sys; open(sys.argv[2], 'w').write('nonsense')", None)
        ):
            cache = tmp_path / str(number)
            cache.mkdir()
            program = helper(cache, then) if then is not None else str(cache / "absent")
            for _ in range(2):
                told = device.run(PROGRAM, "best-effort", PTX, transform=program, cache=str(cache))
                assert told == "64000000064\n"
            assert runs(program) <= 1  # nor is it tried again
    assert {name for _, name, *_ in device.log()} == {"blocks"}


def test_a_text_that_the_driver_refuses_is_refused_as_without_the_shim(tmp_path: Path) -> None:
    device = Device(tmp_path)
    program = helper(tmp_path, "from shoal.device.ptx.jit import main\nmain()\n")
    refused = "check(cu.cuInit(0))\nsay(cu.cuModuleLoadData(byref(c.c_void_p()), b'.version 8.0 // no kernel'))"
    with device.page():
        assert device.run(refused, "best-effort", transform=program, cache=str(tmp_path)) == "218\n"
