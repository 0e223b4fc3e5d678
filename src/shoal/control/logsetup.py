"""The server's log: one JSON object a line (readable lines on a terminal), never a token or secret."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import MutableMapping
from typing import Any, TextIO

import structlog

_TOKEN = re.compile(r"shoal_([a-z0-9-]+)_[A-Za-z0-9_-]{16,}")
_URL_PASSWORD = re.compile(r"(://[^:/@\s]+):[^@/\s]+@")
_HIDDEN_KEYS = frozenset({"authorization", "password", "secret", "token", "value"})


def hide_secrets(_logger: Any, _method: str, entry: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A structlog processor: what looks like a token or password leaves no trace."""
    for key, value in entry.items():
        if key.lower() in _HIDDEN_KEYS:
            entry[key] = "***"
        elif isinstance(value, str):
            entry[key] = hidden(value)
    return entry


def hidden(text: str) -> str:
    return _URL_PASSWORD.sub(r"\1:***@", _TOKEN.sub(r"shoal_\1_***", text))


def configure(level: str, *, stream: TextIO | None = None) -> None:
    """Send structlog's and the standard library's records to `stream` (default: stderr)."""
    stream = stream or sys.stderr
    threshold = logging.getLevelNamesMapping()[level.upper()]
    for_people = stream.isatty()
    render: Any = structlog.dev.ConsoleRenderer() if for_people else structlog.processors.JSONRenderer(default=str)
    # A traceback is text before secrets are looked for; on a terminal the renderer would otherwise add the values.
    shared: list[Any] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="%H:%M:%S" if for_people else "iso", utc=not for_people),
        structlog.processors.format_exc_info,
        hide_secrets,
    ]
    structlog.configure(
        processors=[*shared, render],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.PrintLoggerFactory(stream),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(stream)
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, render],
    )
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(max(threshold, logging.WARNING))
