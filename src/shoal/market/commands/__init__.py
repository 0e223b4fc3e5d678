"""`shoal market`."""
