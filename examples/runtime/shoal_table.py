"""A runtime for Shoal in one file: a CSV file of `key,value` lines is a model that looks keys up.

pip install examples/runtime
shoal serve prices.csv --runtime table --option default=-1
"""

from collections.abc import Mapping, Sequence

import numpy as np
from pydantic import BaseModel

from shoal.inference import (
    Array,
    BadModel,
    DataType,
    ModelSpec,
    RuntimeDeclaration,
    RuntimeState,
    TensorSpec,
    describe,
    place,
    read_model,
)  # fmt: skip


class Options(BaseModel, extra="forbid"):
    default: float = 0.0  # the value of a key that the table does not have


TABLE = RuntimeDeclaration(
    name="table", platform="csv_table", suffixes=(".csv",), opener="shoal_table:Table", options="shoal_table:Options",
)  # fmt: skip


class Table:
    def __init__(self, spec: ModelSpec) -> None:
        lines = read_model(spec, spec.source, ".csv").data.decode().splitlines()
        try:
            self._rows = {key.encode(): float(value) for key, _, value in (line.rpartition(",") for line in lines)}
        except ValueError as error:
            raise BadModel(f"a line is no key and number: {error}", where=place(spec)) from error
        self._default = Options(**spec.options).default
        self._unknown = 0
        takes, gives = (TensorSpec("key", DataType.BYTES, (-1,)),), (TensorSpec("value", DataType.FP64, (-1,)),)
        self.metadata = describe(spec, TABLE.platform, takes, gives)

    def run(self, inputs: Mapping[str, Array], outputs: Sequence[str]) -> Mapping[str, Array]:  # noqa: ARG002
        self._unknown += sum(key not in self._rows for key in inputs["key"])
        return {"value": np.array([self._rows.get(key, self._default) for key in inputs["key"]])}

    def figures(self) -> Mapping[str, float]:
        return {"rows": len(self._rows), "unknown_keys_total": self._unknown}

    def state(self) -> RuntimeState:
        return RuntimeState("STALE", f"{self._unknown} keys were not there") if self._unknown > 10 else RuntimeState()

    def close(self) -> None:
        self._rows.clear()
