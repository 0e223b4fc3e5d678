"""Doors by which programs read through the cache: the fsspec protocol `shoal`, and a read-only file system for the
others.
"""
