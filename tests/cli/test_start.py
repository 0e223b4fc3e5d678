"""A command loads what it needs: its own module and nothing of the others', a server nothing that no request asked for.

Counted, not timed: each of these libraries takes a fifth of a start or of a short command, or more.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.text import Text
from typer.testing import CliRunner

from shoal.cli.app import COMMANDS, app, commands_of
from tests.packages import install

pytestmark = pytest.mark.cold

NOT_AT_START = {
    "alembic", "cryptography", "fsspec", "httpx", "mako", "numpy", "onnxruntime", "pandas", "psycopg", "pynvml",
    "scipy", "sklearn", "sqlalchemy.orm", "shoal.cli.jobs", "shoal.host.live.reconciler",
    "shoal.host.guard", "shoal.host.live.process", "shoal.host.policy", "shoal.host.types",
    "shoal.schedule.policy", "shoal.sdk", "shoal.serve.gateway",
}  # fmt: skip

_SERVER = """
import json, os, signal, sys
from pathlib import Path
from shoal.control.settings import load_settings
from shoal.control.server import run_server

def ready(info):
    Path(sys.argv[2]).write_text(json.dumps(sorted(sys.modules)))
    os.kill(os.getpid(), signal.SIGTERM)

run_server(load_settings({"home": sys.argv[1], "port": 0, "slots": 1, "log_level": "error"}), ready=ready)
"""

_COMMAND = """
import sys
from shoal.cli import main
try:
    main()
except SystemExit as end:
    print(*sorted(sys.modules))
    raise
"""


def run(code: str, *words: str, exits: int = 0) -> str:
    """What a fresh interpreter prints last. `-I`: nothing of this process's environment."""
    done = subprocess.run([sys.executable, "-I", "-c", code, *words], capture_output=True, text=True, check=False)
    assert done.returncode == exits, done.stderr
    return done.stdout.rpartition("\n")[0].rpartition("\n")[2]


def test_the_table_of_commands_is_what_the_modules_register() -> None:
    assert {module: set(commands_of(module)) for module in COMMANDS} == {
        module: set(names) for module, names in COMMANDS.items()
    }


def test_help_names_every_command() -> None:
    shown = CliRunner().invoke(app, ["--help"]).stdout
    assert [name for names in COMMANDS.values() for name in names if f" {name} " not in shown] == []


def _each(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    yield path, command
    if hasattr(command, "list_commands"):
        for name in command.list_commands(None):
            yield from _each(command.get_command(None, name), f"{path} {name}")


def test_help_loses_no_word_to_markup() -> None:
    """Rich takes `[words]` for the name of a style, and shows nothing there."""
    lost = [
        (path, text)
        for path, found in _each(typer.main.get_command(app), "shoal")
        for text in (found.help, *(getattr(one, "help", None) for one in found.params))
        if text and Text.from_markup(text).plain != text
    ]
    assert lost == []


@pytest.mark.parametrize(("words", "meant"), [(["staus"], "'status'"), (["tenant", "crate"], "'create'")])
def test_a_typo_is_told_what_was_meant(words: list[str], meant: str) -> None:
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert meant in result.stderr


INSTALLED = {
    "deploy": "shoal.serve", "guard": "shoal.host", "measure": "shoal.measure", "schedule": "shoal.schedule",
    "serve": "shoal.serve", "services": "shoal.serve",
}  # fmt: skip


@pytest.mark.few(count=2)
@pytest.mark.parametrize("name", INSTALLED)
def test_a_room_brings_its_commands_and_loads_no_other_room(name: str) -> None:
    loaded = set(run(_COMMAND, name, "--help").split())
    components = {"shoal.host", "shoal.measure", "shoal.schedule", "shoal.serve"}
    others = {one for one in loaded if one.startswith(tuple(f"{each}." for each in components - {INSTALLED[name]}))}
    assert {one for one in others if not one.endswith(".component")} == set()  # no more than what they declare
    assert {one for one in loaded if one.startswith("shoal.cli")} <= {
        "shoal.cli",
        "shoal.cli.app",
        "shoal.cli.component",
    }
    assert f" {name} " in CliRunner().invoke(app, ["--help"]).stdout


def _install(folder: Path, module: str, parts: str = "commands={'greet': 'greeting'}") -> dict[str, str]:
    """A package that declares this; the environment in which it is found."""
    declaration = f"from shoal.extension import Component\n\nIT = Component({parts})\n"
    files = {"greeting.py": module, "declared.py": declaration}
    return install(folder, "greeting", files, {"greeting": "declared:IT"})


_GREETING = """
from shoal.base.console.command import CommandContext, command

def register(app):
    command(app, "greet")(greet)

def greet(context: CommandContext, name: str) -> None:
    with context.client(patience_s=0) as client:
        context.show({"hello": name, "client": type(client).__name__}, lambda: print("hello", name))
"""


def test_an_installed_package_brings_a_command(tmp_path: Path) -> None:
    environ = _install(tmp_path, _GREETING)
    words = [sys.executable, "-m", "shoal.cli"]
    done = subprocess.run([*words, "greet", "you", "--json"], capture_output=True, text=True, check=True, env=environ)
    assert json.loads(done.stdout) == {"hello": "you", "client": "Client"}
    shown = subprocess.run([*words, "--help"], capture_output=True, text=True, check=True, env=environ).stdout
    assert " greet " in shown


def test_a_command_whose_package_is_broken_is_an_error_in_words(tmp_path: Path) -> None:
    environ = _install(tmp_path, "import no_such_library")
    words = [sys.executable, "-m", "shoal.cli", "greet", "you"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environ)
    assert done.returncode == 2
    assert done.stderr.startswith("error: commands greet of the package greeting cannot be loaded: No module")


_UP_OPTION = """
from pathlib import Path
from shoal.base.console.command import SettingOption

KEYS = SettingOption("keep.jobs", "How long jobs are kept.")
RULES = SettingOption("market.file", "Rent as this file says.", Path, "FILE")
"""


def test_an_installed_package_brings_an_option_of_up_for_a_setting(tmp_path: Path) -> None:
    parts = "options={'kept-jobs': 'greeting:KEYS', 'rules': 'greeting:RULES'}"
    environ = {**_install(tmp_path, _UP_OPTION, parts), "SHOAL_HOME": str(tmp_path / "home"), "COLUMNS": "200"}
    words = [sys.executable, "-m", "shoal.cli", "up"]

    def run_up(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*words, *more], capture_output=True, text=True, check=False, env=environ, cwd=tmp_path, timeout=100
        )

    shown = run_up("--help").stdout
    assert "How long jobs are kept. The setting keep.jobs." in shown
    assert "--rules" in shown
    refused = run_up("--kept-jobs", "forever")
    assert (refused.returncode, "keep.jobs" in refused.stderr) == (2, True), refused.stderr
    refused = run_up("--rules", "no-such.yaml", "--port", "0")
    assert str(tmp_path / "no-such.yaml") in refused.stderr  # absolute: a server in the background runs elsewhere
    assert refused.returncode != 0


@pytest.mark.few
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("rules", "options rules of the package greeting cannot be loaded: module 'greeting' has no attribute"),
        ("port", "the option port cannot be added: `shoal up` has it already"),
        ("number", "the option number cannot be added: it is no SettingOption"),
    ],
)
def test_an_option_of_up_that_cannot_be_used_is_left_out_and_named(name: str, why: str, tmp_path: Path) -> None:
    module = _UP_OPTION.replace("RULES", "PORT") + "NUMBER = 7\n"
    parts = f"options={{'{name}': 'greeting:{name.upper()}'}}"
    environ = {**_install(tmp_path, module, parts), "SHOAL_HOME": str(tmp_path / "home")}
    words = [sys.executable, "-m", "shoal.cli", "up", "--set", "nothing.like=this"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environ)
    assert done.returncode == 2
    warning, refused, *_ = done.stderr.splitlines()
    assert warning.startswith("warning: ")
    assert why in warning
    assert refused.startswith("error: there is no setting 'nothing'")


@pytest.mark.parametrize("words", [["--help"], ["up", "--help"]])
def test_help_loads_no_library_of_a_component(words: list[str]) -> None:
    loaded = set(run(_COMMAND, *words).split())
    heavy = {"fastapi", "fsspec", "httpx", "llvmlite", "numpy", "onnx", "pandas", "scipy", "sqlalchemy"}
    assert loaded & heavy == set()


def test_the_version_loads_no_command() -> None:
    loaded = set(run(_COMMAND, "--version").split())
    assert {name for name in loaded if name.startswith("shoal.")} == {"shoal.cli", "shoal.cli.app"}
    assert loaded & {"asyncio", "importlib.metadata", "httpx", "pydantic", "rich", "sqlalchemy"} == set()


def test_a_command_loads_its_own_module_only(tmp_path: Path) -> None:
    loaded = set(run(_COMMAND, "down", "--home", str(tmp_path)).split())
    assert {name for name in loaded if name.startswith("shoal.cli.")} == {
        "shoal.cli.app", "shoal.cli.context", "shoal.cli.down",
    }  # fmt: skip
    assert loaded & {"fastapi", "httpx", "sqlalchemy", "uvicorn"} == set()


NO_SERVER = 4


@pytest.mark.parametrize("words", [["jobs"], ["show", "x"], ["logs", "x"], ["run", "--pty", "--", "true"]])
def test_a_command_that_asks_the_server_loads_no_other_component(words: list[str], tmp_path: Path) -> None:
    home = f"import os; os.environ['SHOAL_HOME'] = {str(tmp_path)!r}"
    loaded = set(run(home + _COMMAND, *words, exits=NO_SERVER).split())
    mine = {"base", "cli", "contract", "core", "extension", "sdk", *(["session"] if "--pty" in words else [])}
    rooms = {name.split(".")[1] for name in loaded if name.startswith("shoal.") and not _declares(name)}
    assert rooms <= mine
    assert loaded & {"asyncio", "click", "fastapi", "pygments", "rich", "sqlalchemy", "yaml"} == set()


def _declares(name: str) -> bool:
    """Whether it is a component's package or its declaration, or an option of jobs that it adds."""
    return name.count(".") == 1 or name.endswith((".component", ".commands", ".commands.option"))


@pytest.mark.few(count=2)
@pytest.mark.parametrize("words", [["run"], ["jobs"], ["submit"], ["show"], ["up"]])
def test_help_of_a_command_loads_neither_client_nor_models(words: list[str]) -> None:
    loaded = set(run(_COMMAND, *words, "--help").split())
    assert loaded & {"httpx", "pydantic", "shoal.sdk", "shoal.contract.models"} == set()


_FIRST_ANSWER = """
import json, os, signal, sys
from pathlib import Path
from shoal.control import server
from shoal.control.settings import load_settings
written = server.write_server

def write(home, info):
    Path(sys.argv[2]).write_text(json.dumps(sorted(sys.modules)))
    written(home, info)

server.write_server = write
server.run_server(
    load_settings({"home": sys.argv[1], "port": 0, "slots": 1, "log_level": "error"}),
    ready=lambda info: os.kill(os.getpid(), signal.SIGTERM),
)
"""


def test_a_server_is_ready_before_its_routes_are_loaded(tmp_path: Path) -> None:
    run(_FIRST_ANSWER, str(tmp_path / "home"), str(tmp_path / "modules"))
    loaded = set(json.loads((tmp_path / "modules").read_text()))
    assert "shoal.session.live.extension" in loaded
    late = {"fastapi", "starlette", "prometheus_client", "http.server", "pydantic_settings", "shoal.control.api.app"}
    assert {one for one in loaded if one in late or one.endswith((".live.api", ".plans_api"))} == set()
    answers = {f"shoal.{room}.models" for room in ("contract", "session", "tenancy", "users", "web")}
    assert loaded & {*answers, "py_compile"} == set(), "what only answers need, and compiling what is compiled"


@pytest.mark.parametrize("start", ["first", "again"])
def test_a_server_starts_without_what_nobody_asked_for_yet(start: str, tmp_path: Path) -> None:
    if start == "again":
        run(_SERVER, str(tmp_path / "home"), str(tmp_path / "modules"))
    run(_SERVER, str(tmp_path / "home"), str(tmp_path / "modules"))
    loaded = set(json.loads((tmp_path / "modules").read_text()))
    assert "shoal.control.api.app" in loaded
    assert loaded & NOT_AT_START == set()
