"""The component in the server: jobs find the team's tracking server, and their runs there are found again."""
