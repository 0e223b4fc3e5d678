"""The commands of `shoal schedule`."""
