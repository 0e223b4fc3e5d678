"""Sweeps in the server: the values of a task, the rungs, and the routes."""
