"""The interpreter computes what the kernels say, against numpy, and says so where it cannot go on."""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random

import numpy as np
import pytest

from shoal.device.ptx.parser import parse
from tests.device.ptx.interpreter import BadAddress, Interpreter, Stuck
from tests.device.ptx.program import InterpreterError, UnsupportedInstruction
from tests.device.ptx.scenarios import SCENARIOS, Run, Scenario, original


class After:
    """The buffers of a scenario before and after its launch."""

    def __init__(self, scenario: Scenario, random: Random | None = None) -> None:
        run = Run(scenario, original(scenario.file))
        before = run.device.read(0, 1 << 16)
        run.whole(random=random)
        after = run.device.read(0, 1 << 16)
        self._texts = before, after
        self._parameters = run.parameters

    def __call__(self, index: int, count: int, kind: str = "i4", *, late: bool = False) -> np.ndarray:
        """What the pointer at a place among the parameters shows."""
        (place,) = struct.unpack_from("<Q", self._parameters, index)
        return np.frombuffer(self._texts[late], kind, count, place)


def _saxpy(a: After) -> None:
    x, y = a(8, 100, "f4"), a(16, 112, "f4")
    late = a(16, 112, "f4", late=True)
    assert np.array_equal(late[:100], (x.astype("f8") * np.float32(2.5) + y[:100]).astype("f4"))
    assert np.array_equal(late[100:], y[100:])


def _block_sum(a: After) -> None:
    assert np.isclose(a(8, 5, "f4", late=True).sum(), a(0, 700, "f4").sum(), atol=1e-4)


def _three_dimensions(a: After) -> None:
    blocks = [(x, y, z) for z in range(2) for y in range(2) for x in range(3)]
    expected = [z * 100000 + y * 10000 + x * 1000 + thread + 2 for x, y, z in blocks for thread in range(12)]
    assert a(0, 144, late=True).tolist() == expected


def _early_exit(a: After) -> None:
    x = a(0, 160, "f4").reshape(4, 40)
    assert np.array_equal(a(0, 160, "f4", late=True).reshape(4, 40), x[:, ::-1] + np.float32(1))


def _histogram(a: After) -> None:
    assert np.array_equal(a(8, 32, late=True), np.bincount(a(0, 200, "u1") & 31, minlength=32))


def _warp_sum(a: After) -> None:
    x = a(0, 192).reshape(6, 32)
    assert a(8, 6, late=True).tolist() == (x.sum(1) * 100 + (x % 2 == 0).sum(1)).tolist()


def _votes(a: After) -> None:
    x = a(0, 192).reshape(4, 48)
    expected = (x > 90).any(1) * 10000 + (x > 2).all(1) * 1000 + (x > 50).sum(1)
    assert np.array_equal(a(8, 192, late=True).reshape(4, 48), np.repeat(expected, 48).reshape(4, 48))


def _last_block(a: After) -> None:
    assert np.isclose(a(24, 1, "f4", late=True)[0], 2 * a(0, 6, "f4").sum())
    assert a(16, 1, late=True)[0] == 0


def _float_max(a: After) -> None:
    assert a(8, 1, "f4", late=True)[0] == 1


def _calls(a: After) -> None:
    expected = []
    for index, x in enumerate(a(0, 64, "f4").tolist()):
        total = 1.0
        for step in range(index % 16 % 5):
            total = total * x + step
        expected.append(total)
    assert np.allclose(a(0, 64, "f4", late=True), expected, atol=1e-5)


def _jump_table(a: After) -> None:
    cases: list[Callable[[int], int]] = [
        lambda i: i * 3, lambda i: i ^ 77, lambda i: 2, lambda i: i // 7, lambda i: -i,
        lambda i: 32 - i.bit_length(), lambda i: 1000,
    ]  # fmt: skip
    assert a(0, 64, late=True).tolist() == [cases[x](i) for i, x in enumerate(a(0, 64).tolist())]


def _structure(a: After) -> None:
    expected = np.zeros(80)
    for block in range(4):
        for thread in range(16):
            i = block * 16 + thread + 2
            expected[i] = i * -3 + 1.5 / (thread + 1)
    assert np.array_equal(a(24, 80, "f8", late=True), expected)


def _vectors(a: After) -> None:
    x = a(0, 256, "f4").reshape(64, 4)
    expected = np.stack([x[:, 3], x[:, 2], np.sqrt(np.abs(x[:, 1])), x[:, 0] * np.float32(0.5)], 1)
    assert np.array_equal(a(8, 256, "f4", late=True).reshape(64, 4), expected)


def _dynamic_shared(a: After) -> None:
    table = [3, 1, 4, 1, 5, 9, 2, 6]
    assert a(0, 64, late=True).tolist() == [table[(15 - t) & 7] + b for b in range(4) for t in range(16)]


def _local_array(a: After) -> None:
    order = a(0, 8).tolist()
    found = {place: k for k, place in enumerate(order)}
    assert a(8, 64, late=True).tolist() == [found[order[t & 7]] * b for b in range(4) for t in range(16)]


def _halves(a: After) -> None:
    x = a(0, 64, "f2")
    assert np.array_equal(a(8, 64, "f2", late=True), x * x + np.float16(0.5))


def _add(a: After) -> None:
    x, y, out = a(0, 1024, "f4"), a(8, 1024, "f4"), a(16, 1024, "f4")
    late = a(16, 1024, "f4", late=True)
    assert np.array_equal(late[:1000], (x + y)[:1000])
    assert np.array_equal(late[1000:], out[1000:])


def _softmax(a: After) -> None:
    power = np.exp(a(0, 600, "f4").reshape(3, 200).astype("f8"))
    assert np.allclose(a(8, 600, "f4", late=True).reshape(3, 200), power / power.sum(1, keepdims=True), rtol=1e-5)


def _matmul(a: After) -> None:
    left, right = a(0, 1024, "f2").reshape(32, 32), a(8, 1024, "f2").reshape(32, 32)
    assert np.allclose(a(16, 1024, "f4", late=True).reshape(32, 32), left.astype("f4") @ right.astype("f4"), atol=1e-5)


BLOCKS = [(x, y) for y in range(2) for x in range(3)]


def _table(a: After) -> None:
    def value(x: int, y: int, t: int) -> int:
        i = x * 16 + t
        return (3, x + 100, 0xFFFFFFFF if i > 9 else 0)[i % 3]

    expected = {x * 16 + t: value(x, y, t) for x, y in BLOCKS for t in range(16)}
    assert a(0, 48, "u4", late=True).tolist() == [expected[i] for i in range(48)]


def _scopes(a: After) -> None:
    expected = [t + max(1, t) + 6 + (1000 if t == 3 else 0) for t in range(8)]
    assert a(0, 24, late=True).tolist() == expected * 3


def _hand_over(a: After) -> None:
    assert a(0, 96, late=True).tolist() == [x * 7 + t for x in range(3) for t in range(32)]


def _sides(a: After) -> None:
    offsets = (5, 7, 11, 13)
    expected = []
    for i in range(192):
        lane = i % 32
        value = 2 * (i - 1 if lane else i) + 1 if lane < 16 else 17
        expected.append(value + offsets[lane & 3])
    assert a(0, 192, late=True).tolist() == expected


def _retry(a: After) -> None:
    assert a(0, 1, "u8", late=True)[0] == sum(t + x for x, _ in BLOCKS for t in range(5))


def _speaks(a: After) -> None:
    assert a(0, 4, late=True).tolist() == [1] * 4


def _nothing(a: After) -> None:
    pass


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_the_corpus_computes_what_it_says(scenario: Scenario) -> None:
    check = globals()[f"_{scenario.entry}"]
    check(After(scenario))
    check(After(scenario, Random(7)))


def run(body: str, threads: int = 32, **how: object) -> list[int]:
    """One block whose threads each leave `r`, of 64 bits."""
    module = parse(f"""
        .version 8.0
        .entry k(.param .u64 out) {{
            .reg .b64 r, s, place; .reg .b32 a, b, c, t; .reg .b16 h; .reg .f32 f; .reg .f64 d; .reg .pred p, q;
            mov.u64 r, 0; mov.u32 t, %tid.x;
            {body}
            ld.param.u64 place, [out]; mad.wide.u32 place, t, 8, place; st.global.u64 [place], r;
        }}
    """)
    device = Interpreter(module, max_steps=10_000)
    place = device.allocate(8 * threads)
    device.launch("k", (1, 1, 1), (threads, 1, 1), struct.pack("<Q", place), **how)
    return list(struct.unpack(f"<{threads}Q", device.read(place, 8 * threads)))


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ("add.u32 a, 0xFFFFFFFF, 2; cvt.u64.u32 r, a;", 1),
        ("sub.s32 a, 1, 3; cvt.s64.s32 r, a;", 2**64 - 2),
        ("sub.s32 a, 1, 3; cvt.u64.u32 r, a;", 2**32 - 2),
        ("mul.wide.s32 r, -3, 5;", 2**64 - 15),
        ("mul.wide.u32 r, 0xFFFFFFFF, 0xFFFFFFFF;", 0xFFFFFFFF**2),
        ("mul.hi.u64 r, 0xFFFFFFFFFFFFFFFF, 6;", 5),
        ("mul.hi.s32 a, -1, 6; cvt.s64.s32 r, a;", 2**64 - 1),
        ("mad.lo.u64 r, 5, 6, 7;", 37),
        ("div.s32 a, -7, 2; cvt.s64.s32 r, a;", 2**64 - 3),
        ("rem.s32 a, -7, 2; cvt.s64.s32 r, a;", 2**64 - 1),
        ("div.u32 a, 7, 0; cvt.u64.u32 r, a;", 2**32 - 1),
        ("rem.u64 r, 7, 0;", 7),
        ("shl.b32 a, 3, 31; cvt.u64.u32 r, a;", 2**31),
        ("shl.b32 a, 3, 32; cvt.u64.u32 r, a;", 0),
        ("shr.s32 a, -8, 40; cvt.u64.u32 r, a;", 2**32 - 1),
        ("shr.u32 a, -8, 1; cvt.u64.u32 r, a;", 2**31 - 4),
        ("bfe.u64 r, 0xABCD, 4, 8;", 0xBC),
        ("bfe.s32 a, 0xF0, 4, 4; cvt.s64.s32 r, a;", 2**64 - 1),
        ("bfi.b64 r, 0xF, 0x1111, 4, 8;", 0x10F1),
        ("clz.b32 a, 1; popc.b64 b, 0xFF; mad.wide.u32 r, a, b, 0;", 31 * 8),
        ("not.b32 a, 0; cvt.u64.u32 r, a;", 2**32 - 1),
        ("min.s32 a, -1, 1; max.u32 b, -1, 1; setp.eq.u32 p, a, b; selp.u64 r, 5, 6, p;", 5),
        ("setp.lt.and.s32 p|q, 1, 2, q; selp.u64 r, 1, 0, p; @q add.u64 r, r, 2;", 0),
        ("setp.hi.s32 p, -1, 1; selp.u64 r, 1, 0, p;", 1),
        ("mov.f32 f, 0f7FC00000; setp.ltu.f32 p, f, 0f3F800000; setp.lt.or.f32 q, f, f, p; selp.u64 r, 1, 0, q;", 1),
        ("mov.f64 d, 0dC004000000000000; cvt.rzi.s64.f64 r, d;", 2**64 - 2),
        ("mov.f32 f, 2.5; cvt.rni.s64.f32 r, f;", 2),
        ("mov.f32 f, 0f7FC00000; cvt.rzi.s64.f32 r, f;", 0),
        ("mov.f32 f, 1e20; cvt.rzi.s32.f32 a, f; cvt.s64.s32 r, a;", 2**31 - 1),
        ("fma.rn.f64 d, 2.0, 3.0, 4.0; mov.b64 r, d;", struct.unpack("<Q", struct.pack("<d", 10.0))[0]),
        ("mov.b64 {a, b}, 0x100000002; mov.b64 r, {b, a};", 0x200000001),
        ("mov.b32 a, {h, h}; mov.b32 a, 0x12345678; mov.b32 {h, _}, a; cvt.u64.u16 r, h;", 0x5678),
        (".shared .b8 box[16]; cvta.shared.u64 s, 8; st.u16 [s], 77; ld.shared.u8 a, [8]; cvt.u64.u32 r, a;", 77),
        (".local .b32 l; mov.u64 s, l; cvta.local.u64 s, s; st.u32 [s], t; ld.local.u32 a, [l]; sub.u32 a, a, t;"
         " cvt.u64.u32 r, a;", 0),
        ("vote.sync.any.pred p, p, -1; vote.sync.all.pred q, !q, -1; selp.u64 r, 1, 0, q; @p add.u64 r, r, 2;", 1),
        (".shared .b32 n; red.shared.add.u32 [n], 2; bar.sync 0; ld.shared.u32 a, [n]; cvt.u64.u32 r, a;", 64),
        (".shared .b32 n; atom.shared.inc.u32 a, [n], 3; bar.sync 0; ld.shared.u32 a, [n]; cvt.u64.u32 r, a;", 0),
        (".shared .b32 n; atom.shared.dec.u32 a, [n], 3; bar.sync 0; ld.shared.u32 a, [n]; cvt.u64.u32 r, a;", 0),
        (".shared .b32 n; atom.shared.max.s32 a, [n], t; bar.sync 0; ld.shared.u32 a, [n]; cvt.u64.u32 r, a;", 31),
        ("shfl.sync.bfly.b32 a|p, t, 1, 31, -1; xor.b32 a, a, t; cvt.u64.u32 r, a;", 1),
        ("mov.u32 a, %lanemask_le; popc.b32 a, a; sub.u32 a, a, t; cvt.u64.u32 r, a;", 1),
    ],
)  # fmt: skip
def test_instructions(body: str, value: int) -> None:
    assert run(body) == [value] * 32


def test_barriers_and_shuffles_hold_in_any_order() -> None:
    body = """
        .shared .b32 box[64];
        mul.lo.u32 a, t, 4; st.shared.u32 [a], t; bar.sync 0; xor.b32 a, a, 128; ld.shared.u32 b, [a];
        setp.lt.u32 p, t, 40; @p bra less; add.u32 b, b, 100;
    less: shfl.sync.down.b32 c, b, 1, 31, -1; bar.red.popc.u32 a, 1, p; add.u32 c, c, a; cvt.u64.u32 r, c;
    """
    expected = run(body, 64)
    assert all(run(body, 64, random=Random(seed)) == expected for seed in range(10))


@pytest.mark.parametrize(
    "body",
    ["tex.2d.v4.f32.f32 {a, b, c, t}, [x, {f, f}];", "add.sat.s32 a, a, b;", "ld.frozen.u32 a, [r];", "frobnicate ? a;",
     "cvt.rn.satfinite.e4m3x2.f32 h, f, f;", "call missing, ();", "atom.global.add.noftz.f16x2 a, [r], b;"],
)  # fmt: skip
def test_an_instruction_that_is_not_known_is_named(body: str) -> None:
    with pytest.raises(UnsupportedInstruction) as caught:
        run(body)
    assert caught.value.name.split()[-1] in body
    assert caught.value.line == 6


@pytest.mark.parametrize(
    ("body", "error", "message"),
    [
        ("l: bra l;", Stuck, "does not end"),
        ("setp.eq.u32 p, t, 0; @p bra l; bar.sync 1, 64; l:", Stuck, "never come"),
        ("setp.eq.u32 p, t, 0; @p bar.sync 1, 32; shfl.sync.up.b32 a, t, 1, 0, -1;", Stuck, "never come"),
        ("ld.global.u32 a, [r];", BadAddress, "global memory at 0x0"),
        ("ld.global.u32 a, [r+258];", BadAddress, "0x102"),
        ("ld.shared.u32 a, [r+4096];", BadAddress, "shared memory"),
        ("trap;", InterpreterError, "trapped"),
        ("mov.u32 a, %smid;", InterpreterError, "%smid"),
    ],
)
def test_what_cannot_go_on(body: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        run(body)


def test_launches_that_make_no_sense() -> None:
    device = Interpreter(parse(".version 8.0\n.entry k(.param .u32 x) { ret; }"), memory_bytes=1024)
    with pytest.raises(InterpreterError, match="no entry"):
        device.launch("l", (1, 1, 1), (1, 1, 1), b"")
    with pytest.raises(InterpreterError, match="4 bytes, not 8"):
        device.launch("k", (1, 1, 1), (1, 1, 1), bytes(8))
    with pytest.raises(InterpreterError, match="full"):
        device.allocate(1024)


def test_blocks_are_announced_before_they_start() -> None:
    device = Interpreter(parse(".version 8.0\n.entry k() { ret; }"))
    seen: list[int] = []
    device.launch("k", (2, 2, 1), (1, 1, 1), b"", before_block=seen.append)
    assert seen == [0, 1, 2, 3]


def test_the_tensor_instructions_of_new_devices_are_not_known() -> None:
    with pytest.raises(UnsupportedInstruction, match=r"fence\.proxy|wgmma"):
        Interpreter(original("triton_wgmma.ptx")).launch("matmul", (1, 1, 1), (128, 1, 1), bytes(56))
