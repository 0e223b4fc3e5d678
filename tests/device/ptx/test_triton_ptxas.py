"""The assembler for Triton, with a stub and, where there is one, the real ptxas behind it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.device.ptx import triton_ptxas
from shoal.device.ptx.triton_ptxas import NOT_FOUND, fingerprint, real_assembler, run
from tests.device.ptx.scenarios import CORPUS

STUB = f"""#!{sys.executable}
import json, os, sys
from pathlib import Path
if "--version" in sys.argv:
    print("Cuda compilation tools, release 12.8, V12.8.93")
    raise SystemExit(0)
source = next((one for one in sys.argv[1:] if one.endswith(".ptx")), None)
text = Path(source).read_text("utf-8", "surrogateescape") if source else ""
with open(os.environ["STUB_LOG"], "a") as log:
    print(json.dumps([sys.argv[1:], text]), file=log)
print("ptxas info: 7 registers", file=sys.stderr)
if os.environ.get("STUB_REFUSES") and os.environ["STUB_REFUSES"] in text:
    print("ptxas fatal: no", file=sys.stderr)
    raise SystemExit(255)
"""


class Stub:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = folder / "stub"
        self.path.write_text(STUB)
        self.path.chmod(0o755)
        self._log = folder / "log"
        monkeypatch.setenv("STUB_LOG", str(self._log))
        self.source = folder / "kernel.ptx"
        self.source.write_text((CORPUS / "triton_add.ptx").read_text())
        self.environment = {"SHOAL_PTXAS": str(self.path), "PATH": ""}

    def run(self, *arguments: str) -> int:
        return run(["/bin/shoal-ptxas", *arguments], self.environment)

    @property
    def calls(self) -> list[tuple[list[str], str]]:
        return [json.loads(line) for line in self._log.read_text().splitlines()]


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stub:
    return Stub(tmp_path, monkeypatch)


def test_the_real_assembler_sees_the_variants(stub: Stub, capfd: pytest.CaptureFixture[str]) -> None:
    assert stub.run("-v", "--gpu-name=sm_80", str(stub.source), "-o", "out.o") == 0
    ((arguments, text),) = stub.calls
    assert [arguments[0], arguments[1], *arguments[3:]] == ["-v", "--gpu-name=sm_80", "-o", "out.o"]
    assert text.startswith(stub.source.read_text())
    assert "add__shoal_slice(" in text
    assert "add__shoal_ticket(" in text
    assert not Path(arguments[2]).exists()
    assert capfd.readouterr().err == "ptxas info: 7 registers\n"


def test_variants_that_do_not_assemble_are_left_out(
    stub: Stub, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STUB_REFUSES", "__shoal_")
    assert stub.run(str(stub.source)) == 0
    (_, with_variants), (arguments, without) = stub.calls
    assert "__shoal_" in with_variants
    assert without == stub.source.read_text()
    assert arguments == [str(stub.source)]
    err = capfd.readouterr().err
    assert err.count("shoal-ptxas:") == 1
    assert f"{stub.source} is assembled without variants: ptxas fatal: no" in err


def test_text_that_cannot_be_read_is_passed_on(stub: Stub, capfd: pytest.CaptureFixture[str]) -> None:
    stub.source.write_text(".entry k() {")
    assert stub.run(str(stub.source)) == 0
    assert [text for _, text in stub.calls] == [".entry k() {"]
    assert "assembled without variants: line 1: '{' is never closed" in capfd.readouterr().err


def test_comments_in_any_encoding(stub: Stub, capfd: pytest.CaptureFixture[str]) -> None:
    stub.source.write_bytes(b"// caf\xe9\n" + stub.source.read_bytes())
    assert stub.run(str(stub.source)) == 0
    ((_, text),) = stub.calls
    assert text.startswith("// caf\udce9\n")
    assert "add__shoal_slice" in text
    assert "without" not in capfd.readouterr().err


def test_a_defect_of_the_transformation_harms_no_kernel(
    stub: Stub, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(text: str) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(triton_ptxas, "transform", broken)
    assert stub.run(str(stub.source)) == 0
    assert len(stub.calls) == 1
    assert "a defect" in capfd.readouterr().err


def test_a_kernel_that_is_wrong_fails_as_it_would(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STUB_REFUSES", ".entry")
    assert stub.run(str(stub.source)) == 255


def test_other_calls_are_passed_on(stub: Stub) -> None:
    assert stub.run("--help", "no-such.ptx.o") == 0
    assert [arguments for arguments, _ in stub.calls] == [["--help", "no-such.ptx.o"]]


def test_the_version_names_the_release_and_the_transformation(stub: Stub, capfd: pytest.CaptureFixture[str]) -> None:
    assert stub.run("--version") == 0
    assert capfd.readouterr().out.splitlines() == [
        "Cuda compilation tools, release 12.8, V12.8.93",
        f"Shoal variants {fingerprint()}",
    ]


def test_the_fingerprint_follows_the_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(triton_ptxas.__file__, tmp_path)
    monkeypatch.setattr(triton_ptxas, "__file__", str(tmp_path / "triton_ptxas.py"))
    before = fingerprint()
    (tmp_path / "ticket.py").write_text("another prologue")
    assert fingerprint() != before


def test_without_an_assembler(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton then takes its own."""
    monkeypatch.setattr(triton_ptxas.importlib.util, "find_spec", lambda name: None)
    assert run(["shoal-ptxas-blackwell", "--version"], {"PATH": ""}) == NOT_FOUND
    assert "there is no ptxas-blackwell: name it in SHOAL_PTXAS_BLACKWELL" in capfd.readouterr().err


def test_where_the_assembler_is_looked_for(stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundled = tmp_path / "triton" / "backends" / "nvidia" / "bin"
    bundled.mkdir(parents=True)
    (tmp_path / "triton" / "__init__.py").touch()
    on_path = tmp_path / "path"
    on_path.mkdir()
    for place, name in ((bundled, "ptxas-blackwell"), (on_path, "ptxas"), (on_path, "ptxas-blackwell")):
        shutil.copy(stub.path, place / name)
    monkeypatch.syspath_prepend(tmp_path)
    environment = {"PATH": str(on_path)}
    assert real_assembler("ptxas", environment) == str(on_path / "ptxas")
    assert real_assembler("ptxas-blackwell", environment) == str(bundled / "ptxas-blackwell")
    assert real_assembler("ptxas", {**environment, "SHOAL_PTXAS": "/named"}) == "/named"


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="there is no ptxas here")
def test_a_real_program_has_the_variants(tmp_path: Path) -> None:
    source = shutil.copy(CORPUS / "triton_add.ptx", tmp_path)
    command = [sys.executable, "-c", "from shoal.device.ptx.triton_ptxas import main; main()"]
    arguments = ["-v", "--gpu-name=sm_80", str(source), "-o", str(tmp_path / "out.cubin")]
    environment = {**os.environ, "SHOAL_PTXAS": str(shutil.which("ptxas"))}
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert b"add__shoal_ticket" in (tmp_path / "out.cubin").read_bytes()
    assert "Compiling entry function 'add__shoal_slice'" in done.stderr
