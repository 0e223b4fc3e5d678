"""The resctrl file system, with the refusals and words of fs/resctrl."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.host.fake.trees import Directory, File, constant, refuse

if TYPE_CHECKING:
    from tests.host.fake.host import FakeHost


@dataclass(frozen=True)
class ResctrlSpec:
    """`unit` is percent, mbps or amd. `limbo` groups may be made only after `FakeHost.advance`."""

    unit: str = "percent"
    closids: int = 4
    least: int = 10
    step: int = 10
    cbm: int = 0xFFF
    least_bits: int = 1
    shareable: int = 0xC00
    monitoring: bool = True
    snc: bool = False
    cache: bool = True
    bandwidth: bool = True


@dataclass
class Control:
    """A group's hardware class: bandwidth value and cache mask by L3; bytes counted by (monitor, L3)."""

    bandwidth: dict[int, int] = field(default_factory=dict)
    masks: dict[int, int] = field(default_factory=dict)


class FakeResctrl:
    def __init__(self, host: FakeHost, top: str, spec: ResctrlSpec) -> None:
        self.host, self.top, self.spec = host, top, spec
        self.status = "ok"
        self.busy = False
        self.controls: dict[str, Control] = {}
        self.bytes: dict[tuple[str, str, int], float] = {}
        self.unread: set[tuple[str, str, int]] = set()
        self.unlimited = {"percent": 100, "mbps": (1 << 32) - 1, "amd": 2048}[spec.unit]
        self.root = self._group("")
        self.root.make, self.root.remove = self._make, self._remove
        self.root.directories["info"] = self._info()

    # --- for the model ---

    def limit(self, process_group: str, l3: int) -> tuple[float, float]:
        """What a group's class lets through: a share, and bytes per second."""
        value = self.controls[process_group].bandwidth.get(l3, self.unlimited)
        if value >= self.unlimited:
            return 1.0, float("inf")
        if self.spec.unit == "percent":
            return value / 100, float("inf")
        return 1.0, value * (1 << 20 if self.spec.unit == "mbps" else 1e9 / 8)

    def count(self, group: str, monitor: str, l3: int, moved: float) -> None:
        for name in {"", monitor}:
            self.bytes[group, name, l3] = self.bytes.get((group, name, l3), 0.0) + moved

    # --- files ---

    def _info(self) -> Directory:
        spec = self.spec
        info = Directory({"last_cmd_status": File(lambda: self.status + "\n")})
        if spec.bandwidth:
            info.directories["MB"] = Directory(
                {
                    "num_closids": constant(f"{spec.closids}\n"),
                    "min_bandwidth": constant(f"{spec.least}\n"),
                    "bandwidth_gran": constant(f"{spec.step}\n"),
                }
            )
        if spec.cache:
            info.directories["L3"] = Directory(
                {
                    "num_closids": constant(f"{spec.closids}\n"),
                    "cbm_mask": constant(f"{spec.cbm:x}\n"),
                    "min_cbm_bits": constant(f"{spec.least_bits}\n"),
                    "shareable_bits": constant(f"{spec.shareable:x}\n"),
                }
            )
        if spec.monitoring:
            features = "llc_occupancy\nmbm_total_bytes\nmbm_local_bytes\n"
            info.directories["L3_MON"] = Directory({"mon_features": constant(features)})
        return info

    def _group(self, name: str) -> Directory:
        l3s = self.host.l3s
        self.controls[name] = Control(dict.fromkeys(l3s, self.unlimited), dict.fromkeys(l3s, self.spec.cbm))
        group = Directory(
            {
                "schemata": File(lambda: self._schemata(name), lambda text: self._allocate(name, text)),
                "tasks": File(lambda: self._tasks(name, None), lambda text: self._assign(name, text)),
            }
        )
        if self.spec.monitoring:
            group.directories["mon_data"] = self._data(name, "")
            group.directories["mon_groups"] = Directory(
                make=lambda monitor: self._monitor(name, monitor), remove=lambda monitor: self._unmonitor(name, monitor)
            )
        return group

    def _data(self, group: str, monitor: str) -> Directory:
        data = Directory()
        for l3 in self.host.l3s:
            self.unread.add((group, monitor, l3))
            files = {
                "mbm_total_bytes": File(lambda l3=l3: self._counter(group, monitor, l3)),
                "mbm_local_bytes": File(lambda l3=l3: self._counter(group, monitor, l3)),
                "llc_occupancy": constant("1048576\n"),
            }
            data.directories[f"mon_L3_{l3:02d}"] = Directory(files)
            if self.spec.snc:
                for node in self.host.nodes:
                    data.directories[f"mon_L3_{l3:02d}"].directories[f"mon_sub_L3_{node:02d}"] = Directory(
                        {"mbm_total_bytes": constant(f"{1000 + node}\n")}
                    )
        return data

    def _counter(self, group: str, monitor: str, l3: int) -> str:
        if (group, monitor, l3) in self.unread:
            self.unread.discard((group, monitor, l3))
            return "Unavailable\n"
        return f"{int(self.bytes.get((group, monitor, l3), 0.0))}\n"

    def _schemata(self, name: str) -> str:
        control = self.controls[name]
        lines = []
        if self.spec.cache:
            lines.append("    L3:" + ";".join(f"{l3}={mask:x}" for l3, mask in control.masks.items()))
        if self.spec.bandwidth:
            lines.append("    MB:" + ";".join(f"{l3}={value:4d}" for l3, value in control.bandwidth.items()))
        return "\n".join(lines) + "\n"

    def _allocate(self, name: str, text: str) -> None:
        self.status = "ok"
        if not text.endswith("\n"):
            raise self._refuse(errno.EINVAL, "ok")
        for line in text.splitlines():
            resource, _, values = line.strip().partition(":")
            pairs = [value.partition("=")[::2] for value in values.split(";")]
            if resource == "MB" and self.spec.bandwidth:
                for l3, value in pairs:
                    self.controls[name].bandwidth[self._l3(l3)] = self._bandwidth(int(value))
            elif resource == "L3" and self.spec.cache:
                for l3, value in pairs:
                    self.controls[name].masks[self._l3(l3)] = self._mask(int(value, 16))
            else:
                raise self._refuse(errno.EINVAL, f"Unknown or unsupported resource name '{resource}'")

    def _l3(self, text: str) -> int:
        if int(text) not in self.host.l3s:
            raise self._refuse(errno.EINVAL, "Unknown domain")
        return int(text)

    def _bandwidth(self, value: int) -> int:
        spec = self.spec
        if not spec.least <= value <= self.unlimited:
            raise self._refuse(errno.EINVAL, f"MB value {value} out of range [{spec.least},{self.unlimited}]")
        return min(self.unlimited, -(-value // spec.step) * spec.step)

    def _mask(self, mask: int) -> int:
        if not mask or mask > self.spec.cbm:
            raise self._refuse(errno.EINVAL, "Mask out of range")
        low = mask & -mask
        if mask + low & mask:
            raise self._refuse(errno.EINVAL, f"The mask {mask:x} has non-consecutive 1-bits")
        if mask.bit_count() < self.spec.least_bits:
            raise self._refuse(errno.EINVAL, f"Need at least {self.spec.least_bits} bits in the mask")
        return mask

    def _tasks(self, group: str, monitor: str | None) -> str:
        tasks = [
            tid
            for one in self.host.processes.values()
            if one.resctrl == group and monitor in (None, one.monitor)
            for tid in one.tids
        ]
        return "".join(f"{tid}\n" for tid in tasks)

    def _assign(self, group: str, text: str) -> None:
        process = self._process(text)
        if process.resctrl != group:
            process.monitor = ""
        process.resctrl = group

    def _assign_monitor(self, group: str, monitor: str, text: str) -> None:
        process = self._process(text)
        if process.resctrl != group:
            raise self._refuse(errno.EINVAL, "Can't move task to different control group")
        process.monitor = monitor

    def _process(self, text: str):  # type: ignore[no-untyped-def]
        self.status = "ok"
        for process in self.host.processes.values():
            if int(text) in process.tids:
                return process
        raise self._refuse(errno.ESRCH, f"Couldn't find pid {text.strip()}")

    def _make(self, name: str) -> Directory:
        self.status = "ok"
        if self.busy:
            raise self._refuse(errno.EBUSY, "Out of RMIDs: some are still in limbo")
        if len(self.controls) >= self.spec.closids:
            raise self._refuse(errno.ENOSPC, "Out of CLOSIDs")
        return self._group(name)

    def _remove(self, name: str) -> None:
        if name in ("info", "mon_data", "mon_groups"):
            raise refuse(errno.EPERM)
        del self.controls[name]
        for process in self.host.processes.values():
            if process.resctrl == name:
                process.resctrl = process.monitor = ""

    def _monitor(self, group: str, monitor: str) -> Directory:
        tasks = File(lambda: self._tasks(group, monitor), lambda text: self._assign_monitor(group, monitor, text))
        return Directory({"tasks": tasks}, {"mon_data": self._data(group, monitor)})

    def _unmonitor(self, group: str, monitor: str) -> None:
        for process in self.host.processes.values():
            if process.resctrl == group and process.monitor == monitor:
                process.monitor = ""

    def _refuse(self, code: int, status: str) -> OSError:
        self.status = status
        return refuse(code)
