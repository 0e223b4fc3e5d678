"""General tools that several components share: they know nothing of jobs, models or policies.

Each subpackage is one tool: `http` is the HTTP/1.1 server of both doors. Nothing here imports anything of Shoal but
`shoal.core`.
"""
