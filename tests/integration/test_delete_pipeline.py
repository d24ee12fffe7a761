"""``tideline delete-pipeline`` on real servers: nothing is left, whenever it was killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg2
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from psycopg2.extras import LogicalReplicationConnection
from pydantic import SecretStr

from devtools.services.postgres import PostgresServer
from tests.fixtures.capture import Pipeline, PipelineFactory, poll
from tests.fixtures.mysql_servers import WATERMARK_DATABASE, MysqlDatabase
from tests.fixtures.services import Database
from tests.support.unity_server import UnityServer
from tideline.catalog.base import CatalogTable
from tideline.catalog.names import CatalogName
from tideline.catalog.registry import open_catalog
from tideline.contract.errors import Misconfigured
from tideline.control.merger import MergerQueue, MergerStatus
from tideline.redis_client import connect
from tideline.settings.catalog import CatalogSettings
from tideline.settings.sources.mysql import MysqlSection
from tideline_capture.sources.registry import administration_of
from tideline_console.delete_pipeline import EXIT_LEFT, run

PASSWORD = "canary-d3f7"
ROOT = Path(__file__).resolve().parents[2]
STEPS = ("slot", "publication", "queue", "target", "target", "chain")


@pytest.fixture
def shop(database: Database, pipeline_of: PipelineFactory) -> Pipeline[Database]:
    """A pipeline that has run: slot, publication, queue, chain; and two tables of a warehouse."""
    database.run("CREATE TABLE orders (id int PRIMARY KEY)", "INSERT INTO orders VALUES (1)")
    shop = pipeline_of(database)
    shop.drain()
    warehouse = warehouse_of(shop)
    name, incarnation = shop.settings.pipeline, shop.manifest().incarnation
    a_target(warehouse / "public" / "orders", name, incarnation)
    a_target(warehouse / "~rebuild" / "000001" / "public" / "orders", name, incarnation)
    a_target(warehouse / "public" / "others", "another", incarnation)
    a_target(warehouse / "others" / "orders", name, "another life of the chain")
    return shop


def a_target(folder: Path, pipeline: str, incarnation: str) -> None:
    """A table of a warehouse that says whose it is."""
    folder.mkdir(parents=True)
    found = pa.table({"id": pa.array([1], pa.int64())})
    owner = {"tideline.pipeline": pipeline, "tideline.incarnation": incarnation}
    DeltaTable.create(folder, found.schema, configuration=owner, raise_if_key_not_exists=False)
    write_deltalake(folder, found, mode="append")


def warehouse_of(pipeline: Pipeline[Any]) -> Path:
    return Path(pipeline.settings.warehouse.url.removeprefix("file://"))


def queue_keys(pipeline: Pipeline[Any]) -> list[bytes]:
    client = connect(pipeline.settings.control, timeout_s=5)
    with closing(client):
        return list(client.scan_iter(f"tideline:{pipeline.settings.pipeline}:*"))


def left(pipeline: Pipeline[Any]) -> list[str]:
    """What is there, asked of the servers themselves."""
    found = [f"key {key.decode()}" for key in queue_keys(pipeline)]
    store = Path(pipeline.settings.store.url.removeprefix("file://"))
    found += [str(path) for path in (store / pipeline.settings.pipeline).rglob("*")]
    warehouse = warehouse_of(pipeline)
    found += [str(p) for p in warehouse.rglob("*") if p.is_file() and "others" not in p.parts]
    if isinstance(pipeline.database, Database):
        rows = pipeline.database.rows
        slots = rows(
            "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
        )
        found += [f"slot {name}" for (name,) in slots]
        found += [f"publication {name}" for (name,) in rows("SELECT pubname FROM pg_publication")]
    return found


KILLED = """
import os, signal, sys
from tideline_console.delete_pipeline import run
from tideline.settings import load_settings

taken = []

def on_step(name):
    taken.append(name)
    if len(taken) == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)

run(load_settings(sys.argv[1]), chain=True, targets=True, yes=True, on_step=on_step)
"""


def killed_after(pipeline: Pipeline[Any], steps: int) -> int:
    """Run all of it in a process that kills itself after so many steps: how that ended."""
    command = [sys.executable, "-c", KILLED, str(pipeline.config), str(steps)]
    return subprocess.run(command, check=False, timeout=120, cwd=ROOT).returncode


def delete(pipeline: Pipeline[Any], *, chain: bool = True, targets: bool = True) -> int:
    return run(pipeline.settings, chain=chain, targets=targets, yes=True)


@pytest.mark.parametrize("steps", range(1, len(STEPS)))
def test_killed_between_any_two_steps(
    shop: Pipeline[Database], steps: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert killed_after(shop, steps) == -signal.SIGKILL
    assert left(shop) != []
    capsys.readouterr()
    assert delete(shop) == 0
    assert left(shop) == []
    for stays in ("public/others", "others/orders"):
        assert (warehouse_of(shop) / stays / "_delta_log").is_dir()
    printed = capsys.readouterr().out
    again = [line.split()[1].rstrip(":") for line in printed.splitlines() if line[:4] == "  1."]
    assert again == [STEPS[steps]], printed
    assert delete(shop, targets=False) == 0
    assert "nothing is left" in capsys.readouterr().out


def test_it_shows_first_and_removes_nothing(
    shop: Pipeline[Database], capsys: pytest.CaptureFixture[str]
) -> None:
    before = left(shop)
    assert run(shop.settings, chain=True, targets=True, yes=False) == 0
    printed = capsys.readouterr().out
    assert left(shop) == before
    numbered = [line.split()[1].rstrip(":") for line in printed.splitlines() if line[:2] == "  "]
    assert tuple(numbered) == STEPS
    assert f"the replication slot tideline_{shop.settings.pipeline}" in printed
    assert "--yes does it" in printed
    assert "public/others" not in printed


def test_entries_of_a_catalog_go_before_their_tables(
    shop: Pipeline[Database], unity_server: UnityServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server, token = unity_server, unity_server.token
    catalog = CatalogSettings(
        kind="unity", url=server.url, name=server.name, token=SecretStr(token)
    )
    place = shop.settings.warehouse.model_copy(update={"catalog": catalog})
    settings = shop.settings.model_copy(update={"warehouse": place})
    target = warehouse_of(shop) / "public" / "orders"
    owner = (settings.pipeline, shop.manifest().incarnation, "public.orders")
    with open_catalog(settings) as client:
        for name, pipeline in (("orders", owner[0]), ("items", "another")):
            entry = CatalogTable(target.as_uri(), "delta", (pipeline, *owner[1:]), ())
            assert client.create(CatalogName("public", name), entry)
    server.token = "changed"
    with pytest.raises(Misconfigured, match="refuses the token"):
        run(settings, chain=True, targets=True, yes=True)
    assert target.is_dir(), "nothing is removed while its name cannot be"
    server.token = token
    assert run(settings, chain=True, targets=True, yes=True) == 0
    printed = capsys.readouterr().out
    assert printed.index("removed entry: the entry public.orders") < printed.index("removed target")
    assert list(server.tables) == [f"{server.name}.public.items"]
    assert left(shop) == []


def test_chain_and_targets_stay_unless_asked_for(
    shop: Pipeline[Database], capsys: pytest.CaptureFixture[str]
) -> None:
    assert delete(shop, chain=False, targets=False) == 0
    assert "no worker can go on with it" in capsys.readouterr().out
    found = left(shop)
    assert not [one for one in found if one.startswith(("slot", "publication", "key"))]
    assert [one for one in found if "/log/" in one] and [
        one for one in found if "_delta_log" in one
    ]


def test_a_chain_that_was_half_removed(shop: Pipeline[Database]) -> None:
    """Killed within the last step: its first manifest is gone, and the others are not."""
    delete(shop, chain=False)
    store = Path(shop.settings.store.url.removeprefix("file://"))
    (store / shop.settings.pipeline / "log" / f"{1:020d}.json").unlink()
    assert delete(shop) == 0
    assert left(shop) == []


def test_a_running_worker_is_refused_by_name(shop: Pipeline[Database]) -> None:
    worker = shop.start()
    worker.wait_point("reading")
    shop.catch_up(worker)
    with pytest.raises(Misconfigured, match=r"a worker of pipeline \w+ runs") as caught:
        delete(shop)
    assert shop.manifest().writer in caught.value.message
    assert f"process {worker.pid}" in caught.value.message
    with closing(connect(shop.settings.control, timeout_s=5)) as client:
        client.flushdb()
        with pytest.raises(Misconfigured, match="a worker of pipeline"):
            delete(shop)
    worker.terminate()
    assert {"slot", "publication"} <= {one.split()[0] for one in left(shop)}
    assert delete(shop) == 0
    assert left(shop) == []


def test_a_running_merger_is_refused_by_name(shop: Pipeline[Database]) -> None:
    """It would make the tables again that are removed."""
    name = shop.settings.pipeline
    status = MergerStatus("m", name, "merging", "host-1", 17, 0, 0)
    with closing(MergerQueue(shop.settings.control, name, "m")) as merger:
        merger.renew()
        merger.publish(status)
        before = left(shop)
        with pytest.raises(Misconfigured, match=rf"merger of pipeline {name} runs: process 17 on"):
            delete(shop)
        assert left(shop) == before
        merger.release()
    assert delete(shop) == 0
    assert left(shop) == []


def test_a_worker_that_only_the_server_sees(shop: Pipeline[Database]) -> None:
    """Neither the queue nor the chain knows of it; the slot is being read."""
    reader = psycopg2.connect(shop.database.dsn, connection_factory=LogicalReplicationConnection)
    slot = f"tideline_{shop.settings.pipeline}"
    options = {"proto_version": "1", "publication_names": slot}
    reader.cursor().start_replication(slot_name=slot, decode=False, options=options)
    with pytest.raises(Misconfigured, match="is being read by the process"):
        delete(shop)
    reader.close()
    active = "SELECT 1 FROM pg_replication_slots WHERE active AND database = current_database()"
    poll("the server lets go of the slot", lambda: not shop.database.rows(active))
    assert delete(shop) == 0


@pytest.fixture
def stranger(postgres: PostgresServer, shop: Pipeline[Database]) -> Iterator[str]:
    """The dsn of a role that may replicate, and owns nothing."""
    name = f"stranger_{uuid.uuid4().hex[:6]}"
    shop.database.run(f"CREATE ROLE {name} LOGIN REPLICATION PASSWORD '{PASSWORD}'")
    yield postgres.dsn(shop.database.name, user=name, password=PASSWORD)
    shop.database.run(f"DROP ROLE {name}")


def test_what_the_role_may_not_remove(
    shop: Pipeline[Database], stranger: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rest goes but for the chain; once the owner ran the statement, so does that."""
    source = shop.settings.source.model_copy(update={"url": SecretStr(stranger)})
    settings = shop.settings.model_copy(update={"source": source})
    assert run(settings, chain=True, targets=True, yes=True) == EXIT_LEFT
    printed = capsys.readouterr()
    assert PASSWORD not in printed.out + printed.err
    assert "the chain stays" in printed.out
    name = f"tideline_{shop.settings.pipeline}"
    assert f"the role may not remove the publication {name}" in printed.err
    statement = f'DROP PUBLICATION IF EXISTS "{name}";'
    assert statement in printed.err
    assert {one.split()[0] for one in left(shop)} & {"slot", "key"} == set()
    shop.database.run(statement)
    assert run(settings, chain=True, targets=True, yes=True) == 0
    assert left(shop) == []


def test_files_that_may_not_be_removed(
    shop: Pipeline[Database], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder of someone else's: root may remove any, so the system's refusal is played."""

    def refuse(self: Path, target: Path) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", refuse)
        assert delete(shop) == EXIT_LEFT
    printed = capsys.readouterr()
    assert "may not remove the table at" in printed.err and "the chain stays" in printed.out
    assert delete(shop) == 0
    assert left(shop) == []


@pytest.fixture
def sea(mysql_database: MysqlDatabase, pipeline_of: PipelineFactory) -> Pipeline[MysqlDatabase]:
    """As an administrator, in a database of watermarks of its own."""
    mysql_database.run("CREATE TABLE orders (id INT PRIMARY KEY)")
    marks = f"marks_{uuid.uuid4().hex[:6]}"
    sea = pipeline_of(
        mysql_database, source={"url": mysql_database.url, "watermark_database": marks}
    )
    sea.drain()
    return sea


def marks_of(sea: Pipeline[MysqlDatabase]) -> list[tuple[Any, ...]]:
    name = sea.settings.source.section(MysqlSection).watermark_database
    return sea.database.rows(
        f"SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = '{name}'"  # noqa: S608
    )


@pytest.mark.parametrize("flavour", ["mariadb", "mysql8"])
@pytest.mark.parametrize("steps", [1, 2])
def test_mysql_killed_between_any_two_steps(
    sea: Pipeline[MysqlDatabase], steps: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert killed_after(sea, steps) == -signal.SIGKILL
    assert marks_of(sea) == []
    assert delete(sea) == 0
    assert left(sea) == []
    delete(sea)
    assert "nothing is left" in capsys.readouterr().out


@pytest.mark.parametrize("flavour", ["mariadb"])
def test_rows_of_other_pipelines_stay(sea: Pipeline[MysqlDatabase]) -> None:
    name = f"{sea.settings.source.section(MysqlSection).watermark_database}.watermark"
    sea.database.run(f"INSERT INTO {name} VALUES ('{'f' * 32}', 'h', 't', 1)")  # noqa: S608
    (step,) = administration_of(sea.settings).removals(sea.manifest().incarnation)
    assert "which others use too" in step.what
    assert delete(sea) == 0
    assert sea.database.rows(f"SELECT incarnation FROM {name}") == [("f" * 32,)]  # noqa: S608
    assert left(sea) == []


@pytest.mark.parametrize("flavour", ["mariadb", "mysql9"])
def test_a_user_with_the_documented_grants_is_told_what_to_run(
    mysql_database: MysqlDatabase,
    pipeline_of: PipelineFactory,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It may write watermarks, and remove none."""
    mysql_database.run("CREATE TABLE orders (id INT PRIMARY KEY)")
    sea = pipeline_of(mysql_database)
    sea.drain()
    others = sea.database.rows(f"SELECT * FROM {WATERMARK_DATABASE}.watermark")  # noqa: S608
    assert delete(sea) == EXIT_LEFT
    err = capsys.readouterr().err
    assert "the user may not remove" in err
    (statement,) = [line.partition("run: ")[2] for line in err.splitlines() if "run: " in line]
    assert statement.startswith("DROP TABLE" if len(others) == 1 else "DELETE FROM")
    sea.database.run(statement.removesuffix(";"))
    assert delete(sea) == 0
    assert left(sea) == []
