"""The house as it was drawn: who may import whom, what every part must have, and documentation that holds."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "shoal"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = sorted(path.parent for path in PACKAGE.rglob("__init__.py"))
MODULES = sorted(PACKAGE.rglob("*.py"))


def test_imports_keep_to_the_contracts() -> None:
    linter = Path(sys.executable).with_name("lint-imports")  # in this process it would switch off the loggers of others
    checked = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


def test_modules_import_each_other_in_no_circle() -> None:
    imports = grimp.build_graph("shoal", exclude_type_checking_imports=True, cache_dir=None)
    below = {module: imports.find_downstream_modules(module) for module in imports.modules}
    assert not {module for module in below for one in below[module] if one != module and module in below[one]}


COMPONENTS = (
    "cache", "calendar", "cascade", "device", "environment", "forecast", "host", "market", "measure", "notify",
    "offload", "recurrent", "results", "schedule", "serve", "session", "shell", "sweep", "upkeep", "users", "web",
)  # fmt: skip
KNOW_COMPONENTS = {"cli/serving.py": "joins measure and serve, which do not know each other"}
"""Modules of the doors that import a component, and why."""


def test_the_server_the_commands_and_the_client_import_no_component() -> None:
    found = set()
    for module in (path for door in ("control", "cli", "sdk") for path in (PACKAGE / door).rglob("*.py")):
        name = str(module.relative_to(PACKAGE))
        imported = re.findall(r"^\s*(?:from|import) shoal\.(\w+)", module.read_text(), re.MULTILINE)
        found |= {name for one in imported if one in COMPONENTS}
    assert found == set(KNOW_COMPONENTS)


@pytest.mark.parametrize(
    "name",
    ["README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile", "constraints.txt", ".ci/run",
     "docs/how/architecture.md", "docs/decisions", "mkdocs.yml", "benchmarks", "examples", "src/shoal/py.typed"],
)  # fmt: skip
def test_the_layout_is_complete(name: str) -> None:
    assert (ROOT / name).exists()


@pytest.mark.parametrize(
    "component",
    ["core", "engine", "control", "serve", "measure", "host", "schedule", "forecast", "market", "cache"],
)
def test_each_finished_component_has_a_page_and_tests(component: str) -> None:
    assert (ROOT / "docs" / "how" / f"{component}.md").stat().st_size > 0
    assert list((ROOT / "tests" / component).glob("**/test_*.py"))


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: str(path.relative_to(PACKAGE.parent)))
def test_each_package_says_what_it_is(package: Path) -> None:
    if "versions" in package.parts:
        pytest.skip("migrations speak for themselves")
    assert ast.get_docstring(ast.parse((package / "__init__.py").read_text())), "a package's docstring is its sign"


ONE_FILE = {"src/shoal/engine/local/supervisor.py": 820}
"""It runs as a single script in an isolated interpreter."""


def test_a_module_stays_readable() -> None:
    long = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in MODULES}
    assert {name: lines for name, lines in long.items() if lines > ONE_FILE.get(name, 500)} == {}


WALKS = re.compile(r"\b(?:os\.f?walk|rmtree|rglob|copytree)\b")
WALKS_ON_ITS_OWN = {
    "control/attempts/data.py": "runs with the tenant's rights, in its sandbox",
    "demo/run.py": "the demo's own files",
    "train/_artifacts.py": "runs in the job itself",
    "train/_files.py": "runs in the job itself",
}
"""Modules that go through trees without `base.trees`, and why no tenant can mislead the server there."""


def test_trees_of_tenants_are_walked_by_descriptors_alone() -> None:
    walking = {str(path.relative_to(PACKAGE)) for path in MODULES if WALKS.search(path.read_text())}
    assert walking == set(WALKS_ON_ITS_OWN)


def test_the_client_knows_nothing_of_the_server() -> None:
    known = {
        name
        for path in (PACKAGE / "sdk").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names])
    }
    assert "shoal.contract.calls" in known
    assert {name for name in known if name.startswith("shoal.control")} == set()


def test_nothing_is_left_to_do_later() -> None:
    marker = re.compile(r"\b(TODO|FIXME|XXX)\b")
    assert [str(path.relative_to(ROOT)) for path in MODULES if marker.search(path.read_text())] == []


def test_every_dependency_is_pinned() -> None:
    pins = {
        re.sub(r"[-_.]+", "-", line.partition("==")[0]).lower()
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    }
    wanted = {
        re.sub(r"[-_.]+", "-", re.split(r"[\[<>=!~ ;]", requirement)[0]).lower()
        for extra, requirements in PROJECT["project"]["optional-dependencies"].items()
        for requirement in requirements
        if extra != "torch"  # gigabytes that no test needs
    } - {"shoal"}
    assert wanted <= pins


def test_the_demo_needs_no_torch() -> None:
    assert "torch" not in (ROOT / "constraints.txt").read_text()


def test_the_scripts_can_be_run() -> None:
    scripts = [path for path in (ROOT / ".ci").iterdir() if path.is_file()]
    assert [path.name for path in scripts if not os.access(path, os.X_OK)] == []
    for script in scripts:
        subprocess.run(["bash", "-n", script], check=True)


def test_make_alone_lists_every_target() -> None:
    shown = subprocess.run(["make", "-s"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for target in "setup demo test test-slow bench lint typecheck docs clean help".split():  # noqa: SIM905
        assert re.search(rf"^  make {target} +\S", shown, re.MULTILINE), target


def test_links_and_examples_of_the_documentation_hold() -> None:
    checked = subprocess.run(
        [sys.executable, ROOT / "docs" / "check_links.py"], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout


def test_the_parts_of_mutation_testing_name_what_exists() -> None:
    parts = PROJECT["tool"]["shoal"]["mutation"].values()
    assert [name for part in parts for name in part["modules"] if not list(PACKAGE.glob(name))] == []
    assert [name for part in parts for name in part["tests"] if not (ROOT / "tests" / name).exists()] == []


def test_no_class_name_stands_twice_within_a_component() -> None:
    places: dict[tuple[str, str], set[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        where = path.relative_to(PACKAGE)
        for name in re.findall(r"^ *class (\w+)[:(\[]", path.read_text(), re.MULTILINE):
            places.setdefault((where.parts[0], name), set()).add(str(where))
    assert {name: sorted(found) for (_, name), found in places.items() if len(found) > 1} == {}


def test_what_is_imported_from_a_package_that_loads_on_first_use_is_there() -> None:
    """Type checkers take any name from a module with `__getattr__`."""
    faces = {}
    for package in PACKAGES:
        text = (package / "__init__.py").read_text()
        if "__getattr__ = " in text:
            name = ".".join(package.relative_to(PACKAGE.parent).parts)
            inside = {path.stem for path in package.iterdir()}
            faces[name] = inside | set(re.findall(r"\w+", text))
    assert "shoal.cache.daemon" in faces
    imported = re.compile(r"^ *from ([\w.]+) import (\([^)]*\)|.*)$", re.MULTILINE)
    unknown = [
        f"{module.relative_to(PACKAGE)}: {package}.{name}"
        for module in MODULES
        for package, names in imported.findall(module.read_text())
        if package in faces
        for name in re.findall(r"(\w+)(?: as \w+)?", re.sub(r"#.*", "", names))
        if name not in faces[package]
    ]
    assert unknown == []
