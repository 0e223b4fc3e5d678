"""The settings' section of shared devices."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from shoal.device.policy import Rules
from shoal.extension import Section


def _names(value: Any) -> Any:
    return tuple(name.strip() for name in value.split(",") if name.strip()) if isinstance(value, str) else value


class DeviceSettings(Section):
    """Devices that several jobs may use at once: one guaranteed, best-effort ones beside it."""

    types: Annotated[tuple[str, ...] | None, BeforeValidator(_names)] = Field(
        None, description="accelerator types to share [every accelerator, and no CPU slot]"
    )
    best_effort_seats: int = Field(4, ge=1, le=32, description="best-effort jobs on one device")
    context_gib: float = Field(
        0.75, ge=0, le=16,
        description="GiB of each share's device memory that are kept for contexts, code and pools; at most half of it",
    )  # fmt: skip
    isolation: Literal["required", "none"] = Field(
        "required",
        description="none: share devices also where nothing keeps best-effort work from slowing down guaranteed work",
    )
    bound_us: float = Field(50, gt=0, le=1e6, description="best-effort work on a device while guaranteed work is near")
    grace_us: float = Field(100, ge=0, le=1e6, description="silence of guaranteed work before best-effort work goes on")
    min_share: float = Field(0, ge=0, le=0.5, description="of a device's time, for best-effort work in any case")
    max_wait_ms: float = Field(0, ge=0, le=1e6, description="the longest wait of a best-effort launch; 0: no limit")

    def rules(self) -> Rules:
        return Rules(
            bound_ns=round(self.bound_us * 1e3),
            grace_ns=round(self.grace_us * 1e3),
            grace_most_ns=max(Rules().grace_most_ns, round(self.grace_us * 1e3)),
            max_wait_ns=round(self.max_wait_ms * 1e6),
            min_share_pm=round(self.min_share * 1000),
        )
