"""What a rank of the local engine is given, and what can be read of it."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import tarfile
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.core import Fault, Invalid, NotFound
from shoal.engine import Gang, LaunchFailed, RankSpec
from tests.engine.conformance import Cooperate, RunForever, Succeed, exits
from tests.engine.local_kit import LocalKit, local_kit, two_accelerators, until_exists

SHOW_ENV = "import json, os; print(json.dumps({**os.environ, 'cwd': os.getcwd()}))"


@pytest.fixture
async def kit(tmp_path: Path) -> AsyncIterator[LocalKit]:
    async with local_kit(tmp_path) as kit:
        yield kit


async def environments(kit: LocalKit, gang: Gang) -> list[dict[str, str]]:
    await kit.engine.launch(gang)
    await kit.settle(gang.name)
    return [json.loads(await kit.log(gang.name, rank)) for rank in range(len(gang.ranks))]


# --- environment ---


async def test_ranks_find_what_torchrun_would_give_them(kit: LocalKit) -> None:
    first, second = await environments(kit, kit.python("a.1.run", SHOW_ENV, ranks=2))
    for rank, env in enumerate((first, second)):
        assert env["RANK"] == env["LOCAL_RANK"] == env["SHOAL_RANK"] == str(rank)
        assert env["WORLD_SIZE"] == env["LOCAL_WORLD_SIZE"] == env["SHOAL_WORLD_SIZE"] == "2"
        assert env["MASTER_ADDR"] == "127.0.0.1"
        assert env["MASTER_PORT"] == str(kit.record("a.1.run")["master_port"])
        assert env["SHOAL_RUN"] == str(kit.rank_dir("a.1.run", rank))
        assert env["SHOAL_METRICS_FILE"] == f"{env['SHOAL_RUN']}/metrics.jsonl"
        assert env["SHOAL_HOME"] == str(kit.home)
        assert env["SHOAL_GANG"] == "a.1.run"
        assert env["CUDA_VISIBLE_DEVICES"] == ""
        assert env["PYTHONUNBUFFERED"] == "1"
        assert env["cwd"] == str(kit.root / "run" / "a.1.run")


async def test_accelerators_are_made_visible_by_their_id(tmp_path: Path) -> None:
    async with local_kit(tmp_path, accelerators=two_accelerators) as kit:
        (node,) = (await kit.engine.inventory()).nodes
        assert node.capacity().accelerators == {"h200": 2}
        gang = kit.python("a.1.run", SHOW_ENV)
        gang = replace(gang, ranks=(RankSpec(0, kit.node, ("GPU-b", "GPU-a")),))
        (env,) = await environments(kit, gang)
        assert env["CUDA_VISIBLE_DEVICES"] == "GPU-b,GPU-a"


async def test_the_callers_environment_adds_up_and_the_engines_wins(kit: LocalKit) -> None:
    gang = kit.python("a.1.run", SHOW_ENV, cpu_milli=4000, env={"A": "gang", "B": "gang", "RANK": "7"})
    gang = replace(gang, ranks=(RankSpec(0, kit.node, env={"B": "rank"}),), secrets={"C": "secret"})
    (env,) = await environments(kit, gang)
    assert (env["A"], env["B"], env["C"], env["RANK"], env["OMP_NUM_THREADS"]) == ("gang", "rank", "secret", "0", "4")
    (env,) = await environments(kit, replace(gang, name="b.1.run", env={"OMP_NUM_THREADS": "3"}))
    assert env["OMP_NUM_THREADS"] == "3"


async def test_the_servers_own_environment_stays_behind(kit: LocalKit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "hunter2")
    (env,) = await environments(kit, kit.python("a.1.run", SHOW_ENV))
    assert "DATABASE_PASSWORD" not in env


async def test_secrets_are_in_no_file_of_the_home(kit: LocalKit) -> None:
    secret = "s3cr3t-" + "x" * 40
    show_length = "import os; print(len(os.environ['TOKEN']), flush=True); import signal; signal.pause()"
    gang = kit.python("a.1.run", show_length, ranks=2, secrets={"TOKEN": secret})
    await kit.engine.launch(gang)
    async with asyncio.timeout(30):
        while await kit.log("a.1.run") != f"{len(secret)}\n":
            await asyncio.sleep(0.01)
    files = [path for path in kit.home.rglob("*") if path.is_file()]
    assert len(files) > 6
    assert [path for path in files if secret.encode() in path.read_bytes()] == []
    assert secret not in repr(gang)


# --- commands that cannot run ---


async def test_a_file_that_is_no_program_is_the_users_fault(kit: LocalKit) -> None:
    run_dir = kit.root / "run" / "a.1.run"
    run_dir.mkdir(parents=True)
    (run_dir / "plain").write_text("just text")
    with pytest.raises(LaunchFailed, match=r"command './plain' is not executable") as failure:
        await kit.engine.launch(kit.script("a.1.run", "./plain"))
    assert failure.value.fault is Fault.USER
    (run_dir / "plain").chmod(0o755)
    with pytest.raises(LaunchFailed, match=r"'./plain' cannot be executed: Exec format error") as failure:
        await kit.engine.launch(replace(kit.script("b.1.run", "./plain"), run_dir=run_dir))
    assert failure.value.fault is Fault.USER


async def test_a_gang_whose_program_cannot_be_executed_ends_whole(kit: LocalKit) -> None:
    run_dir = kit.root / "run" / "a.1.run"
    run_dir.mkdir(parents=True)
    (run_dir / "plain").write_text("just text")
    (run_dir / "plain").chmod(0o755)
    await kit.engine.launch(kit.script("a.1.run", "./plain", ranks=2))
    status = await kit.settle("a.1.run")
    assert {code for code, _, stopped in exits(status).values() if not stopped} == {126}
    assert "Exec format error" in str([rank.exit for rank in status.ranks])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "../a"}, "cannot name a gang"),
        ({"argv": ()}, "needs a command"),
        ({"argv": ("a\0b",)}, "NUL"),
        ({"env": {"A=B": "1"}}, "cannot name an environment variable"),
        ({"ranks": ()}, "numbered from 0"),
        ({"ranks": (RankSpec(1, "x"),)}, "numbered from 0"),
    ],
)
async def test_a_gang_that_makes_no_sense_is_invalid(kit: LocalKit, change: dict[str, object], message: str) -> None:
    gang = replace(kit.gang("a.1.run", Succeed()), **change)  # type: ignore[arg-type]
    with pytest.raises(Invalid, match=message):
        await kit.engine.launch(gang)
    assert await kit.engine.gangs() == {}


@pytest.mark.parametrize("rank", [RankSpec(0, "elsewhere"), RankSpec(0, os.uname().nodename, ("GPU-x",))])
async def test_another_machines_rank_is_refused(kit: LocalKit, rank: RankSpec) -> None:
    with pytest.raises(LaunchFailed) as failure:
        await kit.engine.launch(replace(kit.gang("a.1.run", Succeed()), ranks=(rank,)))
    assert failure.value.fault is Fault.PLATFORM


# --- bundles ---


def archive(path: Path, **members: str) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, text in members.items():
            info = tarfile.TarInfo(name.replace("__", "/"))
            info.size = len(text)
            info.mode = 0o755
            tar.addfile(info, io.BytesIO(text.encode()))
    return path


async def test_a_bundle_is_unpacked_before_the_ranks_start(kit: LocalKit, tmp_path: Path) -> None:
    bundle = archive(tmp_path / "b.tgz", src__hello="#!/bin/sh\necho hello from the bundle\n")
    await kit.engine.launch(kit.script("a.1.run", "src/hello", ranks=2, bundle=bundle))
    await kit.settle("a.1.run")
    assert await kit.log("a.1.run", 1) == "hello from the bundle\n"


@pytest.mark.parametrize("kind", ["garbage", "truncated", "escaping", "empty"])
async def test_a_bad_bundle_is_the_users_fault(kit: LocalKit, tmp_path: Path, kind: str) -> None:
    bundle = tmp_path / "b.tgz"
    if kind == "escaping":
        archive(bundle, **{"..__..__escaped": "no"})
    elif kind == "truncated":
        archive(bundle, data=os.urandom(4000).hex())
        bundle.write_bytes(bundle.read_bytes()[:-2000])
    else:
        bundle.write_bytes(b"this is no archive" if kind == "garbage" else b"")
    with pytest.raises(LaunchFailed, match="the archive cannot be unpacked") as failure:
        await kit.engine.launch(kit.script("a.1.run", "/bin/true", bundle=bundle))
    assert failure.value.fault is Fault.USER
    said = "'../../escaped'" if kind == "escaping" else "it is no tar archive, or it is cut or damaged"
    assert said in str(failure.value)
    assert "\n" not in str(failure.value)
    assert not list(tmp_path.rglob("escaped"))


async def test_a_missing_bundle_is_ours(kit: LocalKit, tmp_path: Path) -> None:
    with pytest.raises(LaunchFailed, match="the bundle cannot be read") as failure:
        await kit.engine.launch(kit.script("a.1.run", "/bin/true", bundle=tmp_path / "nothing"))
    assert failure.value.fault is Fault.PLATFORM


# --- streams ---


async def test_files_of_the_run_directory_can_be_read_and_nothing_else(kit: LocalKit, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("private")
    script = (
        "mkdir sub; printf inside > sub/file; ln -s ../../../outside out; ln -s sub/file in; mkfifo pipe; ln -s .. up"
    )
    await kit.engine.launch(kit.script("a.1.run", "/bin/sh", "-c", script))
    await kit.settle("a.1.run")
    for path in ("sub/file", "in", "sub/../in"):
        assert (await kit.engine.read("a.1.run", 0, f"file:{path}", 2)).data == b"side"
    later = await kit.engine.read("a.1.run", 0, "file:not/yet", 0)
    assert (later.data, later.ended) == (b"", True)
    for path in ("out", "pipe", "sub", "up/../../outside", "../../outside", str(tmp_path / "outside"), "a\0b"):
        with pytest.raises(NotFound):
            await kit.engine.read("a.1.run", 0, f"file:{path}", 0)


async def test_a_planted_link_does_not_turn_a_stream_into_a_door(kit: LocalKit, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("private")
    script = f"ln -s {tmp_path}/outside $SHOAL_METRICS_FILE"
    await kit.engine.launch(kit.script("a.1.run", "/bin/sh", "-c", script))
    await kit.settle("a.1.run")
    assert (await kit.engine.read("a.1.run", 0, "metrics", 0)).data == b""


async def test_both_output_streams_and_metrics_are_kept(kit: LocalKit) -> None:
    script = "echo out; echo err >&2; echo '{\"step\": 1}' >> $SHOAL_METRICS_FILE"
    await kit.engine.launch(kit.script("a.1.run", "/bin/sh", "-c", script))
    await kit.settle("a.1.run")
    assert await kit.log("a.1.run") == "out\nerr\n"
    assert (await kit.engine.read("a.1.run", 0, "metrics", 0)).data == b'{"step": 1}\n'


# --- stopping with the hooks ---


async def test_a_cooperating_rank_is_told_why_and_until_when(kit: LocalKit) -> None:
    await kit.engine.launch(kit.gang("a.1.run", Cooperate(75)))
    await kit.in_effect("a.1.run")
    await kit.engine.stop("a.1.run", grace_s=50, reason='a "guaranteed" job\nneeds the device')
    assert exits(await kit.settle("a.1.run")) == {0: (75, None, True)}
    notice = json.loads((kit.rank_dir("a.1.run") / "notice").read_text())
    assert notice["reason"] == 'a "guaranteed" job\nneeds the device'
    assert isinstance(notice["deadline"], float)


async def test_a_cooperating_rank_that_stays_is_terminated_before_it_is_killed(kit: LocalKit) -> None:
    stays = (
        "import os, signal, sys, time\n"
        "def leave(*_): print('terminated', flush=True); os._exit(3)\n"
        "signal.signal(signal.SIGTERM, leave)\n"
        "print('up', flush=True)\n"
        "open(os.environ['SHOAL_RUN'] + '/cooperative', 'w').close()\n"
        "while True: signal.pause()\n"
    )
    for grace_s in (1.0, 5.0, 20.0):  # the longer ones are for a machine too busy to do anything in the last fifth
        name = f"a.{grace_s:g}.run"
        await kit.engine.launch(kit.python(name, stays))
        await until_exists(kit.rank_dir(name) / "cooperative")
        await kit.engine.stop(name, grace_s=grace_s)
        ended = exits(await kit.settle(name))
        if ended == {0: (3, None, True)}:
            break
        assert ended == {0: (None, signal.SIGKILL, True)}
    assert ended == {0: (3, None, True)}
    assert await kit.log(name) == "up\nterminated\n"


async def test_a_stop_says_why_in_the_status(kit: LocalKit) -> None:
    await kit.engine.launch(kit.gang("a.1.run", RunForever()))
    await kit.engine.stop("a.1.run", reason="preempted by job 7")
    status = await kit.settle("a.1.run")
    assert status.reason is not None
    assert (status.reason.code, status.reason.text) == ("stopped", "preempted by job 7")


def test_the_engine_runs_on_uvloop(tmp_path: Path) -> None:
    uvloop = pytest.importorskip("uvloop")

    async def main() -> None:
        async with local_kit(tmp_path) as kit:
            await kit.engine.launch(kit.gang("a.1.run", Succeed(0.1), ranks=2))
            assert exits(await kit.settle("a.1.run")) == {0: (0, None, False), 1: (0, None, False)}
            await kit.engine.launch(kit.gang("b.1.run", RunForever()))
            await kit.restart()
            await kit.engine.stop("b.1.run")
            await kit.settle("b.1.run")

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
