"""The caller's part of sessions: the connection, the terminal, and coming back after a break."""
