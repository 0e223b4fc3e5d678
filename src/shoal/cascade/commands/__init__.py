"""The commands of `shoal cascade`."""
