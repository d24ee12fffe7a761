"""A merge and a repair by the real operators, with a real spark-submit, chain and tables in S3: the
secret of S3 is in nothing that Airflow keeps, and on no command line.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import QueryBuilder

from devtools.services.s3 import S3Server
from devtools.services.valkey import ValkeyServer
from tests.airflow.chain_source import TABLE, ChainSource, Order
from tests.airflow.no_source import NoSource
from tests.airflow.stub_worker import StubWorker
from tests.airflow.task_context import TaskContext
from tests.airflow.task_log import TaskLog
from tests.fixtures.object_storage import place_in
from tests.fixtures.settings import as_toml
from tideline.contract.layout import table_path
from tideline.contract.request import DumpRequest
from tideline.contract.schema import parse_table
from tideline.settings import Settings, load_settings
from tideline.store.objects import open_store
from tideline.warehouse.access import storage_options
from tideline.warehouse.delta.reader import delta_table
from tideline.warehouse.s3_jars import find_s3_jar_set
from tideline_airflow.dump import DumpOperator
from tideline_airflow.merge import MergeOperator

DAY = datetime(2024, 3, 1, tzinfo=UTC)
SUBMIT = b"org.apache.spark.deploy.SparkSubmit"


class CommandLines:
    """Those of all processes of this machine, looked at again and again while it is entered."""

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()
        self._over = threading.Event()
        self.telling: set[str] = set()
        self.submits: set[bytes] = set()

    @contextmanager
    def watched(self) -> Iterator[None]:
        thread = threading.Thread(target=self._watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    line = path.read_bytes()
                except OSError:
                    continue
                if self._secret in line:
                    self.telling.add(line.partition(b"\0")[0].decode())
                if SUBMIT in line:
                    self.submits.add(line)


@pytest.fixture
def in_s3(
    tmp_path: Path, s3: S3Server, valkey: ValkeyServer, source: NoSource, pipeline: str
) -> Path:
    if find_s3_jar_set() is None:
        pytest.skip("the Hadoop of this Spark has no create-only write to S3")
    place = place_in(s3)
    values = {
        "pipeline": pipeline,
        "source": {"url": source.url, "password_file": "/nowhere/source_password"},
        "store": {"url": f"{place.url}/store", **s3.access},
        "control": {"url": valkey.url()},
        "warehouse": {"url": f"{place.url}/warehouse"},
        "merge": {"driver_memory": "1g", "master": "local[1]"},
    }
    path = tmp_path / "tideline.toml"
    path.touch(mode=0o600)
    path.write_text(as_toml(values))
    return path


def notes(settings: Settings) -> dict[int, str]:
    """What the warehouse has, by key."""
    place = settings.warehouse_storage
    table = delta_table(table_path(place.url, parse_table(TABLE)), storage_options(place))
    found = QueryBuilder().register("t", table).execute("SELECT id, note FROM t").read_all()
    return {row["id"]: row["note"] for row in pa.table(found).to_pylist()}


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_a_merge_and_a_repair_tell_no_secret(
    in_s3: Path,
    s3: S3Server,
    monkeypatch: pytest.MonkeyPatch,
    task_log: TaskLog,
) -> None:
    monkeypatch.setenv(
        "AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[1]"})
    )
    settings = load_settings(in_s3)
    source, lines, kept = ChainSource(settings), CommandLines(s3.secret_access_key), []
    config = str(in_s3)
    source.dump(DumpRequest("first", (TABLE,)))
    source.change(*(Order(number, f"order {number}", DAY) for number in range(1, 6)))
    ask = DumpOperator(task_id="ask", tables=[TABLE], keys=[["1"], ["2"]], config=config)
    merges = [MergeOperator(task_id=name, config=config) for name in ("merge", "repair")]
    with lines.watched(), StubWorker(settings, source.dump):
        kept.append(merges[0].execute(TaskContext(merges[0]).values))
        assert notes(settings) == {n: one.note for n, one in source.rows.items()}
        source.rows[1] = Order(1, "not in the log", DAY)
        kept.append(ask.execute(TaskContext(ask).values))
        kept.append(merges[1].execute(TaskContext(merges[1]).values))
    assert notes(settings) == {n: one.note for n, one in source.rows.items()}
    assert len(lines.submits) >= 2, "no spark-submit was seen"
    assert lines.telling == set()
    shown = [{n: getattr(one, n) for n in type(one).template_fields} for one in (ask, *merges)]
    assert "Spark-Submit cmd: " in task_log.text
    for text in (json.dumps(kept, default=str), task_log.text, str(shown)):
        assert s3.secret_access_key not in text
    store = open_store(settings.store)
    for key in store.list(""):
        assert s3.secret_access_key.encode() not in (store.get(key) or b""), key
