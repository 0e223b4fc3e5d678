"""Annotations of functions that a library has: how their arguments are cut into pieces, and what runs them elsewhere.

The interface of Offload Annotations (USENIX ATC'20): a declaration stands beside the program, the library is not
changed. A call of an annotated function is noted; when a value is looked at, the noted calls run piece by piece, so
that a chain of them works in the cache of each core, on all cores. `annotate` declares a function for the whole
process, and its calls run at once.
"""

from shoal.offload.annotations.calls import Deferred
from shoal.offload.annotations.declare import alloc, annotate, evaluate, mut, oa, oa_alloc, sa
from shoal.offload.annotations.plan import Estimator
from shoal.offload.annotations.types import (
    Backend,
    BlockSplit,
    Broadcast,
    DataFrameSplit,
    Generic,
    GroupMergeSplit,
    GroupSplit,
    MeanSplit,
    NdArraySplit,
    ReduceSplit,
    ScalarSplit,
    SplitType,
    SumSplit,
    UnknownSplit,
    VarSplit,
)

__all__ = [
    "Backend",
    "BlockSplit",
    "Broadcast",
    "DataFrameSplit",
    "Deferred",
    "Estimator",
    "Generic",
    "GroupMergeSplit",
    "GroupSplit",
    "MeanSplit",
    "NdArraySplit",
    "ReduceSplit",
    "ScalarSplit",
    "SplitType",
    "SumSplit",
    "UnknownSplit",
    "VarSplit",
    "alloc",
    "annotate",
    "evaluate",
    "mut",
    "oa",
    "oa_alloc",
    "sa",
]
