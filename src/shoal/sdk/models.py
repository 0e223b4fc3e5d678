"""What the clients return. The values are the API's own, see `shoal.contract.models`."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.contract.models import (
    ArrayChange,
    ArrayView,
    AttemptView,
    BlockerView,
    BundleView,
    CheckView,
    DeviceView,
    ErrorView,
    EventList,
    EventView,
    ExplanationView,
    GarbageView,
    JobDetail,
    JobList,
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


__all__ = [
    "ArrayChange", "ArrayView",
    "AttemptView", "BlockerView", "BundleView", "CheckView", "DeviceView", "ErrorView", "EventList",
    "EventView", "ExplanationView",
    "GarbageView", "JobDetail", "JobList", "JobView", "LogPiece", "MetricList",
    "MetricView", "NewTokenView", "NodeList", "NodeView", "QuotaView", "ReasonView", "ResourcesView",
    "SecretList", "SecretView",
    "StatusView", "SubmittedView", "TenantList", "TenantView", "TokenList", "TokenView",
]  # fmt: skip
