"""The user's rights, asked of the server itself.

PREPARE checks the grants of a statement, whatever roles and wildcards they come from, and does not
run it. The statements that show the log are run: they change nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pymysql
from pymysql.constants import ER

_DENIED = {
    ER.DBACCESS_DENIED_ERROR,
    ER.TABLEACCESS_DENIED_ERROR,
    ER.COLUMNACCESS_DENIED_ERROR,
    ER.SPECIFIC_ACCESS_DENIED_ERROR,
}
_LATER = {
    ER.BAD_DB_ERROR,
    ER.NO_SUCH_TABLE,
    ER.TABLE_EXISTS_ERROR,
    ER.BAD_FIELD_ERROR,
    ER.LOCK_WAIT_TIMEOUT,
}
"""The errors for which a statement that the grants allow can still fail."""


def may(cursor: Any, statement: str) -> bool:
    """Return whether the user has the grants for ``statement``, which is not run.

    The server checks the grants first: a statement that then fails for another reason was allowed.
    """
    try:
        cursor.execute("PREPARE tideline_probe FROM %s", (statement,))
    except pymysql.MySQLError as error:
        if error.args[0] in _DENIED:
            return False
        if error.args[0] not in _LATER:
            raise
        return True
    cursor.execute("DEALLOCATE PREPARE tideline_probe")
    return True


def rows_if_allowed(cursor: Any, query: str) -> Sequence[tuple[Any, ...]] | None:
    """Return the rows; () when the server keeps no log, None when the user may not see them."""
    try:
        cursor.execute(query)
    except pymysql.MySQLError as error:
        if error.args[0] in _DENIED:
            return None
        if error.args[0] in (ER.NO_BINARY_LOGGING, ER.ERROR_WHEN_EXECUTING_COMMAND):
            return ()
        raise
    rows: Sequence[tuple[Any, ...]] = cursor.fetchall()
    return rows
