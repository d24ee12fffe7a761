"""Reports errors of the program: one clear text, the next step, and an exit code.

::

    0 fine    1 anything else    2 usage, Misconfigured    3 Unavailable
    4 SourceLost    5 CorruptData    6 Fenced
"""

from __future__ import annotations

import sys

from tideline.contract.errors import (
    CorruptData,
    Fenced,
    Misconfigured,
    SourceLost,
    TidelineError,
    Unavailable,
)

EXIT_OTHER = 1
EXIT_MISCONFIGURED = 2
EXIT_INTERRUPTED = 130
OURS = (
    "tideline",
    "tideline_airflow",
    "tideline_capture",
    "tideline_console",
    "tideline_publish",
    "tideline_spark",
)
"""Our own packages: one of these missing is a bug, not an extra that was left out."""

EXTRAS: dict[str, tuple[str, ...]] = {
    "obstore": ("planner", "postgres", "mysql"),
    "stamina": ("planner", "postgres", "mysql"),
    "deltalake": ("planner",),
    "structlog": ("postgres", "mysql", "spark"),
    "pyarrow": ("capture",),
    "numpy": ("postgres", "mysql"),
    "isal": ("postgres", "mysql"),
    "prometheus_client": ("capture",),
    "psycopg2": ("postgres",),
    "pymysql": ("mysql",),
    "pymysqlreplication": ("mysql",),
    "confluent_kafka": ("kafka",),
    "urllib3": ("webhook", "avro", "opensearch"),
    "pyspark": ("spark",),
    "botocore": ("aws",),
    "pyiceberg": ("iceberg",),
    "google": ("bigquery",),
    "sqlglot": ("bigquery",),
    "pymetastore": ("hive",),
    "thrift": ("hive",),
    "openlineage": ("lineage",),
    "requests": ("lineage",),
}
"""The extras that bring each optional package, by the name that it is imported by."""

_CODES: tuple[tuple[type[TidelineError], int], ...] = (
    (Misconfigured, EXIT_MISCONFIGURED),
    (Unavailable, 3),
    (SourceLost, 4),
    (CorruptData, 5),
    (Fenced, 6),
)


def exit_code(error: TidelineError) -> int:
    """Return the exit code from which an operator's script decides what to do."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), EXIT_OTHER)


def not_installed(package: str) -> Misconfigured:
    """Return the error of a command that needs a package of an extra that is not installed."""
    extras = EXTRAS.get(package, ("postgres,mysql,planner,spark",))
    return Misconfigured(
        f"this command needs the package {package}, which is not installed",
        hint=" or ".join(f"pip install 'tideline-cdc[{extra}]'" for extra in extras),
    )


def report(error: TidelineError) -> None:
    """Print the error and its hint on stderr, without a traceback."""
    print(f"tideline: {error.message}", file=sys.stderr)
    if error.hint is not None:
        print(f"  hint: {error.hint}", file=sys.stderr)
