"""`shoal upgrade`, and options of `shoal up`."""
