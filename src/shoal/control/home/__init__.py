"""What lies in the server's home: results and bundles, secrets, backups, and how long each stays."""
