"""``tideline doctor`` on MySQL and MariaDB: as the user with exactly the documented grants."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.fixtures.capture import PipelineFactory
from tests.fixtures.core import first_manifest
from tests.fixtures.mysql_servers import MysqlDatabase
from tests.fixtures.settings import ConfigFactory, SettingsFactory
from tideline.contract.open_state import TableCondition
from tideline.contract.position import MysqlPosition, PostgresPosition, SourceIdentity
from tideline.settings import Settings
from tideline_capture.sources.base import ChainTail
from tideline_capture.sources.finding import nothing_chosen
from tideline_capture.sources.mysql.source import MysqlSource
from tideline_console import doctor as module
from tideline_console.app import app

CANARY = "canary-3b7e"
BEGINNING = MysqlPosition("", 0)


def doctor(config: Path) -> tuple[int, str]:
    words = ["doctor", "--config", str(config)]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert CANARY not in done.output
    return done.exit_code, done.stdout


@pytest.fixture
def shop(mysql_database: MysqlDatabase) -> MysqlDatabase:
    mysql_database.run("CREATE TABLE orders (id INT PRIMARY KEY)")
    return mysql_database


def test_capture_may_start(shop: MysqlDatabase, config_for: ConfigFactory) -> None:
    code, text = doctor(config_for(shop))
    assert code == 0, text
    assert text.endswith("capture may start\n")
    for name in ("version", "binlog_row_image", "tables", "watermarks", "identity", "store"):
        assert f"ok      {name}: " in text


def test_a_finding_and_its_fix(shop: MysqlDatabase, config_for: ConfigFactory) -> None:
    shop.run("RENAME TABLE orders TO other", "ALTER TABLE other DROP PRIMARY KEY")
    code, text = doctor(config_for(shop))
    assert code == 0, text
    assert "WARNING tables: none of the 1 matching tables can be captured" in text
    (fix,) = [line for line in text.splitlines() if "ADD PRIMARY KEY" in line]
    shop.run(fix.partition("fix: ")[2].replace("…", "id"))
    code, text = doctor(config_for(shop))
    assert code == 0 and "ok      tables: 1 tables can be captured" in text, text


def test_a_wrong_password(shop: MysqlDatabase, config_for: ConfigFactory) -> None:
    url = shop.server.url(shop.cdc_user, CANARY)
    code, text = doctor(config_for(shop, source={"url": url}))
    assert code == 2
    assert "ERROR   source: the source refuses us" in text
    assert "ok      store" in text


def identity(settings: Settings, system_id: str, gtids: str) -> tuple[str, str]:
    """The finding about a chain that ends at these GTIDs on that server."""
    found = MysqlSource(settings).identity()
    ours = SourceIdentity(found.kind, system_id or found.system_id, 0, "")
    tail = first_manifest(identity=ours, position=MysqlPosition("binlog.000001", 4, gtids))
    finding = module.check_identity(MysqlSource(settings), ChainTail(True, tail))
    return finding.name, finding.level


def test_the_chain_is_of_another_server(shop: MysqlDatabase, settings_for: SettingsFactory) -> None:
    """By GTID another server may stand in, by file it may not."""
    settings = settings_for(shop)
    assert identity(settings, "", "") == ("identity", "ok")
    assert identity(settings, "another", "") == ("identity", "error")
    gtids = "0-1-1" if shop.flavour == "mariadb" else f"{uuid.uuid4()}:1-5"
    assert identity(settings, "another", gtids) == ("identity", "warning")


@pytest.mark.parametrize("position", [BEGINNING, PostgresPosition(16)])
def test_a_chain_that_holds_nothing_of_a_log(
    position: MysqlPosition | PostgresPosition,
    shop: MysqlDatabase,
    settings_for: SettingsFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = settings_for(shop)
    tail = first_manifest(position=position)
    monkeypatch.setattr(module, "_tail", lambda _: ChainTail(True, tail))
    assert "position" not in {finding.name for finding in module.check_source(settings)}


def test_an_empty_database_may_be_captured(
    mysql_database: MysqlDatabase, pipeline_of: PipelineFactory
) -> None:
    """Doctor says so, the worker does it, in the same words; what comes later is captured."""
    pipeline = pipeline_of(mysql_database)
    code, text = doctor(pipeline.config)
    assert code == 0, text
    assert f"WARNING tables: {nothing_chosen().message}" in text
    worker = pipeline.start()
    worker.wait_output(nothing_chosen().message)
    mysql_database.run("CREATE TABLE orders (id INT PRIMARY KEY)", "INSERT INTO orders VALUES (1)")
    pipeline.finish(worker)
    assert pipeline.table(f"{mysql_database.name}.orders").condition is TableCondition.ACTIVE


def test_without_watermarks(shop: MysqlDatabase, config_for: ConfigFactory) -> None:
    code, text = doctor(config_for(shop, source={"read_only": True, "watermark_database": "none"}))
    assert code == 0, text
    assert "watermarks: " not in text
    code, text = doctor(config_for(shop, source={"watermark_database": "none"}))
    assert code == 2
    assert f"GRANT SELECT, INSERT, UPDATE ON `none`.* TO '{shop.cdc_user}'@'127.0.0.1';" in text
