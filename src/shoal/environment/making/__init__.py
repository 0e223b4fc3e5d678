"""What runs with a job's rights to make its environment: never imported by the server, and light to start."""
