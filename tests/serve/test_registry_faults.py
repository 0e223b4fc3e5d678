"""What replicas can do to the registry: die, hang, lie, and send nonsense. It costs their own requests only."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import struct
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from shoal.inference.errors import BadModel
from shoal.inference.opening import LoadReport
from shoal.inference.types import DataType, InferResponse, ModelMetadata, TensorSpec
from shoal.serve.errors import ReplicaLost
from shoal.serve.gateway.replicas.execution import ExecutionResult
from shoal.serve.gateway.replicas.replica_handle import ReplicaLimits
from shoal.serve.replica.messages import PROTOCOL
from shoal.serve.replica.wire import Frame, Kind, encode
from tests.serve.models import callable_spec, floats
from tests.serve.registry_kit import TOKEN, Fake, Kit, ended, registry_kit, until

META = ModelMetadata(
    "m", ("1",), "test", (TensorSpec("x", DataType.FP32, (-1, 2)),), (TensorSpec("y", DataType.FP32, (-1, 2)),), 4
)
MODELS = [["m", "1", orjson.loads(orjson.dumps(LoadReport(META, 0.0, 0.0, 0)))]]
REQUESTS = [floats("x", [[1, 2]]), floats("x", [[3, 4]])]


# --- dying ---


async def test_a_killed_replica_fails_what_it_was_asked_at_once_and_its_successor_serves(tmp_path: Path) -> None:
    """Under load: every request is answered or fails with ReplicaLost, none is forgotten."""
    async with registry_kit(tmp_path) as kit:
        replica, neighbour = await kit.replica(), await kit.replica("b")
        await neighbour.load(callable_spec("echo", max_batch=4))
        for life in (1, 2):
            for name in ("nap", "echo"):
                await replica.load(callable_spec(name, max_batch=4))
            futures = [replica.execute("nap", "1", [floats("x", [[60]], "nap")])]
            for turn in range(300):
                requests = [floats("x", [[turn]], "echo")] * (1 + turn % 3)
                futures.append((replica if turn % 4 else neighbour).execute("echo", "1", requests))
            os.kill(replica.pid, signal.SIGKILL)
            done = await asyncio.gather(*futures, return_exceptions=True)
            assert [type(each) for each in done[1:]] == [
                ReplicaLost if turn % 4 else ExecutionResult for turn in range(300)
            ]
            assert (await kit.told.wait("lost", "a", times=life)).code == "closed"
            replica = await kit.told.wait("joined", "a", times=life + 1)
        await replica.load(callable_spec("echo", max_batch=4))
        assert isinstance(await replica.execute("echo", "1", [floats("x", [[1]], "echo")]), ExecutionResult)
        assert (kit.spawned["a"].starts, kit.spawned["b"].starts) == (3, 1)


async def test_a_fault_in_native_code_takes_only_its_replica(tmp_path: Path) -> None:
    async with registry_kit(tmp_path) as kit:
        replica = await kit.replica()
        await replica.load(callable_spec("vanish"))
        assert (await replica.execute("vanish", "1", [floats("x", [[0]])])).responses
        with pytest.raises(ReplicaLost, match=r"replica 'a': the process closed the connection \(ask again\)"):
            await replica.execute("vanish", "1", [floats("x", [[1]])])
        assert replica.lost is not None
        for ask in (replica.load(callable_spec("echo")), replica.unload("echo", "1")):
            with pytest.raises(ReplicaLost):
                await ask


async def test_a_load_ends_with_its_replica(tmp_path: Path) -> None:
    async with registry_kit(tmp_path) as kit:
        fake = await kit.fake()
        loading = asyncio.ensure_future(kit.registry.replicas["fake"].load(callable_spec("echo")))
        frame = await fake.receive()
        assert frame is not None
        assert (frame.kind, frame.body["source"]) == (Kind.LOAD, "tests.serve.models:echo")
        fake.close()
        with pytest.raises(ReplicaLost):
            await loading


# --- hanging ---


async def test_a_replica_that_hangs_is_killed_and_its_successor_serves(tmp_path: Path) -> None:
    async with registry_kit(tmp_path, ReplicaLimits(answer_timeout_s=0.3)) as kit:
        replica = await kit.replica()
        await replica.load(callable_spec("echo"))
        os.kill(replica.pid, signal.SIGSTOP)
        with pytest.raises(ReplicaLost, match=r"did not answer within 0\.3 s \(one execution of echo\)"):
            await replica.execute("echo", "1", [floats("x", [[1]])])
        assert (await kit.told.wait("lost", "a")).code == "stuck"
        assert kit.killed == [("a", "it did not answer within 0.3 s (one execution of echo)")]
        again = await kit.told.wait("joined", "a", times=2)
        assert again.pid != replica.pid
        assert ended(replica.pid)


async def test_a_hang_in_native_code_that_holds_the_interpreter_is_ended_as_well(tmp_path: Path) -> None:
    async with registry_kit(tmp_path, ReplicaLimits(answer_timeout_s=0.3)) as kit:
        replica = await kit.replica()
        await replica.load(callable_spec("hang_hard"))
        with pytest.raises(ReplicaLost, match=r"did not answer within 0\.3 s \(one execution of hang_hard\)"):
            await replica.execute("hang_hard", "1", [floats("x", [[1]])])
        await kit.told.wait("joined", "a", times=2)
        assert ended(replica.pid)


async def test_a_load_that_hangs_is_ended(tmp_path: Path) -> None:
    async with registry_kit(tmp_path) as kit:
        replica = await kit.replica()
        replica.expect(None, 0.2)
        with pytest.raises(ReplicaLost, match=r"did not answer within 0\.2 s \(loading Sleeper\)"):
            await replica.load(callable_spec("Sleeper"))
        await kit.told.wait("joined", "a", times=2)


@pytest.mark.parametrize(("slo_s", "within_s"), [(None, 60.0), (0.05, 5.0), (0.25, 5.0), (0.3, 6.0), (10.0, 60.0)])
async def test_an_objective_says_from_when_on_an_execution_hangs(
    scene: Scene, slo_s: float | None, within_s: float
) -> None:
    scene.replica.expect(slo_s, 7.0)
    assert (scene.replica.answer_within_s, scene.replica.load_within_s) == (within_s, 7.0)
    await scene.ask()
    now = asyncio.get_running_loop().time()
    assert scene.replica.overdue(now + within_s - 0.5) is None
    assert (
        scene.replica.overdue(now + within_s + 0.5) == f"it did not answer within {within_s:g} s (one execution of m)"
    )


async def test_an_idle_replica_that_hangs_is_noticed(tmp_path: Path) -> None:
    limits = ReplicaLimits(answer_timeout_s=0.1, ask_idle_every_s=0.1)
    async with registry_kit(tmp_path, limits) as kit:
        fake = await kit.fake()
        frame = await fake.receive()
        assert frame is not None
        assert frame.kind is Kind.PING
        with contextlib.suppress(ConnectionError):  # on a busy machine even this answer may come too late
            await fake.send(Kind.PING, frame.number, None)
        assert (await kit.told.wait("lost", "fake")).code == "stuck"


async def test_one_that_was_let_go_and_does_not_end_is_given_up(tmp_path: Path) -> None:
    async with registry_kit(tmp_path, ReplicaLimits(answer_timeout_s=0.2)) as kit:
        fake = await kit.fake()
        kit.registry.replicas["fake"].stop()
        kit.registry.limits = replace(kit.registry.limits, ask_idle_every_s=0.0)  # one that goes is not asked how it is
        kinds = [frame.kind for frame in await all_frames(fake)]
        assert kinds == [Kind.STOP]
        assert (await kit.told.wait("lost", "fake")).code == "stuck"


async def all_frames(fake: Fake) -> list[Frame]:
    """Until the registry closes the connection."""
    frames = []
    while (frame := await fake.receive()) is not None:
        frames.append(frame)
    return frames


async def test_one_that_does_not_introduce_itself_is_cut_off(tmp_path: Path) -> None:
    async with registry_kit(tmp_path, ReplicaLimits(greeting_timeout_s=0.05)) as kit:
        silent, mute = await Fake.dial(kit.path), await Fake.dial(kit.path)
        with contextlib.suppress(ConnectionError):  # it may be too late already
            await mute.send(Kind.HELLO, 0, [PROTOCOL, TOKEN, "mute"])
        assert await silent.receive() is None
        assert {frame.kind for frame in await all_frames(mute)} <= {Kind.WELCOME}
        assert kit.told.log == []
        assert not kit.registry.connections


# --- getting in ---


@pytest.mark.parametrize(
    ("hello", "why", "again"),
    [
        ([PROTOCOL, "wrong", "x"], "its token is not known here", True),
        ([PROTOCOL + 1, "a-token", "x"], f"it speaks protocol {PROTOCOL + 1}, this gateway {PROTOCOL}", False),
        ([PROTOCOL, "a-token", ""], "its name is empty, too long or not printable", False),
        ([PROTOCOL, "a-token", "x" * 201], "its name is empty, too long or not printable", False),
        ([PROTOCOL, "a-token", "x\n2026 all is well"], "its name is empty, too long or not printable", False),
    ],
)
async def test_strangers_are_refused_with_the_reason(tmp_path: Path, hello: Any, why: str, again: bool) -> None:
    async with registry_kit(tmp_path) as kit:
        fake = await Fake.dial(kit.path)
        await fake.send(Kind.HELLO, 0, hello)
        frame = await fake.receive()
        assert frame is not None
        assert (frame.kind, frame.body) == (Kind.REFUSED, [why, again])
        assert await fake.receive() is None
        assert kit.told.log == []


async def test_a_name_is_one_replicas_at_a_time(tmp_path: Path) -> None:
    async with registry_kit(tmp_path) as kit:
        first = await kit.fake("x")
        second = await Fake.dial(kit.path)
        await second.send(Kind.HELLO, 0, [PROTOCOL, "a-token", "x"])
        frame = await second.receive()
        assert frame is not None
        assert frame.body == ["there is a replica 'x' already", True]
        first.close()
        await kit.told.wait("lost", "x")
        await kit.fake("x")


async def test_a_real_replica_with_a_bad_token_says_so_and_ends_once_its_patience_does(tmp_path: Path) -> None:
    async with registry_kit(tmp_path) as kit:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "shoal.serve.replica", "--connect", str(kit.path), "--name", "a",
            "--give-up-after", "0", env={"SHOAL_REPLICA_TOKEN": "wrong"}, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        _, errors = await process.communicate()
        assert process.returncode == 3
        assert b"replica a is refused: its token is not known here" in errors


STRANGE_FIRST = [
    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    random.Random(7).randbytes(100),
    encode(Kind.MODELS, 0, []),
    encode(Kind.HELLO, 0, "x" * 5000),
    encode(Kind.HELLO, 0, None),
    encode(Kind.HELLO, 0, [PROTOCOL, "a-token", "x"], payload_bytes=10),
    struct.pack("<HHIIQ", 0x5348, 1, 0, 5, 0) + b"{nons",
]


@pytest.mark.parametrize("sent", STRANGE_FIRST)
async def test_nonsense_before_the_greeting_ends_the_connection(tmp_path: Path, sent: bytes) -> None:
    async with registry_kit(tmp_path) as kit:
        fake = await Fake.dial(kit.path)
        await fake.raw(sent)
        assert await fake.receive() is None
        await until(lambda: not kit.registry.connections)
        await kit.fake("good")


# --- lying ---


class Scene:
    """A fake that was asked two requests of two floats each, in one batch; and a real neighbour."""

    def __init__(self, kit: Kit, fake: Fake) -> None:
        self.kit = kit
        self.fake = fake
        self.replica = kit.registry.replicas["fake"]

    async def ask(self, requests: Sequence[Any] = REQUESTS) -> tuple[asyncio.Future[ExecutionResult], Frame]:
        future = self.replica.execute("m", "1", requests)
        frame = await self.fake.receive()
        assert frame is not None
        return future, frame


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with registry_kit(tmp_path, ReplicaLimits(arena_bytes=1 << 16)) as kit:
        yield Scene(kit, await kit.fake(models=MODELS))


def tensor(offset: int, *, shape: Any = (1, 2), nbytes: Any = 8, name: Any = "y", kind: Any = "FP32") -> list[Any]:
    return [name, kind, shape, offset, nbytes]


GOOD = [[[tensor(0)], [tensor(8)]], 0.1, 0.2, 0.3, 0.6]


async def test_the_fake_can_tell_the_truth(scene: Scene) -> None:
    future, frame = await scene.ask()
    assert scene.fake.arena is not None
    _, inputs, _, sizes, offset, room = frame.body
    assert (inputs, sizes, room) == ([["x", "FP32", [2, 2], 0, 16]], [1, 1], 16)
    scene.fake.arena.view[offset : offset + 16] = scene.fake.arena.view[0:16]
    await scene.fake.send(Kind.EXECUTE, frame.number, GOOD)
    done = await future
    got = [bytes(each.outputs[0].data) for each in done.responses if isinstance(each, InferResponse)]
    assert got == [request.inputs[0].data for request in REQUESTS]
    assert done.times.device_s == 0.6


async def test_one_that_answers_slowly_but_answers_is_kept(scene: Scene) -> None:
    """The time is counted from the last answer, not from when each was asked."""
    loop, limit_s = asyncio.get_running_loop(), scene.kit.registry.limits.answer_timeout_s
    first, frame = await scene.ask()
    second, _ = await scene.ask()
    too_late = loop.time() + limit_s + 0.05
    assert scene.replica.overdue(too_late)
    await asyncio.sleep(0.1)
    await scene.fake.send(Kind.EXECUTE, frame.number, GOOD)
    await first
    assert not second.done()
    assert not scene.replica.overdue(too_late)
    assert scene.replica.overdue(loop.time() + limit_s + 0.05)


LIES = {
    "too few outcomes": [[[tensor(0)]], 0, 0, 0, 0],
    "too many outcomes": [[[], [], []], 0, 0, 0, 0],
    "beyond the room": [[[tensor(0)], [tensor(16)]], 0, 0, 0, 0],
    "before the room": [[[tensor(-8)], [tensor(0)]], 0, 0, 0, 0],
    "far away": [[[tensor(2**60)], [tensor(0)]], 0, 0, 0, 0],
    "more bytes than the shape": [[[tensor(0, nbytes=12)], []], 0, 0, 0, 0],
    "a shape of no bytes": [[[tensor(0, shape=[10**9, 10**9])], []], 0, 0, 0, 0],
    "a negative shape": [[[tensor(0, shape=[-1, -2])], []], 0, 0, 0, 0],
    "the same bytes over and over": [[[tensor(0)] * 1000, []], 0, 0, 0, 0],
    "an unknown type": [[[tensor(0, kind="FP8")], []], 0, 0, 0, 0],
    "a name that is none": [[[tensor(0, name=7)], []], 0, 0, 0, 0],
    "a shape that is none": [[[tensor(0, shape="12")], []], 0, 0, 0, 0],
    "negative times": [[[tensor(0)], [tensor(8)]], 0, -1, 0, 0],
    "times that are none": [[[tensor(0)], [tensor(8)]], 0, True, 0, 0],
    "no times": [[[tensor(0)], [tensor(8)]]],
    "an error without words": [[{"code": "model-failed"}, []], 0, 0, 0, 0],
    "nothing": None,
    "something else": {"a": 1},
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
async def test_a_lie_costs_the_liar_its_place(scene: Scene, lie: Any) -> None:
    future, frame = await scene.ask()
    await scene.fake.send(Kind.EXECUTE, frame.number, lie)
    with pytest.raises(ReplicaLost, match="it sent nonsense"):
        await future
    assert (await scene.kit.told.wait("lost", "fake")).code == "protocol"
    assert scene.kit.registry.replicas == {}
    await scene.kit.fake(models=MODELS)


@pytest.mark.parametrize(
    "sent",
    [
        encode(Kind.EXECUTE, 77, GOOD),
        encode(Kind.LOAD, 1, None),
        encode(Kind.HELLO, 1, [PROTOCOL, "a-token", "again"]),
        encode(Kind.FAILED, 1, "no error"),
        encode(Kind.STOP, 1, None),
        random.Random(7).randbytes(64),
        encode(Kind.EXECUTE, 1, GOOD, 1 << 40),
    ],
)
async def test_a_frame_out_of_place_costs_the_sender_its_place(scene: Scene, sent: bytes) -> None:
    future, _ = await scene.ask()
    await scene.fake.raw(sent)
    with pytest.raises(ReplicaLost, match="it sent nonsense"):
        await future


async def test_an_answer_in_a_payload_has_its_own_bounds(scene: Scene) -> None:
    future, frame = await scene.ask()
    await scene.fake.send(Kind.EXECUTE, frame.number, GOOD, payload=bytes(16))
    assert len((await future).responses) == 2
    future, frame = await scene.ask()
    await scene.fake.send(Kind.EXECUTE, frame.number, GOOD, payload=bytes(15))
    with pytest.raises(ReplicaLost):
        await future


async def test_a_failure_to_execute_is_every_requests_answer(scene: Scene) -> None:
    future, frame = await scene.ask()
    error = {"code": "bad-model", "what": "gone", "where": None, "hint": None}
    await scene.fake.send(Kind.FAILED, frame.number, error)
    assert [type(each) for each in (await future).responses] == [BadModel, BadModel]


async def test_an_answer_lacking_an_output_is_the_models_failure(scene: Scene) -> None:
    from shoal.inference.types import RequestedOutput

    future, frame = await scene.ask([floats("x", [[1, 2]], outputs=(RequestedOutput("y"),))])
    await scene.fake.send(Kind.EXECUTE, frame.number, [[[]], 0, 0, 0, 0])
    (response,) = (await future).responses
    assert "it gave no output y" in str(response)


async def test_answers_may_be_cut_into_any_pieces(scene: Scene) -> None:
    for size in (1, 3, 19, 21):
        future, frame = await scene.ask()
        data = encode(Kind.EXECUTE, frame.number, GOOD, 16) + bytes(16)
        for at in range(0, len(data), size):
            await scene.fake.raw(data[at : at + size])
            await asyncio.sleep(0)
        assert len((await future).responses) == 2


async def test_the_arena_is_never_used_up_by_answered_or_forgotten_questions(scene: Scene) -> None:
    """Each question needs more than half of the arena, so a region that is not given back sends the next one inline."""
    big = [floats("x", [[0.0, 0.0]] * 2500)]
    for turn in range(6):
        future, frame = await scene.ask(big)
        assert frame.payload is None, "it went over the socket: a region was lost"
        if turn % 2:
            future.cancel()
        outcome: Any = [] if turn % 3 else {"code": "model-failed", "what": "no", "where": None, "hint": None}
        await scene.fake.send(Kind.EXECUTE, frame.number, [[outcome], 0, 0, 0, 0])
        if not turn % 2:
            await future
        else:
            await until(lambda: scene.replica.in_flight == 0)


async def test_random_frames_never_bring_the_hub_down(tmp_path: Path) -> None:
    async with registry_kit(tmp_path, ReplicaLimits(arena_bytes=1 << 16)) as kit:
        witness = await kit.fake("witness", MODELS)
        before = open_files()
        for seed in range(60):
            rng = random.Random(seed)
            fake = await kit.fake(f"fake-{seed}", MODELS)
            future = kit.registry.replicas[f"fake-{seed}"].execute("m", "1", REQUESTS)
            good = bytearray(encode(Kind.EXECUTE, 1, GOOD))
            for _ in range(rng.randrange(1, 6)):
                good[rng.randrange(len(good))] = rng.randrange(256)
            await fake.raw(bytes(good) + rng.randbytes(rng.randrange(60)))
            fake.close()
            done = (await asyncio.gather(future, return_exceptions=True))[0]
            assert isinstance(done, ExecutionResult | ReplicaLost)
            await kit.told.wait("lost", f"fake-{seed}")
            fake.arena = None
        assert open_files() <= before + 1
        future = kit.registry.replicas["witness"].execute("m", "1", REQUESTS)
        frame = await witness.receive()
        assert frame is not None
        await witness.send(Kind.EXECUTE, frame.number, GOOD)
        assert len((await future).responses) == 2
        assert list(kit.registry.replicas) == ["witness"]


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())
