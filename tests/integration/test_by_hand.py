"""The parts run by hand, as a user would: doctor, capture, merge, status, dump, each a process.

The role has what doctor asks for and no more, and its password is in no output and no object.
"""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import jsonschema
import pytest
from deltalake import DeltaTable, QueryBuilder

from devtools.services.postgres import PostgresServer
from devtools.services.valkey import ValkeyServer
from tests.fixtures.services import Database
from tests.fixtures.settings import ConfigFactory

TIDELINE = Path(sys.executable).parent / "tideline"
SCHEMA = Path(__file__).parents[2] / "docs" / "schemas" / "status.v2.json"
CANARY = "canary-c0ffee"

Run = Callable[..., str]


@pytest.fixture
def config(
    database: Database, postgres: PostgresServer, config_for: ConfigFactory
) -> Iterator[Path]:
    """Settings with a capture role that may replicate, read, and nothing else."""
    role = f"capture_{uuid.uuid4().hex[:6]}"
    database.run(
        "CREATE TABLE orders (id int PRIMARY KEY, note text)",
        "INSERT INTO orders SELECT g, 'note ' || g FROM generate_series(1, 500) g",
        "CREATE TABLE loose (id int)",
        f"CREATE ROLE {role} LOGIN REPLICATION PASSWORD '{CANARY}'",
        f"GRANT SELECT ON orders TO {role}",
        "CREATE PUBLICATION mine FOR TABLE orders WITH (publish_via_partition_root = true)",
    )
    dsn = postgres.dsn(database.name, user=role, password=CANARY)
    yield config_for(database, source={"url": dsn, "publication": "mine"})
    database.run(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
        " WHERE database = current_database()",
        f"DROP OWNED BY {role}",
        f"DROP ROLE {role}",
    )


@pytest.fixture
def run(config: Path) -> Run:
    def run(*words: str, code: int = 0) -> str:
        done = subprocess.run(
            [str(TIDELINE), *words, "--config", str(config)],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert CANARY not in done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        for stranger in ("log4j", "WARN ", "WARNING:", "incubator", "Setting Spark", "Deleted "):
            assert stranger not in done.stdout + done.stderr, "Spark's words are nobody's concern"
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + (done.stderr if code else "")

    return run


def warehouse(tmp_path: Path) -> list[dict[str, object]]:
    table = DeltaTable(str(tmp_path / "warehouse" / "public" / "orders"))
    query = "SELECT id, note FROM orders ORDER BY id"
    batches = QueryBuilder().register("orders", table).execute(query).read_all()
    return list(batches.to_struct_array().to_pylist())


def tables(run: Run) -> dict[str, dict[str, object]]:
    document = json.loads(run("status", "--json"))
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    return {table["table"]: table for table in document["tables"]}


@contextmanager
def capturing(config: Path) -> Iterator[None]:
    """A worker that runs meanwhile, and then stops of its own accord."""
    worker = subprocess.Popen(
        [str(TIDELINE), "capture", "--config", str(config)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
        worker.terminate()
        assert worker.wait(60) == 0
    finally:
        worker.kill()
        worker.wait(60)


@pytest.mark.timeout(600)
@pytest.mark.long
def test_the_parts_by_hand(
    run: Run, config: Path, database: Database, tmp_path: Path, valkey: ValkeyServer
) -> None:
    assert "capture may start" in run("doctor")
    assert "nothing is captured yet" in run("status")
    assert "hint: " in run("merge", code=2)
    run("capture", "--until-idle", "1")
    found = tables(run)
    assert found["public.orders"]["merged"] is None
    assert not found["public.orders"]["up_to_date"]
    assert (found["public.loose"]["state"], "no key" in str(found["public.loose"]["reason"])) == (
        "quarantined",
        True,
    )
    assert "applied" in run("merge")
    assert "nothing to merge" in run("merge")
    assert len(warehouse(tmp_path)) == 500
    assert tables(run)["public.orders"]["up_to_date"]
    assert "public.orders" in run("maintain")
    assert "r:500" in run("inspect", "parts")

    database.run(
        "UPDATE orders SET note = 'changed' WHERE id <= 10", "DELETE FROM orders WHERE id = 500"
    )
    keys = tmp_path / "keys.csv"
    keys.write_text("7\n500\n")
    run("dump", "public.orders", "--keys", str(keys))
    run("capture", "--until-idle", "1")
    assert "applied" in run("merge", "public.orders")
    expected = [
        {"id": number, "note": note}
        for number, note in database.rows("SELECT id, note FROM orders ORDER BY id")
    ]
    assert warehouse(tmp_path) == expected
    with capturing(config):
        assert "equal at seq" in run("verify", "public.orders")
    verified = tables(run)["public.orders"]["verified"]
    assert isinstance(verified, dict)
    assert verified["invalid"] is None
    assert "verified through seq" in run("status")
    assert "empty" in run("verify", "public.orders", "--keys-from", "5", "--to", "5", code=2)
    assert "no table public.nope" in run("merge", "public.nope", code=2)
    valkey.stop()
    assert "redis cannot be reached" in run("status")
    assert "redis cannot be reached" in run("dump", "--all", code=3)

    own = {tmp_path / "tideline.toml"}
    for path in tmp_path.rglob("*"):
        if path.is_file() and path not in own:
            assert CANARY.encode() not in path.read_bytes(), path
