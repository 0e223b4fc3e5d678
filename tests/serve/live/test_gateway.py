"""The gateway's process as the control plane keeps it: a real one, in place of the gateway's own program."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.base.ends import last_line
from shoal.base.processes import start_detached
from shoal.core import ManualClock, Money, Unavailable
from shoal.inference.types import ModelSpec
from shoal.serve import contract
from shoal.serve.contract import Address, Deployment, GatewayConfig, GatewayStatus, ReplicaKill, TenantEntry
from shoal.serve.live.gateway import GatewayDesired, LocalGateway
from shoal.serve.types import ServiceSpec

FAKE = str(Path(__file__).with_name("fake_gateway.py"))
SPEC = ServiceSpec("ocr", "ada", (ModelSpec("m", "m.onnx"),))
SETTINGS = GatewayConfig(0, "", 2)
DESIRED = GatewayDesired((TenantEntry("ada", 2.0, ("a" * 64,)),), ("b" * 64,), (Deployment("s-1", 1, SPEC, "c" * 64),))


class Starts:
    """Starts the stand-in, and counts."""

    def __init__(self, *flags: str) -> None:
        self.flags = flags
        self.processes: list[subprocess.Popen[bytes]] = []

    def __call__(self, command: Sequence[str], log_file: Path) -> subprocess.Popen[bytes]:
        assert command[1:4] == ("-m", "shoal.serve.gateway", "--home-dir")
        self.processes.append(start_detached([sys.executable, FAKE, command[4], *self.flags], log_file, what="gateway"))
        return self.processes[-1]


@pytest.fixture
def starts() -> Iterator[Starts]:
    made = Starts()
    yield made
    for process in made.processes:
        process.kill()
        process.wait()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "serve"


def until(condition: Callable[[], object], within_s: float = 20.0) -> None:
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.02)


def up(gateway: LocalGateway) -> bool:
    gateway.serve(DESIRED)
    return gateway.observe().status is not None


def test_it_is_started_told_and_adopted_by_the_next_server(folder: Path, starts: Starts) -> None:
    first = LocalGateway(folder, SETTINGS, start=starts)
    assert first.observe().why == "the gateway does not run yet"
    first.serve(DESIRED)
    found = first.observe()
    assert found.why == "the gateway is starting" or found.status is not None
    until(lambda: up(first))
    status = first.observe().status
    assert status is not None
    assert (status.pid, [one.id for one in status.services]) == (starts.processes[0].pid, ["s-1"])
    second = LocalGateway(folder, SETTINGS, start=starts)
    until(lambda: up(second))
    assert len(starts.processes) == 1


def test_what_it_is_told_is_private_and_written_only_when_it_changes(folder: Path, starts: Starts) -> None:
    settings = replace(SETTINGS, slots=3, price_per_hour=Money.usd("1.5"), anonymous="ada")
    gateway = LocalGateway(folder, settings, start=starts)
    gateway.serve(DESIRED)
    config = contract.read_config(folder)
    assert config is not None
    assert (config.generation, config.slots, config.price_per_hour, config.anonymous) == (1, 3, Money.usd("1.5"), "ada")
    assert (config.tenants, config.admin_token_hashes, config.services) == (*vars_of(DESIRED),)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    gateway.serve(DESIRED)
    assert contract.read_config(folder) == config
    gateway.serve(GatewayDesired())
    changed = contract.read_config(folder)
    assert changed is not None
    assert (changed.generation, changed.services) == (2, ())
    LocalGateway(folder, settings, start=starts).serve(GatewayDesired())
    assert contract.read_config(folder) == changed


def vars_of(desired: GatewayDesired) -> tuple[object, ...]:
    return desired.tenants, desired.admin_token_hashes, desired.services


def test_why_it_killed_a_replica_is_read_for_one_attempt(folder: Path, starts: Starts) -> None:
    gateway = LocalGateway(folder, SETTINGS, start=starts)
    assert gateway.killed("ada/a-0-1", 0.0) is None
    folder.mkdir(mode=0o700, exist_ok=True)
    kills = (ReplicaKill("ada/a-0-1", 10.0, "first"), ReplicaKill("ada/a-0-1", 20.0, "second"))
    contract.write_status(folder, GatewayStatus(1, 1, 0.0, 1, Address(), Address(), killed=kills))
    asked = (("ada/a-0-1", 5.0), ("ada/a-0-1", 20.0), ("ada/a-0-1", 20.5), ("bob/a-0-1", 5.0))
    assert [gateway.killed(*one) for one in asked] == ["second", "second", None, None]


def test_a_killed_gateway_is_started_again_where_it_was(folder: Path, starts: Starts) -> None:
    gateway = LocalGateway(folder, SETTINGS, start=starts)
    until(lambda: up(gateway))
    before = gateway.observe().status
    assert before is not None
    os.kill(before.pid, signal.SIGKILL)
    starts.processes[0].wait()
    assert gateway.observe().status is None
    until(lambda: up(gateway))
    after = gateway.observe().status
    assert after is not None
    assert after.pid != before.pid
    assert (after.http, after.grpc) == (before.http, before.grpc)


def test_one_that_does_not_come_up_is_tried_ever_more_slowly_and_says_why(folder: Path) -> None:
    starts, clock = Starts("--fail"), ManualClock()
    gateway = LocalGateway(folder, SETTINGS, start=starts, clock=clock)
    for number in range(1, 4):
        gateway.serve(DESIRED)
        assert len(starts.processes) == number
        starts.processes[-1].wait()
        gateway.serve(DESIRED)
        assert len(starts.processes) == number
        assert gateway.observe().why == "the gateway ended with code 1: cannot bind the port: it is taken"
        assert gateway.observe().failing is (number == 3)
        clock.advance(0.25 * 2 ** (number - 1) - 0.01)
        gateway.serve(DESIRED)
        assert len(starts.processes) == number
        clock.advance(0.01)


def test_what_went_well_is_not_why_it_died(tmp_path: Path) -> None:
    log = tmp_path / "gateway.log"
    stamp = "2026-01-01 00:00:00,000"
    for last, said in (
        (f"{stamp} INFO shoal.serve replica joined", ""),
        (f"{stamp} ERROR shoal.serve the port is taken", f"{stamp} ERROR shoal.serve the port is taken"),
        ("MemoryError", "MemoryError"),
    ):
        log.write_text(f"{stamp} INFO shoal.serve up\n{last}\n")
        assert last_line(log) == said


def test_a_gateway_that_says_nothing_is_not_believed(folder: Path, starts: Starts) -> None:
    gateway = LocalGateway(folder, SETTINGS, start=starts)
    until(lambda: up(gateway))
    clock = ManualClock(time.time() + 60)
    assert "has said nothing for" in LocalGateway(folder, SETTINGS, start=starts, clock=clock).observe().why
    os.kill(starts.processes[0].pid, signal.SIGSTOP)
    os.waitid(os.P_PID, starts.processes[0].pid, os.WSTOPPED)
    (folder / contract.STATUS_FILE).write_text("{")
    assert "cannot be understood" in gateway.observe().why


def test_it_ends_when_there_is_nothing_to_serve(folder: Path, starts: Starts) -> None:
    gateway = LocalGateway(folder, SETTINGS, start=starts)
    assert gateway.rest()
    until(lambda: up(gateway))
    until(gateway.rest)
    assert starts.processes[0].wait() == 0
    config = contract.read_config(folder)
    assert config is not None
    assert config.services == ()
    assert not contract.held(folder)


def test_a_long_home_still_has_a_socket(tmp_path: Path, starts: Starts) -> None:
    assert LocalGateway(tmp_path / "serve", SETTINGS).socket == str(tmp_path / "serve" / "replicas.sock")
    deep = LocalGateway(tmp_path / ("x" * 100) / "serve", SETTINGS, start=starts)
    assert len(deep.socket) < 100
    deep.serve(DESIRED)
    place = Path(deep.socket).parent
    assert stat.S_IMODE(place.stat().st_mode) == 0o700


def test_a_socket_that_others_could_take_is_refused(tmp_path: Path, starts: Starts) -> None:
    folder = tmp_path / "serve"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(Unavailable, match="others may enter"):
        LocalGateway(folder, SETTINGS, start=starts).serve(DESIRED)
    assert starts.processes == []


def test_where_it_listens_is_what_was_set(folder: Path, starts: Starts) -> None:
    settings = replace(SETTINGS, http=Address("127.0.0.1", 41017), grpc=Address("127.0.0.1", 41018))
    LocalGateway(folder, settings, start=starts).serve(DESIRED)
    config = contract.read_config(folder)
    assert config is not None
    assert (config.http.port, config.grpc.port) == (41017, 41018)
