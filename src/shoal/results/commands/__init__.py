"""`shoal compare`."""
