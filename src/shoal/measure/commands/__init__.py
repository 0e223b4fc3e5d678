"""The commands of `shoal measure`."""
