"""A site behind a real link: two network namespaces joined with a rate and a delay, `sshd` with a key of its own, and
sshfs. Needs root, a C compiler and TUN devices; `lacking` says what is not there."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LINK = Path(__file__).with_name("link.c")
NFS = Path(__file__).with_name("nfs.c")
DELAY_MS, MBIT_PER_S, MTU = 10, 600, 65_000
"""Round trips of 20 ms. With packets of 9,000 bytes a busy machine loses some, and 100 MB took 53 s."""
PORT = 2222
NFS_PORT = 20490


def lacking_nfs() -> str | None:
    for one in ("ganesha.nfsd", "rpcbind", "nfs-ls", "pkg-config"):
        if shutil.which(one) is None:
            return f"{one} is not installed"
    found = subprocess.run(["pkg-config", "fuse", "libnfs"], capture_output=True, check=False)
    return "the headers of FUSE 2 or libnfs are not installed" if found.returncode else None


def build_nfs(folder: Path) -> Path:
    """The client of NFS in user space."""
    flags = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "fuse", "libnfs"], capture_output=True, text=True, check=True
    ).stdout.split()
    program = folder / "nfs"
    subprocess.run(["gcc", "-O2", "-o", program, NFS, *flags], check=True)
    return program


def lacking() -> str | None:
    if os.geteuid() != 0:
        return "network namespaces need root"
    for one in ("gcc", "ip", "nsenter", "ssh", "ssh-keygen", "sshfs", "fusermount3"):
        if shutil.which(one) is None:
            return f"{one} is not installed"
    if not Path("/usr/sbin/sshd").exists():
        return "sshd is not installed"
    return next((f"{one} is missing" for one in ("/dev/net/tun", "/dev/fuse") if not Path(one).exists()), None)


@dataclass
class Network:
    """`srv` is a folder over there, `mnt` where it is mounted here, `ssh` logs in over the link."""

    folder: Path
    near: str
    far: str
    mount_options: tuple[str, ...] = ()

    @property
    def srv(self) -> Path:
        return self.folder / "srv"

    @property
    def mnt(self) -> Path:
        return self.folder / "mnt"

    @property
    def ssh(self) -> tuple[str, ...]:
        return ("nsenter", f"--net=/var/run/netns/{self.near}", "ssh", "-F", str(self.folder / "ssh_config"))

    def mount(self) -> None:
        """Afresh: what sshfs kept is gone."""
        self.unmount()
        options = [f"ssh_command={' '.join(self.ssh)}", *self.mount_options]
        subprocess.run(["sshfs", "-o", ",".join(options), f"far:{self.srv}", self.mnt], check=True)

    @contextlib.contextmanager
    def mount_rclone(self) -> Iterator[None]:
        """Without its caches, which know nothing of a change over there and keep what was written for a moment."""
        self.unmount()
        remote = f":sftp,host=10.88.0.2,port={PORT},user=root,key_file={self.folder}/key:{self.srv}"
        words = ["rclone", "mount", remote, self.mnt, "--daemon", "--vfs-cache-mode", "off"]
        words += ["--dir-cache-time", "0s", "--attr-timeout", "0s", "--config", os.devnull]
        subprocess.run([*self._near, *words], check=True, timeout=60)
        try:
            yield
        finally:
            self.unmount()

    @contextlib.contextmanager
    def mount_nfs(self) -> Iterator[None]:
        """By a server of NFS 3 over there that keeps nothing of files, and a client of it in user space here, whose
        names and attributes the kernel keeps for 3 s, as it does for NFS of its own. With NFS 4, libnfs 4.0 sends no
        state with its writes, and the server refuses them."""
        self.unmount()
        program = build_nfs(self.folder)
        config = self.folder / "ganesha.conf"
        config.write_text(
            f"NFS_CORE_PARAM {{ NFS_Port = {NFS_PORT}; MNT_Port = {NFS_PORT + 1}; Protocols = 3; Enable_NLM = false;"
            " Enable_RQUOTA = false; }\nMDCACHE { Dir_Chunk = 0; }\nNFS_KRB5 { Active_krb5 = false; }\n"
            f"EXPORT {{ Export_Id = 1; Path = {self.srv}; Pseudo = /srv; Access_Type = RW; Squash = No_Root_Squash;"
            " Attr_Expiration_Time = 0; SecType = sys; Protocols = 3; Transports = TCP; FSAL { Name = VFS; } }\n"
        )
        # NFS 3 registers with rpcbind, which has a socket of the whole machine: here in a /run of its own.
        begin = (
            'mount -t tmpfs none /run && mkdir /run/ganesha && rpcbind && exec ganesha.nfsd -F -f "$1" -L "$2" -p "$3"'
        )
        enter = ["nsenter", f"--net=/var/run/netns/{self.far}", "unshare", "--mount", "sh", "-c", begin, "sh"]
        words = [*enter, config, self.folder / "nfs.log", self.folder / "nfs.pid"]
        with contextlib.ExitStack() as stack:
            server = stack.enter_context(subprocess.Popen(words, stdout=subprocess.DEVNULL))
            stack.callback(server.kill)
            address = f"nfs://10.88.0.2{self.srv}?version=3&nfsport={NFS_PORT}&mountport={NFS_PORT + 1}"
            until = time.monotonic() + 60
            while subprocess.run([*self._near, "nfs-ls", address], capture_output=True, check=False).returncode:
                if time.monotonic() > until or server.poll() is not None:
                    raise TimeoutError(f"the NFS server did not start: {self.folder / 'nfs.log'}")
                time.sleep(0.2)
            words = [*self._near, program, address, self.mnt, "-s", "-f", "-o", "attr_timeout=3,entry_timeout=3"]
            client = stack.enter_context(subprocess.Popen(words))
            stack.callback(client.kill)
            stack.callback(self.unmount)
            _wait_mounted(self.mnt)
            yield

    @property
    def _near(self) -> list[str]:
        return ["nsenter", f"--net=/var/run/netns/{self.near}"]

    def unmount(self) -> None:
        subprocess.run(["fusermount3", "-u", "-z", self.mnt], capture_output=True, check=False)


def _end(namespace: str) -> None:
    """All that runs over there: `sshd`, and its sessions, which outlive it."""
    found = subprocess.run(["ip", "netns", "pids", namespace], check=False, capture_output=True, text=True).stdout
    for pid in found.split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


def _wait(path: Path) -> None:
    until = time.monotonic() + 10
    while not path.exists():
        if time.monotonic() > until:
            raise TimeoutError(f"{path} did not come")
        time.sleep(0.02)


def _wait_mounted(path: Path) -> None:
    until = time.monotonic() + 30
    while not path.is_mount():
        if time.monotonic() > until:
            raise TimeoutError(f"{path} was not mounted")
        time.sleep(0.05)


@contextlib.contextmanager
def network(folder: Path, *, delay_ms: float = DELAY_MS) -> Iterator[Network]:
    """Joined, with `sshd` running over there; not mounted yet."""
    mark = f"shoal{os.getpid()}"
    made = Network(folder, f"{mark}a", f"{mark}b")
    made.srv.mkdir(parents=True)
    made.mnt.mkdir()
    with contextlib.ExitStack() as stack:
        for name in (made.near, made.far):
            subprocess.run(["ip", "netns", "add", name], check=True)
            stack.callback(subprocess.run, ["ip", "netns", "delete", name], check=False)
        program = folder / "link"
        subprocess.run(["gcc", "-O2", "-o", program, LINK], check=True)
        words = [program, made.near, made.far, str(delay_ms), str(MBIT_PER_S), str(MTU)]
        link = subprocess.Popen(words, stdout=subprocess.PIPE)
        stack.callback(link.wait)
        stack.callback(link.kill)
        assert link.stdout is not None
        link.stdout.readline()
        for key in ("key", "host"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True)
        (folder / "authorized").write_text((folder / "key.pub").read_text())
        (folder / "authorized").chmod(0o600)
        (folder / "sshd_config").write_text(
            f"Port {PORT}\nListenAddress 10.88.0.2\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized\n"
            f"StrictModes no\nPermitRootLogin yes\nSubsystem sftp internal-sftp\nPidFile {folder}/sshd.pid\n"
        )
        (folder / "ssh_config").write_text(
            f"Host far\n HostName 10.88.0.2\n Port {PORT}\n User root\n IdentityFile {folder}/key\n BatchMode yes\n"
            f" StrictHostKeyChecking no\n UserKnownHostsFile {folder}/known\n LogLevel ERROR\n"
        )
        Path("/run/sshd").mkdir(exist_ok=True)
        enter = ["nsenter", f"--net=/var/run/netns/{made.far}"]
        subprocess.run([*enter, "/usr/sbin/sshd", "-f", folder / "sshd_config"], check=True)
        _wait(folder / "sshd.pid")
        stack.callback(_end, made.far)
        stack.callback(made.unmount)
        yield made
