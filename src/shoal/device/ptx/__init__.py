"""PTX: read, examined, cut into parts, printed, and interpreted."""
