"""The contract of clients and server: manifests, states and their legal transitions, rows, and the answers of the API.

Values and pure functions only. The client (`shoal.sdk`) needs this and nothing of the server. Its modules are its face:
none is imported here, so that a command loads those that it needs.
"""

__all__ = [
    "bundle", "calls", "events", "gangs", "ids", "lifecycle", "manifest", "methods", "models", "patterns", "principal",
    "records", "sending",
]  # fmt: skip
