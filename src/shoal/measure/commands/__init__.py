"""The commands of `shoal measure`, found under the entry point group `shoal.commands`."""
