"""Values that the clients return. The values are the API's own, see `shoal.contract.models`."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.contract.models import (
    ArrayChange,
    ArrayView,
    AttemptView,
    BlockerView,
    BundleView,
    CapabilityView,
    CheckView,
    DeviceView,
    DoctorView,
    ErrorView,
    EventList,
    EventView,
    ExplanationView,
    FileList,
    FileView,
    GarbageView,
    JobDetail,
    JobList,
    JobsChange,
    JobView,
    MetricList,
    MetricView,
    NewTokenView,
    NodeList,
    NodeView,
    QuotaView,
    ReasonView,
    ResourcesView,
    SecretList,
    SecretView,
    SettingList,
    SettingView,
    StatusView,
    SubmittedView,
    TenantList,
    TenantView,
    TokenList,
    TokenView,
)


@dataclass(frozen=True, slots=True)
class LogPiece:
    """Bytes of one attempt's log, from `offset` to `next_offset`, which do not count the times before lines. `ended`:
    "no", "attempt" (it writes no more, another may follow) or "job"."""

    attempt: int
    offset: int
    next_offset: int
    data: bytes
    ended: str

    @property
    def text(self) -> str:
        return self.data.decode(errors="replace")


@dataclass(frozen=True, slots=True)
class FilePiece:
    """Bytes of a job's file of `size_bytes`, and their SHA-256; `version` differs once the file has changed."""

    data: bytes
    size_bytes: int
    version: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Download:
    """How far a file of a job is here. `sha256` of all of it: it is whole, and has its name `target`."""

    path: str
    target: str
    size_bytes: int
    done_bytes: int
    sha256: str | None = None


__all__ = [
    "ArrayChange", "ArrayView", "AttemptView", "BlockerView", "BundleView", "CapabilityView", "CheckView", "DeviceView",
    "DoctorView", "Download", "ErrorView", "EventList", "EventView", "ExplanationView", "FileList", "FilePiece",
    "FileView", "GarbageView", "JobDetail", "JobList", "JobView", "JobsChange", "LogPiece", "MetricList", "MetricView",
    "NewTokenView", "NodeList", "NodeView", "QuotaView", "ReasonView", "ResourcesView", "SecretList",
    "SecretView", "SettingList", "SettingView", "StatusView", "SubmittedView", "TenantList", "TenantView",
    "TokenList", "TokenView",
]  # fmt: skip
