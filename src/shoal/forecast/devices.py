"""Peak rates of accelerators: a prior for kinds on which nothing was measured. The figures are those that are
commonly given with these data sheets as their source; they were not compared with the sheets one by one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """Peak rates of one device without sparsity: operations in 1e12/s by precision, memory in GB and GB/s."""

    tflops: Mapping[str, float]
    memory_gb: float
    bandwidth_gb_s: float
    source: str


def _spec(memory_gb: float, bandwidth_gb_s: float, source: str, **tflops: float) -> DeviceSpec:
    return DeviceSpec(MappingProxyType(tflops), memory_gb, bandwidth_gb_s, source)


DEVICES: Mapping[str, DeviceSpec] = MappingProxyType({
    "k80": _spec(12, 240, "NVIDIA Tesla K80 data sheet, one of its two devices, boost clock", fp32=4.37),
    "p100": _spec(16, 732, "NVIDIA Tesla P100 PCIe data sheet", fp32=9.3, fp16=18.7),
    "v100": _spec(16, 900, "NVIDIA Tesla V100 SXM2 data sheet", fp32=15.7, fp16=125.0),
    "t4": _spec(16, 320, "NVIDIA T4 data sheet", fp32=8.1, fp16=65.0),
    "a10": _spec(24, 600, "NVIDIA A10 data sheet", fp32=31.2, tf32=62.5, fp16=125.0, bf16=125.0),
    "l4": _spec(24, 300, "NVIDIA L4 data sheet", fp32=30.3, tf32=60.0, fp16=121.0, bf16=121.0, fp8=242.0),
    "l40s": _spec(48, 864, "NVIDIA L40S data sheet", fp32=91.6, tf32=183.0, fp16=362.0, bf16=362.0, fp8=733.0),
    "a100": _spec(40, 1555, "NVIDIA A100 40 GB SXM data sheet", fp32=19.5, tf32=156.0, fp16=312.0, bf16=312.0),
    "a100-80gb": _spec(80, 2039, "NVIDIA A100 80 GB SXM data sheet", fp32=19.5, tf32=156.0, fp16=312.0, bf16=312.0),
    "h100-pcie": _spec(
        80, 2000, "NVIDIA H100 PCIe data sheet", fp32=51.0, tf32=378.0, fp16=756.0, bf16=756.0, fp8=1513.0
    ),
    "h100": _spec(80, 3350, "NVIDIA H100 SXM data sheet", fp32=67.0, tf32=494.0, fp16=989.0, bf16=989.0, fp8=1979.0),
    "h200": _spec(141, 4800, "NVIDIA H200 SXM data sheet", fp32=67.0, tf32=494.0, fp16=989.0, bf16=989.0, fp8=1979.0),
    "mi300x": _spec(192, 5300, "AMD Instinct MI300X data sheet", fp32=163.4, fp16=1307.0, bf16=1307.0, fp8=2614.0),
})  # fmt: skip


def spec(kind: str) -> DeviceSpec | None:
    """By name, in any case."""
    return DEVICES.get(kind.lower())
