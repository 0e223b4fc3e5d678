"""The commands of `shoal schedule`, found under the entry point group `shoal.commands`."""
