"""`shoal environments`."""
