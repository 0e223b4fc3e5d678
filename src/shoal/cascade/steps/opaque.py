"""A step that has no form of its own here: it runs as the Python it is.

A function that can be imported is written to an artefact by its name, `package.module:function`, and must be on the
path of the replica. A fitted object has no such name, so an artefact cannot hold it.
"""

from __future__ import annotations

import hashlib
import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from shoal.cascade.steps.base import Array, Arrays, Block
from shoal.core import Invalid


@dataclass(frozen=True)
class OpaqueStep:
    """`call` maps a block to a block. `name` is what reports say. `names`: the call expects a data frame with these
    columns."""

    kind: ClassVar[str] = "opaque"

    name: str
    call: Any
    width: int | None = None
    function: str = ""
    """package.module:function, where `call` is one that can be imported."""
    names: tuple[str, ...] | None = None

    def apply(self, block: Block) -> Block:
        given: Any = block
        if self.names is not None and isinstance(block, np.ndarray):
            import pandas

            given = pandas.DataFrame(block, columns=list(self.names)).infer_objects()
        found = self.call(given)
        return found.to_numpy() if hasattr(found, "to_numpy") else found

    def state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        if not self.function:
            raise Invalid(
                f"the step {self.name} has no form outside Python, so no artefact can hold it",
                where=self.name,
                hint="write it as a function of a module (FunctionTransformer), or keep the pipeline in this process",
            )
        names = None if self.names is None else list(self.names)
        return {"name": self.name, "width": self.width, "function": self.function, "names": names}, {}

    @classmethod
    def restore(cls, parameters: Mapping[str, Any], arrays: Arrays) -> OpaqueStep:  # noqa: ARG003
        function, width, names = str(parameters["function"]), parameters["width"], parameters["names"]
        return cls(
            str(parameters["name"]),
            import_function(function),
            None if width is None else int(width),
            function,
            None if names is None else tuple(map(str, names)),
        )


def importable_name(function: Any) -> str:
    """`package.module:function`, or nothing where the function cannot be imported by that name."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if not module or "<" in name or module == "__main__":
        return ""
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return f"{module}:{name}" if found is function else ""


def code_digest(function: str) -> str:
    """Of the source of the module that a function is in, which is imported; of its version where it has no source."""
    module = sys.modules[function.partition(":")[0]]
    source = getattr(module, "__file__", None) or ""
    code = Path(source).read_bytes() if source.endswith(".py") else str(getattr(module, "__version__", "")).encode()
    return hashlib.sha256(code).hexdigest()


def import_function(function: str) -> Any:
    """Raises Invalid where it is not on the path."""
    module, _, name = function.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise Invalid(
            f"the function {function} cannot be imported: {error}",
            where="artefact",
            hint="put its module on PYTHONPATH of the process that loads the artefact",
        ) from None
    if not callable(found):
        raise Invalid(f"{function} is not a function", where="artefact")
    return found
