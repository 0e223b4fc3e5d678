"""Real receivers: an HTTP server of the standard library that may misbehave, and a mail server."""

from __future__ import annotations

import contextlib
import datetime
import email
import ipaddress
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


def eventually(true: Callable[[], bool], within_s: float = 60.0, what: str = "it") -> None:
    end = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < end, f"{what} did not come to that"
        time.sleep(0.05)


@dataclass
class Request:
    headers: dict[str, str]
    body: bytes

    @property
    def key(self) -> str:
        return self.headers["idempotency-key"]

    @property
    def news(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.body)["data"]["news"]
        return found


@dataclass
class Receiver:
    """`answer` is asked for the status of each request, after what it waits for; 0: the connection is cut."""

    url: str
    requests: list[Request] = field(default_factory=list)
    answer: Callable[[Request], int] = lambda _: 204
    headers: dict[str, str] = field(default_factory=dict)

    def told(self, topic: str | None = None) -> list[dict[str, Any]]:
        """All news, in the order in which they came; those of a repeated delivery once."""
        first = {one.key: one for one in reversed(self.requests)}
        ordered = sorted(first.values(), key=self.requests.index)
        return [news for one in ordered for news in one.news if topic in (None, news["topic"])]


@contextlib.contextmanager
def receiver() -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            request = Request({name.lower(): value for name, value in self.headers.items()}, body)
            made.requests.append(request)
            status = made.answer(request)
            if not status:
                self.connection.close()
                return
            with contextlib.suppress(OSError):
                self.send_response(status)
                for name, value in made.headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", "0")
                self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    made = Receiver(f"http://127.0.0.1:{server.server_port}/hook")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass(frozen=True)
class Mail:
    recipients: list[str]
    message: Message
    encrypted: bool
    user: str | None

    @property
    def text(self) -> str:
        payload = self.message.get_payload(decode=True)
        assert isinstance(payload, bytes)
        return payload.decode()


@dataclass
class MailServer:
    port: int
    authorities: Path
    mails: list[Mail] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)

    def to(self, address: str) -> list[Mail]:
        return [one for one in self.mails if address in one.recipients]


PASSWORD = "pa ss-word"


def certificate(folder: Path, host: str = "localhost") -> tuple[Path, Path]:
    """A certificate that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)])
    now = datetime.datetime.now(datetime.UTC)
    names: list[x509.GeneralName] = [x509.DNSName(host), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    files = folder / "certificate.pem", folder / "key.pem"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return files


@contextlib.contextmanager
def mail_server(folder: Path, *, starttls: bool = True, user: str = "shoal") -> Iterator[MailServer]:
    """It takes mail over TLS only, from one who knows the password."""
    public, private = certificate(folder)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(public, private)

    class Handler:
        async def handle_RCPT(
            self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
        ) -> str:
            if address in made.refused:
                return "550 no such user"
            envelope.rcpt_tos.append(address)
            return "250 OK"

        async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
            assert isinstance(envelope.content, bytes)
            read = email.message_from_bytes(envelope.content)
            who = session.auth_data.decode() if session.auth_data else None
            made.mails.append(Mail(list(envelope.rcpt_tos), read, session.ssl is not None or not starttls, who))
            return "250 OK"

    def authenticate(server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any) -> AuthResult:
        good = isinstance(data, LoginPassword) and data == LoginPassword(user.encode(), PASSWORD.encode())
        return AuthResult(success=good, auth_data=user.encode() if good else None, handled=False)

    tls = {"tls_context": context, "require_starttls": True} if starttls else {"ssl_context": context}
    controller = Controller(
        Handler(), hostname="127.0.0.1", port=0, authenticator=authenticate, auth_required=bool(user),
        auth_require_tls=starttls, **tls,
    )  # fmt: skip
    made = MailServer(0, public)

    def greet() -> None:
        """As it does itself to see that it answers, at the port that it was given, which is any."""
        assert controller.server is not None
        made.port = controller.server.sockets[0].getsockname()[1]
        socket.create_connection(("127.0.0.1", made.port)).close()

    controller._trigger_server = greet  # type: ignore[method-assign]
    controller.start()
    try:
        yield made
    finally:
        controller.stop()
