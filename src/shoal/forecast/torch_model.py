"""Features of a PyTorch model, counted on the `meta` device: shapes without values, nothing is computed."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shoal.core import Invalid, Unavailable
from shoal.forecast.features import TRAINING, Counted, Features


def features_of_script(path: Path, shape: Sequence[int], *, batch: int) -> Counted:
    """Of a TorchScript file, for a training step on `batch` samples of this shape."""
    torch = _torch()
    try:
        module = torch.jit.load(str(path), map_location="meta")
    except Exception as error:
        raise Invalid(f"is no TorchScript that can be read: {_first_line(error)}", where=str(path)) from None
    return features_of_module(module, (batch, *shape))


def features_of_factory(name: str, shape: Sequence[int], *, batch: int) -> Counted:
    """Of what `package.module:function` returns: it is called with `meta` as the default device. Runs the user's own
    code, found from the working directory."""
    torch = _torch()
    module_name, _, function = name.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        with torch.device("meta"):
            module = getattr(importlib.import_module(module_name), function)()
    except (ImportError, AttributeError) as error:
        raise Invalid(f"cannot be imported: {error}", where=name) from None
    finally:
        sys.path.pop(0)
    if not isinstance(module, torch.nn.Module):
        raise Invalid(f"returns a {type(module).__name__}, not a torch.nn.Module", where=name)
    return features_of_module(module.to("meta"), (batch, *shape))


def features_of_module(module: Any, shape: Sequence[int]) -> Counted:
    """Of a module on the `meta` device, for a training step on one tensor of this shape, the batch included. Counted by
    torch.utils.flop_counter."""
    torch = _torch()
    from torch.utils.flop_counter import FlopCounterMode

    if min(shape) < 1:
        raise Invalid(f"a shape has no dimension below one: {'x'.join(map(str, shape))}")
    counter = FlopCounterMode(display=False)
    try:
        with torch.no_grad(), counter:
            module(torch.empty(*shape, device="meta"))
    except Exception as error:
        raise Invalid(
            f"the model does not take a tensor of {'x'.join(map(str, shape))}: {_first_line(error)}"
        ) from None
    parameters = list(module.parameters())
    flops = counter.get_total_flops()
    if not flops or not parameters:
        raise Invalid("the model has no convolution or matrix product with parameters")
    count = sum(one.numel() for one in parameters)
    weights = sum(one.numel() * one.element_size() for one in parameters)
    return Counted(Features(TRAINING * flops, count, len(parameters)), weights)


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise Unavailable("PyTorch models cannot be read here", hint="pip install torch") from None
    return torch


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
