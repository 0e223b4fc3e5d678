"""The agent: one process a user, which the stages of pipelines ask where they run. It keeps the connections to the
sites, joins stages into pipelines, plans them, and writes down what it decided. Without it every command runs here."""
