"""`shoal users`."""
