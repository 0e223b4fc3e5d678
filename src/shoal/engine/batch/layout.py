"""A gang's directory as under one machine, and what a cluster's jobs need beside it.

gangs/NAME/job          the cluster's job that was submitted
           owner        symbolic link to the one job that runs it; made by its first rank
           fence        written when the gang is given up: no rank of it may go on
           signals      numbers of signals for the main processes, one a line
           spec.TOKEN   what the ranks are given (no secrets in clear); TOKEN names one launch
"""

from __future__ import annotations

import marshal
import os
from collections.abc import Mapping
from typing import Any

from shoal.base.files import write_whole
from shoal.engine.local.layout import GangDir, Launched, preallocate
from shoal.engine.local.supervisor import read_record, write_record


class BatchDir(GangDir):
    """One gang's directory."""

    def create(self, launched: Launched) -> None:
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        preallocate(self.path / "fence")
        super().create(launched)

    def write_spec(self, token: str, spec: Mapping[str, Any]) -> None:
        fd = os.open(self.path / f"spec.{token}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            marshal.dump(dict(spec), file)

    def drop_specs(self) -> None:
        """From here on no job of an earlier launch starts anything."""
        for path in self.path.glob("spec.*"):
            path.unlink(missing_ok=True)

    @property
    def job(self) -> str:
        """The cluster's job that runs the gang, else the one that was submitted for it; empty when none is known."""
        try:
            return str((self.path / "owner").readlink())
        except OSError:
            pass
        try:
            return (self.path / "job").read_text().strip()
        except OSError:
            return ""

    def keep_job(self, job: str) -> None:
        write_whole(self.path / "job", job, durable=False)

    def fence(self, reason: str, at: float) -> None:
        """Give the gang up. Once is enough: the first time stays."""
        if not self.fenced_at():
            write_record(f"{self.path}/fence", {"at": f"{at:.6f}", "reason": reason}, durable=True)

    def fenced_at(self) -> float | None:
        told = read_record(f"{self.path}/fence")
        return float(told["at"]) if told else None

    def ask_for_signal(self, signum: int) -> None:
        with (self.path / "signals").open("ab") as file:
            file.write(b"%d\n" % signum)

    def _clear(self) -> None:
        super()._clear()
        for name in ("owner", "job", "signals"):
            (self.path / name).unlink(missing_ok=True)
        self.drop_specs()

    def forget(self) -> None:
        super().forget()
        (self.path / "fence").unlink(missing_ok=True)
