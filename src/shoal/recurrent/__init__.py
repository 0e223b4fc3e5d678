"""Recurrent networks compiled to this machine, and served as sessions.

After "Serving Recurrent Neural Networks Efficiently with a Spatial Accelerator" (SysML'19): dot products, bias,
non-linearity and element-wise work of a cell are one loop over hidden units, in registers. A cell is a pure expression.
It becomes a loop nest with a schedule, and LLVM makes machine code of that. An analytic model prunes the schedules and
measurements choose. What is not recurrent runs in ONNX Runtime.
"""

from typing import TYPE_CHECKING

from shoal.base.faces import on_first_use

if TYPE_CHECKING:
    from shoal.recurrent.cells.cell import Cell, cell
    from shoal.recurrent.cells.symbols import (
        dot,
        exp,
        linear,
        log,
        maximum,
        mean,
        minimum,
        parameter,
        relu,
        sigmoid,
        sqrt,
        tanh,
        where,
    )
    from shoal.recurrent.errors import BadInput, BadNetwork, NotPure
    from shoal.recurrent.loading import load
    from shoal.recurrent.network.network import Network
    from shoal.recurrent.network.sessions import Session

__all__ = [
    "BadInput", "BadNetwork", "Cell", "Network", "NotPure", "Session", "cell", "dot", "exp", "linear", "load", "log",
    "maximum", "mean", "minimum", "parameter", "relu", "sigmoid", "sqrt", "tanh", "where",
]  # fmt: skip

__getattr__ = on_first_use(globals(), {
    "cells.cell": "Cell cell",
    "cells.symbols": "dot exp linear log maximum mean minimum parameter relu sigmoid sqrt tanh where",
    "errors": "BadInput BadNetwork NotPure",
    "loading": "load",
    "network.network": "Network",
    "network.sessions": "Session",
})  # fmt: skip
