"""Becomes an OpenSSH server for one connection, which comes over standard input and output.

`sshd.py PUBLIC-KEY [ENTER...]`, run in a job beside its own process, with its rights and by an isolated interpreter.
The holder of the key is let in as the job's own user, called `shoal`; others are not. Its shells are started by the
words `ENTER`, which bring them into the job's software: the server itself is the machine's. The host's key stays with
the job, in `SHOAL_RUN`, so that clients know it again. Sessions have the job's environment and directory.
"""

# ruff: noqa: SIM105, PTH103, PTH108, PTH113, PTH118, PTH123, S606 - light, as an interpreter without packages is

from __future__ import annotations

import os
import re
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

USER = "shoal"
LIBRARIES = (
    "/usr/lib/{machine}-linux-gnu/libnss_wrapper.so",
    "/usr/lib64/libnss_wrapper.so",
    "/usr/lib/libnss_wrapper.so",
)
SERVERS = ("/usr/sbin/sshd", "/usr/local/sbin/sshd", "/usr/bin/sshd", "/opt/openssh/sbin/sshd")
_SFTP = "internal-sftp"
_PLAIN = re.compile(r'[^"\\\n\r\0%]*')
_NOT_PASSED = frozenset({"LD_PRELOAD", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "SSH_CONNECTION", "SSH_CLIENT", "_"})
_SHELLS = ("/bin/bash", "/bin/sh")
_BEST_SHELL = '[ ! -x /bin/bash ] || exec /bin/bash "$@"; exec /bin/sh "$@"'


class Missing(Exception):
    """Something that has to be installed on the server's machine."""


def find(places: tuple[str, ...], what: str) -> str:
    machine = os.uname().machine
    for place in places:
        path = place.format(machine=machine)
        if os.path.isfile(path):
            return path
    raise Missing(f"{what} is not installed where the job runs")


def configuration(folder: str, key: str, environment: dict[str, str], directory: str) -> str:
    """Of a server that lets one key in and has no other way."""
    passed = {
        name: value
        for name, value in environment.items()
        if name not in _NOT_PASSED and re.fullmatch(r"[A-Za-z_]\w*", name) and _PLAIN.fullmatch(value)
    }
    lines = [
        f"HostKey {folder}/host_key", f"AuthorizedKeysFile {key}", f"AllowUsers {USER}",
        "PubkeyAuthentication yes", "AuthenticationMethods publickey", "PasswordAuthentication no",
        "KbdInteractiveAuthentication no", "PermitRootLogin prohibit-password", "UsePAM no", "StrictModes no",
        "PermitUserEnvironment no", "PermitUserRC no", "X11Forwarding no", "AllowAgentForwarding no",
        "AllowTcpForwarding local", "GatewayPorts no", "PermitTunnel no", "PrintMotd no", "PrintLastLog no",
        "PidFile none", "LogLevel ERROR", "ClientAliveInterval 60", "ClientAliveCountMax 5",
        "AcceptEnv TERM LANG LC_*", f"Subsystem sftp {_SFTP} -d {directory}",
    ]  # fmt: skip
    if passed:
        lines.append("SetEnv " + " ".join(f'{name}="{value}"' for name, value in sorted(passed.items())))
    return "\n".join([*lines, ""])


def entering_shell(enter: list[str]) -> str:
    """A program that is a shell behind these words. None of the machine's profiles is read: they set another PATH."""
    words = " ".join("'" + one.replace("'", "'\\''") + "'" for one in [*enter, "/bin/sh", "-c", _BEST_SHELL, "sh"])
    return f'#!/bin/sh\nexec {words} "$@"\n'


def users(uid: int, gid: int, home: str, known: str, shell: str = "") -> str:
    """A list of users in which this process's is called `shoal`; the others of the machine keep their names."""
    shell = shell or next((one for one in _SHELLS if os.path.isfile(one)), "/bin/sh")
    return f"{USER}:x:{uid}:{gid}:{USER}:{home}:{shell}\n{known}"


def prepare(key: str, enter: list[str]) -> tuple[str, list[str], dict[str, str]]:
    """Write what the server reads, into a folder of the job's own; its command line and environment. Raises OSError."""
    server = find(SERVERS, "OpenSSH's server (Debian: openssh-server)")
    wrapper = find(LIBRARIES, "nss_wrapper (Debian: libnss-wrapper)")
    folder = os.path.join(os.environ["SHOAL_RUN"], "ssh")
    os.umask(0o077)
    try:
        os.mkdir(folder, 0o700)  # noqa: PTH102
    except FileExistsError:
        pass
    directory = os.getcwd()  # noqa: PTH109
    with open("/etc/passwd") as file:
        known = file.read()
    with open("/etc/group") as file:
        groups = file.read()
    own = f"{folder}/{os.getpid()}"  # of this connection: another may come at the same time, with another key
    _write(f"{own}.key", f"restrict,pty,port-forwarding {key}\n")
    _write(f"{own}.config", configuration(folder, f"{own}.key", dict(os.environ), directory))
    shell = f"{folder}/shell" if enter else ""
    if shell:
        _write(shell, entering_shell(enter), 0o700)
    _write(f"{folder}/passwd", users(os.getuid(), os.getgid(), directory, known, shell))
    _write(f"{folder}/group", f"{USER}:x:{os.getgid()}:\n{groups}")
    if os.getuid() == 0:
        os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
    environment = {
        **os.environ, "LD_PRELOAD": wrapper, "NSS_WRAPPER_PASSWD": f"{folder}/passwd",
        "NSS_WRAPPER_GROUP": f"{folder}/group",
    }  # fmt: skip
    _make_host_key(f"{folder}/host_key", environment)
    return server, [server, "-i", "-e", "-f", f"{own}.config"], environment


def _make_host_key(path: str, environment: dict[str, str]) -> None:
    if os.path.isfile(path):
        return
    import subprocess

    draft = f"{path}.{os.getpid()}"
    line = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", draft]
    made = subprocess.run(line, env=environment, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False)
    if made.returncode:
        raise Missing("no key could be made for the job's host (Debian: openssh-client)")
    try:
        os.link(draft, path)  # the first one stays
    except FileExistsError:
        pass
    os.unlink(draft)
    os.unlink(f"{draft}.pub")


def _write(path: str, text: str, mode: int = 0o600) -> None:
    draft = f"{path}.{os.getpid()}"
    with open(draft, "w") as file:
        file.write(text)
    os.chmod(draft, mode)  # noqa: PTH101
    os.replace(draft, path)  # noqa: PTH105


def main() -> NoReturn:
    try:
        server, line, environment = prepare(sys.argv[1], sys.argv[2:])
    except (Missing, OSError) as problem:
        print(f"shoal: {problem}", file=sys.stderr)
        sys.exit(126)
    os.execve(server, line, environment)


if __name__ == "__main__":
    main()
