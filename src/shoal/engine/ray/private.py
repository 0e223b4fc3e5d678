"""A real Ray for this machine alone: a head and some nodes in a network of their own.

For tests and benchmarks. Its nodes are raylets that share this machine; its GPUs are numbers. The network is a
namespace with nothing but a loopback, which takes root: Ray would take this machine's outer address else, and two
clusters would meet. It leaves nothing behind, neither files nor processes.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from shoal.base.processes import Process, end_with_parent, send, start_ticks
from shoal.core import Unavailable
from shoal.engine.ray.client import Bridge

_PORT = 6399
_READY_S = 120.0
_GONE_S = 20.0
_CLONE_NEWNET = 0x40000000
_SOON = {
    "RAY_health_check_initial_delay_ms": "500", "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "500", "RAY_health_check_failure_threshold": "3",
}  # fmt: skip


def missing() -> str:
    """Why no cluster can be had here; empty where one can."""
    if importlib.util.find_spec("ray") is None:
        return "Ray is not installed"
    absent = [name for name in ("unshare", "nsenter", "ip") if shutil.which(name) is None]
    if absent:
        return f"{', '.join(absent)} not found"
    made = subprocess.run(["unshare", "-n", "true"], capture_output=True, check=False)
    return "" if made.returncode == 0 else "a network namespace takes root"


class PrivateCluster:
    """Nodes n1 (the head), n2, ... with so many GPUs each, and as many cores. Blocks in all it does. `soon`: a lost
    node is given up within seconds, else as Ray does by default."""

    def __init__(self, gpus: Sequence[int] = (8, 1), *, soon: bool = True) -> None:
        self.gpus = {f"n{number}": count for number, count in enumerate(gpus, start=1)}
        self.names = tuple(self.gpus)
        self.address = f"127.0.0.1:{_PORT}"
        self.root = Path()
        self._soon = _SOON if soon else {}
        self._network: subprocess.Popen[bytes] | None = None

    @property
    def inside(self) -> tuple[str, ...]:
        """Runs a command in the cluster's network."""
        assert self._network is not None
        return ("nsenter", f"--net=/proc/{self._network.pid}/ns/net")

    def enter(self) -> None:
        """From here on this process, and whatever it starts, is in the cluster's network. Call it before it has
        threads."""
        assert self._network is not None
        with Path(f"/proc/{self._network.pid}/ns/net").open() as network:
            if ctypes.CDLL(None, use_errno=True).setns(network.fileno(), _CLONE_NEWNET):
                raise Unavailable(f"the cluster's network cannot be entered: {os.strerror(ctypes.get_errno())}")

    def bridge(self) -> Bridge:
        return Bridge(self.address, prefix=self.inside)

    def start(self) -> None:
        """Raises Unavailable where it cannot be had, with nothing left of it."""
        why = missing()
        if why:
            raise Unavailable(f"there is no Ray here: {why}")
        self.root = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))  # names of sockets are limited
        ready = self.root / "network"
        self._network = subprocess.Popen(
            ["unshare", "-n", "sh", "-c", f"ip link set lo up && touch {ready} && exec sleep infinity"],
            preexec_fn=partial(end_with_parent, os.getpid()),
        )
        try:
            while not ready.exists():
                if self._network.poll() is not None:
                    raise Unavailable("no network namespace can be made here")
                time.sleep(0.01)
            for name in self.names:
                self.start_node(name)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End all of it, and every process that any of it started."""
        ends_at = time.monotonic() + _GONE_S
        while (left := list(self.processes())) and time.monotonic() < ends_at:
            for process in left:
                send(process, signal.SIGKILL)
            time.sleep(0.01)
        if self._network is not None:
            self._network.kill()
            self._network.wait()
        shutil.rmtree(self.root, ignore_errors=True)

    def start_node(self, name: str) -> None:
        where = [f"--address={self.address}"]
        if name == self.names[0]:
            where = ["--head", f"--port={_PORT}", "--include-dashboard=false", f"--temp-dir={self.root}/ray"]
        count = str(self.gpus[name])
        environ = {
            **os.environ, **self._soon, "RAY_USAGE_STATS_ENABLED": "0", "SHOAL_PRIVATE_RAY": str(self.root),
            "SHOAL_PRIVATE_NODE": name,
        }  # fmt: skip
        done = subprocess.run(
            [*self.inside, sys.executable, "-m", "ray.scripts.scripts", "start", *where, "--node-ip-address=127.0.0.1",
             f"--node-name={name}", f"--num-cpus={count}", f"--num-gpus={count}", "--disable-usage-stats",
             f"--memory={4 << 30}", f"--object-store-memory={100 << 20}",
             f"--resources={json.dumps({'accelerator_type:H200': 1})}"],
            env=environ, capture_output=True, text=True, timeout=_READY_S, check=False,
        )  # fmt: skip
        if done.returncode:
            raise Unavailable(f"node {name} did not start: {(done.stderr + done.stdout).strip()[-800:]}")

    def kill_node(self, name: str) -> None:
        """All of it at once, as when a machine loses power: none of it tells of the others' end. Ranks have
        environments of their own, and end with their supervisors."""
        found = list(self.processes(name))
        for signum in (signal.SIGSTOP, signal.SIGKILL):
            for process in found:
                send(process, signum)

    def cut_off(self, name: str) -> None:
        """Its raylet answers no more: the head gives the node up, and what runs there does not know."""
        send(self.raylet(name), signal.SIGSTOP)

    def raylet(self, name: str) -> Process:
        """The daemon of a node."""
        for process in self.running("/raylet", name):
            return process
        raise Unavailable(f"node {name} has no raylet")

    def running(self, program: str, node: str = "") -> list[Process]:
        """Its processes whose first word ends so."""
        found = []
        for process in self.processes(node):
            with suppress(OSError):
                words = Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")
                found += [process] * words[0].decode(errors="replace").strip().endswith(program)
        return found

    def processes(self, node: str = "") -> Iterator[Process]:
        """All processes that bear this cluster's marks: its daemons and what they started."""
        marks = {f"SHOAL_PRIVATE_RAY={self.root}".encode()} | (
            {f"SHOAL_PRIVATE_NODE={node}".encode()} if node else set()
        )
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with suppress(OSError):
                    if marks <= set((entry / "environ").read_bytes().split(b"\0")):
                        start = start_ticks(int(entry.name))
                        if start is not None:
                            yield Process(int(entry.name), start)


@contextmanager
def private_cluster(gpus: Sequence[int] = (8, 1), *, soon: bool = True) -> Iterator[PrivateCluster]:
    """A started cluster, stopped however the block ends."""
    cluster = PrivateCluster(gpus, soon=soon)
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.stop()
