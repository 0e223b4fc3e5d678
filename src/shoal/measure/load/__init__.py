"""Load as a client makes it: arrivals, inputs and traces, on the wire, each answer timed."""

from enum import StrEnum


class Encoding(StrEnum):
    """How tensors are written. `AUTO` asks the server whether it has the binary extension."""

    AUTO = "auto"
    BINARY = "binary"
    JSON = "json"
