"""Programs that make a job's environment with its rights: never imported by the server, and light to start."""
