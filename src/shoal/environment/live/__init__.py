"""The component's part in the server."""
