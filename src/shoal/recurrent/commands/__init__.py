"""The commands of `shoal recurrent`."""
