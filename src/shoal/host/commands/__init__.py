"""The commands of `shoal guard`."""
