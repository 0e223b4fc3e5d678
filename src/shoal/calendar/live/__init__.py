"""The calendar in the server: its rows, its loop, its part in decisions and its routes."""
