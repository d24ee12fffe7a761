"""The traces that a pipeline leaves at a MySQL or MariaDB: its rows in the watermark table, which
several pipelines may share."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pymysql
from pymysql.constants import ER

from tideline.contract.errors import Misconfigured
from tideline.settings import Settings
from tideline.settings.sources.mysql import MysqlSection
from tideline_capture.sources.administration import Removal
from tideline_capture.sources.mysql.connect import connect, query_failed, querying
from tideline_capture.sources.mysql.names import qualified
from tideline_capture.sources.mysql.watermarks import PROBE_ROW, watermark_table

_IS_THERE = "SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"
_DENIED = (ER.TABLEACCESS_DENIED_ERROR, ER.DBACCESS_DENIED_ERROR)
_GONE = (ER.NO_SUCH_TABLE, ER.BAD_DB_ERROR)


def removals(settings: Settings, incarnation: str | None) -> list[Removal]:
    """See `Administration.removals`: the table where no other pipeline has a row in it, else the
    rows of this one."""
    own = settings.source.section(MysqlSection)
    if own.read_only:
        return []
    table = watermark_table(own.watermark_database)
    with closing(_connect(settings)) as connection, connection.cursor() as cursor, querying():
        cursor.execute(_IS_THERE, (table.schema, table.name))
        if cursor.fetchone() is None:
            return []
        cursor.execute(f"SELECT incarnation FROM {qualified(table)}")  # noqa: S608
        owners = [str(row[0]).partition(PROBE_ROW)[0] for row in cursor.fetchall()]
    others = sum(owner != incarnation for owner in owners)
    if not others:
        what = f"the table of watermarks {table}, {len(owners)} rows"
        return [_removal(settings, what, f"DROP TABLE IF EXISTS {qualified(table)}")]
    if incarnation is None or len(owners) == others:
        return []
    what = f"{len(owners) - others} rows of the table of watermarks {table}, which others use too"
    # An incarnation is hexadecimal digits, and nothing that SQL could take for anything else.
    statement = (
        f"DELETE FROM {qualified(table)} WHERE incarnation = '{incarnation}'"  # noqa: S608
        f" OR incarnation LIKE '{incarnation}{PROBE_ROW}%'"
    )
    return [_removal(settings, what, statement)]


def _removal(settings: Settings, what: str, statement: str) -> Removal:
    def remove() -> None:
        with closing(_connect(settings)) as connection, connection.cursor() as cursor:
            try:
                cursor.execute(statement)
            except pymysql.Error as error:
                if error.args and error.args[0] in _GONE:
                    return
                if error.args and error.args[0] in _DENIED:
                    raise Misconfigured(
                        f"the user may not remove {what}",
                        hint=f"let an administrator run: {statement};",
                    ) from None
                raise query_failed(error) from None

    return Removal("watermarks", what, remove)


def _connect(settings: Settings) -> Any:
    return connect(
        settings.source, application_name=f"tideline delete-pipeline {settings.pipeline}"
    )
