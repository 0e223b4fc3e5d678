"""A real Slurm for this machine alone: munge, a controller and some nodes on the loopback, in one directory.

For tests, the demo and benchmarks. Its nodes are daemons (`slurmd -N n1`) that share this machine; its accelerators are
plain files. Everything else is Slurm as it is: queues, preemption, time limits, lost nodes. It is made for one run and
leaves nothing behind, neither files nor processes.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from clusters.private import NODE_MARK, PrivateCluster
from shoal.base.processes import end_with_parent, send
from shoal.core import Unavailable

_SBIN = f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin"
NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scontrol", "scancel")
HINT = "on Debian: apt-get install slurmctld slurmd slurm-client munge"
_READY_S = 60.0


def missing() -> tuple[str, ...]:
    """The programs of a whole Slurm that this machine lacks."""
    return tuple(name for name in NEEDED if shutil.which(name, path=_SBIN) is None)


class PrivateSlurm(PrivateCluster):
    """Two partitions: `shoal`, and `urgent`, whose jobs may preempt those of `shoal`. A node that does not answer for
    `node_timeout_s` is down. `switches` are the nodes under each leaf switch; without any, Slurm knows of none.
    """

    def __init__(
        self, gpus: Sequence[int] = (4, 4, 4), *,
        node_timeout_s: int = 10, kill_wait_s: int = 5, switches: Sequence[str] = (),
    ) -> None:  # fmt: skip
        super().__init__(gpus)
        self._node_timeout_s = node_timeout_s
        self._kill_wait_s = kill_wait_s
        self._switches = switches
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def conf(self) -> Path:
        return self.root / "slurm.conf"

    @property
    def environment(self) -> dict[str, str]:
        """What a client of this cluster needs in its environment."""
        return {"SLURM_CONF": str(self.conf)}

    @property
    def _mark(self) -> str:
        return f"SLURM_CONF={self.conf}"

    def start(self) -> None:
        absent = missing()
        if absent:
            raise Unavailable(f"there is no Slurm here: {', '.join(absent)} not found", hint=HINT)
        self.root = Path(tempfile.mkdtemp(prefix="shoal-slurm-"))
        self._write()
        self._start_munge()
        self.start_daemon("slurmctld")
        for name in self.names:
            self.start_daemon(name)
        self._until_ready()

    def stop(self) -> None:
        for name in ("slurmctld", *self.names, "munged"):
            self.kill_daemon(name, signal.SIGKILL)
        super().stop()

    # --- daemons ---

    def start_daemon(self, name: str) -> None:
        """The controller (`slurmctld`) or a node, by its name."""
        command = ["slurmctld", "-D", "-f", str(self.conf)]
        if name != "slurmctld":
            command = ["slurmd", "-D", "-N", name, "-f", str(self.conf)]
        self._spawn(name, command)

    def kill_daemon(self, name: str, signum: int = signal.SIGKILL) -> None:
        daemon = self._daemons.pop(name, None)
        if daemon is not None:
            daemon.send_signal(signum)
            daemon.wait()

    def kill_steps(self, node: str) -> list[int]:
        """Kill all that keeps a node's jobs (`slurmstepd`), and none of the jobs' own processes."""
        found = self.running("slurmstepd", node)
        for process in found:
            send(process, signal.SIGKILL)
        return [process.pid for process in found]

    def run(self, *command: str, check: bool = True) -> str:
        """What a command of Slurm prints."""
        done = subprocess.run(
            command, env={**os.environ, **self.environment}, capture_output=True, text=True, check=False
        )
        if check and done.returncode:
            raise Unavailable(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def _spawn(self, name: str, command: list[str]) -> None:
        environment = {**os.environ, **self.environment, "PATH": _SBIN, NODE_MARK: name}
        with (self.root / f"{name}.out").open("ab") as output:
            self._daemons[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment,
                start_new_session=True, preexec_fn=partial(end_with_parent, os.getpid()),
            )  # fmt: skip

    def _start_munge(self) -> None:
        self._spawn(
            "munged",
            ["munged", "--foreground", "--force", f"--socket={self.root}/munge.sock", f"--key-file={self.root}/key",
             f"--log-file={self.root}/munge.log", f"--pid-file={self.root}/munge.pid",
             f"--seed-file={self.root}/munge.seed"],
        )  # fmt: skip
        self._wait(lambda: (self.root / "munge.sock").exists(), "munged")

    def _until_ready(self) -> None:
        def ready() -> bool:
            states = self.run("sinfo", "-h", "-N", "-p", "shoal", "-o", "%N %t", check=False).split("\n")
            return sorted(line for line in states if line) == sorted(f"{name} idle" for name in self.names)

        self._wait(ready, "slurmctld and slurmd")

    def _wait(self, ready: Callable[[], bool], what: str) -> None:
        ends_at = time.monotonic() + _READY_S
        while not ready():
            dead = [name for name, daemon in self._daemons.items() if daemon.poll() is not None]
            if dead or time.monotonic() > ends_at:
                told = (self.root / f"{dead[0] if dead else 'slurmctld'}.out").read_text()[-800:]
                raise Unavailable(f"{what} did not start: {told.strip()}", where=str(self.root))
            time.sleep(0.02)

    # --- files ---

    def _write(self) -> None:
        root = self.root
        key = root / "key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        for name in ("state", *(f"spool.{node}" for node in self.names)):
            (root / name).mkdir(mode=0o755)
        for index in range(max(self.gpus.values())):
            (root / f"gpu{index}").touch()
        user = _user()
        host = socket.gethostname().partition(".")[0]
        ports = _free_ports(1 + len(self.names))
        nodes = "\n".join(
            f"NodeName={name} NodeAddr=127.0.0.1 NodeHostname={host} Port={port} CPUs={count} RealMemory=4000 "
            f"Gres=gpu:h200:{count}"
            for (name, count), port in zip(self.gpus.items(), ports[1:], strict=True)
        )
        self.conf.write_text(
            _CONF.format(
                host=host, user=user, root=root, port=ports[0], timeout=self._node_timeout_s, kill=self._kill_wait_s,
                nodes=nodes, all=",".join(self.names),
            )
        )  # fmt: skip
        if self._switches:
            self.conf.write_text(self.conf.read_text() + "TopologyPlugin=topology/tree\n")
            leaves = [f"SwitchName=s{number} Nodes={nodes}" for number, nodes in enumerate(self._switches, start=1)]
            top = f"SwitchName=top Switches=s[1-{len(leaves)}]"
            (root / "topology.conf").write_text("\n".join([*leaves, top]) + "\n")
        lines = [f"NodeName={name} Name=gpu Type=h200 File={root}/gpu[0-{n - 1}]" for name, n in self.gpus.items()]
        (root / "gres.conf").write_text("\n".join(lines) + "\n")


_CONF = """\
ClusterName=private
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={root}/munge.sock
CredType=cred/munge
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool.%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd.%n.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0
PriorityType=priority/basic
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
SlurmdParameters=config_overrides
SlurmdTimeout={timeout}
SlurmctldTimeout=30
KillWait={kill}
InactiveLimit=0
MinJobAge=300
ReturnToService=2
MpiDefault=none
JobCompType=jobcomp/none
AccountingStorageType=accounting_storage/none
GresTypes=gpu
{nodes}
PartitionName=shoal Nodes={all} Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=urgent Nodes={all} Default=NO MaxTime=INFINITE State=UP PriorityTier=10
"""


def _user() -> str:
    import pwd

    return pwd.getpwuid(os.geteuid()).pw_name


def _free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()
