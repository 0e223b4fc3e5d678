"""The cache as a part of the server: its process, what jobs declare, and the last decision."""
