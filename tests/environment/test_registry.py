"""Images of a registry that wants a login, by tag and by digest."""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.base.home import Home, stop_server
from shoal.contract.lifecycle import JobState
from shoal.control.server import start_detached
from shoal.sdk import Client

from .kit import busybox, layer, member, needs_images, write_image

LOGIN = base64.b64encode(b"ada:secret").decode()
OCI = "application/vnd.oci.image.manifest.v1+json"


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Serves the OCI layout in a folder as `team/train`; every tag is its one manifest."""
    folder = tmp_path / "layout"

    class Registry(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            kind, _, name = self.path.removeprefix("/v2/team/train/").partition("/")
            if self.headers.get("authorization") != f"Basic {LOGIN}":
                self.answer(401, b"{}", "application/json")
            elif self.path == "/v2/":
                self.answer(200, b"{}", "application/json")
            elif kind == "manifests":
                named = json.loads((folder / "index.json").read_bytes())["manifests"][0]["digest"]
                digest = name if name.startswith("sha256:") else named
                self.blob(digest, OCI)
            else:
                self.blob(name, "application/octet-stream")

        do_HEAD = do_GET

        def blob(self, digest: str, kind: str) -> None:
            path = folder / "blobs" / "sha256" / digest.removeprefix("sha256:")
            if path.exists():
                self.answer(200, path.read_bytes(), kind)
            else:
                self.answer(404, b"{}", "application/json")

        def answer(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.send_header("docker-content-digest", f"sha256:{hashlib.sha256(body).hexdigest()}")
            if status == 401:
                self.send_header("www-authenticate", 'Basic realm="here"')
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}", folder
    server.shutdown()
    server.server_close()


@needs_images
@pytest.mark.slow
def test_an_image_of_a_registry_by_tag_and_by_digest(tmp_path: Path, registry: tuple[str, Path]) -> None:
    host, folder = registry
    home = Home(tmp_path / "home")
    home.path.mkdir()
    told = {"insecure_registries": [host], "recheck": "0.001s"}
    (home.path / "config.yaml").write_text(json.dumps({"environment": told}))
    start_detached(["--home", str(home.path), "--port", "0", "--slots", "1"], home)
    try:
        with Client(home=home.path, environ={}) as client:
            client.create_tenant("red", sandbox="none")

            def ran(reference: str, **more: object) -> tuple[str, str]:
                made = {"name": "job", "command": ["cat", "/version"], "tenant": "red", **more}
                job = client.submit({**made, "environment": {"image": f"{host}/team/train{reference}"}}).id
                client.wait(job, timeout_s=60)
                said = b"".join(piece.data for piece in client.logs(job)).decode()
                found = client.job(job)
                return said if found.state is JobState.SUCCEEDED else found.message, found.state.value

            first = write_image(folder, [layer([*busybox(), member("version", b"one")])], env=["PATH=/bin"])
            assert "unauthorized" in ran(":latest")[0]
            auths = {"auths": {host: {"auth": LOGIN}}}
            client.set_secret("login", json.dumps(auths), tenant="red")
            login = {"secrets": {"DOCKER_AUTH_CONFIG": "login"}}
            assert ran(":latest", **login)[0] == "one"
            second = write_image(folder, [layer([*busybox(), member("version", b"two")])], env=["PATH=/bin"])
            assert ran(":latest", **login)[0] == "two"
            assert ran(f"@sha256:{first}", **login)[0] == "one"
            kept = client.environments.list(tenant="red").environments
            assert {one.key for one in kept} == {first, second}
            leaked = [path for path in home.path.rglob("*") if path.is_file() and LOGIN.encode() in path.read_bytes()]
            assert leaked == []
    finally:
        stop_server(home, timeout_s=20)
