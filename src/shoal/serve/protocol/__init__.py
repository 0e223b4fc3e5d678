"""The Open Inference Protocol (KServe V2) with Triton's extensions: codecs between its wire forms and `serve.types`.

`requests` and `responses` are REST with the binary tensor data extension, both ways; `rpc` is gRPC over the messages
of `schema`; `documents` are metadata, statistics, configuration and index; `errors` maps refusals to either wire's
status and back. Nothing here does I/O. Whatever a stranger sends is either understood or refused with `BadRequest`.
"""
