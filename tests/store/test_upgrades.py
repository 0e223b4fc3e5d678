"""What was released stays as it is, and homes of each release are opened by this Shoal.

`schemas/` holds what each released revision makes, `homes/` a database of each release as SQL. Neither is ever changed:
a change of the schema is a new revision with a file of its own, `SHOAL_FREEZE=1 pytest tests/store/test_upgrades.py`.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory

from shoal.cache.live.tables import TABLES as CACHE
from shoal.calendar.live.tables import TABLES as CALENDAR
from shoal.contract.lifecycle import JobState
from shoal.contract.manifest import parse_manifest
from shoal.contract.records import JobFilter
from shoal.control.extensions.installed import installed_extensions
from shoal.core import Node
from shoal.engine.simulated import Script
from shoal.environment.live.tables import TABLES as ENVIRONMENT
from shoal.market.live.tables import TABLES as MARKET
from shoal.notify.live.tables import TABLES as NOTIFY
from shoal.results.live.tables import TABLES as RESULTS
from shoal.serve.live.tables import TABLES as SERVE
from shoal.store import open_store
from shoal.store.database import Database
from shoal.store.migrate import MIGRATIONS, OWN
from shoal.store.tables import Tables
from shoal.sweep.live.tables import TABLES as SWEEP
from shoal.tenancy.live.repository import TABLES as TENANCY
from shoal.users.live.tables import TABLES as USERS
from shoal.web.tables import TABLES as WEB
from tests.control.simulation import World

HERE = Path(__file__).parent
SETS = [OWN, SERVE, TENANCY, MARKET, CACHE, CALENDAR, ENVIRONMENT, NOTIFY, RESULTS, SWEEP, USERS, WEB]
HOMES = sorted((HERE / "homes").glob("*.sql"))


def schema(database: Path) -> str:
    """The tables and indexes as SQL, one statement a paragraph, without the differences of white space."""
    with sqlite3.connect(database) as connection:
        made = connection.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    connection.close()
    words = [re.sub(r"\s+", " ", sql) for _, _, sql in sorted(made)]
    return "\n".join(re.sub(r", (?=[A-Za-z\"])", ",\n  ", one) + ";" for one in words) + "\n"


def scripts(tables: Tables) -> Config:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.set_main_option("path_separator", "os")
    config.set_main_option("version_locations", str(tables.versions))
    return config


def revisions() -> Iterator[tuple[Tables, str]]:
    for tables in SETS:
        if tables.versions is None:
            yield tables, tables.head
            continue
        for script in ScriptDirectory.from_config(scripts(tables)).walk_revisions():
            yield tables, script.revision


def made_by(tables: Tables, revision: str, database: Path) -> str:
    if tables.versions is None:  # these never changed: what is declared is what the first revision made
        store = open_store(f"sqlite:///{database}", tables=[tables])
        store.close()
        with sqlite3.connect(database) as connection:
            connection.executescript("".join(f"DROP TABLE {own};" for own in reversed(OWN.metadata.sorted_tables)))
            connection.execute(f"DROP TABLE {OWN.version_table}")
        connection.close()
        return schema(database)
    opened = Database(f"sqlite:///{database}")
    connection = opened.connect()
    config = scripts(tables)
    config.attributes.update(connection=connection, tables=tables)
    with connection.begin():
        command.upgrade(config, revision)
    connection.close()
    opened.close()
    return schema(database)


@pytest.mark.parametrize(
    ("tables", "revision"), [pytest.param(*one, id=f"{one[0].name or 'store'}-{one[1]}") for one in revisions()]
)
def test_a_released_revision_makes_what_it_made(tmp_path: Path, tables: Tables, revision: str) -> None:
    frozen = HERE / "schemas" / f"{tables.name or 'store'}-{revision}.sql"
    made = made_by(tables, revision, tmp_path / "shoal.db")
    if not frozen.exists() and "SHOAL_FREEZE" in os.environ:
        frozen.write_text(made)
    assert frozen.exists(), "a new revision: keep what it makes with SHOAL_FREEZE=1"
    assert made == frozen.read_text(), "a released revision is never changed: add one"


def test_the_tables_of_every_component_are_frozen() -> None:
    found = [kind.tables for kind in installed_extensions() if kind.tables is not None]
    assert {one.name for one in found} == {one.name for one in SETS if one is not OWN}


def test_no_released_revision_is_lost() -> None:
    names = {f"{tables.name or 'store'}-{revision}.sql" for tables, revision in revisions()}
    assert names == {path.name for path in (HERE / "schemas").glob("*.sql")}


@pytest.fixture(params=[pytest.param(path, id=path.stem) for path in HOMES])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder with the database of a release: of four jobs one ran, one waited for it, and two were over."""
    with sqlite3.connect(tmp_path / "shoal.db") as connection:
        connection.executescript(request.param.read_text())
    connection.close()
    return tmp_path


def test_a_home_of_each_release_is_migrated_and_read(home: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    store = open_store(f"sqlite:///{home / 'shoal.db'}", tables=SETS[1:])
    jobs = {job.name: job for job in store.jobs(JobFilter())}
    assert {name: job.state for name, job in jobs.items()} == {
        "steady": JobState.RUNNING, "later": JobState.QUEUED, "done": JobState.SUCCEEDED, "broken": JobState.FAILED,
    }  # fmt: skip
    for job in jobs.values():
        assert parse_manifest(job.manifest).name == job.name
    (running,) = store.attempts(jobs["steady"].id)
    assert [(rank.rank, rank.node) for rank in running.placement] == [(0, "vm")]
    assert jobs["broken"].error_code == "U101-exit-code"
    assert {one.name: one.weight for one in store.tenants()} == {"default": 1.0, "research": 2.0}
    assert [token.tenant for token in store.tokens()] == [None]
    assert store.last_seq() == len(store.events(after=0, limit=1000)) == 23
    store.close()
    fresh = tmp_path_factory.mktemp("fresh") / "shoal.db"
    open_store(f"sqlite:///{fresh}", tables=SETS[1:]).close()
    assert schema(home / "shoal.db") == schema(fresh)


@pytest.mark.virtual_time
async def test_a_home_of_each_release_goes_on_with_its_jobs(home: Path) -> None:
    """The cluster has lost what ran: it is tried again, and what waited for it comes after."""
    world = World.make(home, (Node("vm", (), 4000, 8 << 30),), lambda _: Script(run_s=5.0))
    plane = await world.start()
    assert world.store is not None
    ids = {job.name: job.id for job in world.store.jobs(JobFilter())}
    await world.until(lambda: plane.job(ids["later"]).state is JobState.SUCCEEDED)
    again = plane.job(ids["steady"])
    assert (again.state, again.attempt) == (JobState.SUCCEEDED, 2)
    await world.kill()
