"""Tests marked `virtual_time` run on a loop whose time leaps, from 1,700,000,000 s on; the others on asyncio's own."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import os
import tempfile
import types
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest
import structlog
import typer.testing
from hypothesis import Phase, settings

import shoal.store.store
from shoal.control.home import garbage
from shoal.engine.simulated import VirtualLoop
from shoal.store.database import Database
from shoal.store.tables import Tables
from tests.preloaded import PRELOADED

pytest_plugins = ["tests.forks"]
VIRTUAL_START = 1_700_000_000.0

# Hypothesis's own profile for such runs: no example fails for being slow, and each run tries the same ones as the last.
# `make test` tries each property on a few examples, `make test-slow` on all (`--hypothesis-profile=ci`);
# `--hypothesis-profile=default` looks for new ones. Mutation testing runs each property some thousand times, and asks
# only whether it fails.
_ALL = settings.get_profile("ci")
settings.register_profile("quick", parent=_ALL, max_examples=12)
settings.register_profile("mutation", parent=_ALL, max_examples=25, phases=[Phase.explicit, Phase.generate])
settings.load_profile("quick")


def pytest_configure(config: pytest.Config) -> None:
    gc.disable()  # while tests are collected
    config.addinivalue_line("markers", "virtual_time: the test's event loop is a VirtualLoop")
    config.addinivalue_line("markers", "property: tried on examples that Hypothesis makes; set by itself")
    config.addinivalue_line("markers", "cold: what it starts imports anew; see tests/preloaded.py")
    config.addinivalue_line("markers", "few(count=1): the first of its parameters only; the others are slow")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each property as such. The profiles `quick` and `mutation` lower its own number of examples to theirs."""
    name = settings.get_current_profile_name()
    seen: Counter[str] = Counter()
    for item in items:
        few = item.get_closest_marker("few")
        if few is not None and not item.get_closest_marker("slow"):
            function = item.nodeid.partition("[")[0]
            seen[function] += 1
            if seen[function] > few.kwargs.get("count", 1):
                item.add_marker(pytest.mark.slow)
        test = getattr(item, "obj", None)
        if not getattr(test, "is_hypothesis_test", False):
            continue
        item.add_marker(pytest.mark.property)
        own = getattr(test, "_hypothesis_internal_use_settings", None)
        if name not in ("quick", "mutation") or item.get_closest_marker("slow"):
            continue
        if own is not None and own is not settings.default:
            few = settings.get_profile(name)
            lighter = settings(own, max_examples=min(own.max_examples, few.max_examples), phases=few.phases)
            getattr(test, "__func__", test)._hypothesis_internal_use_settings = lighter


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    PRELOADED.off = item.get_closest_marker("cold") is not None


def pytest_collection_finish() -> None:
    """What was collected stays to the end: the garbage collector need not walk through it again and again."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)  # it took up to an eighth of the time of tests that build applications
    gc.enable()


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    if item.get_closest_marker("virtual_time"):
        return {"virtual": lambda: VirtualLoop(start=VIRTUAL_START)}
    return {"asyncio": asyncio.new_event_loop}


@pytest.fixture(autouse=True, scope="session")
def _own_guards() -> None:
    os.environ["SHOAL_GUARD_LOCK"] = f"shoal-guard-test-{os.getpid()}"  # real guards of tests that run side by side


@pytest.fixture(autouse=True, scope="session")
def _programs_are_preloaded() -> Iterator[None]:
    with PRELOADED.installed():
        yield


@pytest.fixture(autouse=True, scope="session")
def _quiet_log() -> None:
    """What a test needs of the log it captures itself."""
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())


@pytest.fixture(autouse=True, scope="session")
def _one_tree_of_commands() -> Iterator[None]:
    """`CliRunner` reads the signatures of commands at each call; here once for each app, as a process does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.testing, "_get_command", functools.cache(typer.main.get_command))
        yield


@pytest.fixture(autouse=True, scope="session")
def _new_databases_are_copies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A process makes the tables of SQLite once; each new database with the same tables begins as a copy of that."""
    migrate = shoal.store.store.migrate

    @functools.cache
    def made(*more: Tables) -> bytes:
        path = tmp_path_factory.mktemp("tables") / "shoal.db"
        database = Database(f"sqlite:///{path}", sync=False)
        migrate(database, more)
        database.close()
        return path.read_bytes()

    def copying(database: Database, more: Sequence[Tables] = ()) -> None:
        path = database.path
        if path is not None and path.parent.is_dir() and not path.exists():
            whole = made(*more)
            # With mode 0600. An error here is met below too, and told there.
            with contextlib.suppress(OSError), tempfile.NamedTemporaryFile(dir=path.parent) as copy:
                copy.write(whole)
                copy.flush()
                os.link(copy.name, path)
        migrate(database, more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shoal.store.store, "migrate", copying)
        yield


@pytest.fixture(autouse=True, scope="session")
def _no_memory_is_given_back() -> Iterator[None]:
    """A server looks through its whole memory every ten minutes: in virtual time of days that is all that it does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(garbage, "gc", types.SimpleNamespace(collect=lambda: 0))
        patch.setattr(garbage, "give_back", lambda: None)
        yield
