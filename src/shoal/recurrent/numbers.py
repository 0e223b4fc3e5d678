"""Number types of weights, and what rounding to them does."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


class NumberType(StrEnum):
    """Of the weights. int8: a scale for each unit and gate; the vectors are rounded to 8 bits with a scale of their own
    in every step. int4: as int8, with a scale for each 32 weights of a unit and gate."""

    FP32 = "fp32"
    BF16 = "bf16"
    INT8 = "int8"
    INT4 = "int4"


GROUP = 32
"""Weights of int4 with one scale: what eight products of pairs add up to still fits 16 bits."""
BYTES = {NumberType.FP32: 4.0, NumberType.BF16: 2.0, NumberType.INT8: 1.0, NumberType.INT4: 0.5 + 4.0 / GROUP}
LEAST = np.float32(1e-30)
"""A vector whose largest magnitude is below this rounds to zeros: its scale could not be inverted."""


def to_bf16(values: NDArray[Any]) -> NDArray[np.uint16]:
    """The upper half of each fp32 number, rounded to the nearest, ties to even; what is not a number stays so."""
    floats = np.ascontiguousarray(values, np.float32)
    bits = floats.view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    return np.where(np.isnan(floats), 0x7FC0, rounded).astype(np.uint16)


def from_bf16(halves: NDArray[np.uint16]) -> Floats:
    return (halves.astype(np.uint32) << 16).view(np.float32)


def quantise(rows: NDArray[Any]) -> tuple[NDArray[np.int8], Floats]:
    """Each row of a matrix as 8-bit integers and one scale: row = integers * scale. A row with what is not finite has
    the scale NaN, so that its results are not numbers."""
    floats = np.ascontiguousarray(rows, np.float32)
    largest = np.abs(floats).max(axis=-1, initial=0.0)
    tiny = largest < LEAST
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        inverse = np.where(tiny, np.float32(0), np.float32(127) / largest).astype(np.float32)
        scaled = floats * inverse[..., None]
    scale = np.where(np.isfinite(largest), largest / np.float32(127), np.float32(np.nan)).astype(np.float32)
    integers = np.rint(np.where(np.isfinite(scaled), scaled, 0)).astype(np.int8)
    return integers, scale


def quantise_groups(rows: NDArray[Any]) -> tuple[NDArray[np.int8], Floats]:
    """Each row of a matrix as integers from -7 to 7 [rows, groups, GROUP], filled up with zeros, and the scales
    [rows, groups]; what is not finite is as in `quantise`."""
    floats = np.ascontiguousarray(rows, np.float32)
    count = -(-floats.shape[1] // GROUP)
    padded = np.zeros((len(floats), count * GROUP), np.float32)
    padded[:, : floats.shape[1]] = floats
    groups = padded.reshape(len(floats), count, GROUP)
    largest = np.abs(groups).max(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled = groups * np.where(largest < LEAST, np.float32(0), np.float32(7) / largest)[..., None]
    scale = np.where(np.isfinite(largest), largest / np.float32(7), np.float32(np.nan)).astype(np.float32)
    return np.rint(np.where(np.isfinite(scaled), scaled, 0)).astype(np.int8), scale


def relative_error(found: NDArray[Any], wanted: NDArray[Any]) -> float:
    """The root of the mean square of the difference, over that of what is wanted."""
    if not wanted.size:
        return 0.0
    exact = np.asarray(wanted, np.float64).reshape(-1)
    apart = float(np.sqrt(np.mean((np.asarray(found, np.float64).reshape(-1) - exact) ** 2)))
    scale = float(np.sqrt(np.mean(exact**2)))
    return apart / scale if scale else apart
