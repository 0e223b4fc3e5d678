"""Routes that are analysed at their first request: most of a server's are asked for much later than it answers.

FastAPI reads the signature, the models and the description of each route as it is defined, and once more as its router
is included: half of the time in which the routes of a server load.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.routing import compile_path, get_name

_ANALYSING = threading.RLock()


class LateRoute(APIRoute):
    """Knows its path, its methods and its name; all else of it is made when it is first asked for."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        self._given: tuple[str, Callable[..., Any], dict[str, Any]] | None = (path, endpoint, options)
        self.path, self.endpoint = path, endpoint
        self.name = options.get("name") or get_name(endpoint)
        self.methods = {method.upper() for method in options.get("methods") or ["GET"]}
        self.path_regex, self.path_format, self.param_convertors = compile_path(path)

    def __getattr__(self, name: str) -> Any:
        with _ANALYSING:
            given = self.__dict__.get("_given")
            if given is not None:
                path, endpoint, options = given
                super().__init__(path, endpoint, **options)
                self._given = None
        if name in self.__dict__:
            return self.__dict__[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)


class Router(APIRouter):
    """As FastAPI's, of routes that are analysed at their first request."""

    def __init__(self, **options: Any) -> None:
        super().__init__(route_class=LateRoute, **options)
