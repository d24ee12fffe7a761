"""Preflight's judgments where no test server can be brought into the state."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

import pytest

from tideline.contract.position import MysqlPosition
from tideline.contract.schema import TableId
from tideline_capture.sources.finding import Finding, SecuredSession
from tideline_capture.sources.mysql.catalog.cascades import is_cascading
from tideline_capture.sources.mysql.checks.facts import (
    MysqlServerFacts,
    PositionFacts,
    WatermarkTableFacts,
)
from tideline_capture.sources.mysql.checks.log import assign, check_log, check_replica
from tideline_capture.sources.mysql.checks.preflight import (
    PreflightPlan,
    check_position,
    check_server,
)
from tideline_capture.sources.mysql.checks.tables import check_watermark_table, create_statements

MARKS = TableId("tideline", "watermark")
LOG = {
    "log_bin": "ON",
    "server_id": "1",
    "binlog_format": "ROW",
    "binlog_row_image": "FULL",
    "binlog_row_metadata": "FULL",
    "binlog_expire_logs_seconds": "2592000",
    "read_only": "OFF",
}
MYSQL = MysqlServerFacts(
    flavour="mysql",
    version=(8, 0, 36),
    version_text="8.0.36",
    variables={
        **LOG,
        "binlog_row_value_options": "",
        "binlog_order_commits": "ON",
        "gtid_mode": "ON",
        "server_uuid": "u-1",
    },
    user="'tideline'@'%'",
    session=SecuredSession(here=False, encrypted=True, verified=True),
    replica=False,
    may_stream=True,
    may_see_log=True,
)
MARIADB = dataclasses.replace(
    MYSQL,
    flavour="mariadb",
    version=(10, 11, 19),
    version_text="10.11.19-MariaDB",
    variables={**LOG, "gtid_strict_mode": "ON", "server_uid": "u-2"},
)
PLANS = {
    "mysql": PreflightPlan(flavour="mysql", tables=("*.*",), exclude=(), watermarks=MARKS),
    "mariadb": PreflightPlan(flavour="mariadb", tables=("*.*",), exclude=(), watermarks=MARKS),
}


def bad(findings: Iterable[Finding]) -> list[tuple[str, str]]:
    return [(one.name, one.level) for one in findings if one.level != "ok"]


def judged(
    server: MysqlServerFacts, variables: Mapping[str, str | None] | None = None
) -> list[Finding]:
    """All judgments of the server with some variables changed, or (None) unknown to it."""
    merged = {**server.variables, **(variables or {})}
    known = {name: value for name, value in merged.items() if value is not None}
    facts = dataclasses.replace(server, variables=known)
    plan = PLANS[server.flavour]
    return [
        *check_server(facts, plan),
        *check_log(facts, read_only=False),
        *check_replica(facts),
    ]


@pytest.mark.parametrize("server", [MYSQL, MARIADB])
def test_a_good_server(server: MysqlServerFacts) -> None:
    assert bad(judged(server)) == []
    assert server.system_id == ("u-1" if server is MYSQL else "u-2")


@pytest.mark.parametrize(
    ("server", "variables", "expected"),
    [
        (MYSQL, {"log_bin": "OFF"}, ("log_bin", "error")),
        (MYSQL, {"server_id": "0"}, ("server_id", "error")),
        (MYSQL, {"binlog_row_metadata": None}, ("binlog_row_metadata", "error")),
        (MYSQL, {"binlog_order_commits": "OFF"}, ("binlog_order_commits", "error")),
        (MYSQL, {"binlog_order_commits": None}, None),
        (MYSQL, {"gtid_mode": "ON_PERMISSIVE"}, ("gtid", "warning")),
        (MARIADB, {"gtid_strict_mode": "OFF"}, ("gtid", "warning")),
        (MARIADB, {"binlog_storage_engine": "innodb"}, ("binlog_storage_engine", "error")),
        (MARIADB, {"binlog_storage_engine": ""}, None),
        (MARIADB, {"max_binlog_total_size": "1000000"}, ("retention", "warning")),
        (MARIADB, {"binlog_checksum": "NONE"}, ("binlog_checksum", "warning")),
        (MYSQL, {"binlog_expire_logs_seconds": "86399"}, ("retention", "warning")),
        (MYSQL, {"binlog_expire_logs_seconds": "86400"}, None),
        (
            MYSQL,
            {"binlog_expire_logs_seconds": "60", "binlog_expire_logs_auto_purge": "OFF"},
            None,
        ),
        (MYSQL, {"binlog_expire_logs_seconds": "0", "expire_logs_days": "0"}, None),
        (MYSQL, {"binlog_expire_logs_seconds": "0", "expire_logs_days": "1"}, None),
        (
            MARIADB,
            {"binlog_expire_logs_seconds": None, "expire_logs_days": "0.500000"},
            ("retention", "warning"),
        ),
    ],
)
def test_one_setting(
    server: MysqlServerFacts,
    variables: Mapping[str, str | None],
    expected: tuple[str, str] | None,
) -> None:
    assert bad(judged(server, variables)) == ([expected] if expected else [])


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"version": (5, 7, 44)}, [("version", "error")]),
        ({"session": SecuredSession(False, False, False)}, [("encryption", "warning")]),
        ({"session": SecuredSession(False, True, False)}, [("encryption", "warning")]),
        ({"session": SecuredSession(True, False, False)}, []),
        ({"may_stream": False}, [("replication_slave", "error")]),
        ({"may_see_log": False}, [("replication_client", "error")]),
    ],
)
def test_the_server(changed: dict[str, object], expected: list[tuple[str, str]]) -> None:
    assert bad(judged(dataclasses.replace(MYSQL, **changed))) == expected  # type: ignore[arg-type]


def test_mariadb_is_younger_than_its_number() -> None:
    assert bad(judged(dataclasses.replace(MARIADB, version=(10, 5, 25)))) == [("version", "error")]
    assert bad(judged(dataclasses.replace(MARIADB, version=(11, 4, 2)))) == []


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, []),
        ({"log_slave_updates": "OFF"}, [("replica_log", "error")]),
        ({"log_replica_updates": "OFF"}, [("replica_log", "error")]),
        ({"slave_parallel_workers": "4", "slave_preserve_commit_order": "ON"}, []),
        ({"slave_parallel_workers": "1", "slave_preserve_commit_order": "OFF"}, []),
        (
            {"slave_parallel_workers": "4", "slave_preserve_commit_order": "OFF"},
            [("replica_order", "error")],
        ),
        (
            {"replica_parallel_workers": "2", "replica_preserve_commit_order": "OFF"},
            [("replica_order", "error")],
        ),
    ],
)
def test_a_replica(variables: dict[str, str], expected: list[tuple[str, str]]) -> None:
    replica = dataclasses.replace(MYSQL, replica=True)
    assert bad(judged(replica, variables)) == expected
    assert bad(judged(MYSQL, variables)) == []


def test_a_replica_of_mariadb_commits_in_order() -> None:
    replica = dataclasses.replace(MARIADB, replica=True)
    assert bad(judged(replica, {"slave_parallel_workers": "4"})) == []


def test_fixes_say_how_a_setting_lasts() -> None:
    assert assign(MYSQL, "binlog_format", "ROW") == "SET PERSIST binlog_format = 'ROW';"
    assert assign(MYSQL, "binlog_order_commits", "ON") == "SET PERSIST binlog_order_commits = ON;"
    assert assign(MARIADB, "binlog_row_image", "FULL") == (
        "SET GLOBAL binlog_row_image = 'FULL';"
        " -- and binlog_row_image = FULL in the server's configuration"
    )


def test_the_steps_to_gtids() -> None:
    (finding,) = [
        one for one in judged(MYSQL, {"gtid_mode": "OFF_PERMISSIVE"}) if one.name == "gtid"
    ]
    assert finding.fix == (
        "SET PERSIST enforce_gtid_consistency = ON; SET PERSIST gtid_mode = ON_PERMISSIVE;"
        " SET PERSIST gtid_mode = ON;"
    )


@pytest.mark.parametrize(
    ("prepared", "known", "level"),
    [
        (True, None, "ok"),
        (True, True, "ok"),
        (True, False, "error"),
        (False, True, "error"),
        (False, None, "error"),
        (None, None, "warning"),
    ],
)
def test_positions(prepared: bool | None, known: bool | None, level: str) -> None:
    position = MysqlPosition("binlog.000001", 4)
    (finding,) = check_position(position, PositionFacts(prepared, known))
    assert finding.level == level


@pytest.mark.parametrize(
    ("exists", "sound", "may_create", "may_write", "expected"),
    [
        (True, True, False, True, []),
        (False, False, True, True, []),
        (False, False, False, True, [("watermarks", "error")]),
        (True, False, True, True, [("watermarks", "error")]),
        (True, True, True, False, [("watermark_grants", "error")]),
        (False, False, False, False, [("watermark_grants", "error"), ("watermarks", "error")]),
    ],
)
def test_the_table_of_marks(
    exists: bool,
    sound: bool,
    may_create: bool,
    may_write: bool,
    expected: list[tuple[str, str]],
) -> None:
    facts = WatermarkTableFacts(MARKS, exists, sound, may_create, may_write)
    assert bad(check_watermark_table(facts, MYSQL)) == expected


def test_the_table_of_marks_by_hand() -> None:
    text = create_statements(TableId("my`marks", "watermark"))
    assert text.startswith("CREATE DATABASE IF NOT EXISTS `my``marks`; CREATE TABLE IF NOT EXISTS")
    assert " `my``marks`.`watermark` (" in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("CONSTRAINT `k` FOREIGN KEY (`a`) REFERENCES `p` (`id`)", False),
        ("CONSTRAINT `k` FOREIGN KEY (`a`) REFERENCES `p` (`id`),", False),
        ("CONSTRAINT `k` FOREIGN KEY (`a`) REFERENCES `p` (`id`) ON DELETE NO ACTION", False),
        (
            "CONSTRAINT `k` FOREIGN KEY (`a`) REFERENCES `p` (`id`) ON DELETE RESTRICT"
            " ON UPDATE NO ACTION,",
            False,
        ),
        ("CONSTRAINT `k` FOREIGN KEY (`a`) REFERENCES `p` (`id`) ON DELETE CASCADE,", True),
        ("CONSTRAINT `k` FOREIGN KEY (`a`) REFERENCES `p` (`id`) ON UPDATE SET NULL", True),
        ("CONSTRAINT `k` FOREIGN KEY (`a`) REFERENCES `p` (`id`) ON DELETE SOMETHING", True),
        ("CONSTRAINT `k` FOREIGN KEY (`) ON DELETE CASCADE`) REFERENCES `p` (`id`)", False),
        ("CONSTRAINT k FOREIGN KEY (a) REFERENCES p (id)", True),
        ("CONSTRAINT `other` FOREIGN KEY (`a`) REFERENCES `p` (`id`) ON DELETE CASCADE", False),
    ],
)
def test_a_foreign_key_of_mariadb(line: str, expected: bool) -> None:
    definition = f"CREATE TABLE `t` (\n  `a` int(11),\n  {line}\n) ENGINE=InnoDB"
    constraint = "k" if "other" not in line else "fk_1"
    assert is_cascading(definition, constraint) is expected
