"""The component in the server: its table, its routes, who callers are, and as whom their jobs run."""
