"""The commands of `shoal forecast`."""
