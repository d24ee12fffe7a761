"""What each package may import: the whole list, so that a driver or a clock in another is refused.

import-linter keeps the layers; what it forbids has to be named there, and the rest passes. Here
whatever is not named is refused, the standard library's modules too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.code import nodes

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = ("", "capture", "publish", "spark_jobs", "console", "plugins", "dags")
"""The folders that hold a package each whose name begins with ``tideline``."""

PURE = frozenset(
    {
        "__future__", "abc", "base64", "binascii", "bisect", "codecs", "collections", "contextlib",
        "csv", "dataclasses", "datetime", "decimal", "difflib", "enum", "errno", "fnmatch",
        "functools", "hashlib", "heapq", "hmac", "inspect", "io", "ipaddress", "itertools", "json",
        "math", "operator", "re", "shlex", "statistics", "struct", "textwrap", "types", "typing",
        "urllib.parse", "weakref", "zlib",
    }
)  # fmt: skip
"""Of the standard library: no files, sockets, processes, threads, clocks or random values."""
SHARED = frozenset({"tideline", "msgspec"})
PACKAGES: Mapping[str, frozenset[str]] = {
    "tideline": SHARED,
    "tideline.contract": frozenset({"tideline.contract", "msgspec"}),
    "tideline.consumer": frozenset({"tideline.consumer", "tideline.contract"}),
    "tideline.settings": SHARED | {"pathlib", "pydantic", "pydantic_core"},
    "tideline_capture": SHARED | {"tideline_capture", "numpy", "pyarrow", "structlog"},
    "tideline_capture.core": frozenset(
        {"tideline.contract", "tideline_capture.core", "msgspec", "numpy", "pyarrow"}
    ),
    "tideline_capture.sources": SHARED | {"tideline_capture", "numpy", "pyarrow", "structlog"},
    "tideline_capture.sources.mysql": SHARED
    | {"tideline_capture", "numpy", "pyarrow", "pymysql", "threading", "time", "structlog"},
    "tideline_capture.sources.postgres": SHARED
    | {"tideline_capture", "numpy", "pyarrow", "psycopg2", "threading", "time", "structlog"},
    "tideline_publish": SHARED | {"tideline_publish", "numpy", "pyarrow", "structlog"},
    "tideline_spark": SHARED | {"tideline_spark", "pyspark", "py4j"},
    "tideline_console": SHARED
    | {
        "tideline_capture",
        "tideline_console",
        "tideline_publish",
        "typer",
        "os",
        "pathlib",
        "sys",
        "time",
        "uuid",
    },
    "tideline_airflow": SHARED | {"tideline_airflow", "airflow", "os", "pathlib", "time"},
    "tideline_dags": frozenset({"tideline_airflow", "airflow", "pathlib"}),
}
"""By package: what all its modules may import besides `PURE`. The longest name counts alone."""
POOL = frozenset({"concurrent.futures"})
PROGRAM = frozenset({"argparse", "sys"})
SETTINGS_FILE = frozenset({"tomllib"})
GOOGLE = frozenset({"google.api_core.exceptions", "google.cloud.bigquery"})
GOOGLE_STREAMS = frozenset(
    {
        "google.api_core.client_options",
        "google.api_core.exceptions",
        "google.auth.exceptions",
        "google.cloud.bigquery_storage_v1",
        "google.protobuf",
    }
)
MODULES: Mapping[str, frozenset[str]] = {
    # Files, programs and versions of this machine, for jobs that run here.
    "tideline.cache": frozenset({"os", "pathlib", "shutil", "subprocess"}),
    "tideline.authorities": frozenset({"os", "pathlib", "ssl"}),
    "tideline.jars": frozenset({"os", "pathlib", "shutil", "sys", "tempfile"}),
    "tideline.warehouse.access": frozenset({"os", "pathlib", "tempfile"}),
    "tideline.warehouse.delta.jars": frozenset({"pathlib"}),
    "tideline.warehouse.delta.log_store": frozenset(
        {"os", "pathlib", "shutil", "subprocess", "tempfile", "zipfile"}
    ),
    "tideline.warehouse.hadoop": frozenset({"os"}),
    "tideline.warehouse.s3_jars": frozenset({"importlib.resources"}),
    "tideline.java": frozenset({"os", "pathlib", "shutil", "subprocess"}),
    "tideline.local_spark": frozenset({"importlib.util", "os", "pathlib", "shutil"}),
    "tideline.spark_versions": frozenset({"importlib.metadata"}),
    # The one place of clocks, threads and ids that the worker and the store are handed.
    "tideline.system": frozenset({"concurrent.futures", "queue", "threading", "time", "uuid"}),
    "tideline.consumer.own_transactions": frozenset({"sqlalchemy", "threading", "time"}),
    "tideline.programs.logs": frozenset({"stamina", "structlog", "threading"}),
    "tideline.programs.stopping": frozenset({"signal", "threading"}),
    "tideline.contract.json_schemas": frozenset({"sys"}),
    "tideline.settings": frozenset({"os", "pydantic_settings"}) | SETTINGS_FILE,
    "tideline.settings.catalog": frozenset({"string"}),
    "tideline.settings.object_storage": frozenset({"os"}),  # AWS's variable with an endpoint.
    "tideline.settings.reference": frozenset({"sys"}),
    # Drivers.
    "tideline.aws_profile": frozenset({"botocore.exceptions", "botocore.session"}),
    "tideline.aws_session": frozenset({"botocore.session"}),
    "tideline.catalog.glue": frozenset({"botocore.config", "botocore.exceptions"}),
    "tideline.catalog.hive": frozenset({"logging", "pymetastore.hive_metastore", "thrift"}),
    "tideline.catalog.unity": frozenset({"http.client", "ssl", "urllib.error", "urllib.request"}),
    "tideline.redis_client": frozenset({"pathlib", "redis", "ssl"}),
    "tideline.control.client": frozenset({"time"}),
    "tideline.control.merger": frozenset({"redis", "time"}),
    "tideline.control.queue": frozenset({"redis", "time"}),
    "tideline.control.record": frozenset({"time"}),
    "tideline.openlineage.events": frozenset({"openlineage.client", "uuid"}),
    "tideline.openlineage.sender": frozenset({"openlineage.client", "requests", "ssl"}),
    "tideline.store.answers": frozenset({"obstore.exceptions"}),
    "tideline.store.objects": frozenset({"obstore", "os", "pathlib", "stamina", "tempfile"}),
    "tideline.store.part_file": frozenset({"numpy", "pyarrow", "pyarrow.parquet"}),
    "tideline.store.s3": frozenset({"obstore.store"}),
    "tideline.warehouse.delta.reader": frozenset({"deltalake"}),
    "tideline.warehouse.iceberg.jars": frozenset({"pathlib"}),
    "tideline.warehouse.iceberg.client": frozenset(
        {"pyiceberg.catalog", "pyiceberg.exceptions", "pyiceberg.table"}
    ),
    "tideline.warehouse.iceberg.leftovers": frozenset({"pathlib"}),
    "tideline.warehouse.iceberg.probe": frozenset(
        {"pyiceberg.exceptions", "pyiceberg.schema", "pyiceberg.types", "uuid"}
    ),
    "tideline.warehouse.iceberg.reader": frozenset({"pydantic"}),
    "tideline.warehouse.bigquery.client": frozenset(
        {
            "google.api_core.client_options",
            "google.api_core.exceptions",
            "google.auth",
            "google.auth.credentials",
            "google.auth.exceptions",
            "google.cloud.bigquery",
            "requests.exceptions",
        }
    ),
    "tideline.warehouse.bigquery.probe": frozenset(
        {
            "google.api_core.exceptions",
            "google.auth.exceptions",
            "google.cloud.bigquery",
            "pyarrow",
            "pyarrow.parquet",
            "uuid",
        }
    ),
    "tideline.warehouse.bigquery.removal": frozenset(
        {"google.api_core.exceptions", "google.cloud.bigquery"}
    ),
    "tideline.warehouse.bigquery.log": frozenset(
        {"google.api_core.exceptions", "google.cloud.bigquery"}
    ),
    "tideline.warehouse.job_jars": frozenset({"pathlib"}),
    # Objects are read at the same time; the planner runs in no simulator.
    "tideline.planner.chain_end": frozenset({"threading"}),
    "tideline.planner.garbage": POOL,
    "tideline.planner.read_inputs": POOL,
    "tideline.planner.history_parts": POOL,
    "tideline.planner.registration": POOL,
    "tideline.planner.rebuilds": frozenset({"time", "uuid"}),
    "tideline.planner.runs": POOL | {"time"},
    "tideline.control.reservation": frozenset({"threading", "time"}),
    "tideline_publish.app": frozenset({"socket"}),
    "tideline_publish.formats.avro.registry": frozenset({"urllib3", "urllib3.exceptions"}),
    "tideline_publish.outputs.files": frozenset({"os"}),
    "tideline_publish.outputs.folders": frozenset({"os", "pathlib"}),
    "tideline_publish.outputs.json_lines": frozenset({"os", "pathlib"}),
    "tideline_publish.outputs.parquet_files": frozenset({"os", "pathlib", "shutil"}),
    "tideline_publish.aggregates.state": frozenset({"pathlib", "sqlite3", "tempfile"}),
    "tideline_publish.outputs.dead_letters": frozenset({"os", "pathlib"}),
    "tideline_publish.outputs.repeated": frozenset({"pathlib"}),
    "tideline_publish.http": frozenset({"email.utils", "pathlib", "ssl", "urllib3"}),
    "tideline_publish.outputs.opensearch.client": frozenset({"urllib3"}),
    "tideline_publish.outputs.webhook.client": frozenset({"urllib3"}),
    "tideline_publish.outputs.kafka.errors": frozenset({"confluent_kafka"}),
    "tideline_publish.outputs.kafka.output": frozenset({"confluent_kafka"}),
    "tideline_publish.outputs.kafka.positions": frozenset({"confluent_kafka"}),
    "tideline_publish.outputs.kafka.topics": frozenset({"confluent_kafka"}),
    "tideline_publish.outputs.kafka.trouble": frozenset({"confluent_kafka"}),
    "tideline_publish.outputs.kafka.waiting": frozenset({"confluent_kafka"}),
    "tideline_publish.outputs.kinesis.client": frozenset(
        {"botocore.config", "botocore.exceptions"}
    ),
    "tideline_publish.outputs.redis.output": frozenset({"redis"}),
    "tideline_publish.outputs.redis.script": frozenset({"redis"}),
    "tideline_publish.outputs.redis.streams": frozenset({"redis"}),
    # The worker's edge; inside of it is the core.
    "tideline_capture.app": frozenset({"redis", "socket", "sys"}),
    "tideline_capture.metrics": frozenset({"os", "prometheus_client", "socket"}),
    "tideline_capture.queue": frozenset({"redis"}),
    "tideline_capture.web": frozenset(
        {"prometheus_client", "socket", "socketserver", "sys", "threading", "wsgiref"}
    ),
    "tideline_capture.sources.finding": frozenset({"time"}),
    "tideline_capture.sources.watermark_key": frozenset({"secrets", "time"}),
    "tideline_capture.sources.registry": frozenset({"importlib"}),
    "tideline_capture.sources.sockets": frozenset({"os", "socket", "threading"}),
    "tideline_capture.sources.streams": frozenset({"threading", "time"}),
    "tideline_capture.sources.mysql.binlog.checksums": frozenset({"isal"}),
    "tideline_capture.sources.mysql.binlog.executed": frozenset({"uuid"}),
    "tideline_capture.sources.mysql.binlog.framing": frozenset({"select", "ssl"}),
    "tideline_capture.sources.mysql.binlog.gtid": frozenset({"uuid"}),
    "tideline_capture.sources.mysql.binlog.gtid_events": frozenset({"uuid"}),
    "tideline_capture.sources.mysql.binlog.stream": frozenset({"pymysqlreplication"}),
    "tideline_capture.sources.mysql.checks.facts": frozenset({"ssl"}),
    "tideline_capture.sources.mysql.connect": frozenset({"ssl"}),
    "tideline_capture.sources.mysql.types.charsets": frozenset({"sys"}),
    "tideline_capture.sources.postgres.replication.transactions": frozenset({"select"}),
    "tideline_capture.sources.postgres.tls": frozenset({"os", "pathlib"}),
    # Jobs: programs of their own, whose clock is real.
    "tideline_spark.attempts": frozenset({"random", "time"}),
    "tideline_spark.class_archive": frozenset(
        {"os", "pathlib", "shutil", "subprocess", "sys", "tempfile"}
    ),
    "tideline_spark.class_training": frozenset({"pathlib", "sys"}),
    "tideline_spark.entry": frozenset({"sys"}),
    "tideline_spark.executors": frozenset({"time"}),
    "tideline_spark.failures": frozenset({"pathlib", "traceback"}),
    # Other warehouses' SQL and clients.
    "tideline_spark.dialects.base": frozenset({"sqlglot"}),
    "tideline_spark.dialects.bigquery": frozenset({"sqlglot"}),
    "tideline_spark.formats.bigquery.access": GOOGLE | {"secrets"},
    "tideline_spark.formats.bigquery.bucket": frozenset({"pathlib"}),
    "tideline_spark.formats.bigquery.description": GOOGLE,
    "tideline_spark.formats.bigquery.format": frozenset({"importlib.util"}),
    "tideline_spark.formats.bigquery.jobs": GOOGLE | {"time"},
    "tideline_spark.formats.bigquery.reading": frozenset(
        {"google.cloud.bigquery", "pathlib", "pyarrow", "secrets", "shutil", "tempfile"}
    ),
    "tideline_spark.formats.bigquery.staging": frozenset(
        {"google.cloud.bigquery", "pathlib", "secrets", "tempfile"}
    ),
    "tideline_spark.formats.bigquery.stream_connection": GOOGLE_STREAMS | {"grpc", "queue"},
    "tideline_spark.formats.bigquery.stream_key": frozenset({"secrets"}),
    "tideline_spark.formats.bigquery.stream_rows": frozenset({"google.protobuf"}),
    "tideline_spark.formats.bigquery.streaming": frozenset({"google.protobuf", "time"}),
    "tideline_spark.failure_texts": frozenset({"os", "sys"}),
    "tideline_spark.local_parts": frozenset({"pyarrow"}),
    "tideline_spark.aggregate": PROGRAM | {"time"},
    "tideline_spark.maintain": PROGRAM | {"time"},
    "tideline_spark.merge": PROGRAM | POOL | {"time"},
    "tideline_spark.session": frozenset({"pathlib"}),
    "tideline_spark.shared_files": frozenset({"pathlib", "secrets", "shutil", "time"}),
    "tideline_spark.standalone": frozenset({"socket"}),
    "tideline_spark.verification.comparison_run": frozenset({"time"}),
    "tideline_spark.trust": frozenset({"os", "pathlib"}),
    "tideline_spark.table_receipts": frozenset({"time"}),
    "tideline_spark.verify": PROGRAM | POOL,
    # Commands: what each shows or starts.
    "tideline_console.app": frozenset({"importlib.metadata"}),
    "tideline_console.cost": frozenset({"rich"}),
    "tideline_console.delete_pipeline": frozenset({"redis.exceptions"}),
    "tideline_console.deleted_files": frozenset({"shutil"}),
    "tideline_console.deleted_objects": POOL,
    "tideline_console.doctor_airflow": frozenset({"airflow", "sqlalchemy.exc", "tideline_airflow"}),
    "tideline_console.doctor_jars": frozenset({"glob", "zipfile"}),
    "tideline_console.dump": frozenset({"rich"}),
    # The merger: a program of processes and threads.
    "tideline_console.follow.entries": frozenset({"threading"}),
    "tideline_console.follow.plan_runs": POOL
    | {
        "pyspark.sql",
        "queue",
        "structlog",
        "tideline_spark.attempts",
        "tideline_spark.merge",
        "tideline_spark.session",
        "threading",
    },
    "tideline_console.follow.process": frozenset({"signal", "subprocess"}),
    "tideline_console.follow.round_plans": frozenset({"structlog"}),
    "tideline_console.follow.rounds": frozenset({"structlog"}),
    "tideline_console.follow.session_process": PROGRAM | {"pyspark.sql", "structlog", "threading"},
    "tideline_console.follow.supervisor": frozenset({"socket", "structlog"}),
    "tideline_console.init": SETTINGS_FILE,
    "tideline_console.inspect": frozenset({"pyarrow"}),
    "tideline_console.aggregate": frozenset({"tideline_spark.aggregate"}),
    "tideline_console.maintain": frozenset({"tideline_spark.maintain"}),
    "tideline_console.merge": frozenset({"pyspark.sql", "tideline_spark.merge"}),
    "tideline_console.modes": SETTINGS_FILE | {"stat"},
    "tideline_console.requests": frozenset({"socket"}),
    "tideline_console.spark": frozenset({"pyspark.sql", "tempfile", "tideline_spark.session"}),
    "tideline_console.status.metrics": frozenset({"prometheus_client"}),
    "tideline_console.tables": frozenset({"rich"}),
    "tideline_console.verify": frozenset({"pyspark.sql", "tideline_spark.verify"}),
    "tideline_airflow.hooks": frozenset({"asyncio"}),
    "tideline_airflow.pools": frozenset({"logging", "sqlalchemy.exc"}),
    "tideline_airflow.renamed": frozenset({"warnings"}),
    "tideline_airflow.running": frozenset({"logging"}),
    "tideline_airflow.spark_job": frozenset({"importlib.util", "shutil", "signal", "sys"}),
    "tideline_airflow.triggers": frozenset({"asyncio"}),
}
"""By module: what it alone may import besides, because it is made for that."""


def rule(module: str) -> frozenset[str]:
    """Return what ``module`` may import."""
    names = module.split(".")
    packages = [".".join(names[:end]) for end in range(len(names), 0, -1)]
    base = next(PACKAGES[one] for one in packages if one in PACKAGES)
    return PURE | base | MODULES.get(module, frozenset())


def imported(text: str, module: str) -> Iterator[str]:
    """Yield what is imported anywhere in ``text``, as full names: ``urllib.parse.unquote``. What
    imports by a name that only running shows is one too: ``__import__``."""
    for node in nodes(text):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module}: a relative import"
            yield from (f"{node.module}.{one.name}" for one in node.names)
        elif isinstance(node, ast.Name) and node.id in ("__import__", "exec", "eval"):
            yield node.id


def beyond(text: str, module: str) -> list[str]:
    """Return what ``module`` with this ``text`` imports and may not."""
    allowed = rule(module)
    return sorted(
        {
            name
            for name in imported(text, module)
            if not any(f"{name}.".startswith(f"{one}.") for one in allowed)
        }
    )


def modules() -> Iterator[tuple[str, Path]]:
    """Yield every module of the product with its file."""
    for folder in FOLDERS:
        for package in (ROOT / folder).glob("tideline*/"):
            for path in package.rglob("*.py"):
                parts = path.relative_to(package.parent).with_suffix("").parts
                yield ".".join(parts).removesuffix(".__init__"), path


def test_every_module_imports_what_its_package_may() -> None:
    every = dict(modules())
    assert len(every) > 300
    found = {name: beyond(path.read_text(), name) for name, path in every.items()}
    assert {name: names for name, names in found.items() if names} == {}


def test_every_rule_is_of_a_module_and_used() -> None:
    """A permission that its module no longer needs is taken back."""
    every = dict(modules())
    assert sorted(set(MODULES) - set(every)) == []
    unused = {}
    for name, more in MODULES.items():
        used = set(imported(every[name].read_text(), name))
        idle = {one for one in more if not any(f"{u}.".startswith(f"{one}.") for u in used)}
        if idle:
            unused[name] = sorted(idle)
    assert unused == {}


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("tideline_spark.merge", "delta.tables, deltalake, obstore, airflow"),
        ("tideline_console.dump", "psycopg2, pymysql, deltalake, obstore, redis, pyspark"),
        ("tideline_airflow.hooks", "deltalake, obstore, redis, pyspark, tideline_spark.merge"),
        ("tideline.store.chain", "deltalake, redis, time, threading, socket"),
        ("tideline.planner.chain_index", "redis, obstore, deltalake, os, subprocess"),
        ("tideline_capture.uploader", "pyspark, airflow, deltalake, time, threading, psycopg2"),
        (
            "tideline_capture.core.state",
            "subprocess, urllib.request, ssl, random, os, uuid, structlog, openlineage.client,"
            " tideline_capture.live, tideline.programs.stopping, tideline.warehouse.registry",
        ),
        ("tideline.contract.manifest", "subprocess, os, requests, typer, rich, urllib.request"),
        ("tideline_capture.sources.postgres.check", "pymysql, deltalake"),
        ("tideline_capture.sources.rounds", "psycopg2, pymysql"),
    ],
)
def test_what_others_are_made_for_is_refused(module: str, names: str) -> None:
    wanted = sorted(names.split(", "))
    text = "".join(f"def f(): import {name}\n" for name in wanted)
    assert beyond(text, module) == wanted
    modules_of = {name: name.rpartition(".") for name in wanted if "." in name}
    text = "".join(f"from {above} import {name}\n" for above, _, name in modules_of.values())
    assert beyond(text, module) == sorted(modules_of)


@pytest.mark.parametrize("text", ["__import__('redis')", "exec('import redis')"])
def test_an_import_by_a_made_up_name_is_refused(text: str) -> None:
    assert beyond(text, "tideline.store.chain") == [text.partition("(")[0]]
    assert beyond("import importlib", "tideline.store.chain") == ["importlib"]
