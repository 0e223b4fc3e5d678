"""Asking a server for inference from Python: numpy arrays in, numpy arrays out.

`InferenceClient` speaks the Open Inference Protocol over HTTP with binary tensors, and for callers on the same machine
can put their inputs into shared memory. It raises the errors of `shoal.serve.errors`, and `shoal.core.Unavailable`
where no server answers. Any other client of the protocol works as well, tritonclient among them, also asynchronously
and over gRPC.
"""

from shoal.serve.client.sync import InferenceClient, Result

__all__ = ["InferenceClient", "Result"]
