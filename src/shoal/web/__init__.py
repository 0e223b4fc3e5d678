"""The web page: a single-page application at `/ui/`, how people sign in to it, and the stream that keeps it live.

The page is built from the sources in `web/` into `_site`. It asks the same API as every client, and a session's cookie
stands for the token that was signed in with: the page has no rights of its own. `shoal web` opens it.
"""
