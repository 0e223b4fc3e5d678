"""Layers that run: kernels with their weights, the memory of rows, and sequences of any length over them."""
