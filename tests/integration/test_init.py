"""``tideline init``: once an administrator ran its SQL, `doctor` passes as the role in it."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg2
import pytest
from typer.testing import CliRunner

from devtools.services.postgres import PostgresServer
from devtools.services.valkey import ValkeyServer
from tests.fixtures.mysql_servers import MysqlDatabase
from tests.fixtures.services import Database
from tideline.settings import load_settings
from tideline.settings.sources.mysql import MysqlSection
from tideline_console.app import app

PASSWORD = "canary'-83ab"


def command(*words: str, password: str | None = None) -> tuple[int, str]:
    """Exit code and standard output."""
    environment = {"TIDELINE_SOURCE__PASSWORD": password}
    done = CliRunner().invoke(app, list(words), env=environment, catch_exceptions=False)
    assert PASSWORD not in done.output
    return done.exit_code, done.stdout


@pytest.fixture(autouse=True)
def queue(valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its url holds a password, and no such url comes into the file."""
    monkeypatch.setenv("TIDELINE_CONTROL__URL", valkey.url())


def init(folder: Path, url: str, *words: str) -> tuple[Path, str]:
    """The file that it writes, and the SQL that it prints."""
    path = folder / "tideline.toml"
    code, sql = command(
        *("init", "--config", str(path), "--url", url),
        *("--pipeline", f"p{uuid.uuid4().hex[:8]}", "--store", (folder / "store").as_uri()),
        *("--warehouse", (folder / "warehouse").as_uri(), *words),
    )
    assert code == 0, sql
    return path, sql


def with_password(sql: str, word: str) -> str:
    """The statement in the comments that gives the role its password."""
    (line,) = re.findall(rf"^-- (ALTER {word} .*'…'.*;)$", sql, re.M)
    return str(line).replace("…", PASSWORD.replace("'", "''"))


@pytest.fixture
def role(postgres: PostgresServer, database: Database) -> Iterator[str]:
    name = f'Tide "{uuid.uuid4().hex[:6]}"'
    yield name
    sql = name.replace('"', '""')
    database.run(f'DROP OWNED BY "{sql}"', f'DROP ROLE "{sql}"')


def test_postgres(database: Database, postgres: PostgresServer, role: str, tmp_path: Path) -> None:
    """Tables with a key, without one, of other schemas, partitioned, and left out."""
    database.run(
        "CREATE TABLE orders (id int PRIMARY KEY)",
        'CREATE TABLE "It\'s a %" (id int PRIMARY KEY)',
        "CREATE TABLE keyless (id int)",
        "CREATE TABLE audit_x (id int PRIMARY KEY)",
        "CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (9)",
        "CREATE SCHEMA sales_eu CREATE TABLE invoices (id int PRIMARY KEY)",
        "CREATE SCHEMA other CREATE TABLE secrets (id int PRIMARY KEY)",
    )
    url = postgres.dsn(database.name, user=role, password="").replace(":@", "@")
    words = ("--tables", "public.*", "--tables", "sales_[a-f]?.*", "--exclude", "public.audit_*")
    path, sql = init(tmp_path, url, *words)
    code, text = command("doctor", "--config", str(path), password=PASSWORD)
    assert code == 2, "nobody has run it yet"
    database.run(sql)
    with pytest.raises(psycopg2.OperationalError, match="password authentication failed"):
        psycopg2.connect(postgres.dsn(database.name, user=role, password="…"))
    database.run(with_password(sql, "ROLE"))
    code, text = command("doctor", "--config", str(path), password=PASSWORD)
    assert code == 0, text
    assert '"public"."keyless" is left out: it has no primary key' in text
    published = database.rows("SELECT schemaname, tablename FROM pg_publication_tables")
    assert sorted(published) == [
        ("public", "It's a %"),
        ("public", "orders"),
        ("public", "parts"),
        ("sales_eu", "invoices"),
    ]
    reader = psycopg2.connect(postgres.dsn(database.name, user=role, password=PASSWORD))
    with reader, reader.cursor() as cursor:
        cursor.execute("SELECT FROM keyless, parts, sales_eu.invoices")
        query = "SELECT has_table_privilege(oid, 'SELECT') FROM pg_class WHERE relname = ANY (%s)"
        cursor.execute(query, (["secrets", "audit_x"],))
        assert cursor.fetchall() == [(False,), (False,)]
    reader.close()


def test_tables_that_come_later(
    database: Database, postgres: PostgresServer, role: str, tmp_path: Path
) -> None:
    """The role may read them at once; the block, run again, publishes them."""
    database.run("CREATE TABLE orders (id int PRIMARY KEY)")
    url = postgres.dsn(database.name, user=role, password="").replace(":@", "@")
    path, sql = init(tmp_path, url, "--tables", "public.*")
    database.run(sql, with_password(sql, "ROLE"), "CREATE TABLE late (id int PRIMARY KEY)")
    code, text = command("doctor", "--config", str(path), password=PASSWORD)
    assert code == 0, text
    assert 'lacks "public"."late"' in text
    database.run(sql[sql.index("DO $tideline$") :])
    code, text = command("doctor", "--config", str(path), password=PASSWORD)
    assert code == 0, text
    assert "publication_tables" not in text


def test_mysql_and_mariadb(mysql_database: MysqlDatabase, tmp_path: Path) -> None:
    database, tag = mysql_database, uuid.uuid4().hex[:6]
    user, marks = f"it's {tag}", f"marks_{tag}"
    other = database.name.replace("_", "x")
    database.run(
        "CREATE TABLE orders (id INT PRIMARY KEY)",
        f"CREATE DATABASE {other}",
        f"CREATE TABLE {other}.secrets (id INT PRIMARY KEY)",
    )
    url = database.server.url(user, "", database="").replace(":@", "@")
    try:
        path, sql = init(tmp_path, url, "--tables", f"{database.name}.*")
        path.write_text(path.read_text().replace(
            '# watermark_database = "tideline"', f'watermark_database = "{marks}"'
        ))  # fmt: skip
        code, sql = command("init", "--sql", "--config", str(path))
        statements = [line for line in sql.splitlines() if not line.startswith("--")]
        database.run(*(line.removesuffix(";") for line in statements))
        code, text = command("doctor", "--config", str(path), password="")
        assert code == 2, "it cannot log in without a password"
        database.run(with_password(sql, "USER").removesuffix(";"))
        code, text = command("doctor", "--config", str(path), password=PASSWORD)
        assert code == 0, text
        assert "WARNING xa_recover" not in text
        login = {"user": user, "password": PASSWORD, "database": None}
        with database.connect(**login) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT TABLE_SCHEMA FROM information_schema.TABLES"
                           " WHERE TABLE_NAME IN ('orders', 'secrets')")  # fmt: skip
            assert list(cursor.fetchall()) == [(database.name,)]
        settings = load_settings(path)
        assert settings.source.section(MysqlSection).watermark_database == marks
    finally:
        quoted = user.replace("'", "''")
        database.run(f"DROP DATABASE {other}", f"DROP USER IF EXISTS '{quoted}'@'%'")
