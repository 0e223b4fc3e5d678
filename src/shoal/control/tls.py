"""The server's second door: the same API over TLS, by certificate files that are read again when they change."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from shoal.control.server_settings import TlsSettings
from shoal.core import Invalid

log = structlog.get_logger("shoal.tls")

EVERY_S = 2.0
"""How often the files are looked at."""

_Seen = tuple[tuple[int, int, int], ...]


class Certificates:
    """A certificate with its chain, and its key. A pair that does not fit, such as one that is just being written, is
    not taken: what was read before stays in force. Raises Invalid for one that cannot be read at first."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._files = (certificate, key)
        self._seen = self._look()
        self._context = self._read()
        self._wrong = ""

    def context(self) -> ssl.SSLContext:
        """For the next connection."""
        return self._context

    async def follow(self) -> None:
        """Read the files again whenever they change, until this is cancelled."""
        while True:
            await asyncio.sleep(EVERY_S)
            await asyncio.to_thread(self.refresh)

    def refresh(self) -> None:
        seen = self._look()
        if seen == self._seen and not self._wrong:
            return
        try:
            self._context = self._read()
        except Invalid as error:
            if str(error) != self._wrong:
                log.warning("the certificate stays as it was", error=str(error))
            self._wrong = str(error)
            return
        self._seen, self._wrong = seen, ""
        log.info("the certificate was read again", file=str(self._files[0]))

    def _look(self) -> _Seen:
        found = []
        for file in self._files:
            try:
                stat = file.stat()
                found.append((stat.st_ino, stat.st_mtime_ns, stat.st_size))
            except OSError:
                found.append((0, 0, 0))
        return tuple(found)

    def _read(self) -> ssl.SSLContext:
        certificate, key = self._files
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(certificate, key, password=_no_password)
        except (OSError, ValueError) as error:
            what = error.strerror if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) else str(error)
            raise Invalid(
                f"the certificate and its key cannot be used: {what}", where=f"tls.certificate: {certificate}",
                hint="two PEM files are needed that this server may read: the chain, and its key without a password",
            ) from None  # fmt: skip
        return context


def _no_password() -> str:
    raise ValueError("the key has a password")


@dataclass(frozen=True, slots=True)
class SecureDoor:
    certificates: Certificates
    listeners: Sequence[socket.socket]


@contextlib.contextmanager
def secure_door(
    settings: TlsSettings, bind: Callable[[str, int], Sequence[socket.socket]]
) -> Iterator[SecureDoor | None]:
    """The sockets and certificates of the settings, closed at the end; None where there is no such door. Raises
    Invalid, and Conflict for a port that is taken."""
    if settings.port is None or settings.certificate is None or settings.key is None:
        yield None
        return
    certificates = Certificates(settings.certificate, settings.key)
    listeners = bind(settings.host, settings.port)
    log.info("answers over TLS as well", host=settings.host, port=listeners[0].getsockname()[1])
    try:
        yield SecureDoor(certificates, listeners)
    finally:
        for listener in listeners:
            listener.close()
