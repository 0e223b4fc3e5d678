"""Services in the server: what to do next for one (`plan`), its rows (`steps`), its replicas as jobs (`replicas`), how
versions share requests while an update rolls (`routes`), and the gateway's process.

The extension itself, its loop and its API are in `shoal.control.services`, for they use the job engine's own parts.
"""
