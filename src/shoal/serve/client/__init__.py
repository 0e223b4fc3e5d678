"""Asking a server for inference from Python: numpy arrays in, numpy arrays out.

`InferenceClient` and `AsyncInferenceClient` speak the Open Inference Protocol over HTTP with binary tensors, and for
callers on the same machine can put their inputs into shared memory. `InProcessClient` asks a backend in this process.
All three raise the errors of `shoal.serve.errors`, and `shoal.core.Unavailable` where no server answers.
"""

from shoal.serve.client.aio import AsyncInferenceClient
from shoal.serve.client.arrays import Result
from shoal.serve.client.in_process import InProcessClient
from shoal.serve.client.sync import InferenceClient

__all__ = ["AsyncInferenceClient", "InProcessClient", "InferenceClient", "Result"]
