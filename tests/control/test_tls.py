"""The server's door over TLS: certificates by files, read again when they change, and clients that misbehave."""

from __future__ import annotations

import datetime
import ipaddress
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from shoal.base.home import Home, stop_server
from shoal.control.server import start_detached
from shoal.control.tls import Certificates
from shoal.core import Invalid
from shoal.sdk import Client, NoServer


def make(folder: Path, *, password: bytes | None = None) -> tuple[bytes, bytes]:
    """A certificate of 127.0.0.1 that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1)).add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True).sign(key, hashes.SHA256())
    )  # fmt: skip
    hidden = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hidden)
    return made.public_bytes(serialization.Encoding.PEM), private


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.05)


@dataclass
class Served:
    home: Home
    folder: Path
    port: int

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def client(self, authorities: Path | None) -> Client:
        environ = {} if authorities is None else {"SHOAL_CA_FILE": str(authorities)}
        return Client(self.url, self.home.token_file.read_text().strip(), environ=environ, patience_s=0)

    def serial(self) -> int:
        """Of the certificate that a new connection is shown."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with socket.create_connection(("127.0.0.1", self.port)) as plain, context.wrap_socket(plain) as secure:
            shown = secure.getpeercert(binary_form=True)
        assert shown is not None
        return x509.load_der_x509_certificate(shown).serial_number


def serial_of(pem: bytes) -> int:
    return x509.load_pem_x509_certificate(pem).serial_number


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("tls")
    home = Home(folder / "home")
    for name, content in zip(("certificate.pem", "key.pem"), make(folder), strict=True):
        (folder / name).write_bytes(content)
    words = ["--home", str(home.path), "--port", "0", "--slots", "1"]
    for one in ("port=0", "host=127.0.0.1", f"certificate={folder}/certificate.pem", f"key={folder}/key.pem"):
        words += ["--set", f"tls.{one}"]
    start_detached(words, home)
    said = re.search(r'"port": (\d+), "event": "answers over TLS as well"', home.log_file.read_text())
    assert said is not None
    yield Served(home, folder, int(said[1]))
    stop_server(home, timeout_s=30)
    log = home.log_file.read_text()
    assert "Traceback" not in log


def test_clients_use_the_api_over_tls_and_beside_it(served: Served) -> None:
    with served.client(served.folder / "certificate.pem") as client:
        job = client.submit({"name": "hello", "command": ["echo", "hello"], "resources": {"cpus": 0.1}})
        assert client.wait(job.id).state == "SUCCEEDED"
        assert b"".join(piece.data for piece in client.logs(job.id)) == b"hello\n"
    with Client(home=served.home.path, environ={}) as plain:
        assert plain.job(job.id).name == "hello"


def test_a_certificate_of_nobody_known_is_refused_by_clients(served: Served, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    other.write_bytes(make(tmp_path)[0])
    for authorities in (None, other):
        with served.client(authorities) as client, pytest.raises(NoServer, match="is not trusted"):
            client.status()
    with served.client(tmp_path / "nowhere") as client, pytest.raises(Invalid, match="cannot be read"):
        client.status()


def test_a_new_certificate_is_taken_without_a_restart_and_half_of_one_is_not(served: Served) -> None:
    first, (certificate, key) = served.serial(), make(served.folder)
    with served.client(served.folder / "certificate.pem") as old:
        (served.folder / "key.pem").write_bytes(key)  # does not fit the certificate yet
        until(lambda: "the certificate stays as it was" in served.home.log_file.read_text())
        assert served.serial() == first
        (served.folder / "certificate.pem").write_bytes(certificate)
        until(lambda: served.serial() == serial_of(certificate))
        old.status()  # connections that are open go on
    with served.client(served.folder / "certificate.pem") as client:
        client.status()


def test_clients_that_do_not_speak_tls_hold_up_nobody(served: Served) -> None:
    silent = [socket.create_connection(("127.0.0.1", served.port)) for _ in range(50)]
    with pytest.raises(httpx.HTTPError):
        httpx.get(f"http://127.0.0.1:{served.port}/healthz", trust_env=False)
    for one in silent[:10]:
        one.sendall(b"GET / HTTP/1.1\r\n\r\n")
    with served.client(served.folder / "certificate.pem") as client:
        client.status()
    for one in silent:
        one.close()
    with Client(home=served.home.path, environ={}) as plain:
        plain.status()


def test_old_tls_is_refused(served: Served) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with (
        socket.create_connection(("127.0.0.1", served.port)) as plain,
        pytest.raises(ssl.SSLError, match=r"(?i)version|protocol|alert|internal"),
    ):
        context.wrap_socket(plain)


def test_what_is_no_pair_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "c").write_bytes(make(tmp_path)[0])
    (tmp_path / "k").write_bytes(make(tmp_path)[1])
    (tmp_path / "locked").write_bytes(make(tmp_path, password=b"secret")[1])
    for key, wrong in (
        ("k", "cannot be used"),
        ("nowhere", "No such file"),
        ("locked", "cannot be used"),
        ("c", "cannot be used"),
    ):
        with pytest.raises(Invalid, match=wrong):
            Certificates(tmp_path / "c", tmp_path / key)


def test_half_of_the_settings_is_refused(tmp_path: Path) -> None:
    from shoal.control.settings import load_settings

    with pytest.raises(Invalid, match="all of `port`, `certificate` and `key`"):
        load_settings({"home": tmp_path}, sets=["tls.port=7443"])
