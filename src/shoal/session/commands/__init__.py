"""The commands of sessions."""
