"""A network as a list of steps over named tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from shoal.recurrent.layers.layer import LayerSpec


@dataclass(frozen=True, slots=True)
class Tensor:
    """An input or output of the network. -1: any length. `kind`: the element type, by NumPy's name."""

    name: str
    shape: tuple[int, ...]
    kind: str = "float32"


@dataclass(frozen=True, slots=True)
class Segment:
    """A part that ONNX Runtime runs: a model's bytes, and its tensors by name. `restarts`: the recurrent nodes in it
    whose state no tensor carries, so that each call begins anew."""

    model: bytes
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    operators: tuple[str, ...] = ()
    restarts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A recurrent node. One layer for each direction.

    `initial` and `final` name the tensors of states, [directions, rows, units]; "" where there is none. `lengths` is
    the tensor of the rows' lengths. `batch_first`: rows come before steps, in ONNX's layout 1. `merged`: outputs are
    [steps, rows, directions * units], as PyTorch has them, else [steps, directions, rows, units].
    """

    name: str
    layers: tuple[LayerSpec, ...]
    x: str
    y: str
    initial: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    final: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    lengths: str = ""
    batch_first: bool = False
    merged: bool = False

    @property
    def streams(self) -> bool:
        """Whether it can go on step by step: not backward, and with no lengths."""
        return not self.lengths and not any(layer.reverse for layer in self.layers)


@dataclass(frozen=True, slots=True)
class Graph:
    """The steps in order. `pairs`: of an input and the output that is its next value, when steps follow each other.
    `remarks` says what stays with ONNX Runtime, and why."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    steps: tuple[Segment | Recurrence, ...]
    pairs: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    remarks: tuple[str, ...] = ()

    @property
    def recurrences(self) -> tuple[Recurrence, ...]:
        return tuple(step for step in self.steps if isinstance(step, Recurrence))

    @property
    def segments(self) -> tuple[Segment, ...]:
        return tuple(step for step in self.steps if isinstance(step, Segment))
