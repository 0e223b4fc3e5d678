"""The commands of `shoal shell`."""
