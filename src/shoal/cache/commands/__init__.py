"""`shoal cache`: decide, simulate, and serve a shared cache."""
