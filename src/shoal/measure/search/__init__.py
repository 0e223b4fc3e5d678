"""Searches for a limit: the capacity, the frontier of cost and latency, each probe judged by statistics."""
