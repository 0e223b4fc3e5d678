"""News in the server: the position in the log of events, the outbox, and what sends from it."""
