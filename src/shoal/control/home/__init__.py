"""The server's home: results and bundles, secrets, backups, and how long each stays."""
