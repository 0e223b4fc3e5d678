"""`shoal plane`."""
