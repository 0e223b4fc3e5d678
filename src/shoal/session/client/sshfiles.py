"""Files of the caller's OpenSSH: a key of its own, and an entry for the hosts whose names end with `.shoal`."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from shoal.base.files import write_whole
from shoal.core import Unavailable

SUFFIX = ".shoal"
USER = "shoal"


@dataclass(frozen=True, slots=True)
class SshFiles:
    """A folder of this person's alone."""

    folder: Path

    @property
    def key(self) -> Path:
        return self.folder / "id_ed25519"

    @property
    def config(self) -> Path:
        return self.folder / "config"

    def make(self, proxy: str) -> str:
        """Write the key, where there is none, and the entry; the public key. `proxy` is the beginning of the command
        that connects, as a shell reads it. Raises Unavailable and OSError."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self.key.exists():
            self._make_key()
        write_whole(self.config, self.entry(proxy), durable=False)
        words = self.key.with_suffix(".pub").read_text().split()
        return " ".join(words[:2])

    def entry(self, proxy: str) -> str:
        return "\n".join([
            f"Host *{SUFFIX}", f"    User {USER}", f"    IdentityFile {_quoted(self.key)}", "    IdentitiesOnly yes",
            "    # The connection leads through Shoal's server, which vouches for the job.",
            "    StrictHostKeyChecking no", "    UserKnownHostsFile /dev/null", "    LogLevel ERROR",
            f"    ProxyCommand {proxy} %n", "",
        ])  # fmt: skip

    def _make_key(self) -> None:
        draft = self.folder / f".key-{os.getpid()}"
        try:
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "shoal", "-f", str(draft)], check=True,
                stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except (OSError, subprocess.CalledProcessError) as error:
            raise Unavailable(f"no key could be made: {error}", hint="install OpenSSH's client") from None
        draft.with_suffix(".pub").replace(self.key.with_suffix(".pub"))
        draft.replace(self.key)


def _quoted(path: Path) -> str:
    return '"' + str(path).replace("%", "%%") + '"'
