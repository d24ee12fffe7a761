"""Our events with Debezium's envelope against those of the real Debezium, field by field.

Both capture the same database. Each difference is in one list, with its reason, and each of that
list is met.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

from devtools.services.kafka import KafkaServer
from tests.fixtures.capture import Pipeline, PipelineFactory, WorkerProcess
from tests.fixtures.mysql_servers import Flavour, MysqlDatabase
from tests.fixtures.services import Database
from tests.publish.debezium import mariadb_workload, postgres_workload
from tests.publish.debezium.differences import BINLOG, EVERYWHERE, POSTGRES, Difference
from tests.publish.debezium.engine import Engine
from tests.publish.debezium.records import Record, by_row, differing, records_of

OURS = "ours-{}"
"""The prefix of our topics, from that of Debezium's."""
Source = Database | MysqlDatabase


@pytest.fixture
def prefix() -> str:
    """The prefix of Debezium's topics, which no other test has."""
    return f"shop{uuid.uuid4().hex[:8]}"


def publisher_of(kafka: KafkaServer, prefix: str) -> dict[str, object]:
    return {
        "output": "kafka",
        "format": "debezium",
        "debezium": {"prefix": prefix, "schemas": True},
        "kafka": {
            "servers": [kafka.address],
            "security_protocol": "plaintext",
            "topic": f"{OURS.format(prefix)}.{{schema}}.{{table}}",
            "positions_topic": f"{prefix}-positions",
            "make_topics": True,
        },
    }


def compared(
    theirs: list[Record], ours: list[Record], listed: Sequence[Difference]
) -> tuple[list[str], set[Difference]]:
    """What differs and is not listed; and which of the listed differences there are."""
    found, met = [], set[Difference]()
    first, second = by_row(theirs), by_row(ours)
    assert first.keys() == second.keys()
    for row, records in first.items():
        own = second[row]
        assert [one.op for one in records] == [one.op for one in own], row
        for at, (one, other) in enumerate(zip(records, own, strict=True)):
            for path, real, own_value in differing(one, other):
                known = [each for each in listed if each.explains(one, path, real, own_value)]
                met.update(known[:1])
                if not known:
                    found.append(f"{row} {at} {one.op} {path}: {real!r} but {own_value!r}")
    return found, met


def check(
    pipeline: Pipeline[Source],
    workload: ModuleType,
    kafka: KafkaServer,
    prefix: str,
    folder: Path,
    listed: Sequence[Difference],
) -> None:
    """Let both capture the workload, and compare what they write."""
    pipeline.drain()
    with Engine(folder / "debezium", pipeline.database, kafka, prefix) as engine:
        engine.await_mark(1)
        pipeline.database.run(*workload.LOGGED)
        engine.await_mark(2)
    pipeline.drain()
    worker = WorkerProcess(pipeline.config, folder, until_idle_s=1, deadly={}, publisher="events")
    assert worker.wait() == 0, worker.output()
    theirs, ours = records_of(kafka, prefix), records_of(kafka, OURS.format(prefix))
    found, met = compared(theirs, ours, listed)
    assert not found, "\n".join(found)
    assert [one.paths for one in listed if one not in met] == []


@pytest.mark.long
def test_of_a_postgresql(
    own_database: Database,
    kafka: KafkaServer,
    pipeline_of: PipelineFactory,
    prefix: str,
    tmp_path: Path,
) -> None:
    own_database.run(*postgres_workload.SETUP, *postgres_workload.DUMPED)
    pipeline: Pipeline[Source] = pipeline_of(
        own_database,
        tables={"public.imaged": {"before_image": "full"}},
        publish={"events": publisher_of(kafka, prefix)},
    )
    check(pipeline, postgres_workload, kafka, prefix, tmp_path, (*EVERYWHERE, *POSTGRES))


@pytest.mark.long
@pytest.mark.parametrize("flavour", ["mariadb"])
def test_of_a_mariadb(
    flavour: Flavour,
    mysql_database: MysqlDatabase,
    kafka: KafkaServer,
    pipeline_of: PipelineFactory,
    prefix: str,
    tmp_path: Path,
) -> None:
    mysql_database.run(*mariadb_workload.SETUP, *mariadb_workload.DUMPED)
    pipeline: Pipeline[Source] = pipeline_of(
        mysql_database,
        tables={f"{mysql_database.name}.*": {"before_image": "full"}},
        publish={"events": publisher_of(kafka, prefix)},
    )
    check(pipeline, mariadb_workload, kafka, prefix, tmp_path, (*EVERYWHERE, *BINLOG))
