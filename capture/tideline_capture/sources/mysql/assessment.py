"""The assessment of MySQL's or MariaDB's tables, read from the catalog."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from tideline.settings import Settings
from tideline.settings.sources.mysql import MysqlSection
from tideline_capture.sources.administration import AssessedTable
from tideline_capture.sources.key_configuration import key_configurations_of
from tideline_capture.sources.mysql.catalog.tables import list_tables, read_tables
from tideline_capture.sources.mysql.connect import connect, flavour, querying
from tideline_capture.sources.mysql.watermarks import watermark_table

_SIZES = """
SELECT TABLE_SCHEMA, TABLE_NAME, DATA_LENGTH FROM information_schema.TABLES
WHERE (TABLE_SCHEMA, TABLE_NAME) IN %s
"""


def assess(settings: Settings) -> list[AssessedTable]:
    """See `Administration.assess`."""
    name = f"tideline assess {settings.pipeline}"
    with closing(connect(settings.source, application_name=name)) as connection, querying():
        return _assess(connection, settings)


def _assess(connection: Any, settings: Settings) -> list[AssessedTable]:
    source, own = settings.source, settings.source.section(MysqlSection)
    with connection.cursor() as cursor:
        ours = (watermark_table(own.watermark_database),)
        tables = list_tables(cursor, source.tables, source.exclude, ours=ours)
        found = read_tables(
            cursor,
            tables,
            flavour="mariadb" if flavour(connection) == "mariadb" else "mysql",
            cascades=own.cascades,
            key_configurations=key_configurations_of(settings),
        )
        sizes = {}
        if tables:
            cursor.execute(_SIZES, [[(table.schema, table.name) for table in tables]])
            sizes = {(schema, name): size for schema, name, size in cursor.fetchall()}
    return [
        AssessedTable(
            table=one.table.table,
            schema=one.facts.schema,
            problem=one.facts.problem,
            hint=one.facts.hint,
            rows=one.rows_estimate,
            bytes=sizes.get((one.table.table.schema, one.table.table.name)),
        )
        for one in found
    ]
