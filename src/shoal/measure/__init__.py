"""Measuring servers: open-loop load, capacity under an objective, frontiers, interference and cost (after Perseus, IC2E 20)."""
