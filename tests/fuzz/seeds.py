"""Makes the first inputs of the corpus: ``python -m tests.fuzz.seeds [--servers]``.

What is here is told from the repository's own fixtures and recorded logs. ``--servers`` records
logs with a column of every type on real servers as well; the rest is then made of these too. Other
files in the corpus stay as they are.
"""

from __future__ import annotations

import json
import struct
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import pyarrow as pa

from devtools.services.binlog_server import NOT_DURABLE, BinlogServer
from devtools.services.mariadb import MariadbServer
from devtools.services.mysql import MysqlServer
from tests.fixtures import pgoutput_messages as pg
from tests.fixtures.mysql_cases import Case, cases_of, create_statement, insert_statements
from tests.fixtures.mysql_servers import Flavour
from tests.fixtures.odd_events import read_events
from tests.fixtures.parts import Row, arrow_part
from tests.fuzz import mysql, postgres
from tests.fuzz.target import CORPUS, GOLDEN
from tests.fuzz.users import SCHEMA
from tideline.contract.errors import Misconfigured
from tideline.contract.modes import Mode
from tideline.contract.rebuild import RebuildRecord, encode_rebuild
from tideline.contract.schema import encode_schema
from tideline.control import WorkerStatus
from tideline_capture.segments import write_part
from tideline_capture.sources.mysql.binlog.gtid import GtidSet
from tideline_capture.sources.mysql.binlog.table_map import parse_table_map

_ROWS, _COLUMNS, _LONG = 3, 16, 100
_KINDS = {23: 0, 24: 1, 25: 2, 30: 0, 31: 1, 32: 2}
_VERSIONS = {"mysql-9": 0, "mysql-8": 1, "mariadb": 2}
_ROW_VERSION_2 = 30


def keep(target: str, name: str, data: bytes) -> None:
    """A file of the corpus."""
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def keep_all(target: str, seeds: Iterable[bytes | str]) -> None:
    for number, seed in enumerate(seeds):
        data = seed.encode() if isinstance(seed, str) else seed
        keep(target, f"seed-{number:02}", data)


def _servers(folder: Path) -> Iterator[tuple[Flavour, BinlogServer]]:
    yield "mariadb", MariadbServer(folder / "mariadb", settings=NOT_DURABLE)
    yield "mysql8", MysqlServer(folder / "mysql8", version="8.0", settings=NOT_DURABLE)
    yield "mysql9", MysqlServer(folder / "mysql9", version="9", settings=NOT_DURABLE)


def record() -> None:
    """Logs of each server with some rows of all its types: inserted, changed and deleted."""
    with tempfile.TemporaryDirectory() as folder:
        for flavour, server in _servers(Path(folder)):
            family = "mariadb" if flavour == "mariadb" else f"mysql-{flavour[-1]}"
            cases = [one for one in cases_of(flavour) if _is_short(one[1])]
            with server:
                server.run("CREATE DATABASE f")
                for at in range(0, len(cases), _COLUMNS):
                    data = _log_of(server, flavour, cases[at : at + _COLUMNS])
                    keep("binlog", f"{family}-types-{at // _COLUMNS}.bin", data)


def _is_short(case: Case) -> bool:
    texts = (case.definition, *case.values[:_ROWS])
    return not any("REPEAT" in text or len(text) > _LONG for text in texts)


def _log_of(server: BinlogServer, flavour: Flavour, cases: list[tuple[str, Case]]) -> bytes:
    rows = insert_statements("t", cases)[:_ROWS]
    values = ", ".join(row.partition(" VALUES ")[2] for row in rows)
    with server.connect(database="f") as session, session.cursor() as cursor:
        cursor.execute("SET sql_mode = ''")
        if flavour == "mariadb":
            cursor.execute("SET binlog_annotate_row_events = OFF")
        cursor.execute("DROP TABLE IF EXISTS t")
        cursor.execute("FLUSH BINARY LOGS")
        cursor.execute(create_statement("t", cases))
        cursor.execute(f"INSERT INTO t VALUES {values}")  # noqa: S608  our own constants
        cursor.execute("UPDATE t SET id = id + 10")
        cursor.execute("DELETE FROM t WHERE id > 11")
        session.commit()
    name = server.rows("SHOW BINARY LOGS")[-1][0]
    return (server.data / str(name)).read_bytes()


def of_logs() -> None:
    """Rows and compressed payloads out of the recorded logs."""
    paths = [*sorted((GOLDEN / "binlog").glob("*.bin")), *sorted((CORPUS / "binlog").glob("*.bin"))]
    for path in paths:
        family = next(number for name, number in _VERSIONS.items() if path.name.startswith(name))
        maps: dict[bytes, bytes] = {}
        kinds = set()
        for event in read_events(path.read_bytes()):
            if event.code == 19:
                maps[event.body[:6]] = event.body
            elif event.code in _KINDS and event.code not in kinds:
                table_map = maps[event.body[:6]]
                try:
                    images = _images(event.code, event.body, table_map, path)
                except Misconfigured:  # Of a temporal format that is refused.
                    images = event.body
                kinds.add(event.code)
                kind = _KINDS[event.code]
                data = mysql.framed(family, kind, table_map, images)
                keep("rows", f"{path.stem}-{kind}", data)
            elif event.code == 40:
                keep("compressed", f"{path.stem}-payload", b"p" + event.body)
            elif event.code in (166, 167, 168):
                keep("compressed", f"{path.stem}-{event.code}", b"r" + event.body)


def _images(code: int, body: bytes, table_map: bytes, path: Path) -> bytes:
    versions = ("9.7.4", "8.0.15", "10.11.19-MariaDB-log")
    family = next(number for name, number in _VERSIONS.items() if path.name.startswith(name))
    columns = len(parse_table_map(table_map, server=versions[family]).table.columns)
    at = 8 + (int.from_bytes(body[8:10], "little") if code >= _ROW_VERSION_2 else 0)
    bitmaps = 2 if _KINDS[code] == 1 else 1
    return body[at + 1 + bitmaps * ((columns + 7) // 8) :]


STATEMENTS = (
    "CREATE TABLE `d`.`t` (id INT PRIMARY KEY, v VARCHAR(9) DEFAULT 'x''y' COMMENT 'a;b') ENGINE=x",
    "ALTER TABLE t ADD COLUMN (a INT NOT NULL DEFAULT 5, b DECIMAL(10,2) DEFAULT 1.5), DROP b",
    "ALTER TABLE t CHANGE a b TIMESTAMP(3) DEFAULT '2024-01-01 00:00:00', RENAME COLUMN c TO d",
    "ALTER TABLE t ADD e ENUM('a','b') DEFAULT 'b' AFTER id, MODIFY f BIGINT UNSIGNED FIRST",
    "ALTER TABLE t EXCHANGE PARTITION p WITH TABLE s, ALGORITHM=INPLACE, LOCK=NONE",
    "/*!50000 DROP TABLE IF EXISTS */ a, `b`.`c` /* by hand */ CASCADE",
    "RENAME TABLE a TO b, c.d TO e.f; -- done",
    "TRUNCATE TABLE t",
    "XA START X'6f6e65',X'',7",
    "SAVEPOINT `a b`",
    "CREATE TABLE t AS SELECT 1",
    "SET STATEMENT max_statement_time=1 FOR DROP TABLE `d`.`t`",
    "ANALYZE TABLE t",
    "CREATE OR REPLACE INDEX i ON t (a) /*M!100301 WAIT 5 */",
)
TOML = """pipeline = "shop"
[source]
url = "postgresql://u@127.0.0.1/shop"
tables = ["public.*"]
[store]
url = "file:///srv/store"
[warehouse]
url = "file:///srv/warehouse"
[capture]
flush_interval_s = 0.5
[tables."public.o*"]
mode = "history"
"""
GTIDS = (
    "t3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:7,3e11fa47-71ca-11e1-9e33-c80aa9429563:tag:1-3",
    "m0-1-5,7-99-18446744073709551615",
    "t",
)


def _json() -> Iterator[bytes]:
    """Documents as MySQL stores them: numbers, texts, nested containers, small and large."""
    yield b""
    yield b"\x04\x01"
    yield b"\x05" + struct.pack("<h", -5)
    yield b"\x0b" + struct.pack("<d", 1.25e17)
    yield b'\x0c\x05a"\\\n\x01'
    array = b"\x02\0\x0c\0\x04\x01\0\x0c\x0a\0\x01x"
    body = struct.pack("<HHHH", 18, 1, 19, 2) + b"\x05\x01\0"
    body += b"\x02" + struct.pack("<H", 21) + b"abc" + array
    yield b"\0" + struct.pack("<HH", 2, 4 + len(body)) + body
    yield b"\x03" + struct.pack("<II", 1, 13) + b"\x07" + struct.pack("<i", -70000)
    yield b"\x0f\xf6\x07\x04\x02\x80\x00\x01\x32"
    yield b"\x0f\x0c\x08" + struct.pack("<Q", 0x19B1C20000000000)


def _streams() -> Iterator[bytes]:
    """What pgoutput sends: relations of many types, rows, controls, a mark."""
    types = (16, 17, 20, 21, 23, 25, 700, 701, 1082, 1114, 1184, 1700, 1009, 3904, 2249)
    texts: tuple[str, ...] = ("t", "\\x6162", "1", "2", "3", "text", "1.5", "NaN", "2024-01-01")
    texts += ("2024-01-01 00:00:00", "infinity", "1.50", '{a,"b,c",NULL}', "[1,5)", '(1,"x y",)')
    head = b"R" + struct.pack(">I", pg.RELATION) + b"public\0t\0d"
    columns = [
        bytes([place == 4]) + f"c{place}\0".encode() + struct.pack(">Ii", oid, 655366)
        for place, oid in enumerate(types)
    ]
    relation = head + struct.pack(">H", len(types)) + b"".join(columns)
    row = [text.encode() for text in texts]
    some = [None if place % 3 else value for place, value in enumerate(row)]
    some[4] = b"3"
    changes = [
        pg.insert(row),
        pg.update(row, old_key=some),
        pg.update([pg.UNCHANGED if place == 5 else v for place, v in enumerate(row)], old_row=row),
        pg.delete(old_key=some),
    ]
    whole = [pg.begin(7), relation, *changes, pg.commit(5000)]
    yield postgres.framed(whole)
    yield postgres.framed([pg.begin(7), relation, *[changes[0]] * 40, pg.commit(5000)])
    mark = pg.logical_message("tideline", b"5f0c H token 1700000000000000 00ff")
    table = pg.described(pg.RELATION, "public", "a", "id", "v")
    small = [pg.insert([b"1", b"x"]), pg.delete(old_key=[b"1", None])]
    yield postgres.framed(
        [pg.begin(8), table, mark, *small, pg.truncate(pg.RELATION), pg.commit(6000)]
    )
    yield postgres.framed(
        [b"Y" + struct.pack(">I", 9) + b"public\0mood\0", b"O" + bytes(8) + b"o\0"]
    )


def of_postgres() -> None:
    """Streams, their single messages, values and chunks."""
    streams = list(_streams())
    keep_all("pgoutput", streams)
    messages = {one for stream in streams for one in postgres.split_messages(stream)}
    rare = sorted(one for one in messages if one[:1] not in (b"I", b"U", b"D"))
    keep_all("pgmessage", rare)
    texts = (
        *("t\0f\0maybe", "\\x00ff\0\\x", "-5\07\099999", "9223372036854775807\0x"),
        *("NaN\0-Infinity\01e5\01.5", "12.34\0-0.01\0NaN", "2024-02-29\0infinity\00044-01-01 BC"),
        *("2024-01-01 00:00:00.123456+00", "2024-01-01 24:00:00\0294276-12-31 23:59:59"),
    )
    keep_all("pgvalues", [bytes([place]) + text.encode() for place, text in enumerate(texts)])
    line = b'1,t,\\x00ff,5,6,1.5,2.50,2024-01-01,2024-01-01 00:00:00+00,"2024-01-01 00:00:00"\n'
    keep_all("pgcopy", [line, line + b'2,,"",,,,"a ""b"",\nc",,,\n', b""])
    keep_all("pgmarks", ["5f0c H token 1700000000000000 00ff", "5f0c P t 1 a", "x"])


def of_documents() -> None:
    """Documents that have no golden file."""
    schema = {"table": "public.t", "columns": [], "key": []}
    keep_all("schema", [encode_schema(SCHEMA), json.dumps(schema)])
    keep_all("rebuild", [encode_rebuild(RebuildRecord("public.t", 3, "5f0c", 1, Mode.HISTORY))])
    head = {"version": 1, "requires": []}
    warehouse = {"kind": "warehouse", "url": "file:///w", "ended": {"public.t": 1}}
    keep_all("consumer", [json.dumps({**warehouse, **head})])
    pause = {"version": 1, "command_id": "c1", "action": "pause", "requests": ["r1"]}
    tune = {"version": 1, "command_id": "c2", "action": "tune", "chunk_rows": 5}
    keep_all("command", [json.dumps(pause), json.dumps(tune)])
    status = WorkerStatus("w", "shop", "live", "host", 7, 1, 3, 4, 5)
    keep_all("worker-status", [msgspec.json.encode(status)])
    commit = [
        {"commitInfo": {"operation": "MERGE", "userMetadata": "{}", "operationMetrics": {}}},
        {"txn": {"appId": "shop/5f0c/public.orders/0", "version": 7}},
        {"add": {"path": "x", "dataChange": True}},
    ]
    restore = {"commitInfo": {"operation": "RESTORE", "operationParameters": {"version": 3}}}
    lines = ("\n".join(map(json.dumps, one)) for one in (commit, [restore]))
    keep_all("delta-commit", lines)
    keep_all("properties", ['{"changes":["version 4: UPDATE"],"seq":5}', "{}", ""])


def of_people() -> None:
    """What people write, and a part."""
    keep_all("settings", [TOML, "", "a = [[[[1]]]]"])
    keep_all("environment", ["pipeline=x", 'source__tables=["a.*"]', "merge={}", "capture__x=1"])
    urls: tuple[str, ...] = (
        "postgresql://u:p%40@h:5432/d?sslmode=require",
        "redis://:p@h:6379/0?db=1",
    )
    urls += ("s3://bucket/prefix", "file:///w", "mysql://u@h/?ssl-mode=REQUIRED")
    places = (0, 1, 2, 3, 0)
    keep_all("urls", [bytes([at]) + url.encode() for at, url in zip(places, urls, strict=True)])
    keep_all("patterns", ["public.*", '"a.b".[a-z]?*\npublic.t', "*.*"])
    keep_all("keys", ['1,"a ""b"""\n2,c\n', '["a", 1]\n"x"\n', "a, b"])
    keep_all("names", ["public.t", '"a""b".c', "decimal(12,2)", "16/B374D848", "int64"])
    rows = [(seq, Row(SCHEMA.table, "c", {"id": seq, "customer": f"c{seq}"})) for seq in (1, 2, 3)]
    table: pa.Table = arrow_part(SCHEMA, rows)
    keep_all("part", [write_part(table)])


def main() -> None:
    if "--servers" in sys.argv[1:]:
        record()
    of_logs()
    keep_all("json", _json())
    keep_all("statements", [b"\x2d\0" + text.encode() for text in STATEMENTS])
    keep_all("gtids", [*GTIDS, b"e" + GtidSet.parse(GTIDS[0][1:]).encode()])
    of_postgres()
    of_documents()
    of_people()


if __name__ == "__main__":
    main()
