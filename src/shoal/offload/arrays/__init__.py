"""Arrays: capture of their operations, and the ways in which what was captured is run."""
