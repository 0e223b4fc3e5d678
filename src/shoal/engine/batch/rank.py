"""Starts one rank of a gang on its node, under a cluster's scheduler: the supervisor, with a lease on the gang.

Run by an isolated interpreter from the engine's home, which the nodes share: `rank.py GANG_DIR TOKEN`. What is to be
done stands in `GANG_DIR/spec.TOKEN`; where it runs, the cluster's job tells in the environment: `SHOAL_TASK_JOB`,
`SHOAL_TASK_RANK`, `SHOAL_TASK_NODE` (its name), and where several ranks may share a node `SHOAL_TASK_NODE_INDEX`,
`SHOAL_TASK_LOCAL` and `SHOAL_TASKS_PER_NODE` (as Slurm writes them).

- `owner`    a symbolic link to the cluster's one job that may run the gang: a second job of its name ends at once.
- `fence`    written by the engine when it gives a gang up. The supervisor reads it each second; so long as that works
             it has a lease. A guard process ends all of the rank when the lease has run out, or when the supervisor is
             killed. So a lost rank is over at the latest one lease after its fence was written.
- datagrams  from supervisors to the engine (the gang's name) and back (anything) say that a file changed. Hints only.
"""

# ruff: noqa: PTH100, PTH115, PTH116, PTH120, PTH123, PTH208, PTH211, SIM105
# As in the supervisor: what pathlib and contextlib take to start is part of every job's start.

from __future__ import annotations

import fcntl
import marshal
import os
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    import socket
    from typing import Any, NoReturn
else:
    import _signal as signal
    import _socket as socket

try:
    from shoal.engine.local import supervisor as base
except ImportError:  # an isolated interpreter: the module lies beside this one
    sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))
    import supervisor as base  # type: ignore[import-not-found,no-redef]

LEASE_CLOCK = time.CLOCK_BOOTTIME
"""Goes on while a machine sleeps."""

_F_SETSIG = 10
_POLL_S = 0.5


class RankSupervisor(base.Supervisor):
    """A supervisor that hears of changes by datagrams and by looking, and keeps a lease."""

    def __init__(self, spec: dict[str, Any], guard: int, hints: Any) -> None:
        super().__init__(spec)
        self.guard = guard
        self.hints = hints
        self.signals_read = 0
        self.parent = os.getppid()
        self.facts |= {"node": spec["node"], "job": spec["job"]}
        if hints is not None:
            self.facts["hints"] = "{}:{}".format(*hints.getsockname())

    # --- what differs from one machine ---

    def _hint(self) -> None:
        address = _engine_address(self.spec["home"])
        if address is None or self.hints is None:
            return
        try:
            self.hints.sendto(self.spec["name"].encode(), address)
        except OSError:
            pass  # the engine also looks by itself

    def _let_go(self) -> bool:
        """Of several ranks the first one decides, once all are ready: no server need be there."""
        if self.spec["alone"]:
            return bool(base.decide(self.spec["gang_dir"], base.GO) == base.GO)
        give_up_at = time.monotonic() + self.spec["launch_timeout_s"]
        wait_s = 0.01
        while True:
            try:
                decision = os.readlink(f"{self.spec['gang_dir']}/decision")
            except FileNotFoundError:
                decision = self._decide(give_up_at)
            if decision:
                self._hint()
                return decision == base.GO
            self._beat()
            if self.over:
                return False
            caught = signal.sigtimedwait(base.WAKERS, wait_s)
            wait_s = min(_POLL_S, wait_s * 1.5)
            if caught and caught.si_signo in (signal.SIGTERM, signal.SIGUSR2):
                return bool(base.decide(self.spec["gang_dir"], base.ABORT) == base.GO)

    def _decide(self, give_up_at: float) -> str:
        if self.spec["rank"] == 0:
            states = [
                base.read_record(f"{self.spec['gang_dir']}/rank-{rank}/record").get("state")
                for rank in range(self.spec["ranks"])
            ]
            if base.FAILED in states:
                return str(base.decide(self.spec["gang_dir"], base.ABORT))
            if all(state == base.READY for state in states):
                return str(base.decide(self.spec["gang_dir"], base.GO))
        if time.monotonic() >= give_up_at:
            return str(base.decide(self.spec["gang_dir"], base.ABORT))
        return ""

    def _start(self, command: str) -> None:
        if "MASTER_ADDR" not in self.spec["env"]:
            first = base.read_record(f"{self.spec['gang_dir']}/rank-0/record")
            address, _, port = first.get("master", "").rpartition(":")
            self.spec["env"] |= {"MASTER_ADDR": address, "MASTER_PORT": port}
        super()._start(command)

    def _read_stop(self) -> None:
        super()._read_stop()
        self._look_up()
        self._beat()
        self._pass_signals()

    def _look_up(self) -> None:
        if os.getppid() != self.parent:
            self._kill_now()

    def _kill_now(self) -> None:
        """The cluster's own supervisor of this step ended: what it keeps track of ends too. The kernel tells with the
        first of its threads that is gone, and it stays the parent until the last one is."""
        if not self.over and not self._reap():
            self.over = {"lost": 1, "known": 1, "detail": "the cluster's own supervisor of it was killed"}
        super()._kill_now()

    def _exceeds(self) -> bool:
        self._read_stop()  # once a second, should a hint have been lost
        return super()._exceeds()

    def _pass_signals(self) -> None:
        """Send the main process the signals that were asked for since the last look."""
        try:
            with open(f"{self.spec['gang_dir']}/signals", "rb") as asked:
                asked.seek(self.signals_read)
                lines = asked.read()
        except OSError:
            return
        self.signals_read += len(lines)
        for line in lines.split():
            if self.main_status is None and not self._reap():
                os.kill(self.main_pid, int(line))

    # --- the lease ---

    def _beat(self) -> None:
        """Look for the fence; the lease goes on from the time before the look."""
        began = time.clock_gettime(LEASE_CLOCK)
        try:
            os.stat(f"{self.spec['gang_dir']}/fence")
            fence = base.read_record(f"{self.spec['gang_dir']}/fence")
        except FileNotFoundError:
            fence = {"reason": "its gang is no longer known"}
        except OSError:
            return  # no answer, no lease
        if fence:
            why = fence.get("reason", "")
            self.over = {"lost": 1, "detail": f"fenced: {why}"}
            self._stop(0.0, "")
            return
        try:
            os.write(self.guard, b"%f\n" % (began + self.spec["lease_s"]))
        except BrokenPipeError:  # it was killed
            os.close(self.guard)
            self.guard = guard_process(self.spec, os.getpid())

    def finish(self, state: str, **facts: object) -> None:
        if self.over.get("lost"):
            self.stopping = self.answers = False  # by itself, not because it was asked
        super().finish(state, **facts)
        try:
            os.write(self.guard, b"over\n")
        except BrokenPipeError:
            pass


# --- the guard ---


def guard_process(spec: dict[str, Any], supervisor: int) -> int:
    """Start the guard of this supervisor; where to write its lease. The guard is no child of it, so that the
    supervisor can wait until it has no child left."""
    mine, other = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        if os.fork() == 0:
            os.close(other)
            try:
                _guard(spec, supervisor, mine)
            finally:
                os._exit(0)
        os._exit(0)
    os.close(mine)
    os.waitpid(child, 0)
    return other


def _guard(spec: dict[str, Any], supervisor: int, lease: int) -> None:
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT):
        signal.signal(number, signal.SIG_IGN)
    ends_at = time.clock_gettime(LEASE_CLOCK) + spec["lease_s"]
    poll = select.poll()
    poll.register(lease, select.POLLIN)
    why = "its lease ran out: the shared directory did not answer"
    while (left := ends_at - time.clock_gettime(LEASE_CLOCK)) > 0:
        if not poll.poll(left * 1000):
            continue
        told = os.read(lease, 65536)
        if told.endswith(b"over\n"):
            return
        if not told:
            why = "its supervisor was killed"
            break
        ends_at = float(told.split()[-1])
    _kill_marked(spec, supervisor)
    record = f"{spec['rank_dir']}/record"
    facts: dict[str, object] = dict(base.read_record(record))
    if facts.get("state") not in (base.EXITED, base.FAILED, base.ABORTED):
        facts |= {"state": base.EXITED, "lost": 1, "detail": why, "ended_at": f"{time.time():.6f}"}
        base.write_record(record, facts, durable=True)
        _tell(spec)


def _kill_marked(spec: dict[str, Any], supervisor: int) -> None:
    """Kill the supervisor, all below it, and all that bears the rank's marks, until there is none."""
    marks = {
        f"SHOAL_HOME={spec['home']}".encode(), f"SHOAL_GANG={spec['name']}".encode(),
        f"SHOAL_RANK={spec['rank']}".encode(),
    }  # fmt: skip
    while found := _marked(marks, supervisor):
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.005)


def _marked(marks: set[bytes], supervisor: int) -> list[int]:
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        pid = int(entry)
        try:
            with open(f"/proc/{pid}/stat", "rb") as stat:
                state, parent = stat.read().rpartition(b")")[2].split()[:2]
            if state in (b"Z", b"X"):
                continue
            if supervisor in (pid, int(parent)):
                found.append(pid)
                continue
            with open(f"/proc/{pid}/environ", "rb") as environ:
                if marks <= set(environ.read().split(b"\0")):
                    found.append(pid)
        except (OSError, ValueError):
            continue
    return found


def _tell(spec: dict[str, Any]) -> None:
    address = _engine_address(spec["home"])
    if address is not None:
        try:
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(spec["name"].encode(), address)
        except OSError:
            pass


# --- where this rank is ---


def rank_here(spec: dict[str, Any], environ: dict[str, str]) -> int | None:
    """The number of the rank that this task of a job is; None for a task too many."""
    local = int(environ.get("SHOAL_TASK_LOCAL") or "0")
    nodes = spec["nodes"]
    if not nodes:
        return int(environ.get("SHOAL_TASK_RANK") or "0")
    here = [rank for rank, node in enumerate(nodes) if node == environ.get("SHOAL_TASK_NODE")]
    return here[local] if local < len(here) else None


def place_environment(spec: dict[str, Any], rank: int, environ: dict[str, str]) -> dict[str, str]:
    """What only the node knows: the rank's place among its neighbours, and the accelerators that it was given."""
    local = int(environ.get("SHOAL_TASK_LOCAL") or "0")
    nodes = spec["nodes"]
    if nodes:
        beside = nodes.count(nodes[rank])
        number = list(dict.fromkeys(nodes)).index(nodes[rank])
    else:
        number = int(environ.get("SHOAL_TASK_NODE_INDEX") or rank)
        beside = tasks_on_node(environ.get("SHOAL_TASKS_PER_NODE") or "1", number)
    env = {"LOCAL_RANK": str(local), "LOCAL_WORLD_SIZE": str(beside), "NODE_RANK": str(number)}
    if "SLURM_JOB_ID" in environ:
        env["SLURM_JOB_ID"] = environ["SLURM_JOB_ID"]
    count = spec["accelerators"]
    given = [one for one in environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if one]
    if not count:
        env["CUDA_VISIBLE_DEVICES"] = ""
    elif given:
        mine = given[local * count : (local + 1) * count] if len(given) > count else given
        env["CUDA_VISIBLE_DEVICES"] = ",".join(mine)
    return env


def tasks_on_node(told: str, node: int) -> int:
    """`2(x3),1` says that the first three nodes have two tasks each, and the fourth one."""
    for part in told.split(","):
        count, _, times = part.partition("(x")
        node -= int(times.rstrip(")") or 1)
        if node < 0:
            return int(count)
    return 1


def _engine_address(home: str) -> tuple[str, int] | None:
    try:
        with open(f"{home}/engine.address") as file:
            host, _, port = file.read().strip().rpartition(":")
        return host, int(port)
    except (OSError, ValueError):
        return None


def _own_address(home: str) -> str:
    """The address of this node by which the others reach it: the one it has towards the server."""
    target = _engine_address(home)
    if target is not None:
        try:
            probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            probe.connect(target)
            address = str(probe.getsockname()[0])
            probe.close()
            return address
        except OSError:
            pass
    return socket.gethostname()


def _listen(address: str) -> Any:
    """A socket whose every datagram wakes this process as SIGUSR1 does."""
    try:
        hints = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        hints.bind((address, 0))
        fcntl.fcntl(hints, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(hints, _F_SETSIG, signal.SIGUSR1)
        fcntl.fcntl(hints, fcntl.F_SETFL, fcntl.fcntl(hints, fcntl.F_GETFL) | os.O_ASYNC)
    except OSError:
        return None
    return hints


def _free_port() -> int:
    probe = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    probe.bind(("", 0))
    port = int(probe.getsockname()[1])
    probe.close()
    return port


def unseal(sealed: bytes, key: str) -> dict[str, str]:
    """The secrets, from the two halves that travelled apart: this one in the gang's directory, the key with the job."""
    if not sealed:
        return {}
    from _sha3 import shake_256  # type: ignore[import-not-found]  # hashlib takes longer to start

    stream = shake_256(bytes.fromhex(key)).digest(len(sealed))
    found: dict[str, str] = marshal.loads(bytes(a ^ b for a, b in zip(sealed, stream, strict=True)))  # noqa: S302
    return found


def main(gang_dir: str, token: str) -> int:
    environ = dict(os.environ)
    key = environ.pop("SHOAL_SEAL", "")
    _end_with_the_step()
    try:
        with open(f"{gang_dir}/spec.{token}", "rb") as file:
            spec = marshal.load(file)  # noqa: S302 - written by the engine that submitted us
    except FileNotFoundError:
        return 0  # an earlier launch's job: this gang is no longer its own
    job = environ.get("SHOAL_TASK_JOB", "")
    rank = rank_here(spec, environ)
    if rank is None or not _claim(gang_dir, job):
        return 0
    spec |= spec.pop("each")[rank]
    spec |= {"rank": rank, "node": environ.get("SHOAL_TASK_NODE", ""), "job": job}
    spec["env"] = {**unseal(spec["sealed"], key), **spec["env"], **place_environment(spec, rank, environ)}
    os.closerange(3, 65536)
    address = _own_address(spec["home"])
    facts: dict[str, object] = {}
    if rank == 0:
        port = _free_port()
        facts["master"] = f"{address}:{port}"
        spec["env"] |= {"MASTER_ADDR": address, "MASTER_PORT": str(port)}
    guard = guard_process(spec, os.getpid())
    supervisor = RankSupervisor(spec, guard, _listen(address))
    supervisor.facts |= facts
    supervisor.run()
    return 0


def _end_with_the_step() -> None:
    """Be told to kill the rank when the cluster's own supervisor of this step ends."""
    signal.pthread_sigmask(signal.SIG_BLOCK, base.WAKERS)
    base.prctl(base.PR_SET_PDEATHSIG, signal.SIGUSR2)


def _claim(gang_dir: str, job: str) -> bool:
    """Whether the gang is this job's to run."""
    path = f"{gang_dir}/owner"
    try:
        os.symlink(job, path)
    except FileExistsError:
        return os.readlink(path) == job
    return True


def run() -> NoReturn:
    try:
        code = main(sys.argv[1], sys.argv[2])
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(1)
    os._exit(code)


if __name__ == "__main__":
    run()
