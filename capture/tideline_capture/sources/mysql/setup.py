"""The statements that an owner runs before a MySQL or MariaDB is captured.

They need no connection, so that they can be read, kept and handed on. docs/GRANTS.md says what each
grant is for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tideline.contract.patterns import PatternPart, split_pattern
from tideline.contract.printable import printable
from tideline.settings import Settings
from tideline.settings.sources.mysql import MysqlSection
from tideline_capture.sources.mysql.names import quoted
from tideline_capture.sources.setup import signs

_CONFIGURATION = """\
-- The server needs log_bin, server_id, binlog_format = ROW, binlog_row_image = FULL and
-- binlog_row_metadata = FULL{gtid}.
-- `tideline doctor` names what it lacks."""
_GTID = {"mysql": ", and gtid_mode = ON with enforce_gtid_consistency = ON", "mariadb": ""}


def setup_sql(settings: Settings) -> str:
    """Return the statements, with comments; no password in them."""
    source, own = settings.source, settings.source.section(MysqlSection)
    name = source.user.replace("'", "''").replace("\\", "\\\\")
    user = f"'{name}'@'%'"
    lines = [
        f"-- For the pipeline {settings.pipeline}: run it as an administrator.",
        _CONFIGURATION.format(gtid=_GTID["mariadb" if source.kind == "mariadb" else "mysql"]),
        "-- '%' is any host: the worker's own is better.",
        f"CREATE USER {user} ACCOUNT LOCK;",
        "-- Until it has a password the user cannot log in. The one that tideline is given:",
        f"-- ALTER USER {printable(user)} IDENTIFIED BY '…' ACCOUNT UNLOCK;",
        f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {user};",
        *(f"GRANT SELECT ON {place} TO {user};" for place in _places(source.tables)),
    ]
    if not own.read_only:
        watermarks = _database(PatternPart(own.watermark_database, plain=True))
        lines.append(f"GRANT CREATE, SELECT, INSERT, UPDATE ON {watermarks}.* TO {user};")
    if source.kind == "mysql" and own.xa == "hold":
        lines.append(f"GRANT XA_RECOVER_ADMIN ON *.* TO {user};")
    return "\n".join(lines) + "\n"


def _places(patterns: Sequence[str]) -> Iterator[str]:
    """Yield the places that the patterns mean, as far as a grant can express them: possibly
    more."""
    found = []
    for database, table in map(split_pattern, patterns):
        if database.text == "*" and not database.plain:
            found.append("*.*")
        elif database.plain and table.plain:
            found.append(f"{quoted(database.text)}.{quoted(table.text)}")
        else:
            found.append(f"{_database(database)}.*")
    yield from dict.fromkeys(found)


def _database(part: PatternPart) -> str:
    """Return a database as it stands in a grant for all of it: there ``_`` and ``%`` are signs."""
    words = {"any": "%", "one": "_", "set": "_"}
    found = [("text", sign) for sign in part.text] if part.plain else signs(part.text)
    return quoted(
        "".join(
            words.get(kind) or (f"\\{text}" if text in ("_", "%", "\\") else text)
            for kind, text in found
        )
    )
