"""Frames: expressions of Series that are computed at the first look, and whole calls that another engine does."""
