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
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from clusters.private import NODE_MARK, PrivateCluster
from shoal.base.processes import Process, end_with_parent, send
from shoal.core import Unavailable
from shoal.engine.ray.client import Bridge

_PORT = 6399
_READY_S = 120.0
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


class PrivateRay(PrivateCluster):
    """The first node is the head. `soon`: a lost node is given up within seconds, else as Ray does by default."""

    def __init__(self, gpus: Sequence[int] = (8, 1), *, soon: bool = True) -> None:
        super().__init__(gpus)
        self.address = f"127.0.0.1:{_PORT}"
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

    @property
    def _mark(self) -> str:
        return f"SHOAL_PRIVATE_RAY={self.root}"

    def start(self) -> None:
        why = missing()
        if why:
            raise Unavailable(f"there is no Ray here: {why}")
        self.root = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))  # names of sockets are limited
        ready = self.root / "network"
        self._network = subprocess.Popen(
            ["unshare", "-n", "sh", "-c", f"ip link set lo up && touch {ready} && exec sleep infinity"],
            preexec_fn=partial(end_with_parent, os.getpid()),
        )
        while not ready.exists():
            if self._network.poll() is not None:
                raise Unavailable("no network namespace can be made here")
            time.sleep(0.01)
        for name in self.names:
            self.start_node(name)

    def stop(self) -> None:
        super().stop()
        if self._network is not None:
            self._network.kill()
            self._network.wait()

    def start_node(self, name: str) -> None:
        where = [f"--address={self.address}"]
        if name == self.names[0]:
            where = ["--head", f"--port={_PORT}", "--include-dashboard=false", f"--temp-dir={self.root}/ray"]
        count = str(self.gpus[name])
        environ = {
            **os.environ, **self._soon, "RAY_USAGE_STATS_ENABLED": "0", "SHOAL_PRIVATE_RAY": str(self.root),
            NODE_MARK: name,
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
