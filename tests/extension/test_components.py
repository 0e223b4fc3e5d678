"""One declaration joins a component to everything; a broken one costs its users nothing but itself."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import pytest

from shoal.base import discover
from shoal.extension import Component
from tests.packages import install
from tests.servers import kill_for_good

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ROWS: dict[str, str] = PROJECT["entry-points"]["shoal.components"]
HEAVY = {
    "asyncio", "fastapi", "httpx", "numpy", "pydantic", "scipy", "sqlalchemy", "typer", "yaml", "prometheus_client",
}  # fmt: skip


def declared(target: str) -> Component:
    module, _, name = target.partition(":")
    found = getattr(import_module(module), name)
    assert isinstance(found, Component)
    return found


def test_there_is_one_table_of_entry_points_of_our_own() -> None:
    assert {group for group in PROJECT["entry-points"] if group.startswith("shoal")} == {"shoal.components"}


@pytest.mark.parametrize("row", ROWS)
def test_reading_a_declaration_loads_nothing_heavy(row: str) -> None:
    module = ROWS[row].partition(":")[0]
    code = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert loaded & HEAVY == set()
    package = module.rpartition(".")[0]
    faces = {"shoal", "shoal.base", "shoal.base.component", "shoal.base.faces", "shoal.extension", package, module}
    assert {one for one in loaded if one.startswith("shoal")} <= faces | {"shoal.extension.component"}


@pytest.mark.parametrize("row", ROWS)
def test_every_name_of_a_declaration_is_there(row: str) -> None:
    component = declared(ROWS[row])
    for part in fields(Component):
        for name, target in component.named(part.name, row).items():
            assert discover.Found(part.name, name, target, "shoal").load() is not None


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({"extension": "no dots here"}, "extension: .*'no dots here' is not like package.module:attribute"),
        ({"commands": "greeting"}, "commands: 'greeting' is no mapping"),
        ({"commands": {"greet": "greeting;evil"}}, "commands: greet: 'greeting;evil' is not like"),
        ({"commands": {" greet": "greeting"}}, "commands: ' greet' is no name"),
        ({"commands": {"": "greeting"}}, "commands: '' is no name"),
        ({"launcher": 7}, "launcher: 7 is no mapping"),
        ({"engine_settings": {"lab": "lab:Settings"}}, "engine_settings: lab is no engine of this component"),
        ({"engine_probes": {"lab": "lab:probe"}}, "engine_probes: lab is no engine of this component"),
    ],
)
def test_a_malformed_declaration_is_refused(given: Mapping[str, object], wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        Component(**given)  # type: ignore[arg-type]


def test_a_declaration_cannot_be_changed() -> None:
    commands = {"greet": "greeting"}
    component = Component(commands=commands)
    commands["other"] = "other"
    assert dict(component.commands) == {"greet": "greeting"}
    with pytest.raises(TypeError):
        component.commands["other"] = "other"  # type: ignore[index]


# --- packages of others ---


def shoal(environ: Mapping[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "shoal.cli", *words], env=environ, capture_output=True, text=True, check=False,
        timeout=100,
    )  # fmt: skip


GREETING = """
from shoal.base.console.command import CommandContext, command

def register(app):
    command(app, "greet")(greet)

def greet(context: CommandContext) -> None:
    print("hello")
"""


def component(text: str) -> str:
    return f"from shoal.extension import Component\n\nIT = Component({text})\n"


GREET = {"greeting.py": GREETING, "greeting_component.py": component("commands={'greet': 'greeting'}")}


def test_two_packages_that_claim_one_name_are_an_error_that_names_both(tmp_path: Path) -> None:
    install(tmp_path, "greeting", GREET, {"greeting": "greeting_component:IT"})
    files = {"salute.py": component("commands={'greet': 'greeting', 'salute': 'greeting'}")}
    environ = install(tmp_path, "salute", files, {"salute": "salute:IT"})
    done = shoal(environ, "greet")
    assert done.returncode == 2
    first = done.stderr.splitlines()[0]
    assert first == (
        "error: commands greet is claimed by greeting (greeting) and by salute (greeting): neither is used"
    )
    shown = shoal(environ, "--help")
    assert shown.returncode == 0
    assert " greet " not in shown.stdout
    assert "claimed by greeting (greeting) and by salute (greeting)" in shown.stderr


def test_the_names_of_shoal_are_its_own(tmp_path: Path) -> None:
    files = {"greedy.py": component("commands={'market': 'greedy', 'jobs': 'greedy'}, engines={'local': 'greedy:x'}")}
    environ = install(tmp_path, "greedy", files, {"greedy": "greedy:IT"})
    shown = shoal(environ, "--help")
    assert shown.returncode == 0
    assert "commands market is claimed by shoal (shoal.market.commands.market) and by greedy (greedy)" in shown.stderr
    assert "engines local is claimed by shoal (shoal.engine.local:local_engine) and by greedy" in shown.stderr
    assert "commands jobs of the package greedy is Shoal's own" in shown.stderr
    assert shoal(environ, "market", "--help").returncode == 0


BROKEN = {
    "import_fails": ({"bad.py": "import no_such_library"}, "No module named 'no_such_library'"),
    "is_no_python": ({"bad.py": "IT = ("}, "was never closed"),
    "raises": ({"bad.py": "raise SystemError('by itself')"}, "by itself"),
    "is_no_component": ({"bad.py": "IT = {'commands': {}}"}, "bad:IT is no shoal.extension.Component"),
    "has_no_such_value": ({"bad.py": ""}, "has no attribute 'IT'"),
    "is_malformed": ({"bad.py": component("commands={'greet': '../greet'}")}, "'../greet' is not like"),
}


@pytest.fixture(params=BROKEN)
def broken(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[dict[str, str], str]:
    files, why = BROKEN[request.param]
    environ = install(tmp_path / "packages", "bad-package", files, {"bad": "bad:IT"})
    return {**environ, "SHOAL_HOME": str(tmp_path / "home")}, why


@pytest.mark.few(count=2)
def test_a_broken_declaration_does_not_stop_help_and_is_named(broken: tuple[dict[str, str], str]) -> None:
    environ, why = broken
    shown = shoal(environ, "--help")
    assert shown.returncode == 0
    assert " market " in shown.stdout
    assert "the component bad of the package bad-package cannot be read" in shown.stderr
    assert why in shown.stderr


@pytest.mark.few
def test_a_broken_declaration_does_not_stop_the_doctor_and_is_named(broken: tuple[dict[str, str], str]) -> None:
    environ, why = broken
    told = json.loads(shoal(environ, "doctor", "--json").stdout)
    (found,) = (one for one in told["capabilities"] if one["name"] == "components")
    assert not found["available"]
    assert "bad-package" in found["detail"]
    assert why in found["detail"]


@pytest.fixture
def left_out(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A package whose parts all fail, each in its own way."""
    text = (
        "extension='absent:Extension', commands={'bad': 'absent'}, client={'bad': 'absent:It'}, "
        "options={'bad': 'absent:It'}, manifests={'bad': 'absent:It'}, subjects={'bad': 'absent:It'}, "
        "engines={'bad': 'absent:It'}, engine_settings={'bad': 'absent:It'}, importers={'bad': 'absent:It'}, "
        "policies={'bad': 'absent:It'}"
    )
    environ = install(tmp_path / "packages", "bad-package", {"bad.py": component(text)}, {"bad": "bad:IT"})
    environ |= {"SHOAL_HOME": str(tmp_path / "home")}
    yield environ
    if (pid := _pid(tmp_path / "home")) is not None:
        kill_for_good(pid)


def _pid(home: Path) -> int | None:
    file = home / "server.json"
    return int(json.loads(file.read_text())["pid"]) if file.exists() else None


def test_parts_that_cannot_be_loaded_do_not_stop_the_server_nor_its_commands(left_out: dict[str, str]) -> None:
    started = shoal(left_out, "up", "--detach", "--port", "0", "--slots", "1")
    assert started.returncode == 0, started.stderr
    told = json.loads(shoal(left_out, "status", "--json").stdout)
    details = [one["detail"] for one in told["capabilities"] if one["name"] == "components"]
    assert any("extension bad of the package bad-package cannot be loaded" in one for one in details)
    assert shoal(left_out, "--help").returncode == 0
    assert shoal(left_out, "import", "--help").returncode == 0
    manifest = Path(left_out["SHOAL_HOME"], "job.yaml")
    manifest.write_text("name: job\ncommand: ['true']\n")
    ran = shoal(left_out, "run", str(manifest))
    assert ran.returncode == 0, ran.stderr
    stopped = shoal(left_out, "down")
    assert stopped.returncode == 0, stopped.stderr
