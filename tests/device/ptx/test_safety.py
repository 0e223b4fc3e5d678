"""Entries that must not be transformed are refused, each with its reason; those that are safe are not."""

from __future__ import annotations

import pytest

from shoal.device.ptx.parser import parse
from shoal.device.ptx.safety import Cause, Examination, Refusal
from shoal.device.ptx.transform import transform
from tests.device.ptx.scenarios import CORPUS, transformed

W = Cause.WAITS


def refusal(
    body: str, *, head: str = "", directives: str = "", parameters: str = "", version: str = "8.0"
) -> Refusal | None:
    module = parse(f".version {version}\n{head}\n.entry k({parameters}) {directives} {{\n{body}\n}}")
    return Examination(module).refusal_of(module.entries[-1])


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        ("mov.u32 %r1, %clusterid.x;", Cause.CLUSTER),
        ("mov.u32 %r1, %nclusterid.y;", Cause.CLUSTER),
        ("mov.u32 %r1, %cluster_ctarank;", Cause.CLUSTER),
        ("mov.pred %p1, %is_explicit_cluster;", Cause.CLUSTER),
        ("getctarank.u32 %r1, %r2;", Cause.CLUSTER),
        ("barrier.cluster.arrive;", Cause.CLUSTER),
        ("mapa.u64 %rd1, %rd2, 1;", Cause.CLUSTER),
        ("cp.async.bulk.shared::cluster.global.multicast::cluster [%r1], [%rd1], 16, [%r2], %rs1;", Cause.CLUSTER),
        ("tcgen05.commit.cta_group::2.mbarrier::arrive::one.b64 [%r1];", Cause.CLUSTER),
        ("mov.u32 %r1, %envreg2;", Cause.COOPERATIVE),
        ("mov.u64 %rd1, %gridid;", Cause.GRID_ID),
        ("mov.v4.u32 %v1, %ctaid;", Cause.VECTOR_BLOCK_ID),
        ("mov.v4.u32 %v1, %nctaid;", Cause.VECTOR_BLOCK_ID),
        ("mov.u16 %rs1, %ctaid.x;", Cause.NARROW_BLOCK_ID),
        ("clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [a], [b];",
         Cause.BLOCK_STEALING),
        ("multimem.ld_reduce.global.add.f32 %f1, [%rd1];", Cause.MULTICAST_MEMORY),
        ("call nothing_known, ();", Cause.UNKNOWN_CALL),
        ("call (%r1), %rd1, (%r2), prototype;", Cause.UNKNOWN_CALL),
        ("call (r), cudaLaunchDeviceV2, (p, s);", Cause.DYNAMIC_PARALLELISM),
        ("call (b), cudaGetParameterBufferV2, (f, p);", Cause.DYNAMIC_PARALLELISM),
        ("frobnicate ? %r1;", Cause.NOT_UNDERSTOOD),
        ("bra nowhere;", Cause.NOT_UNDERSTOOD),
        ("brx.idx %r1, nowhere;", Cause.NOT_UNDERSTOOD),
        ("a: a: ret;", Cause.NOT_UNDERSTOOD),
        (".global .u32 own; ret;", Cause.OWN_GLOBAL_VARIABLE),
    ],
)  # fmt: skip
def test_constructs(body: str, cause: Cause) -> None:
    found = refusal(f"ret;\n{{ {body} }}")
    assert found is not None
    assert (found.cause, found.line) == (cause, 5 if cause != Cause.NOT_UNDERSTOOD or "nowhere" in body else found.line)


@pytest.mark.parametrize(
    "directive", [".reqnctapercluster 2, 1, 1", ".explicitcluster", ".maxclusterrank 4", ".blocksareclusters"]
)
def test_cluster_directives(directive: str) -> None:
    found = refusal("ret;", directives=f".maxntid 32 {directive}")
    assert found == Refusal(Cause.CLUSTER, f"it has {directive.split()[0]}", 3)
    assert refusal("ret;", directives=".maxntid 32 .minnctapersm 2") is None


FUNCTIONS = """
.func reads () { .reg .u32 r; mov.u32 r, %ctaid.y; ret; }
.func (.param .u32 x) sizes () { .reg .u32 r; mov.u32 r, %nctaid.x; ret; }
.func between () { call reads, (); ret; }
.func endless () { call between_two, (); ret; }
.func between_two () { call endless, (); ret; }
.func innocent () { ret; }
.func grouped () { barrier.cluster.wait; ret; }
.func looks (.param .u64 p) { .reg .u32 r; ld.volatile.u32 r, [p]; ret; }
.func looks_deeper () { call looks, (a); ret; }
.func spins (.param .u64 p)
{ .reg .u32 r; .reg .pred q; l: ld.acquire.gpu.u32 r, [p]; setp.eq.u32 q, r, 0; @q bra l; ret; }
"""


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        ("call reads, ();", Cause.FUNCTION_READS_BLOCK_ID),
        ("call (a), sizes, ();", Cause.FUNCTION_READS_BLOCK_ID),
        ("call between, ();", Cause.FUNCTION_READS_BLOCK_ID),
        ("call endless, ();", Cause.RECURSION),
        ("call grouped, ();", Cause.CLUSTER),
        ("call spins, (a);", W),
        ("l: call looks_deeper, (); bra l;", W),
        ("call looks_deeper, ();", None),
        ("l: call innocent, (); bra l;", None),
        ("call innocent, (); call innocent, ();", None),
        ("call (r), vprintf, (a, b); call (r), malloc, (s); call free, (r); call __assertfail, (a, b, c);", None),
        ("mov.u32 %r1, %ctaid.y;", None),
    ],
)
def test_device_functions(body: str, cause: Cause | None) -> None:
    found = refusal(body, head=FUNCTIONS)
    assert (found and found.cause) == cause


LOOPS = [
    ("a volatile load", "l: ld.volatile.global.u32 r, [a]; setp.eq.u32 p, r, 0; @p bra l;", W),
    ("an acquiring load", "l: ld.acquire.gpu.u32 r, [a]; setp.eq.u32 p, r, 0; @p bra l;", W),
    ("a relaxed load", "l: ld.relaxed.sys.global.u32 r, [a]; setp.eq.u32 p, r, 0; @p bra l;", W),
    ("an uncached load", "l: ld.global.cv.u32 r, [a]; setp.eq.u32 p, r, 0; @p bra l;", W),
    ("a load past the first cache", "l: ld.global.cg.u32 r, [a]; setp.eq.u32 p, r, 0; @p bra l;", W),
    ("a plain load and a fence", "l: ld.global.u32 r, [a]; membar.gl; setp.eq.u32 p, r, 0; @p bra l;", W),
    ("a plain load and a new fence", "l: ld.u32 r, [a]; fence.acq_rel.gpu; setp.eq.u32 p, r, 0; @p bra l;", W),
    ("a plain load and a pause", "l: ld.u32 r, [a]; nanosleep.u32 20; setp.eq.u32 p, r, 0; @p bra l;", W),
    ("copies and a fence", "l: cp.async.ca.shared.global [s], [a], 4; fence.sc.gpu; ld.shared.u32 r, [s];"
     " setp.eq.u32 p, r, 0; @p bra l;", W),
    ("copies without a fence", "l: cp.async.ca.shared.global [s], [a], 4; ld.shared.u32 r, [s];"
     " setp.eq.u32 p, r, 0; @p bra l;", None),
    ("copies within the block and a fence", "l: cp.async.bulk.shared::cluster.shared::cta [s], [a], 4, [m]; membar.gl;"
     " ld.shared.u32 r, [s]; setp.eq.u32 p, r, 0; @p bra l;", None),
    ("an atomic", "l: atom.global.or.b32 r, [a], 0; setp.eq.u32 p, r, 0; @p bra l;", W),
    ("a lock", "l: atom.global.cas.b32 r, [a], 0, 1; setp.ne.u32 p, r, 0; @p bra l;", W),
    ("the other way out", "l: ld.volatile.u32 r, [a]; setp.ne.u32 p, r, 0; @p ret; bra l;", W),
    ("the end of the thread", "l: ld.volatile.u32 r, [a]; setp.ne.u32 p, r, 0; @p exit; bra l;", W),
    ("the end of the program", "l: ld.volatile.u32 r, [a]; setp.ne.u32 p, r, 0; @p trap; bra l;", W),
    ("the block's own value beside it", "l: ld.volatile.u32 r, [a]; st.shared.u32 [c], i; ld.shared.u32 s, [b];"
     " setp.eq.u32 p, s, 0; @p bra l;", None),
    ("an exit with a jump table", "t: .branchtargets l, m; l: ld.volatile.u32 r, [a]; brx.idx r, t; m: ret;", W),
    ("a value computed on", "l: ld.volatile.u32 r, [a]; add.u32 s, r, 1; mul.lo.u32 s, s, 3;"
     " setp.eq.u32 p, s, 3; @p bra l;", W),
    ("a value kept for later", "l: setp.eq.u32 p, r, 0; ld.volatile.u32 r, [a]; @p bra l;", W),
    ("through shared memory", "l: ld.volatile.global.u32 r, [a]; st.shared.u32 [b], r; bar.sync 0;"
     " ld.shared.u32 s, [b]; setp.eq.u32 p, s, 0; @p bra l;", W),
    ("through a predicate", "l: ld.volatile.u32 r, [a]; setp.eq.u32 q, r, 0; mov.u32 s, 0; @q mov.u32 s, 1;"
     " setp.ne.u32 p, s, 0; @p bra l;", W),
    ("through a vote", "l: ld.volatile.u32 r, [a]; setp.eq.u32 q, r, 0; vote.sync.any.pred p, q, -1; @p bra l;", W),
    ("in an inner loop", "o: add.u32 i, i, 1; l: ld.volatile.u32 r, [a]; setp.eq.u32 p, r, 0; @p bra l;"
     " setp.lt.u32 q, i, 9; @q bra o;", W),
    ("inside braces", "l: { .reg .u32 r; ld.volatile.u32 r, [a]; setp.eq.u32 p, r, 0; } @p bra l;", W),
    ("a retry that compares with something else", "l: mov.u32 e, o; atom.cas.b32 o, [a], e, n; setp.ne.u32 p, o, z;"
     " @p bra l;", W),
    ("a retry that expects a constant", "l: mov.u32 e, 0; atom.cas.b32 o, [a], e, n; setp.ne.u32 p, o, e;"
     " @p bra l;", W),
    ("a retry at moving places", "l: mov.u32 e, o; add.u64 a, a, 4; atom.cas.b32 o, [a], e, n; setp.ne.u32 p, o, e;"
     " @p bra l;", W),
    ("a guarded retry", "l: mov.u32 e, o; @q atom.cas.b32 o, [a], e, n; setp.ne.u32 p, o, e; @p bra l;", W),
    ("a wait for a change", "l: mov.u32 e, o; atom.cas.b32 o, [a], e, e; setp.eq.u32 p, o, e; @p bra l;", W),
    ("a wait for a change, turned round", "l: mov.u32 e, o; atom.cas.b32 o, [a], e, e; setp.ne.u32 p, o, e;"
     " @!p bra l;", W),
    ("a wait for a change, the other way out", "l: mov.u32 e, o; atom.cas.b32 o, [a], e, e; setp.ne.u32 p, o, e;"
     " @p bra m; bra l; m:", W),
    ("a retry that decides more", "l: mov.u32 e, o; atom.cas.b32 o, [a], e, n; setp.ne.u32 p, o, e; or.pred q, p, z;"
     " @q bra l;", W),
    ("a retry with both answers", "l: mov.u32 e, o; atom.cas.b32 o, [a], e, n; setp.ne.u32 p|q, o, e; @q bra l;", W),
    ("a retry, the other way out", "l: mov.u32 e, o; atom.cas.b32 o, [a], e, n; setp.ne.u32 p, o, e;"
     " @!p bra m; bra l; m:", None),
    ("a retry", "l: mov.u32 e, o; add.u32 n, e, 1; atom.cas.b32 o, [a], e, n; setp.ne.u32 p, o, e; @p bra l;", None),
    ("a retry as nvcc writes it", "l: atom.cas.b32 o, [a], e, n; setp.eq.u32 p, e, o; mov.u32 e, o; @!p bra l;", None),
    ("no loop", "ld.volatile.u32 r, [a]; setp.eq.u32 p, r, 0; @p bra l; add.u32 s, s, 1; l: ret;", None),
    ("a loop that counts", "l: ld.volatile.u32 r, [a]; add.u32 i, i, 1; setp.lt.u32 p, i, 9; @p bra l;", None),
    ("a load of the block's own", "l: ld.volatile.shared.u32 r, [a]; setp.eq.u32 p, r, 0; @p bra l;", None),
    ("a barrier of the block's own", "l: mbarrier.try_wait.parity.shared::cta.b64 p, [a], r; @!p bra l;", None),
    ("plain loads", "l: ld.global.u32 r, [a]; setp.eq.u32 p, r, 0; @p bra l;", None),
    ("read-only loads and a fence", "l: ld.global.nc.u32 r, [a]; membar.gl; setp.eq.u32 p, r, 0; @p bra l;", None),
    ("a fence of the block", "l: ld.global.u32 r, [a]; membar.cta; setp.eq.u32 p, r, 0; @p bra l;", None),
    ("an atomic without a reader", "l: atom.global.add.u32 r, [a], 1; add.u32 i, i, 1; setp.lt.u32 p, i, 9;"
     " @p bra l;", None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "cause"), [(body, cause) for _, body, cause in LOOPS], ids=[name for name, _, _ in LOOPS]
)
def test_loops_that_may_wait_for_other_blocks(body: str, cause: Cause | None) -> None:
    found = refusal(body + " ret;")
    assert (found and found.cause) == cause, found


@pytest.mark.parametrize("space", ["shared", "shared::cta", "local", "param", "param::entry", "param::func", "const"])
def test_what_other_blocks_cannot_write_is_not_waited_for(space: str) -> None:
    assert refusal(f"l: ld.volatile.{space}.u32 r, [a]; setp.eq.u32 p, r, 0; @p bra l;") is None


@pytest.mark.parametrize(
    ("words", "cause"),
    [("volatile", W), ("acquire.sys", W), ("relaxed.gpu", W), ("mmio", W), ("cv", W), ("cg", W),
     ("ca", None), ("nc", None), ("weak", None)],
)  # fmt: skip
def test_loads_that_see_what_other_blocks_write(words: str, cause: Cause | None) -> None:
    found = refusal(f"l: ld.{words}.global.u32 r, [a]; setp.eq.u32 p, r, 0; @p bra l;")
    assert (found and found.cause) == cause


@pytest.mark.parametrize(
    ("fence", "cause"),
    [("membar.gl", W), ("membar.sys", W), ("fence.acquire.gpu", W), ("fence.acquire.sys", W), ("fence.sc.cluster", W),
     ("membar.cta", None), ("fence.sc.cta", None), ("fence.proxy.async", None)],
)  # fmt: skip
def test_fences_that_let_plain_loads_see(fence: str, cause: Cause | None) -> None:
    found = refusal(f"l: ld.global.u32 r, [a]; {fence}; setp.eq.u32 p, r, 0; @p bra l;")
    assert (found and found.cause) == cause


def test_a_refusal_says_what_waits_for_what() -> None:
    found = refusal("l: ld.volatile.u32 r, [a];\nsetp.eq.u32 p, r, 0;\n@p bra l;")
    assert str(found) == "waits: a loop's bra depends on ld.volatile.u32 at line 4 (line 6)"


def test_parameters_need_room_for_more() -> None:
    for version, most in (("8.0", 4096), ("8.1", 32764)):
        fits, full = (f".param .b8 x[{size}]" for size in ((most - 32) // 8 * 8, (most - 32) // 8 * 8 + 1))
        assert refusal("ret;", parameters=fits, version=version) is None
        found = refusal("ret;", parameters=full, version=version)
        assert found is not None
        assert found.cause == Cause.PARAMETERS


def test_the_corpus() -> None:
    """What is refused of the compilers' output, and why."""
    refused = {
        "function_reads_block": Cause.FUNCTION_READS_BLOCK_ID,
        "grid_barrier": Cause.COOPERATIVE,
        "spin_volatile": W,
        "spin_fence": W,
        "spin_lock": W,
    }
    for path in CORPUS.glob("*.ptx"):
        for entry, modes in transformed(path.name).variants.items():
            for outcome in modes.values():
                assert refused.get(entry) == (outcome.cause if isinstance(outcome, Refusal) else None), (
                    path.name,
                    entry,
                )


def test_a_refused_entry_stays_and_has_no_variant() -> None:
    text = ".version 8.0\n.entry k() { mov.u64 d, %gridid; }\n.entry l() { ret; }\n.entry l__shoal_slice() { ret; }"
    done = transform(text)
    assert done.variants["k"] == dict.fromkeys(("slice", "ticket"), Refusal(Cause.GRID_ID, "it reads %gridid", 2))
    slice_, ticket = done.variants["l"].values()
    assert isinstance(slice_, Refusal)
    assert (slice_.cause, ticket) == (Cause.NAME_TAKEN, "l__shoal_ticket")
    assert [entry.name for entry in parse(done.text).entries] == ["k", "l", "l__shoal_slice", "l__shoal_ticket"]


BACKOFF = """
.func backoff() {{ {inner} ret; }}
.func around() {{ call backoff, (); ret; }}
.func (.reg .b32 v) look(.reg .b64 a) {{ ld.global.u32 v, [a]; ret; }}
"""


@pytest.mark.parametrize(
    ("inner", "body", "cause"),
    [
        ("membar.gl;", "l: ld.global.u32 r, [a]; call backoff, (); setp.eq.u32 p, r, 0; @p bra l; ret;", W),
        ("membar.gl;", "l: ld.global.u32 r, [a]; call around, (); setp.eq.u32 p, r, 0; @p bra l; ret;", W),
        ("nanosleep.u32 9;", "l: ld.global.u32 r, [a]; call around, (); setp.eq.u32 p, r, 0; @p bra l; ret;", W),
        ("membar.gl;", "l: call (r), look, (a); call backoff, (); setp.eq.u32 p, r, 0; @p bra l; ret;", W),
        ("", "l: call (r), look, (a); membar.gl; setp.eq.u32 p, r, 0; @p bra l; ret;", W),
        ("membar.cta;", "l: ld.global.u32 r, [a]; call around, (); setp.eq.u32 p, r, 0; @p bra l; ret;", None),
        ("", "l: call (r), look, (a); call backoff, (); setp.eq.u32 p, r, 0; @p bra l; ret;", None),
        ("membar.gl;", "call backoff, (); l: ld.global.u32 r, [a]; setp.eq.u32 p, r, 0; @p bra l; ret;", None),
    ],
)
def test_a_fence_in_a_called_function_counts(inner: str, body: str, cause: Cause | None) -> None:
    found = refusal(body, head=BACKOFF.format(inner=inner))
    assert (found and found.cause) == cause, found


@pytest.mark.parametrize(
    ("copy", "cause"),
    [
        ("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [s], [a, {x, y}], [b];", W),
        ("cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [s], [a], 16, [b];", W),
        ("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [a, {x, y}], [s];", None),
        ("cp.async.bulk.global.shared::cta.bulk_group [a], [s], 16;", None),
    ],
)
def test_a_copy_reads_what_stands_last(copy: str, cause: Cause | None) -> None:
    found = refusal(f"l: {copy} fence.sc.gpu; ld.shared.u32 r, [s]; setp.eq.u32 p, r, 0; @p bra l; ret;")
    assert (found and found.cause) == cause, found
