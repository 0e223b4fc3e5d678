"""A database is brought to the newest revision; one from the future is left alone."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text

from shoal.core import Conflict, Invalid, Unavailable
from shoal.store import open_store
from shoal.store.database import Database
from shoal.store.migrate import MIGRATIONS, OWN
from shoal.store.schema import HEAD
from shoal.store.tables import Tables


def execute(url: str, *statements: str) -> None:
    database = Database(url)
    connection = database.connect()
    with connection.begin():
        for statement in statements:
            connection.execute(text(statement))
    connection.close()
    database.close()


def plain(row: object) -> str:
    """With the texts of SQL conditions in place of their objects."""
    return json.dumps(row, default=str, sort_keys=True)


def described(url: str, of: Tables = OWN) -> dict[str, object]:
    """All that the database says of its tables, in an order of its own; those of `of` are as they are declared."""
    database = Database(url)
    connection = database.connect()
    looked = inspect(connection)
    tables = {
        name: [
            sorted((column["name"], str(column["type"]), column["nullable"]) for column in looked.get_columns(name)),
            looked.get_pk_constraint(name),
            *(
                sorted(plain(row) for row in found(name))
                for found in (
                    looked.get_foreign_keys,
                    looked.get_unique_constraints,
                    looked.get_check_constraints,
                    looked.get_indexes,
                )
            ),
        ]
        for name in sorted(looked.get_table_names())
    }
    tables["lease"] = [tuple(row) for row in connection.execute(text("SELECT * FROM control_lease"))]
    tables["revision"] = connection.execute(text("SELECT version_num FROM alembic_version")).scalars().all()
    tables_alone = {"include_name": lambda name, kind, _: kind != "table" or not name.startswith("alembic_version")}
    drift = compare_metadata(
        MigrationContext.configure(connection, opts=tables_alone), list({of.metadata, OWN.metadata})
    )
    connection.close()
    database.close()
    assert drift == []
    return tables


VERSION_TABLE = (
    "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY "
    "(version_num))"
)


def empty(url: str, of: Tables = OWN) -> None:
    """Without these tables, and no word of them."""
    for table in reversed(of.metadata.sorted_tables):
        execute(url, f"DROP TABLE {table.name}")
    execute(url, f"DROP TABLE {of.version_table}")


def test_a_new_database_is_what_the_migrations_make(url):
    open_store(url).close()
    created = described(url)
    empty(url)
    execute(url, VERSION_TABLE)  # and no revision in it: a database before the first one
    open_store(url).close()
    assert described(url) == created


def test_the_newest_revision_is_named_in_the_schema():
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    assert ScriptDirectory.from_config(config).get_current_head() == HEAD


def test_a_database_of_an_unknown_revision_is_refused_and_left_alone(url):
    """It may be of a newer Shoal or of an older one: numbers do not say."""
    open_store(url).close()
    execute(url, "UPDATE alembic_version SET version_num = '9999'")
    before = described(url)
    with pytest.raises(Conflict, match=r"revision '9999', which this Shoal does not know \(it knows 0001\)") as caught:
        open_store(url)
    assert "a newer Shoal made it, or an older one that was not released" in caught.value.hint
    assert "`shoal backup FILE`" in caught.value.hint
    assert described(url) == before


@pytest.mark.parametrize(
    "change", ["ALTER TABLE token DROP COLUMN read_only", "DROP TABLE token", "ALTER TABLE token RENAME label TO note"]
)
def test_tables_of_another_shoal_are_not_taken_for_a_file_that_cannot_be_written(url, change):
    open_store(url).close()
    execute(url, change)
    store = open_store(url)
    with pytest.raises(Unavailable, match="the tables of the database are not those of this Shoal") as caught:
        store.tokens()
    assert "another version of Shoal made it" in caught.value.hint
    store.close()


async def test_a_write_to_tables_of_another_shoal_says_so_too(url, make):
    store = open_store(url)
    store.acquire("one")
    execute(url, "ALTER TABLE tenant DROP COLUMN sandbox")
    with pytest.raises(Unavailable, match="the tables of the database are not those of this Shoal"):
        await store.put_tenant(make.tenant("red"), make.event())
    store.close()


def test_many_openers_of_a_new_database_make_it_once(url):
    with ThreadPoolExecutor(8) as threads:
        stores = list(threads.map(lambda _: open_store(url), range(8)))
    assert [store.last_seq() for store in stores] == [0] * 8
    for store in stores:
        store.close()
    assert described(url)["lease"] == [(1, 0, "", "", 0, 0.0)]


def test_opening_a_current_database_needs_no_alembic(url):
    open_store(url).close()
    script = (
        "import sys; from shoal.store import open_store; "
        "open_store(sys.argv[1]).close(); print('alembic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script, url], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_the_file_is_private(tmp_path):
    store = open_store(f"sqlite:///{tmp_path / 'new' / 'shoal.db'}")
    store.acquire("one")
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "new").iterdir()}
    assert modes == dict.fromkeys(
        ["shoal.db", "shoal.db-wal", "shoal.db-shm", "shoal.db.lock", "shoal.db.position"], 0o600
    )
    store.close()


@pytest.mark.parametrize(
    ("url", "error", "message"),
    [
        ("mysql://localhost/shoal", Invalid, "keeps no data in 'mysql'"),
        ("shoal.db", Invalid, "the database URL cannot be read"),
        ("postgresql://postgres@127.0.0.1:1/shoal", Unavailable, "the database is not available"),
        ("sqlite:////proc/shoal.db", Unavailable, "the database is not available"),
        ("sqlite:////dev/null/shoal.db", Unavailable, "the database is not available"),
    ],
)
def test_a_url_that_leads_nowhere(url, error, message):
    with pytest.raises(error, match=message) as caught:
        open_store(url)
    assert caught.value.hint


def test_a_file_that_is_no_database(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("remember the milk\n" * 100)
    with pytest.raises(Unavailable, match="file is not a database"):
        open_store(f"sqlite:///{path}")
    assert path.read_text() == "remember the milk\n" * 100


def test_a_password_is_never_shown():
    with pytest.raises(Unavailable) as caught:
        open_store("postgresql://me:hunter2@127.0.0.1:1/shoal")
    assert "hunter2" not in str(caught.value)
