"""The commands of the pages do what the pages show."""

from __future__ import annotations

import re
import shutil
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs import pages
from tests.packages import install

PAGES = pages.pages()


@pytest.fixture
def home() -> Iterator[Path]:
    """An empty home with a short path: sockets have little room for theirs."""
    made = Path(tempfile.mkdtemp(prefix="shoal-page-"))
    try:
        yield made
        pages.clean(made)
    finally:
        shutil.rmtree(made, ignore_errors=True)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=str(page.path.relative_to(pages.ROOT)), marks=[pytest.mark.slow] if page.slow else [])
        for page in PAGES
    ],
)
@pytest.mark.timeout(300)
def test_a_page_does_what_it_shows(page: pages.Page, home: Path) -> None:
    pages.run(page, home)


@pytest.mark.parametrize(
    ("printed", "shown", "same"),
    [
        ("job j-0t62wbgff3jt ran 0.1s\n", ["job j-c05497a580f1 ran 12.5s"], True),
        ("a  b\n", ["a b"], True),
        ("first\nmiddle\nlast\n", ["first", "...", "last"], True),
        ("first\nlast\n", ["first", "...", "last"], True),
        ("first\nlast\n", ["first"], False),
        ("RUNNING\n", ["SUCCEEDED"], False),
        ("", ["something"], False),
    ],
)
def test_what_is_printed_may_differ_in_ids_and_numbers_only(printed: str, shown: list[str], same: bool) -> None:
    assert pages.agrees(printed, tuple(shown)) is same


def test_a_command_that_fails_fails_its_page(home: Path) -> None:
    page = home / "page.md"
    for block in ("$ false", "$ echo one\ntwo"):
        page.write_text(f"<!-- run -->\n```console\n{block}\n```\n")
        found = pages.read(page)
        assert found is not None
        found = pages.Page(pages.ROOT / "docs" / "page.md", found.slow, found.steps)
        with pytest.raises(AssertionError, match=r"docs/page\.md:3"):
            pages.run(found, home)


def test_files_here_documents_and_continued_lines_are_read(home: Path) -> None:
    page = home / "page.md"
    page.write_text(
        '```yaml title="a/job.yaml"\nname: x\n```\n\n<!-- run slow -->\n```console\n'
        "$ cat > b <<'END'\n$ no command\nEND\n$ cat a/job.yaml \\\n  b\nname: x\n$ no command\n```\n"
    )
    found = pages.read(page)
    assert found is not None
    assert found.slow
    assert found.steps[1:] == (
        pages.Command("cat > b <<'END'\n$ no command\nEND", (), 7),
        pages.Command("cat a/job.yaml \\\n  b", ("name: x",), 10),
        pages.Command("no command", (), 13),
    )


def example(name: str, home: Path, *steps: pages.File | pages.Command) -> None:
    """Install what a page tells the reader to write, as `pip install .` would, and do the steps."""
    path = pages.ROOT / "docs" / "how-to" / name
    source = path.read_text()
    files = dict(re.findall(r'^```\w+ title="([^"]+)"\n(.*?)^```$', source, re.MULTILINE | re.DOTALL))
    project = tomllib.loads(files["pyproject.toml"])["project"]
    modules = {name: text for name, text in files.items() if name.endswith(".py")}
    environ = install(home, project["name"], modules, project["entry-points"]["shoal.components"])
    pages.run(pages.Page(path, False, steps), home, {"PYTHONPATH": environ["PYTHONPATH"]})


@pytest.mark.slow
def test_the_extension_of_its_page_gives_a_real_job_its_threads(home: Path) -> None:
    job = "name: job\ncommand: [printenv, OMP_NUM_THREADS]\nresources: {cpus: 2, memory: 64MiB}\n"
    example(
        "write-extension.md",
        home,
        pages.File("job.yaml", job),
        pages.Command("shoal settings | grep threads.most", ("threads.most  16  threads that a rank gets at most",), 1),
        pages.Command("shoal up --detach --slots 2 --set threads.most=1", (), 2),
        pages.Command("shoal run job.yaml", ("...", "1", "..."), 3),
        pages.Command("shoal status --json | grep -A1 threads", ("...", '"gangs": 1', "..."), 4),
    )


@pytest.mark.slow
def test_the_engine_of_its_page_is_chosen_by_its_name(home: Path) -> None:
    job = "name: job\ncommand: [sleep, '0.2']\nranks: 2\nresources: {accelerators: {type: a100, count: 4}}\n"
    example(
        "write-engine.md",
        home,
        pages.File("job.yaml", job),
        pages.Command("shoal up --detach --set engine=none 2>&1 || true", ("...installed: ...lab, local...", "..."), 1),
        pages.Command("shoal up --detach --set engine=lab", (), 2),
        pages.Command("shoal nodes", ("...", "lab-0 ...", "...", "lab-1 ...", "..."), 3),
        pages.Command(
            "shoal run job.yaml 2>&1",
            (
                "...",
                "...SUCCEEDED...",
            ),
            4,
        ),
    )


@pytest.mark.slow
def test_the_policy_of_its_page_is_simulated_compared_and_in_the_server(home: Path) -> None:
    job = "name: job\ncommand: ['true']\nclass: best-effort\nresources: {accelerators: {type: a100, count: 1}}\n"
    cluster = "--trace small.trace --cluster v100=2,p100=2,k80=4"
    example(
        "write-policy.md",
        home,
        pages.File("job.yaml", job),
        pages.Command("shoal schedule generate --jobs 20 --per-hour 4 --out small.trace", ("...",), 1),
        pages.Command(
            f"shoal schedule simulate {cluster} --policy smallest-first 2>&1", ("...", "smallest-first ...", "..."), 2
        ),
        pages.Command(
            f"shoal schedule compare {cluster} --policy fifo,smallest-first 2>&1",
            ("...", "fifo ...", "...", "smallest-first ...", "..."),
            3,
        ),
        pages.Command(
            "shoal up --detach --set engine=simulated --set schedule.policy=smallest-first 2>&1 || true", ("...",), 4
        ),
        pages.Command("shoal status --json | grep smallest-first", ("...",), 5),
    )
