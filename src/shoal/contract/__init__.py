"""What clients and server agree on: manifests, states and their legal transitions, rows, and the answers of the API.

Values and pure functions only. The client (`shoal.sdk`) needs this and nothing of the server.
"""
