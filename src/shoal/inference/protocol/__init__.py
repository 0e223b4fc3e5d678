"""The Open Inference Protocol (KServe V2) with Triton's extensions: codecs between its wire forms and our types.

`requests` and `responses` are REST with the binary tensor data extension, both ways; `rpc` is gRPC over the messages
of `schema`. Nothing here does I/O. Whatever a stranger sends is either understood or refused with `BadRequest`.
"""
