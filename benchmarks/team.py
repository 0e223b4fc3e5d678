"""The cost of interactive sessions, compared with ssh to this machine: start, key press, forwarded port.

An `sshd` of this script's own listens on a free port of the loopback, with a key made for it, and lets this user in.
Each measure takes turns with its counterpart, so that what slows the machine down slows both. Idle sessions are counted
by what the server's memory grows by. Needs OpenSSH's client and server; as root also the folder /run/sshd.
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import os
import pty
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from pathlib import Path

from common import Row, Server, median, parser, report, server

from shoal.base.statistics import quantile
from shoal.session.client.connection import Connection, upgrade
from shoal.session.frames import HELLO, frame, write_fields

SHOAL = [sys.executable, "-m", "shoal.cli"]
SMALL = ["--cpus", "0.05", "--memory", "64MiB"]
PIECE = 1 << 20
AT_ONCE = 240
SOURCE = """
import socket
s = socket.create_server(("127.0.0.1", 0), backlog=1024); print(s.getsockname()[1], flush=True)
block = bytes(1 << 20)
while True:
    c, _ = s.accept()
    try:
        for _ in range(int(c.recv(20) or 0)): c.sendall(block)
    except OSError: pass
    c.close()
"""


class Ssh:
    """OpenSSH to this machine, on a port of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        sshd = shutil.which("sshd") or "/usr/sbin/sshd"
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        config = folder / "config"
        config.write_text(
            f"ListenAddress 127.0.0.1:{self._port}\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/user.pub\n"
            "StrictModes no\nUsePAM no\nPidFile none\nPasswordAuthentication no\nPrintMotd no\n"
        )
        self._server = subprocess.Popen([sshd, "-D", "-e", "-f", str(config)], stderr=subprocess.DEVNULL)
        while self._server.poll() is None and socket.socket().connect_ex(("127.0.0.1", self._port)):
            time.sleep(0.02)

    def line(self, *words: str) -> list[str]:
        options = [
            "-F", "none", "-i", f"{self._folder}/user", "-o", "StrictHostKeyChecking=no", "-o",
            "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", "-p", str(self._port),
        ]  # fmt: skip
        return ["ssh", *options, *words]

    def at(self) -> str:
        return f"{getpass.getuser()}@127.0.0.1"

    def stop(self) -> None:
        self._server.terminate()
        self._server.wait()


class Terminal:
    """A program at a terminal of its own."""

    def __init__(self, line: list[str], env: dict[str, str]) -> None:
        self.fd, side = pty.openpty()
        self.process = subprocess.Popen(
            line, stdin=side, stdout=side, stderr=side, start_new_session=True, env=env,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(side)

    def read(self, within_s: float) -> bytes:
        if not select.select([self.fd], [], [], within_s)[0]:
            return b""
        try:
            return os.read(self.fd, 1 << 16)
        except OSError:
            return b""

    def until(self, wanted: bytes, within_s: float = 60.0) -> None:
        seen, ends_at = b"", time.perf_counter() + within_s
        while wanted not in seen:
            if time.perf_counter() > ends_at:
                raise SystemExit(f"{wanted!r} did not come: {seen!r}")
            seen += self.read(1.0)

    def key(self) -> float:
        """Seconds from a key press to its echo."""
        began = time.perf_counter()
        os.write(self.fd, b"x")
        while b"x" not in self.read(30.0):
            pass
        return time.perf_counter() - began

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.fd)


def start_s(line: list[str], env: dict[str, str]) -> float:
    """Seconds from exec to the end of a command that does nothing, at a terminal."""
    began = time.perf_counter()
    terminal = Terminal(line, env)
    while terminal.process.poll() is None:
        terminal.read(0.01)
    taken = time.perf_counter() - began
    if terminal.process.returncode:
        raise SystemExit(f"{line} left with {terminal.process.returncode}")
    terminal.end()
    return taken


def throughput(port: int, mebibytes: int) -> float:
    """MiB/s of a download through a port of this machine."""
    with socket.create_connection(("127.0.0.1", port)) as made:
        made.sendall(str(mebibytes).encode())
        began, got = time.perf_counter(), 0
        while part := made.recv(PIECE):
            got += len(part)
        taken = time.perf_counter() - began
    if got != mebibytes * PIECE:
        raise SystemExit(f"{got} bytes came, not {mebibytes} MiB")
    return mebibytes / taken


@contextlib.contextmanager
def listening(line: list[str], env: dict[str, str], port: int) -> Iterator[None]:
    process = subprocess.Popen(line, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        while process.poll() is None and socket.socket().connect_ex(("127.0.0.1", port)):
            time.sleep(0.05)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def memory_kib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


def idle_kib(one: Server, count: int) -> float:
    """Growth of the server's memory for each session that is open, attached and idle, in KiB: commands in jobs of
    several tenants, of whom each may have a limited number of connections."""
    client = one.client()
    made: list[Connection] = []

    def connect(job: str) -> None:
        session = client.session.execute(job, ["cat"]).id
        path = f"/v1/jobs/{job}/sessions/{session}/attach"
        made.append(upgrade(client.locate(), path, "shoal-session", {"wait_s": 30}))
        made[-1].send(frame(HELLO, write_fields(client="bench", offset=0, rows=24, cols=80)))
        made[-1].receive(1)

    jobs = []
    for number in range(-(-count // AT_ONCE)):
        client.create_tenant(f"idle-{number}", sandbox="none")
        jobs.append(client.submit({
            "name": "idle", "command": ["sleep", "3600"], "tenant": f"idle-{number}",
            "resources": {"cpus": 0.05, "memory": "4GiB"},
        }).id)  # fmt: skip
    for job in jobs:
        while client.job(job).state != "RUNNING":
            time.sleep(0.1)
    for number in range(20):  # what the first ones load stays
        connect(jobs[number % len(jobs)])
    before = memory_kib(one.pid)
    for number in range(count):
        connect(jobs[number % len(jobs)])
    taken = memory_kib(one.pid) - before
    for connection in made:
        connection.close()
    for job in jobs:
        client.cancel(job)
    return taken / count


def idle_row(one: Server, count: int) -> Row:
    kib = idle_kib(one, count)
    return Row(f"server's memory for each of {count} idle sessions", kib, "KiB", "<= 200", kib <= 200)


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--starts", type=int, default=10)
    arguments.add_argument("--keys", type=int, default=500)
    arguments.add_argument("--mebibytes", type=int, default=256, help="of each download")
    arguments.add_argument("--downloads", type=int, default=5)
    arguments.add_argument("--idle", type=int, default=1000, help="idle sessions")
    arguments.add_argument("--only-idle", action="store_true", help="measure nothing else")
    options = arguments.parse_args()
    rows: list[Row] = []
    if options.only_idle:
        with server(slots=4) as one:
            return report("Idle sessions", [idle_row(one, options.idle)], as_json=options.json)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shoal-ssh-")))
        ssh = Ssh(folder)
        stack.callback(ssh.stop)
        one = stack.enter_context(server(slots=4))
        env = {**os.environ, "SHOAL_HOME": str(one.home), "TERM": "xterm"}
        shoal_line = [*SHOAL, "run", "--pty", *SMALL, "--", "true"]
        ssh_line = ssh.line("-tt", ssh.at(), "true")
        starts = [(start_s(shoal_line, env), start_s(ssh_line, env)) for _ in range(options.starts)]
        ratio = median([ours / theirs for ours, theirs in starts])
        rows += [
            Row("shoal run --pty -- true", median([one for one, _ in starts]) * 1e3, "ms"),
            Row("ssh -tt localhost true", median([one for _, one in starts]) * 1e3, "ms"),
            Row("start of a session, over ssh", ratio, "x", "<= 1.0", ratio <= 1.0),
        ]

        ours = Terminal([*SHOAL, "run", "--pty", *SMALL, "--", "sh", "-c", "echo rea''dy; exec cat"], env)
        theirs = Terminal(ssh.line("-tt", ssh.at(), "echo rea''dy; exec cat"), env)
        for terminal in (ours, theirs):
            terminal.until(b"ready")
            time.sleep(0.5)
        keys: tuple[list[float], list[float]] = ([], [])
        for number in range(options.keys):
            for terminal, found in zip((ours, theirs), keys, strict=True):
                found.append(terminal.key())
                if number % 50 == 49:
                    os.write(terminal.fd, b"\r")
                    time.sleep(0.05)
                    while terminal.read(0.05):
                        pass
        for part, most in ((0.5, 1.5), (0.99, 2.0)):
            mine, other = (quantile(sorted(found), part) for found in keys)
            rows += [
                Row(f"key press to echo, p{part * 100:g}", mine * 1e3, "ms"),
                Row(f"the same over ssh, p{part * 100:g}", other * 1e3, "ms"),
                Row(f"key press at p{part * 100:g}, over ssh", mine / other, "x", f"<= {most}", mine / other <= most),
            ]
        ours.end()
        theirs.end()

        client = one.client()
        job = client.submit({
            "name": "source", "command": ["python3", "-c", SOURCE], "resources": {"cpus": 0.05, "memory": "256MiB"},
        }).id  # fmt: skip
        while not (told := client.log_piece(job).data):
            time.sleep(0.1)
        remote, mine, other = int(told), free_port(), free_port()
        with (
            listening([*SHOAL, "forward", job, f"{remote}:{mine}"], env, mine),
            listening(ssh.line("-N", "-L", f"{other}:127.0.0.1:{remote}", ssh.at()), env, other),
        ):
            speeds = [
                (throughput(mine, options.mebibytes), throughput(other, options.mebibytes))
                for _ in range(options.downloads)
            ]
        ratio = median([ours / theirs for ours, theirs in speeds])
        rows += [
            Row("shoal forward: a download", median([one for one, _ in speeds]), "MiB/s"),
            Row("ssh -L: the same", median([one for _, one in speeds]), "MiB/s"),
            Row("throughput of forward, over ssh -L", ratio, "x", ">= 0.7", ratio >= 0.7),
        ]
        rows.append(idle_row(one, options.idle))
        for live in client.jobs().jobs:
            if not live.terminal:
                client.cancel(live.id)
    return report("Sessions beside ssh to this machine", rows, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
