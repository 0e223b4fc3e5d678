"""The server's part of sessions: who may enter which job, and the way of the bytes."""
