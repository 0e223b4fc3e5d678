"""The commands of `shoal offload`."""
