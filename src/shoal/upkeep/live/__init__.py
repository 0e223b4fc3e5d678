"""The part in the server."""
