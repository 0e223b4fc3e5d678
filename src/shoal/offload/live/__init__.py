"""Offload in the server: jobs that ask for it are captured."""
