"""Layout of a gang's records on disk. They are the truth about it.

HOME/engine.fifo            hints from supervisors to the engine
HOME/gangs/NAME/gang.json   what was launched (no secrets, no environment); `past.json` once it was forgotten
                decision    symbolic link to `go` or `abort`
                stop        the wish to end
                failure     why the launch was rolled back
                rank-N/     SHOAL_RUN of the rank: record, log, log.times, metrics.jsonl, notice, cooperative, PID.ring
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from shoal.base import trees
from shoal.base.files import write_whole
from shoal.core import Fault
from shoal.engine.local.supervisor import RECORD_BYTES, decide, open_file, read_record, write_record
from shoal.engine.protocol import Gang, LaunchFailed


@dataclass(frozen=True, slots=True)
class Launched:
    """What the engine keeps of a gang: enough to adopt, watch, stop and read it."""

    name: str
    nodes: tuple[str, ...]
    """Node of each rank; ranks are numbered from 0 without gaps."""
    run_dir: str
    grace_s: float
    launch_timeout_s: float
    master_port: int
    created_at: float
    cgroup_roots: tuple[str, ...] = ()
    cpu_milli: int = 0
    """Promised to each rank."""

    @classmethod
    def of(cls, gang: Gang, *, master_port: int, created_at: float, cgroup_roots: tuple[str, ...] = ()) -> Launched:
        return cls(
            gang.name,
            tuple(spec.node for spec in gang.ranks),
            str(gang.run_dir.absolute()),
            gang.grace_s,
            gang.launch_timeout_s,
            master_port,
            created_at,
            cgroup_roots,
            gang.cpu_milli,
        )


class GangDir:
    """One gang's directory. All files are small; every method may raise OSError."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def rank_dir(self, rank: int) -> Path:
        return self.path / f"rank-{rank}"

    def record(self, rank: int) -> dict[str, str]:
        return read_record(f"{self.path}/rank-{rank}/record")

    def last_write(self, rank: int) -> float:
        """When something was last written for the rank: it lived until then at least."""
        return max(path.lstat().st_mtime for path in (self.rank_dir(rank), *self.rank_dir(rank).iterdir()))

    def overwrite_record(self, rank: int, fields: dict[str, object]) -> None:
        """Only for a rank whose supervisor is dead."""
        write_record(f"{self.path}/rank-{rank}/record", fields, durable=True)

    def create(self, launched: Launched) -> None:
        """Write everything that must not fail later; `gang.json` last, since a directory without it counts as none."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._clear()
        preallocate(self.path / "stop")
        for rank in range(len(launched.nodes)):
            self.rank_dir(rank).mkdir(mode=0o700, exist_ok=True)
            preallocate(self.rank_dir(rank) / "record")
        write_whole(self.path / "gang.json", json.dumps(asdict(launched)), durable=False)

    def load(self) -> Launched | None:
        """None for a forgotten gang and for a directory whose creation was cut short."""
        return self._read("gang.json")

    def load_past(self) -> Launched | None:
        """What is left of a forgotten gang."""
        return self._read("past.json")

    def _read(self, name: str) -> Launched | None:
        try:
            fields = json.loads((self.path / name).read_bytes())
            lists = {key: tuple(value) for key, value in fields.items() if isinstance(value, list)}
            return Launched(**{**fields, **lists})
        except (FileNotFoundError, NotADirectoryError, ValueError, TypeError, KeyError):
            return None

    def decision(self) -> str | None:
        try:
            return str((self.path / "decision").readlink())
        except FileNotFoundError:
            return None

    def decide(self, wish: str) -> str:
        return decide(str(self.path), wish)

    def ask_to_stop(self, grace_s: float, *, reason: str, code: str, now: float) -> None:
        """Leave the wish where the supervisors look. An earlier one may not have been read yet: its reason stays."""
        earlier, grace_s = self.stop_wish(), self.least_grace(grace_s)
        text = json.dumps({"reason": reason, "deadline": now + grace_s})
        fields: dict[str, object] = {
            "grace_s": grace_s, "over_at": f"{min(now + grace_s, _over_at(earlier)):.6f}",
            "code": earlier.get("code", code), "reason": (earlier.get("reason") or reason)[:1000],
        }  # fmt: skip
        write_record(f"{self.path}/stop", {**fields, "notice": text if len(text) < 2500 else None})

    def least_grace(self, grace_s: float) -> float:
        """This, or what an earlier wish left."""
        return min(grace_s, float(self.stop_wish().get("grace_s", grace_s)))

    def stop_wish(self) -> dict[str, str]:
        return read_record(f"{self.path}/stop")

    def stop_over_at(self) -> float:
        """When the grace of its stop is over; infinite where it was not asked to stop."""
        return _over_at(self.stop_wish())

    def leave_notice(self, rank: int, notice: Mapping[str, object]) -> None:
        # Its group is that of the directory: the tenant's own, where it is sandboxed.
        write_whole(self.rank_dir(rank) / "notice", json.dumps(notice), mode=0o640, durable=False)

    def keep_failure(self, failure: LaunchFailed) -> None:
        fields = {"fault": failure.fault, "what": failure.what, "where": failure.where, "hint": failure.hint}
        write_whole(self.path / "failure", json.dumps(fields), durable=False)

    def failure(self) -> LaunchFailed | None:
        try:
            kept = json.loads((self.path / "failure").read_bytes())
        except (FileNotFoundError, ValueError):
            return None
        return LaunchFailed(kept["what"], fault=Fault(kept["fault"]), where=kept["where"], hint=kept["hint"])

    def forget(self) -> None:
        """Keep the streams and where the run directory is; drop all else."""
        (self.path / "gang.json").replace(self.path / "past.json")
        self._clear()

    def discard(self) -> None:
        """Remove the whole directory of a gang that never ran."""
        trees.remove(str(self.path))

    def _clear(self) -> None:
        for name in ("decision", "stop", "failure"):
            (self.path / name).unlink(missing_ok=True)
        for rank_dir in self.path.glob("rank-*"):
            for path in (*(rank_dir / name for name in ("record", "notice", "cooperative")), *rank_dir.glob("*.ring")):
                trees.remove(str(path))  # a rank may have put anything there


def _over_at(wish: Mapping[str, str]) -> float:
    return float(wish.get("over_at", math.inf))


def preallocate(path: Path) -> None:
    """A record in full size, so that a full disk cannot keep it from being written later."""
    fd = open_file(str(path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        os.write(fd, b"\n" * RECORD_BYTES)
    finally:
        os.close(fd)
