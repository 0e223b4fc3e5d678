"""The Open Inference Protocol over HTTP/1.1, on `shoal.base.http`.

`routes` knows the paths and what each answers, `connection` is one client's connection, `front` listens. Bodies are
received into the buffer that the tensors are views of; only inference and loading cost a task.
"""

from shoal.serve.gateway.http.front import HttpFront

__all__ = ["HttpFront"]
