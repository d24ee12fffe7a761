"""The same log, read by mysql-replication and by us.

Both agree on every value of every type, but for that library's known defects. Each is named here,
with the value that the server prints, which is the one that we read. What stops the library
altogether is named as well; that we read it right is `test_mysql_decode`'s matter.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import WriteRowsEvent

from tests.fixtures.mysql_binlog import recorded
from tests.fixtures.mysql_cases import (
    Case,
    cases_of,
    create_statement,
    insert_statements,
    natives_of,
    select_statement,
)
from tests.fixtures.mysql_servers import MysqlDatabase
from tests.fixtures.mysql_text import column_texts
from tests.integration.test_mysql_decode import canonical, run_leniently, shown
from tideline_capture.sources.mysql.types.columns import BYTES, Code, MysqlColumn

STOPS_THE_LIBRARY = ("COMPRESSED", "VECTOR", "INET", "UUID")
"""Columns that it cannot read at all, or not without `information_schema`."""
POISON = "2004-04-31", "1900-02-29", "838:59:59' AS TIME"
"""Values that raise in it."""

Text = str | None
Defect = Callable[[MysqlColumn, Text, str], bool]


def _is_date(column: MysqlColumn) -> bool:
    return column.code in (Code.DATE, Code.DATETIME2)


DEFECTS: dict[str, Defect] = {
    "a date that no calendar has is None": lambda column, theirs, ours: (
        _is_date(column) and theirs is None and ("-00" in ours or ours.startswith("0000-"))
    ),
    "a zero TIMESTAMP is the year 1970": lambda column, theirs, ours: (
        column.code == Code.TIMESTAMP2
        and theirs == ours.replace("0000-00-00", "1970-01-01")
        and ours.startswith("0000-00-00")
    ),
    "the fraction of a negative TIME is the rest to the next second": lambda column, theirs, ours: (
        column.code == Code.TIME2
        and theirs is not None
        and theirs.partition(".")[0] == ours.partition(".")[0]
        and ours.startswith("-")
        and int(theirs.partition(".")[2]) + int(ours.partition(".")[2]) == 10**column.fsp
    ),
    "YEAR 0 is 1900": lambda column, theirs, ours: (
        column.code == Code.YEAR and (theirs, ours) == ("1900", "0")
    ),
    "zeros at the end of BINARY are cut off": lambda column, theirs, ours: (
        column.code == Code.STRING and theirs == bytes.fromhex(ours).rstrip(b"\0").hex().upper()
    ),
    "an empty SET is None": lambda column, theirs, ours: (
        column.code == Code.SET and (theirs, ours) == (None, "")
    ),
    "ucs2 stays bytes": lambda column, theirs, ours: (
        column.charset == "ucs2" and theirs == ours.encode("utf-16-be").decode(errors=BACKSLASH)
    ),
    "a JSON null is None": lambda column, theirs, ours: (
        column.code == Code.JSON and (theirs, ours) == (None, "null")
    ),
    "a DATE in JSON is a midnight": lambda column, theirs, ours: (
        column.code == Code.JSON and theirs == ours.replace('-02"', '-02 00:00:00.000000"') != ours
    ),
    "bytes in JSON are its text": lambda column, theirs, ours: (
        column.code == Code.JSON and "base64:type" in ours and "base64:type" not in str(theirs)
    ),
}
BACKSLASH = "backslashreplace"


def test_both_read_the_same(mysql_database: MysqlDatabase) -> None:
    cases = [
        (name, without_poison(case))
        for name, case in cases_of(mysql_database.flavour)
        if not case.definition.endswith(STOPS_THE_LIBRARY[0])
        and not case.definition.startswith(STOPS_THE_LIBRARY[1:])
    ]
    mysql_database.run(create_statement("t", cases))
    with recorded(mysql_database, natives_of(cases)) as log:
        run_leniently(mysql_database, *insert_statements("t", cases))
        printed = shown(mysql_database, select_statement("t", cases))
    logged = log.one("t")
    batch = logged.decode().rows.batch
    theirs = list(rows_of_the_library(mysql_database))
    assert len(theirs) == batch.num_rows
    columns = {column.name: column for column in logged.table.columns}
    unknown: dict[str, set[tuple[Text, Text]]] = {}
    met: set[str] = set()
    for place, (name, case) in enumerate(cases, 1):
        column = columns[name]
        ours = [comparable(text, column) for text in column_texts(batch, column)]
        assert ours == [comparable(row[place], column) for row in printed]
        read = [comparable(their_text(row[name], column), column) for row in theirs]
        for their, our in set(zip(read, ours, strict=True)):
            if their == our:
                continue
            names = {
                n for n, known in DEFECTS.items() if our is not None and known(column, their, our)
            }
            met |= names
            if not names:
                unknown.setdefault(case.definition, set()).add((their, our))
    assert not unknown, unknown
    on_mysql = {name for name in DEFECTS if "JSON" in name}
    assert met == DEFECTS.keys() - (on_mysql if mysql_database.flavour == "mariadb" else set())


def without_poison(case: Case) -> Case:
    values = tuple(v for v in case.values if not any(poison in v for poison in POISON))
    return Case(case.definition, values, case.shown, case.flavours, case.native)


def rows_of_the_library(database: MysqlDatabase) -> Iterator[dict[str, Any]]:
    """All rows inserted into the schema's table ``t``, from the newest log file's beginning."""
    server = database.server
    reader = BinLogStreamReader(
        connection_settings={
            "host": "127.0.0.1",
            "port": server.port,
            "user": "root",
            "password": server.password,
        },
        server_id=4_000_000 + server.port % 10_000,
        log_file=server.rows("SHOW BINARY LOGS")[-1][0],
        log_pos=4,
        resume_stream=True,
        blocking=False,
        only_events=[WriteRowsEvent],
        only_schemas=[database.name],
        enable_logging=False,
    )
    try:
        for event in reader:
            for row in event.rows:
                yield row["values"]
    finally:
        reader.close()


def their_text(value: Any, column: MysqlColumn) -> str | None:
    if column.code == Code.JSON and value is not None:
        return json.dumps(_plain(value))
    match value:
        case None:
            return None
        case set():
            return ",".join(label for label in column.labels if label in value)
        case bytes() if column.charset == BYTES or column.code == Code.GEOMETRY:
            return value.hex().upper()
        case str() if column.charset == BYTES:
            return value.encode().hex().upper()
        case bytes():
            return value.decode(errors=BACKSLASH)
        case Decimal():
            return format(value, "f")
        case dt.timedelta():
            return _time(value, column.fsp)
        case dt.datetime():
            fraction = f".{value.microsecond:06d}"[: column.fsp + 1] if column.fsp else ""
            return f"{value.year:04d}-{value:%m-%d %H:%M:%S}{fraction}"
        case _:
            return str(value)


def comparable(text: str | None, column: MysqlColumn) -> str | None:
    if text is not None and column.code == Code.JSON:
        return json.dumps(json.loads(text), sort_keys=True)
    return canonical(text, column)


def _time(value: dt.timedelta, fsp: int) -> str:
    micros = value // dt.timedelta(microseconds=1)
    seconds, fraction = divmod(abs(micros), 1_000_000)
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return ("-" if micros < 0 else "") + clock + (f".{fraction:06d}"[: fsp + 1] if fsp else "")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return value.decode(errors=BACKSLASH)
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, dt.datetime):
        return value.isoformat(" ", "microseconds")
    if isinstance(value, dt.time):
        return value.isoformat("microseconds")
    return value
